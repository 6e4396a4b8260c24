"""The processes that trained a run, as its manifest notes them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from sparc.machine import code_commit, processor, thread_flags, usable_cores

PACKAGES = ("sparc-rl", "jax", "jaxlib", "equinox", "optax", "mujoco", "gymnasium", "numpy")


def session(updates: int, workers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe this process and machine, and how many workers it has, if any."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "from_updates": updates,
        "command": sys.argv,
        "commit": code_commit(),
        "machine": {"system": platform.platform(), "processor": processor(), "cores": usable_cores()},
        "flags": thread_flags(),
        "versions": {"python": platform.python_version(), **package_versions(PACKAGES)},
        **(workers or {}),
    }


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return which versions of these packages are installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in what two sessions differ that shows in the last bits; what an older version did not note is equal."""
    workers = before.get("workers", 0)
    collected = [f"the session before collected with {workers} worker{'s' * (workers > 1)}"] if workers else []
    return collected + [
        f"{name} is {value or 'not set'} and was {old[name] or 'not set'}"
        for part in ("versions", "machine", "flags")
        for old in [before.get(part, {})]
        for name, value in now[part].items()
        if name in old and old[name] != value
    ]
