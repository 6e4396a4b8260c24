"""What benches of races tell: memory over steps and cars, the time of a trained policy, and what is missing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparc
from sparc import bench, cli

BOAT, CARS = "DriftingBoat-v0", "RaceCars-g-track-1-v0"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run a bench in this process, every rate by one call."""

    def once(call: Callable[[], Any], seconds: float = 0.0) -> float:
        call()
        return 100.0

    def run(*arguments: str) -> dict[str, Any]:
        assert cli.main(["bench", *arguments]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    monkeypatch.setattr(bench, "rate", once)
    monkeypatch.setenv(bench.ALONE, "1")
    return run


@pytest.mark.usefixtures("torcs")
def test_a_race_tells_the_simulators_memory_over_steps_and_cars(measure: Callable[..., dict[str, Any]]) -> None:
    asked = ("rollout", "--env", CARS, "--method", "only-obs", "--preset", "racing")
    assert measure(*asked)["env_steps"] == 32
    found = measure(*asked, "--steps", "5e3")
    assert 5_000 <= found["env_steps"] < 5_000 + 32
    assert 32 <= found["context_changes"] < 1_000  # nobody steers: within seconds every car is given up once
    before, after = found["simulator_mb"]["before"], found["simulator_mb"]["after"]
    assert 4.0 < before < 1_000.0 and abs(after - before) < 2.0


def test_memory_is_that_of_the_processes_started() -> None:
    here = bench.simulator_memory() or 0.0
    held = [sys.executable, "-c", "x = b'x' * 50_000_000; print(flush=True); input()"]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert 50.0 <= (bench.simulator_memory() or 0.0) - here < 100.0
        process.kill()


def test_evaluations_are_timed_with_a_runs_own_policy(
    measure: Callable[..., dict[str, Any]], tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", **{**tiny, "updates": 20, "evaluate_every": 20})
    loaded = []
    real = sparc.loading.load
    monkeypatch.setattr("sparc.loading.load", lambda *run: loaded.append(run) or real(*run))
    found = measure("evaluate", str(run))
    assert loaded == [(run,)]
    told = {name: found[name] for name in ("env", "method", "run", "cells")}
    assert told == {"env": BOAT, "method": "only-obs", "run": str(run), "cells": 441}
    assert found["seconds"] > 0 and found["env_steps"] > 441


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("learner", "RUN"), "only `sparc bench evaluate` takes a run, not `learner`"),
        (("evaluate", "RUN", "--method", "rma"), "--method does not go with a run"),
        (("evaluate", "RUN"), "RUN is not a run directory"),
        (("replay", "--steps", "100"), "--steps is for `sparc bench rollout`"),
        (("rollout", "--steps", "many"), "--steps must be a whole number"),
    ],
)
def test_what_does_not_go_together(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_simulator_is_a_mistake_of_the_user(
    sparc_cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = sparc_cli("bench", "rollout", "--env", CARS, "--preset", "racing", env={"PATH": "/nowhere"})
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("sparc: racing needs TORCS") and len(done.stderr.splitlines()) == 1
