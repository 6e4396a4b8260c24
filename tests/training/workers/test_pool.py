"""Workers on this machine with a real Ray, and real kills: the learner goes on, whatever dies."""

import json
import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pooling import Session, wait_for

import sparc
from sparc.errors import RunFailure
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.replay import Replay
from sparc.training.workers import processes, source
from sparc.training.workers.messages import Limits
from sparc.training.workers.processes import Process

pytestmark = [pytest.mark.process, pytest.mark.slow]
BOAT = "DriftingBoat-v0"
ENDLESS = 10**8


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(source, "LIMITS", Limits(hang=4.0, room=0.5))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # other tests run beside this one
    return Session(monkeypatch)


def below(process: Process | None = None) -> dict[str, Process]:
    """Return the processes below the pool by name."""
    return {processes.name_of(found): found for found in processes.descendants(process.pid if process else None)}


def test_whatever_dies_the_learner_goes_on(session: Session, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = tmp_path / "run"
    fields = {**tiny, "evaluate_every": 50_000, "log_every": 100, "replay_capacity": 4000}
    below_pools: list[Process] = []

    def kill(process: Process, number: int = signal.SIGKILL) -> None:
        assert process.pid > 1
        os.kill(process.pid, number)

    def story() -> None:
        session.wait_for(lambda: len(session.running()) == 2)
        session.learns()
        link = session.source.link
        assert link is not None and "ray" not in sys.modules  # the learner
        below_pools.extend(processes.descendants(link.process.pid))
        assert stat.S_IMODE((link.folder / "token").stat().st_mode) == 0o600
        assert stat.S_IMODE(link.folder.stat().st_mode) == 0o700
        found = {row["pid"]: Path(f"/proc/{row['pid']}/maps").read_text() for row in session.rows()}
        assert not any("jaxlib" in maps for maps in found.values())  # a real worker

        # a worker dies: another one takes its place
        victim = session.rows()[0]
        os.kill(victim["pid"], signal.SIGKILL)
        session.wait_for(lambda: len(session.running()) == 2 and session.rows()[0]["restarts"] >= 1)
        assert session.rows()[0]["pid"] != victim["pid"]
        session.arrives()

        # one hangs: it is ended after its deadline
        hung = session.rows()[1]["pid"]
        os.kill(hung, signal.SIGSTOP)
        session.wait_for(lambda: session.rows() and session.rows()[1]["restarts"] >= 1)
        session.wait_for(lambda: not Path(f"/proc/{hung}").exists() or len(session.running()) == 2)
        session.arrives()

        # the raylet, the GCS and the pool itself: a new pool
        for victim_name in ("raylet", "gcs_server", "pool"):
            link = session.source.link
            assert link is not None
            below_pools.extend(processes.descendants(link.process.pid))
            pool = Process(link.process.pid, 0)
            kill(pool if victim_name == "pool" else below(pool)[victim_name])
            session.learns()  # it does not care
            session.wait_for(lambda old=link: session.source.link not in (None, old))
            session.wait_for(lambda: len(session.running()) == 2)
            session.arrives()
            assert not link.folder.exists()

    session.run(
        lambda: sparc.train("sparc", BOAT, run_dir=run, workers=2, report=session.report, updates=ENDLESS, **fields),
        story,
    )

    said = " ".join(session.notes)
    for part in ("its process died", "no answer for ", "Ray's raylet died", "Ray's gcs_server died"):
        assert part in said
    assert session.source.link is None and "ray" not in sys.modules
    wait_for(lambda: not any(map(processes.is_alive, below_pools)), 30)
    assert not below().keys() & {"raylet", "gcs_server"}
    # what was delivered is in the checkpoint, the workers' numbers are in the metrics
    found = Run.open(run)
    number = found.updates()
    arrays, _ = checkpoint.load(found.checkpoints / str(number))
    assert arrays["collector.counts"][0] == session.source.steps == arrays["replay.count"].sum()
    assert not [name for name in arrays if name.startswith("collector.env")]
    lines = [line for line in found.records() if line["kind"] == "train"]
    names = {"workers", "workers_steps_per_s", "weights_age", "achieved_steps_per_update"}
    assert any(names <= line.keys() for line in lines)  # a new pool's workers have no weights yet
    assert found.manifest()["sessions"][-1]["workers"] == 2
    table = json.loads((run / "workers.json").read_text())
    assert [row["worker"] for row in table["rows"]] in ([0, 1], [])


def test_a_pool_that_stands_still_is_replaced_and_nothing_arriving_is_noted(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    monkeypatch.setattr(source, "SILENT_SECONDS", 6.0)
    monkeypatch.setattr(source, "QUIET_SECONDS", 2.0)

    def story() -> None:
        session.wait_for(lambda: len(session.running()) == 1)
        link = session.source.link
        assert link is not None
        pool = next(found for found in processes.descendants() if found.pid == link.process.pid)
        everything = [pool, *processes.descendants(pool.pid)]
        os.kill(pool.pid, signal.SIGSTOP)
        session.wait_for(lambda: any("it was silent for 6 s" in note for note in session.notes))
        session.learns()
        session.wait_for(lambda: session.source.link not in (None, link) and session.running())
        session.arrives()
        session.wait_for(lambda: not any(map(processes.is_alive, everything)))

    fields = {**tiny, "evaluate_every": 50_000, "replay_capacity": 4000}
    session.run(
        lambda: sparc.train(
            "only-obs", BOAT, run_dir=tmp_path / "run", workers=1, report=session.report, updates=ENDLESS, **fields
        ),
        story,
    )
    assert any("No experience has arrived for 2 s" in note for note in session.notes)


def test_pools_that_die_again_and_again_end_the_run_which_is_saved(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    monkeypatch.setattr(source, "MOST_POOLS", 3)
    monkeypatch.setattr(source, "rest_seconds", lambda failures: 0.1)
    killed: set[int] = set()

    def kill_all() -> None:
        while not session.over:
            link = session.source.link if session.sources else None
            if link is not None and link.process.pid not in killed:
                killed.add(link.process.pid)
                link.process.kill()
            time.sleep(0.05)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(RunFailure, match=r"The pool of workers failed 3 times in a row: .* `sparc resume "):
            sparc.train(
                "only-obs", BOAT, run_dir=tmp_path / "run", workers=1, report=session.report, updates=100, **tiny
            )
    finally:
        session.over = True
        killer.join()
    assert len(killed) == 3
    assert Run.open(tmp_path / "run").updates() == 0


def test_a_pool_that_dies_during_a_checkpoint(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    saved, flush = [], Replay.flush

    def kill_and_flush(replay: Replay) -> None:
        saved.append(session.updates)
        if len(saved) == 2:  # of the first, at update 0, nobody delivers yet
            link = session.source.link
            assert link is not None
            link.process.kill()
            link.process.wait()
        flush(replay)

    monkeypatch.setattr(Replay, "flush", kill_and_flush)
    fields = {**tiny, "evaluate_every": 100, "replay_capacity": 4000}
    run = sparc.train(
        "only-obs", BOAT, run_dir=tmp_path / "run", workers=1, report=session.report, updates=400, **fields
    )
    assert any("The pool of workers ended" in note for note in session.notes) and len(saved) >= 5
    for number in checkpoint.numbers(run / "checkpoints"):
        checkpoint.load(run / "checkpoints" / str(number))
    assert Run.open(run).updates() == 400


def table(run: Path) -> list[dict[str, Any]]:
    """Return what `sparc workers` shows of each worker."""
    file = run / "workers.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


def ray_folder(found: list[Process]) -> Path:
    """Return the folder that a raylet among these processes works in."""
    raylet = next(process for process in found if processes.name_of(process) == "raylet")
    words = Path(f"/proc/{raylet.pid}/cmdline").read_text().split("\0")
    return next(Path(word.partition("=")[2]) for word in words if word.startswith("--session_dir=")).parent


def test_nothing_is_left_when_the_learner_is_killed_and_the_run_goes_on_with_any_number_of_workers(
    sparc_start: Any, sparc_cli: Any, tmp_path: Path, tiny_yaml: Path, session: Session
) -> None:
    how = (
        "--config",
        tiny_yaml,
        "--run-dir",
        "run",
        "--updates",
        10**6,
        "--evaluate-every",
        100,
        "--replay-capacity",
        4000,
    )
    in_memory = set(Path("/dev/shm").glob("*"))
    learner = sparc_start("train", "rma", BOAT, *how, "--workers", 2, "--expert-updates", 50)
    run = tmp_path / "run"
    wait_for(lambda: any(row["delivered"] for row in table(run)) and Run.open(run).updates() >= 200)
    shown = sparc_cli("workers", "run")
    assert shown.returncode == 0 and "of 2 workers running on this machine" in shown.stdout
    all_below = processes.descendants(learner.pid)
    assert {"raylet", "gcs_server"} <= {processes.name_of(found) for found in all_below}
    folder = ray_folder(all_below)
    learner.kill()
    learner.wait()
    wait_for(lambda: not any(processes.is_alive(found) for found in all_below), 10)  # as the documentation promises
    wait_for(lambda: not folder.exists(), 30)
    assert not [file for file in set(Path("/dev/shm").glob("*")) - in_memory if "plasma" in file.name]

    # as before, with another number, and without workers
    updates = Run.open(run).updates()
    for workers, further in ((1, 100), (0, 100)):
        going = sparc_start("resume", "run", "--workers", workers)
        wait_for(lambda start=updates + further: Run.open(run).updates() >= start)
        going.send_signal(signal.SIGINT)
        out, err = going.communicate(timeout=60)
        assert going.returncode == 130 and "continue with: sparc resume run" in out, err
        assert "not bit for bit" in err
        updates = Run.open(run).updates()
    sessions = Run.open(run).manifest()["sessions"]
    assert [entry.get("workers", 0) for entry in sessions] == [2, 1, 0]
    assert checkpoint.load(run / "checkpoints" / str(updates))[1]["phase"] == "adapter"


def test_what_learner_and_pool_leave_when_they_are_killed_at_once_goes_with_the_next_session(
    sparc_start: Any, tmp_path: Path, tiny_yaml: Path
) -> None:
    how = ("--config", tiny_yaml, "--run-dir", "run", "--updates", 10**6, "--replay-capacity", 4000, "--workers", 1)
    learner = sparc_start("train", "only-obs", BOAT, *how)
    run = tmp_path / "run"
    wait_for(lambda: any(row["delivered"] for row in table(run)))
    below = processes.descendants(learner.pid)
    pool = next(found for found in below if "sparc.training.workers.pool" in command(found))
    folder = ray_folder(below).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for pid in (pool.pid, learner.pid):
        os.kill(pid, signal.SIGSTOP)
    learner.kill()
    os.kill(pool.pid, signal.SIGKILL)
    learner.wait()
    assert folder.exists()

    going = sparc_start("resume", "run")
    wait_for(lambda: not folder.exists() and not any(processes.is_alive(found) for found in below))
    wait_for(lambda: any(row["delivered"] for row in table(run)))
    going.send_signal(signal.SIGINT)
    _, err = going.communicate(timeout=60)
    assert going.returncode == 130, err


def command(process: Process) -> str:
    """Return the command line of a process."""
    return Path(f"/proc/{process.pid}/cmdline").read_text().replace("\0", " ")
