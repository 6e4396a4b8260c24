"""How many workers a session has and where they run; a session's own choice, not a part of the run's config."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparc.errors import UserError, in_bytes
from sparc.runs.run import Run

MOST_WORKERS = 4_096
WORKER_BYTES = 80e6  # of memory, at least: NumPy, Gymnasium, the simulator
CONNECT_SECONDS = 5.0
LOCAL = "local"  # instead of HOST:PORT: this machine, whatever the session before had
ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")


@dataclass(frozen=True)
class WorkerOptions:
    """Workers of one session; 0 of them: the learner's own process collects."""

    count: int = 0
    cluster: str | None = None  # HOST:PORT of a Ray cluster; None: on this machine

    def check(self) -> WorkerOptions:
        """Refuse what cannot be, before anything is created."""
        if not isinstance(self.count, int) or isinstance(self.count, bool) or not 0 <= self.count <= MOST_WORKERS:
            raise UserError(f"workers must be a whole number from 0 to {MOST_WORKERS:,}, not {self.count!r}.")
        if self.cluster is not None and not self.count:
            raise UserError("--cluster needs workers: add --workers N, or leave it out.")
        if not self.count:
            return self
        if importlib.util.find_spec("ray") is None:
            raise UserError(
                "Workers need Ray, which is not installed: pip install 'sparc-rl[distributed]', or go on without: "
                "--workers 0."
            )
        if self.cluster is not None:
            check_address(self.cluster)
        else:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if (needed := self.count * WORKER_BYTES) > memory:
                raise UserError(
                    f"{self.count:,} workers need at least {in_bytes(needed)} of memory, the machine has "
                    f"{in_bytes(memory)}: choose fewer, or a --cluster."
                )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what the manifest notes of them; nothing without workers."""
        if not self.count:
            return {}
        return {"workers": self.count} | ({} if self.cluster is None else {"cluster": self.cluster})


NO_WORKERS = WorkerOptions()


def resolve(count: int | None, cluster: str | None) -> WorkerOptions:
    """Return the options of a new run's first session."""
    return WorkerOptions(0 if count is None else count, None if cluster == LOCAL else cluster).check()


def resolve_again(run: Run, count: int | None, cluster: str | None) -> WorkerOptions:
    """Return the options of a further session: what is not given is as the one before had it."""
    before: Mapping[str, Any] = next(iter(run.manifest()["sessions"][-1:]), {})
    if count is None:
        count = before.get("workers", 0)
    if cluster is None and count:
        cluster = before.get("cluster")
    return resolve(count, cluster)


def check_address(address: str) -> None:
    """Refuse what is no HOST:PORT, or where nothing answers."""
    found = ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) < 2**16:
        raise UserError(f"--cluster takes HOST:PORT, for example 10.0.0.5:6379, or {LOCAL}, not '{address}'.")
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:  # the latter where a name is too long
        said = getattr(error, "strerror", None) or "no answer"
        raise UserError(
            f"No Ray cluster answers at {address} ({said}): start one there with `ray start --head "
            f"--node-ip-address {found[1]} --port {found[2]}`, correct --cluster, or go on without: --workers 0."
        ) from None
