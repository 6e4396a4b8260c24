"""What the machine is and what of it may be used."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT = 1 << 30  # bytes


def usable_cores() -> int:
    """Count the cores that this process may use; NPROC, which XLA heeds as well, can limit them."""
    if (limit := os.environ.get("NPROC", "")).isdecimal() and int(limit) > 0:
        return int(limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Let glibc keep what is freed instead of giving it back to the system at once.

    A chunk's histories are tens of megabytes, which come and go hundreds of times a minute. Mapped anew each time,
    every page of them costs a fault, in all up to a third of the training's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, KEPT)
        mallopt(TRIM_THRESHOLD, KEPT)


def processor() -> str:
    """Name the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
