"""What a pool leaves behind when it is killed is ended and removed, and nothing else. No Ray in here."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pooling import wait_for

from sparc.training.workers import link, processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def folder_in(parent: Path, name: str) -> Path:
    """Return a new folder with the name of a pool's."""
    folder = parent / f"{link.PREFIX}{name}"
    folder.mkdir(mode=0o700)
    return folder


def test_folders_whose_learner_or_pool_lives_stay(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    learners, pools, nobodys, others = (folder_in(tmp_path, name * 8) for name in "abcd")
    held = link.hold(learners)
    with link.hold(pools) as lock:  # as the pool of a learner that was killed has it
        started.append(subprocess.Popen(SLEEP, pass_fds=[lock.fileno()]))
    for folder in (nobodys, others):
        link.hold(folder).close()
    (others / link.LOCK).write_text("another machine")  # whose locks may not reach this one
    inside = {name: folder / "r" for name, folder in (("its", nobodys), ("pool's", pools))}
    for place in inside.values():
        started.append(subprocess.Popen([*SLEEP, f"--session_dir={place}"]))
    started.append(subprocess.Popen([*SLEEP, f"{nobodys}/r"]))  # an editor, for example: no option names it
    foreign = folder_in(tmp_path, "other")  # too short for a pool's
    (foreign / link.LOCK).write_bytes(link.boot())

    link.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([learners, pools, others, foreign])
    assert started[1].wait(60) == -9
    time.sleep(0.2)
    assert [process.poll() for process in (started[0], started[2], started[3])] == [None, None, None]

    held.close()
    started[0].kill()
    started[0].wait()
    link.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([others, foreign]) and started[2].wait(60) == -9


def test_a_file_system_without_locks_is_swept_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path, "a" * 8)

    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", none)
        link.hold(folder).close()
    link.sweep(tmp_path)
    assert folder.exists()


def test_processes_below_one_whose_main_thread_has_ended_are_found(started: list[subprocess.Popen[bytes]]) -> None:
    """As below a killed raylet, whose other threads take a moment on a busy machine."""
    code = (
        "import ctypes, subprocess, threading, time; "
        f"subprocess.Popen({SLEEP!r}); threading.Thread(target=time.sleep, args=(600,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    started.append(parent := subprocess.Popen([sys.executable, "-c", code]))
    own = [one for one in processes.descendants() if one.pid == parent.pid]
    wait_for(lambda: not any(map(processes.is_alive, own)), 60)
    assert parent.poll() is None  # its other thread lives
    (child,) = processes.descendants(parent.pid)
    assert child in processes.descendants()
    processes.kill([child])
    wait_for(lambda: not processes.is_alive(child), 60)
    assert os.getpid() not in [one.pid for one in processes.descendants()]
