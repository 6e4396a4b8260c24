"""What the machine is and what of it may be used."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def usable_cores() -> int:
    """Count the cores that this process may use; NPROC, which XLA heeds as well, can limit them."""
    if (limit := os.environ.get("NPROC", "")).isdecimal() and int(limit) > 0:
        return int(limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Name the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
