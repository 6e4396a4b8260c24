"""Processes below this one, so that a pool can end everything that Ray has started, however Ray itself is."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


class Process(NamedTuple):
    """A process and when it began, which tells it from a later one with the same number."""

    pid: int
    began: int  # clock ticks since the machine started


def keep_orphans() -> None:
    """Become the parent of all processes below this one whose own parent dies; Linux only."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int | None = None) -> list[Process]:
    """Return the live processes below one, by default this one; nothing where the system does not tell.

    A process counts as dead once its main thread has ended, and has its children until all other threads have, too.
    """
    found: dict[int, list[tuple[Process, bool]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if (fields := _stat(int(folder.name))) is not None:
            process = Process(int(folder.name), int(fields[19]))
            found.setdefault(int(fields[1]), []).append((process, fields[0] != "Z"))
    below, parents = list[Process](), [os.getpid() if pid is None else pid]
    while parents:
        children = found.get(parents.pop(), [])
        below += [child for child, alive in children if alive]
        parents += [child.pid for child, _ in children]
    return below


def is_alive(process: Process) -> bool:
    """Return whether a process is still there and no zombie."""
    fields = _stat(process.pid)
    return fields is not None and fields[0] != "Z" and int(fields[19]) == process.began


def name_of(process: Process) -> str:
    """Return the name of a process, as the system has it."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


def working_in(folder: Path) -> list[Process]:
    """Return our live Ray processes that were started for a folder: an option of theirs names a place in it."""
    place, found = os.fsencode(folder) + b"/", []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            named = any(word.partition(b"=")[2].startswith(place) for word in words if word.startswith(b"--"))
            if named and process.stat().st_uid == os.getuid() and (fields := _stat(int(process.name))):
                found.append(Process(int(process.name), int(fields[19])))
    return found


def kill(processes: list[Process]) -> None:
    """End processes at once; those that are gone already are left alone."""
    for process in processes:
        if is_alive(process):
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)


def kill_descendants() -> None:
    """End everything below this process, also what is started meanwhile."""
    for _ in range(10):
        if not (below := descendants()):
            return
        kill(below)


def reap(besides: list[Process]) -> None:
    """Let go of ended processes that became our children when their parents died, but not of our own."""
    own = {process.pid for process in besides}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid not in own and (fields := _stat(pid)) is not None and fields[:2] == ["Z", str(os.getpid())]:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


def remove_folder(folder: Path) -> None:
    """Remove a folder in which processes or threads that are ending may still write."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process from its state on: state, parent, …, the 20th is when it began."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
