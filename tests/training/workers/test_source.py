"""The learner's side of a pool that cannot be started, and of experience that comes too late. No Ray in here."""

import dataclasses
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pooling import wait_for

import sparc
from sparc.envs.registry import get_env
from sparc.errors import RunFailure, UserError
from sparc.runs import checkpoint
from sparc.runs.load import make_spec
from sparc.runs.run import Run
from sparc.training.blocks import RANDOM
from sparc.training.layout import open_replay
from sparc.training.workers import link, processes, source
from sparc.training.workers.messages import Begin, Blocks, Limits
from sparc.training.workers.rollout import Rollout, RolloutSetup

BOAT = "DriftingBoat-v0"


class SilentLink(link.Link):
    """A link to a process that waits, whatever it is told."""

    module = "silent"


def sockets() -> set[str]:
    """Return the open sockets of this process."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            found.add(os.readlink(file))
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.parametrize("fault", ["folder", "process", "thread"])
def test_a_pool_that_cannot_be_started_is_tried_again_and_then_the_run_is_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any], fault: str
) -> None:
    full = tmp_path / "full"
    full.mkdir()

    def folder() -> Path:
        if fault == "folder":
            raise RunFailure("no temporary folder with a short name can be written")
        return Path(tempfile.mkdtemp(dir=full))

    def popen(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def thread(**_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(link, "private_folder", folder)
    monkeypatch.setattr(source, "MOST_POOLS", 3)
    monkeypatch.setattr(source, "rest_seconds", lambda failures: 0.1)
    if fault == "process":
        monkeypatch.setattr(link, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
    if fault == "thread":
        fake = SimpleNamespace(Thread=thread, Condition=threading.Condition, Lock=threading.Lock)
        monkeypatch.setattr(link, "threading", fake)
    said: list[str] = []
    before = sockets()
    with pytest.raises(RunFailure, match=r"failed 3 times in a row: it cannot be started: .* `sparc resume ") as caught:
        sparc.train(
            "only-obs", BOAT, run_dir=tmp_path / "run", workers=2, updates=100, **tiny,
            report=lambda record: said.append(record.get("note", "")),
        )  # fmt: skip
    assert {"folder": "no temporary folder", "process": "the disk is full", "thread": "new thread"}[fault] in str(
        caught.value
    )
    assert len([note for note in said if "it cannot be started" in note and "Learning goes on" in note]) == 2
    assert list(full.iterdir()) == []
    assert sockets() == before
    assert Run.open(tmp_path / "run").updates() == 0
    assert checkpoint.is_sound(tmp_path / "run" / "checkpoints" / "0")


def test_a_session_learns_nothing_before_its_workers_have_delivered(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a replay, so it could: the workers of a short session would come too late."""
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    before = Run.open(path).updates()
    monkeypatch.setattr(source, "MOST_POOLS", 3)
    monkeypatch.setattr(source, "rest_seconds", lambda failures: 0.1)

    class Nobody:
        def __init__(self, begin: Begin) -> None:
            raise RunFailure("there is no room")

    monkeypatch.setattr(source.PooledSource, "link_type", Nobody)
    with pytest.raises(RunFailure, match="failed 3 times in a row: it cannot be started: there is no room"):
        sparc.resume(path, before + 100, workers=1)
    assert Run.open(path).updates() == before


def test_an_environment_that_a_script_has_registered_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: dict[str, Any]
) -> None:
    entry = dataclasses.replace(get_env(BOAT), module="__main__")
    monkeypatch.setattr(source, "get_env", lambda id: entry)
    with pytest.raises(UserError, match=f"workers cannot import {BOAT}, which this script .* train my_env:{BOAT}"):
        sparc.train("sparc", BOAT, run_dir=tmp_path / "run", workers=1, **tiny)
    assert not list(tmp_path.iterdir())
    code = "import sparc; sparc.register_env('Own-v0', make='Pendulum-v1', apply=print, " \
        "context_space=sparc.ContextSpace.box(m=('kg', (0, 1), (0, 1)))); " \
        "print(sparc.envs.registry.get_env('Own-v0').module)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__main__"]


