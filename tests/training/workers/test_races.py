"""Races in a worker: the simulator is a process of its own, and dies with its worker."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pooling import Session, wait_for

import sparc
from sparc.training.workers import processes

pytestmark = [pytest.mark.torcs, pytest.mark.process]
CODE = """
import sys, time
from sparc.envs.registry import get_env
from sparc.runs.stages import Lineage, Stage
from sparc.training.workers.rollout import Rollout, RolloutSetup, Task

entry = get_env("RacePowerMass-forza-v0")
setup = RolloutSetup(entry.id, {}, Lineage((Stage(),)), entry.context_space.fingerprint(), entry.revision, 0, 1, 5, 50,
                     ".", num_envs=2)
rollout = Rollout()
rollout.begin(setup)
print("jax" in sys.modules, flush=True)
time.sleep(600)
"""


def test_the_simulator_dies_with_its_worker(torcs: Any, tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline().strip() == "False"  # and no JAX
        simulators = processes.descendants(worker.pid)
        assert simulators
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        wait_for(lambda: not any(processes.is_alive(simulator) for simulator in simulators), 30)
    finally:
        worker.kill()
        worker.communicate()


def test_a_race_trains_through_a_pool_and_a_killed_simulator_is_replaced(
    torcs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    session = Session(monkeypatch)

    def story() -> None:
        session.wait_for(session.running)
        session.learns()
        worker = session.rows()[0]["pid"]
        simulators = processes.descendants(worker)
        assert simulators
        processes.kill(simulators)
        session.wait_for(lambda: any("was lost (it was ended by SIGKILL)" in note for note in session.notes))
        session.arrives()
        row = session.rows()[0]
        assert (row["pid"], row["restarts"]) == (worker, 0)  # the worker itself has lived on

    fields = {**tiny, "num_envs": 2, "replay_capacity": 4000, "evaluate_every": 50_000}
    session.run(
        lambda: sparc.train(
            "only-obs", "RacePowerMass-forza-v0", preset="mujoco", run_dir=tmp_path / "run", workers=1,
            report=session.report, updates=10**8, **fields,
        ),
        story,
    )  # fmt: skip
