"""What benches tell of races and workers, with which options, and how matrix products are counted."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparc
from sparc import cli
from sparc.cli import bench, benches
from sparc.config import PRESETS
from sparc.training.workers import processes

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

    monkeypatch.setattr(benches, "rate", once)
    monkeypatch.setenv(bench.ALONE, "1")
    return run


@pytest.mark.usefixtures("torcs")
def test_a_race_tells_the_simulators_memory_over_steps_and_cars(measure: Callable[..., dict[str, Any]]) -> None:
    asked = ("rollout", "--env", CARS, "--method", "only-obs", "--preset", "racing")
    num_envs = PRESETS["racing"]["num_envs"]
    assert measure(*asked)["env_steps"] == num_envs
    found = measure(*asked, "--steps", "16e3")
    assert 16_000 <= found["env_steps"] < 16_000 + num_envs
    assert num_envs <= found["context_changes"] < 3_000  # nobody steers: within seconds every car is given up once
    before, after = found["simulator_mb"]["before"], found["simulator_mb"]["after"]
    assert 4.0 < before < 1_000.0 and abs(after - before) < 2.0


def test_memory_is_that_of_the_processes_started() -> None:
    here = benches.simulator_memory() or 0.0
    held = [sys.executable, "-c", "x = b'x' * 50_000_000; print(flush=True); input()"]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert 50.0 <= (benches.simulator_memory() or 0.0) - here < 100.0
        process.kill()


@pytest.mark.slow
def test_evaluations_are_timed_with_a_runs_own_policy(
    measure: Callable[..., dict[str, Any]], tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", **{**tiny, "updates": 20, "evaluate_every": 20})
    loaded = []
    real = sparc.runs.load.load
    monkeypatch.setattr("sparc.runs.load.load", lambda *run: loaded.append(run) or real(*run))
    found = measure("evaluate", str(run))
    assert loaded == [(run,)]
    told = {name: found[name] for name in ("env", "method", "run", "cells")}
    assert told == {"env": BOAT, "method": "only-obs", "run": str(run), "cells": 441}
    assert found["seconds"] > 0 and found["env_steps"] > 441


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("learner", "RUN"), "only `sparc bench evaluate` and `sparc bench time-to-return` take a run, not `learner`"),
        (("evaluate", "RUN", "RUN2"), "`sparc bench evaluate` takes one run, not 2"),
        (("evaluate", "RUN", "--method", "rma"), "--method does not go with a run"),
        (("evaluate", "RUN"), "RUN is not a run directory"),
        (("replay", "--steps", "100"), "--steps is for `sparc bench rollout`"),
        (("train", "--return", "100"), "--return is for `sparc bench time-to-return`, not for `train`"),
        (("time-to-return", "--return", "100"), "time-to-return needs a run, for example"),
        (("time-to-return", "RUN"), "time-to-return needs --return, for example"),
        (("time-to-return", "RUN", "--return", "much"), "--return must be a number, not 'much'"),
        (("time-to-return", "RUN", "--return", "nan"), "--return must be a finite number"),
        (("time-to-return", "RUN", "--return", "100"), "RUN is not a run directory"),
        (("time-to-return", "RUN", "--return", "100", "--method", "rma"), "--method does not go with a run"),
        (("rollout", "--steps", "many"), "--steps must be a whole number"),
        (("train", "--workers", "4"), "--workers is for `sparc bench workers`, not for `train`"),
        (("rollout", "--seconds", "4"), "--seconds is for `sparc bench workers` and `sparc bench device`"),
        (("device", "--workers", "4"), "--workers is for `sparc bench workers`, not for `device`"),
        (("device", "--env", CARS), f"{CARS} has no real-time twin: choose one of {BOAT}, "),
        (("workers", "--workers", "0"), "--workers must be at least 1, not 0"),
        (("workers", "--workers", "1e4"), "workers must be a whole number from 0 to 4,096"),
        (("workers", "--env", CARS), f"{CARS} has no real-time twin: choose one of {BOAT}, "),
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


@pytest.mark.process
@pytest.mark.slow
def test_workers_are_measured_beside_the_learner_alone(
    measure: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparc.cli import bench_workers  # brings JAX

    monkeypatch.setattr(bench_workers, "SIMULATORS", (1,))
    monkeypatch.setattr(bench_workers, "TRAFFIC", (64,))
    asked = ("--env", BOAT, "--method", "only-obs", "--preset", "light", "--workers", "2", "--seconds", "4")
    found = measure("workers", *asked)
    real = found["real_time"]
    assert (real["workers"], real["restarts"]) == (2, 0) and 80 <= real["ticks"] < 140
    assert 10.0 < real["steps_per_s"] <= 30.0  # 20 on a machine that has the time
    assert 0 < real["ratio_range"][0] <= real["ratio"] <= real["ratio_range"][1]
    assert 0 < real["median_pause_ms"] <= real["longest_pause_ms"]
    assert 20.0 < real["worker_mb"] < 200.0 and 0 < real["daemons_core_share"] < 1
    assert real["within_budget"].keys() == real["budgets"].keys() <= real.keys()
    assert found["simulators"][0]["steps_per_s"] > 100.0
    assert found["traffic"][0]["workers"] == 64 and found["traffic"][0]["arrived_share"] > 0.2
    assert not left_behind()


@pytest.mark.process
@pytest.mark.slow
def test_a_robots_loop_does_not_notice_that_its_learner_stands_still(
    measure: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparc.cli import bench_device  # brings JAX

    monkeypatch.setattr(bench_device, "STOP_SECONDS", 2.0)
    found = measure("device", "--env", BOAT, "--method", "only-obs", "--preset", "light", "--seconds", "4")
    beside, stopped = found["beside_the_loop"], found["learner_stopped"]
    assert found["period_s"] == 0.05 and 80 <= beside["ticks"] < 140
    assert 10.0 < beside["steps_per_s"] <= 30.0  # 20 on a machine that has the time
    assert beside["updates_per_step"] == pytest.approx(beside["updates_per_s"] / 20, rel=0.01)
    assert beside["weights_age_updates"] > 0 and 20.0 < beside["worker_mb"] < 200.0 < beside["learner_mb"]
    assert stopped["seconds"] >= 2.0  # it did stand still,
    assert stopped["steps_waiting"] > 20 and stopped["steps_taken"] > 40  # and the robot did not: 40 of 2 s, at least,
    assert stopped["steps_lost"] == stopped["restarts"] == 0  # all of which are there
    assert not left_behind()


def left_behind() -> list[str]:
    """Return the names of the processes started here that are still there, without the browser of other tests."""
    names = [processes.name_of(one) for one in processes.descendants()]
    return [name for name in names if not name.startswith("chrom")]


def test_made_up_traffic_is_what_workers_send() -> None:
    import numpy as np

    from sparc.training.replay import Replay
    from sparc.training.workers.traffic import Noise

    length, episode = 4, 12
    replay = Replay(
        None, capacity=1_000, num_envs=2, obs_size=3, action_size=2, context_size=1, history_length=length, n_step=1,
        discount=0.9,
    )  # fmt: skip
    noises = [Noise((3, 2, 1), length, episode, (1, worker, 0, 0)) for worker in range(3)]
    sent = [block for _ in range(6) for noise in noises for block in noise.blocks(5, "", 0)]
    assert sum(map(replay.put, sent)) == 3 * 6 * 5 == replay.total
    first = [(len(block.past), len(block.rows) - 1, block.ended) for block in sent if block.stream[1] == 0]
    assert first[:5] == [(0, 5, False), (4, 5, False), (4, 2, True), (0, 3, False), (3, 5, False)]
    assert np.isfinite(replay.sample(np.random.default_rng(0), (2, 4), history=True, next_history=False).obs).all()


def test_products_are_those_of_an_update() -> None:
    """Worked out by hand for Only Obs: layers and heads of actor (o), critics (o, a), forwards and backwards."""
    import numpy as np

    from sparc.config import make_config
    from sparc.methods import get_method
    from sparc.methods.batch import Batch
    from sparc.methods.spec import Spec

    obs, action, batch, width = 3, 2, 5, 7

    def counted(**values: Any) -> int:
        config = make_config({"method": "only-obs", "env": "any", "width": width, "num_quantiles": 4,
                              "batch_size": batch, "chunk": 10, **values})  # fmt: skip
        method = get_method("only-obs")(config, Spec(obs, action, (0.0,), (1.0,)))
        drawn = [np.zeros((10, batch, *shape), np.float32) for shape in ((obs,), (action,), (), (), (obs,), (1,), (1,))]
        return benches.flops(benches.products(method, Batch(*drawn, None, None)))

    def forward(size_in: int, size_out: int) -> int:
        return 2 * batch * (size_in * width + 3 * width * width + width * size_out)

    actor, critic = forward(obs, 2 * action), forward(obs + action, 4)
    first = 2 * batch * width  # per input: what a first layer's input costs
    critics = (
        actor + 2 * critic + 2 * (3 * critic - first * (obs + action))
    )  # next action, targets, critics with gradient
    actors = 3 * actor - first * obs + 2 * 2 * critic  # its own gradient, and that of its action through both critics
    assert counted() == critics + actors
    assert counted(policy_delay=2) == 2 * critics + actors


def test_a_cold_product_has_new_weights_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    used: list[tuple[int, ...]] = []
    real = np.matmul

    def matmul(a: Any, b: Any, out: Any) -> Any:
        used.append((id(a), id(b), id(out)))
        return real(a, b, out=out)

    def five(call: Callable[[], Any], seconds: float = 0.0) -> float:
        for _ in range(5):
            call()
        return 100.0

    monkeypatch.setattr(np, "matmul", matmul)
    monkeypatch.setattr(benches, "rate", five)
    shape = benches.Counter({(4, 512, 512): 2})
    assert benches.sgemm_gflops(shape) == benches.sgemm_gflops(shape, cold=True) == 2 * 4 * 512 * 512 * 100 / 1e9
    warm, cold = used[:5], used[5:]
    assert len(set(warm)) == 1
    assert [len({call[i] for call in cold}) for i in range(3)] == [1, 5, 1]
    assert benches.COLD_BYTES // (4 * 512 * 512) == 8