def test_returns_of_another_phase_are_not_counted() -> None:
    class Linked(deque[Any]):
        def take(self, wait: float) -> Any:
            if not self:
                raise source.queue.Empty
            return self.popleft()

    pooled = source.PooledSource.__new__(source.PooledSource)
    pooled.untaken, pooled.recent, pooled.worker_counters = deque(), deque(), {}
    pooled.episodes, pooled.phase = 0, "adapter"
    pooled.link = Linked(  # type: ignore[assignment]
        [Blocks(0, "expert", [], [1.0, 2.0], {"a": 1}), Blocks(1, "adapter", [], [3.0], {"a": 2})]
    )
    pooled.drain()
    assert pooled.episodes == 1 and list(pooled.recent) == [3.0]
    assert pooled.counters() == {"a": 3}


def test_a_local_run_whose_first_session_with_workers_was_killed_goes_on_without_them(
    finished: Path, tmp_path: Path
) -> None:
    """The checkpoint has environments in the middle of episodes, the replay what workers delivered later."""
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    run = Run.open(path)
    arrays, _ = checkpoint.load(run.checkpoints / "20")
    steps = int(arrays["collector.counts"][0])
    assert "collector.obs" in arrays

    worker = Rollout()
    entry = get_env(BOAT)
    setup = RolloutSetup(
        BOAT, {}, run.lineage, run.space.fingerprint(), entry.revision, 7, 2, run.config.history_length, 50, ".",
    )  # fmt: skip
    worker.begin(setup)
    replay = open_replay(run.replay, run.config, make_spec(worker.venv))
    replay.seek(checkpoint.section(arrays, "replay."))
    rng = np.random.default_rng(0)
    for _ in range(7):
        obs = worker.obs
        unit = rng.uniform(-1.0, 1.0, (1, 2)).astype(np.float32)
        contexts = worker.venv.contexts.copy()
        next_obs, reward, terminated, truncated, _ = worker.venv.step(unit)
        worker.obs = np.asarray(next_obs, np.float32)
        worker.writer.add(obs, unit, reward, terminated, truncated, worker.obs, contexts, worker.venv.contexts)
    added = sum(replay.put(block) for block in worker.writer.take("train", RANDOM))
    replay.flush()
    worker.venv.close()
    assert added == 7

    said: list[str] = []
    sparc.resume(path, 30, lambda record: said.append(record.get("note", "")), workers=0)
    assert any("7 steps that workers delivered after checkpoint 20 are kept" in note for note in said)
    arrays, _ = checkpoint.load(run.checkpoints / "30")
    expected = steps + 7 + 10 * run.config.steps_per_update
    assert arrays["collector.counts"][0] == arrays["replay.count"].sum() == expected


def test_a_pool_that_is_killed_leaves_nothing_though_the_learner_does_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner may be compiling for a minute, and be killed before it is done."""
    (tmp_path / "silent.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    begin = Begin(None, [1], "nowhere:1", False, {}, 0, Limits())  # type: ignore[arg-type]
    made = SilentLink(begin)
    assert made.folder.exists()
    made.process.kill()
    wait_for(lambda: not made.folder.exists(), 20)
    assert made.inbox.get(timeout=5) is None
    made.close(wait=True)  # as the learner does, when it looks: once more does no harm


def test_a_folder_is_removed_in_which_somebody_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, remove, times = tmp_path / "folder", shutil.rmtree, []
    folder.mkdir()

    def interrupted(path: Path, **how: Any) -> None:
        remove(path, **how)
        times.append(path)
        if len(times) < 3:  # somebody was quicker
            (path / "r").mkdir(parents=True)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    processes.remove_folder(folder)
    assert times == [folder] * 3 and not folder.exists()
