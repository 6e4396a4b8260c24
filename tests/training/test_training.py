"""Whole training runs, in this process: determinism, resuming, checkpoints, phases, and what an environment breaks."""

import importlib
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import sparc
from sparc.acting.evaluate import Evaluation, evaluate
from sparc.cli import main
from sparc.config import Config, make_config
from sparc.envs.registry import get_env
from sparc.errors import RunFailure, UserError
from sparc.methods import all_methods
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training import loop as training
from sparc.training.evaluations import EVALUATION_SEED

BOAT, CHEETAH = "DriftingBoat-v0", "WindHalfCheetah-v5"
# The ring of rows wraps within these runs; RMA's second phase begins at 100.
WRAPPING = {
    "replay_capacity": 200,
    "steps_per_update": 10,
    "evaluate_every": 20,
    "log_every": 10,
}
EXPERT = {"rma": {"expert_updates": 100}}  # by method
FIRST, TOTAL = 120, 160  # updates: asked for at first, and after the run was extended

PENDULUM = """
import sparc

def set_mass(env, context):
    env.m = float(context[0])

space = sparc.ContextSpace.box(m=("kg", (0.75, 1.25), (0.5, 1.5)))
sparc.register_env("ResumedPendulum-v0", make="Pendulum-v1", apply=set_mass, context_space=space, max_episode_steps=30)
"""

# An environment that goes wrong at its k-th step, as long as `wrong` says how.
UNRELIABLE = """
import gymnasium as gym
import numpy as np
import sparc

wrong, wrong_at = "", 0
values = {"observation": np.array([np.nan, 0.0]), "shape": np.zeros(3), "short": np.zeros(1), "reward": np.inf}

class Unreliable(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(-9, 9, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.drift = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if wrong == "reset":
            raise OverflowError("the motor does not start")
        self.place, self.steps = self.np_random.normal(size=2), 0
        return self.place.copy(), {}

    def step(self, action):
        self.steps += 1
        self.place = np.clip(self.place + 0.1 * action[0] + 0.1 * self.drift, -9, 9)
        observation, reward = self.place.copy(), -float(np.abs(self.place).sum())
        if wrong and self.steps == wrong_at:
            if wrong == "exception":
                raise OverflowError("the motor is on fire")
            observation, reward = (observation, values[wrong]) if wrong == "reward" else (values[wrong], reward)
        return observation, reward, False, False, {}

def set_drift(env, context):
    if wrong == "apply":
        raise ValueError("no such drift")
    env.drift = float(context[0])

space = sparc.ContextSpace.box(drift=("m/s", (-1, 1), (-2, 2)))
gym.register("UnreliableBase-v0", Unreliable, max_episode_steps=40)
sparc.register_env("Unreliable-v0", make="UnreliableBase-v0", apply=set_drift, context_space=space)
"""


Compare = Callable[[Path, Path], None]


class Crash(Exception):
    """Ends a run without a warning, as a power cut would."""


def crash_at(updates: int) -> Callable[[dict[str, Any]], None]:
    def report(record: dict[str, Any]) -> None:
        if record.get("updates", -1) >= updates:
            raise Crash

    return report


def newest(run: Path) -> Path:
    return run / "checkpoints" / str(checkpoint.numbers(run / "checkpoints")[-1])


def metrics(run: Path) -> list[dict[str, Any]]:
    return Run.open(run).records()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, tiny_wrapping: dict[str, Any]) -> Callable[[str], Path]:
    """A finished run of a method on the boat, without an interruption; made once, not to be changed."""
    done: dict[str, Path] = {}

    def run(method: str) -> Path:
        if method not in done:
            folder = tmp_path_factory.mktemp("straight") / method
            done[method] = sparc.train(
                method, BOAT, run_dir=folder, updates=TOTAL, **tiny_wrapping, **EXPERT.get(method, {})
            )
        return done[method]

    return run


@pytest.fixture(scope="module")
def tiny_wrapping(tiny_fields: dict[str, Any]) -> dict[str, Any]:
    return {**tiny_fields, **WRAPPING}


# The same again


@pytest.mark.slow
def test_the_seed_decides_every_bit(
    straight: Callable[[str], Path], tmp_path: Path, tiny_wrapping: dict[str, Any], assert_same_run: Compare
) -> None:
    first = straight("sparc")
    again = sparc.train("sparc", BOAT, run_dir=tmp_path / "again", updates=TOTAL, **tiny_wrapping)
    assert_same_run(first, again)
    assert (first / "replay" / "rows.npy").read_bytes() == (again / "replay" / "rows.npy").read_bytes()
    other = sparc.train("oracle", BOAT, run_dir=tmp_path / "other", updates=TOTAL, seed=1, **tiny_wrapping)
    ours, theirs = (checkpoint.load(newest(run))[0] for run in (other, straight("oracle")))
    same = {name for name in ours if np.array_equal(ours[name], theirs[name])}
    assert not [name for name in same if "weight" in name and "optimisers" not in name]
    assert not same & {"collector.obs", "collector.history", "collector.env.rng", "collector.env.contexts"}


@pytest.mark.slow
@pytest.mark.parametrize("method", all_methods())
def test_an_interrupted_and_extended_run_is_the_straight_one(
    method: str,
    straight: Callable[[str], Path],
    tmp_path: Path,
    tiny_wrapping: dict[str, Any],
    assert_same_run: Compare,
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Crash):
        fields = {**tiny_wrapping, **EXPERT.get(method, {})}
        sparc.train(method, BOAT, run_dir=run, updates=FIRST, report=crash_at(90), **fields)
    assert newest(run).name == "80"
    sparc.resume(run)
    assert newest(run).name == str(FIRST)
    sparc.resume(run, updates=TOTAL)
    assert newest(run).name == str(TOTAL)
    assert_same_run(run, straight(method))
    starts = [session["from_updates"] for session in Run.open(run).manifest()["sessions"]]
    assert starts == [0, 80, FIRST]
    slots = np.load(run / "replay" / "rows.npy", mmap_mode="r").shape[1]
    assert (checkpoint.load(newest(run))[0]["replay.head"] > slots).all(), "the ring has not wrapped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "options"),
    [
        (BOAT, {"change_probability": 0.1}),
        (CHEETAH, {"change_probability": 0.1}),
        ("resumed_pendulum:ResumedPendulum-v0", {}),
    ],
)
def test_resuming_restores_every_kind_of_environment(
    env: str,
    options: dict[str, float],
    tmp_path: Path,
    tiny: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    assert_same_run: Compare,
) -> None:
    (tmp_path / "resumed_pendulum.py").write_text(PENDULUM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    fields = {**tiny, **WRAPPING, "env_options": options}
    straight = sparc.train("oracle", env, run_dir=tmp_path / "straight", updates=60, **fields)
    run = tmp_path / "run"
    with pytest.raises(Crash):
        sparc.train("oracle", env, run_dir=run, updates=40, report=crash_at(30), **fields)
    sparc.resume(run)
    sparc.resume(run, updates=60)
    assert_same_run(run, straight)
    then, now = (checkpoint.load(run / "checkpoints" / n)[0]["collector.env.contexts"] for n in ("40", "60"))
    assert not np.array_equal(then, now), "no context has changed on the way"


@pytest.mark.slow
def test_a_crash_before_the_first_update_costs_nothing(
    straight: Callable[[str], Path], tmp_path: Path, tiny_wrapping: dict[str, Any], assert_same_run: Compare
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Crash):
        sparc.train("oracle", BOAT, run_dir=run, updates=TOTAL, report=crash_at(0), **tiny_wrapping)
    sparc.resume(run)
    assert_same_run(run, straight("oracle"))


@pytest.mark.slow
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(
    straight: Callable[[str], Path], tmp_path: Path, tiny_wrapping: dict[str, Any], assert_same_run: Compare
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Crash):
        sparc.train("oracle", BOAT, run_dir=run, updates=TOTAL, report=crash_at(150), **tiny_wrapping)
    flip_a_bit(run / "checkpoints" / "140" / checkpoint.ARRAYS)
    records: list[dict[str, Any]] = []
    sparc.resume(run, report=records.append)
    (note,) = [record["note"] for record in records if "note" in record]
    assert f"{run}/checkpoints/140 is damaged" in note
    assert Run.open(run).manifest()["sessions"][-1]["from_updates"] == 120
    first = next(record for record in records if "note" not in record)
    assert first["evaluation"] == Run.open(run).evaluation(120)  # of the checkpoint that it goes on from
    assert_same_run(run, straight("oracle"))

    for number in checkpoint.numbers(run / "checkpoints"):
        flip_a_bit(run / "checkpoints" / str(number) / checkpoint.ARRAYS)
    with pytest.raises(RunFailure, match=r"No checkpoint in \S+ is sound"):
        sparc.resume(run, updates=TOTAL + 20)


@pytest.mark.slow
def test_a_run_whose_rates_fall_is_resumed_bit_for_bit_but_not_extended(
    tmp_path: Path, tiny_wrapping: dict[str, Any], assert_same_run: Compare
) -> None:
    fields = {**tiny_wrapping, **EXPERT["rma"], "final_lr_fraction": 0.0, "updates": TOTAL}
    straight = sparc.train("rma", BOAT, run_dir=tmp_path / "straight", **fields)
    run = tmp_path / "run"
    with pytest.raises(Crash):
        sparc.train("rma", BOAT, run_dir=run, report=crash_at(130), **fields)
    sparc.resume(run)
    assert_same_run(run, straight)
    with pytest.raises(UserError, match=r"fall until update 160.*train a longer run anew"):
        sparc.resume(run, updates=TOTAL + 20)
    assert Run.open(run).config.updates == TOTAL


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 4
    file.write_bytes(data)


# The run directory


def test_the_run_directory(straight: Callable[[str], Path], tiny_wrapping: dict[str, Any]) -> None:
    run = straight("sparc")
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == {
        "config.yaml", "manifest.json", "metrics.jsonl", "tensorboard", "replay", "checkpoints", "evaluations",
    }  # fmt: skip
    expected = make_config({"method": "sparc", "env": BOAT, "updates": TOTAL, **tiny_wrapping})
    assert yaml.safe_load((run / "config.yaml").read_text()) == expected.to_dict()
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["method"], manifest["env"], manifest["seed"]) == ("sparc", BOAT, 0)
    (session,) = manifest["sessions"]
    assert {"python", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "numpy"} <= session["versions"].keys()
    assert session["command"] and session["machine"]["cores"] >= 1
    assert list((run / "tensorboard").glob("events.*"))
    assert {path.name for path in newest(run).iterdir()} == {checkpoint.ARRAYS, checkpoint.POLICY, checkpoint.META}
    assert not list((run / "checkpoints").glob(".*")), "nothing half done is left"

    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["kind"] == "train"]
    assert [record["updates"] for record in trained] == list(range(10, TOTAL + 1, 10))
    assert [record["env_steps"] for record in trained] == [10 * n + 100 for n in range(10, TOTAL + 1, 10)]
    assert {"critic_loss", "actor_loss", "adapter_loss", "entropy", "updates_per_s"} <= trained[0].keys()
    evaluated = [record for record in records if record["kind"] == "evaluation"]
    assert [record["updates"] for record in evaluated] == list(range(20, TOTAL + 1, 20))
    for record in evaluated:
        returns = [record[f"return_{i}"] for i in range(3)]
        assert all(0 <= r <= 100 for r in [*returns, record["mean_return"]])


def test_what_is_logged_is_the_mean_over_the_choice_settings(straight: Callable[[str], Path]) -> None:
    run, space = straight("sparc"), get_env(BOAT).context_space
    meta = checkpoint.load_meta(newest(run))
    record = Run.open(run).evaluation(TOTAL)
    assert record is not None
    rows = evaluate(sparc.load(run, TOTAL), BOAT, space.evaluated, seed=EVALUATION_SEED, threads=1)
    np.testing.assert_array_equal([record[f"return_{i}"] for i in range(3)], rows.returns[:3])
    assert checkpoint.load_scores(meta)[TOTAL] == rows.returns[:3].tolist() and "return_3" not in record
    assert record["mean_return"] == checkpoint.load_choice(meta)[TOTAL] == rows.returns[3:].mean()
    assert len(rows.returns) == 3 + 16


def test_an_existing_run_is_not_touched(straight: Callable[[str], Path], tiny_wrapping: dict[str, Any]) -> None:
    run = straight("sparc")

    def look() -> dict[Path, tuple[int, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.rglob("*") if path.is_file()}

    before = look()
    with pytest.raises(UserError, match=r"exists: continue it with `sparc resume"):
        sparc.train("sparc", BOAT, run_dir=run, updates=TOTAL, **tiny_wrapping)
    assert look() == before


def test_a_run_in_use_is_refused(straight: Callable[[str], Path], tmp_path: Path) -> None:
    run = shutil.copytree(straight("oracle"), tmp_path / "run")
    owner = Run.open(run)
    owner.lock()
    with pytest.raises(UserError, match=r"in use by process \d+: stop it first") as error:
        sparc.resume(run, updates=TOTAL + 20)
    assert "\n" not in str(error.value)
    assert Run.open(run).config.updates == TOTAL, "refused, but its config was changed"
    owner.close()
    sparc.resume(run, updates=TOTAL + 20)
    assert newest(run).name == str(TOTAL + 20)


# Which checkpoints stay, and phases


def script(monkeypatch: pytest.MonkeyPatch, returns: list[list[float]], choice: list[float]) -> None:
    """Let the training evaluations return these in the predetermined settings and on average of the others."""
    left = iter([[*three, *[mean] * 16] for three, mean in zip(returns, choice, strict=True)])

    def scripted(policy: Any, env: str, contexts: np.ndarray, **_: Any) -> Evaluation:
        zeros = np.zeros(len(contexts), int)
        returns = np.array(next(left), float) if len(contexts) == 3 + 16 else 0.0 * zeros  # of a variant of the policy
        return Evaluation(("x", "y"), contexts, zeros == 0, zeros, returns, zeros, zeros > 0)

    monkeypatch.setattr("sparc.training.evaluations.evaluate", scripted)


def test_the_pareto_front_and_the_best_are_kept_and_the_best_is_loaded(
    tmp_path: Path, tiny_wrapping: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [[9, 0, 0], [0, 0, 0], [5, 5, 5], [0, 9, 0], [0, 1, 1], [1, 1, 1], [0, 2, 0], [0, 0, 1], [0, 0, 2]]
    choice = [9.5, 1, 2, 3, 9, 4, 7, 5, 6]
    script(monkeypatch, scores, choice)
    run = sparc.train("oracle", BOAT, run_dir=tmp_path / "run", updates=180, **tiny_wrapping)
    # the front, the best after 120 updates, which is not on it, and the newest two
    assert checkpoint.numbers(run / "checkpoints") == [20, 60, 80, 140, 160, 180]
    meta = checkpoint.load_meta(newest(run))
    assert checkpoint.load_scores(meta) == dict(zip(range(20, 181, 20), scores, strict=True))
    assert checkpoint.load_choice(meta) == dict(zip(range(20, 181, 20), choice, strict=True))
    assert [Run.open(run).choose(which) for which in ("best", "last", 80)] == [140, 180, 80]
    weights = checkpoint.load(run / "checkpoints" / "140")[0]["state.expert.trunk.head.weight"]
    np.testing.assert_array_equal(sparc.load(run).actor.trunk.head.weight, weights)
    with pytest.raises(UserError, match="has no checkpoint 40: it has 20, 60, 80, 140, 160, 180"):
        sparc.load(run, 40)


def test_before_its_last_third_a_run_has_the_best_of_all_that_there_are(
    tmp_path: Path, tiny_wrapping: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = [1.0, 3, 2, 0]
    script(monkeypatch, [[0, 0, updates] for updates in range(4)], choice)
    run = tmp_path / "run"
    with pytest.raises(Crash):
        sparc.train("oracle", BOAT, run_dir=run, updates=180, report=crash_at(90), **tiny_wrapping)
    assert checkpoint.numbers(run / "checkpoints") == [40, 60, 80] and Run.open(run).choose("best") == 40


@pytest.mark.slow
def test_a_run_of_before_the_choice_is_loaded_and_goes_on(
    tmp_path: Path, tiny_wrapping: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        script(patch, [[0, 0, 0], [5, 5, 4], [5, 4, 4], [0, 0, 9]], [8.0, 1, 2, 3])
        with pytest.raises(Crash):
            sparc.train("oracle", BOAT, run_dir=run, updates=180, report=crash_at(90), **tiny_wrapping)
    for number in checkpoint.numbers(run / "checkpoints"):
        folder = run / "checkpoints" / str(number)
        arrays, meta = checkpoint.load(folder)
        policy = checkpoint.read_arrays(folder, checkpoint.POLICY, meta)
        checkpoint.save(folder.parent, number, arrays, policy, {k: v for k, v in meta.items() if k != "choice"})
    assert checkpoint.load_choice(checkpoint.load_meta(newest(run))) == {
        20: 0.0, 40: pytest.approx(14 / 3), 60: pytest.approx(13 / 3), 80: 3.0,
    }  # fmt: skip
    assert Run.open(run).choose("best") == 40  # the mean of the scores
    with monkeypatch.context() as patch:
        script(patch, [[0, 0, 0]] * 5, [-1.0, -2, -4, -3, -5])
        sparc.resume(run)
    # scores and choice are not of one kind: what has a choice is preferred, however low it is
    assert Run.open(run).choose("best") == 160
    assert checkpoint.numbers(run / "checkpoints") == [40, 80, 160, 180]


@pytest.mark.slow
def test_rma_trains_only_the_adapter_on_the_best_expert(
    tmp_path: Path, tiny_wrapping: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expert, adapter = (
        [1.0, 7, 6, 4, 2],
        [3.0, 4, 9, 3, 1],
    )  # at 20, 40, …, 100; at 110, 120, 130, 150, 160
    script(monkeypatch, [[mean] * 3 for mean in expert + adapter], expert + adapter)
    run = sparc.train("rma", BOAT, run_dir=tmp_path / "run", updates=TOTAL, **tiny_wrapping, **EXPERT["rma"])
    # the best expert after 66 updates, the front, the best adapter after 140, which is one of the newest two
    assert checkpoint.numbers(run / "checkpoints") == [80, 130, 150, 160]
    arrays, meta = {}, {}
    for number in (80, 130, 160):
        arrays[number], meta[number] = checkpoint.load(run / "checkpoints" / str(number))
    assert [(meta[n]["phase"], meta[n]["expert_from"]) for n in (80, 130, 160)] == [
        ("expert", None), ("adapter", 80), ("adapter", 80),
    ]  # fmt: skip
    learned = [name for name in arrays[80] if name.startswith("state")]
    for earlier, later in ((80, 130), (130, 160)):
        changed = {name for name in learned if arrays[earlier][name].tobytes() != arrays[later][name].tobytes()}
        of_adapter = {n for n in learned if n.startswith(("state.adapter", "state.optimisers['adapter']"))}
        assert changed == of_adapter
    # phase two gathers its own experience: its replay begins anew
    assert arrays[130]["replay.floor"].min() > 0 == arrays[80]["replay.floor"].max()
    phases = [record["phase"] for record in metrics(run) if record["kind"] == "evaluation"]
    assert phases == ["expert"] * 5 + ["adapter"] * 5
    assert sparc.load(run).reads == "history" and sparc.load(run, 80).reads == "context"
    assert Run.open(run).choose("best") == 150


@pytest.mark.parametrize(
    "fields",
    [
        {"updates": 400_000, "expert_updates": 300_000},
        {"updates": 200_000, "expert_updates": 150_000},
        {"updates": 66_650, "expert_updates": 50_000, "evaluate_every": 5_000},
        {"updates": 53_350, "expert_updates": 40_000, "evaluate_every": 5_000},
        {"updates": 40_050, "expert_updates": 30_050},
    ],
    ids=str,
)
def test_the_second_phase_has_as_many_candidates_as_the_first(fields: dict[str, int]) -> None:
    config = make_config({"method": "rma", "env": BOAT, **fields})
    counts = []
    for phase in ("expert", "adapter"):
        begin, end = training.phase_span(config, phase)
        points = training.evaluation_points(config, begin, end)
        assert max(points) == end and all(begin < point <= end and point % config.chunk == 0 for point in points)
        counts.append((len(points), sum(3 * (point - begin) > 2 * (end - begin) for point in points)))
    assert counts[0] == counts[1]


def test_evaluations_are_never_further_apart_than_asked() -> None:
    long = make_config({"method": "rma", "env": BOAT, "updates": 400_000, "expert_updates": 100_000})
    assert training.evaluation_points(long, 100_000, 400_000) == set(range(110_000, 400_001, 10_000))
    short = make_config({"method": "rma", "env": BOAT, "updates": 300_100, "expert_updates": 300_000})
    assert training.evaluation_points(short, 300_000, 300_100) == {300_050, 300_100}
    alone = make_config({"method": "sparc", "env": BOAT, "updates": 25_000})
    assert training.evaluation_points(alone, 0, 25_000) == {10_000, 20_000, 25_000}


# What an environment breaks


@pytest.fixture
def unreliable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "unreliable_env.py").write_text(UNRELIABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("unreliable_env")
    monkeypatch.setattr(module, "wrong", "")
    monkeypatch.setattr(module, "wrong_at", 0)
    return module


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("observation", "returned NaN or infinity in an observation"),
        ("reward", "returned NaN or infinity in a reward"),
        ("shape", "(3,)"),
        ("short", "(1,)"),
        ("exception", ": the motor is on fire; run again with --debug"),
    ],
)
def test_a_broken_environment_is_named(
    wrong: str, words: str, unreliable: Any, tmp_path: Path, tiny_yaml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unreliable.wrong, unreliable.wrong_at = wrong, 7  # while actions are still random
    run = tmp_path / "run"
    command = ["train", "oracle", "unreliable_env:Unreliable-v0", "--config", tiny_yaml, "--run-dir", run]
    assert main([*map(str, command), "--updates", "100"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]  # behind those of progress
    assert line.startswith("sparc: Unreliable-v0 ") and words in line
    assert "at environment step 30" in line  # the seventh of five environments
    assert " with drift=" in line and f"`sparc resume {run} --allow-import`" in line
    assert (" (unreliable_env.py:" in line) == (wrong == "exception")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            "apply",
            r"apply of Unreliable-v0 failed with the context drift=.*no such drift \(unreliable_env.py:\d+\).*--debug",
        ),
        (
            "reset",
            r"Unreliable-v0 raised OverflowError at the reset .*\(unreliable_env.py:\d+\): the motor does not start; ",
        ),
    ],
)
def test_an_error_before_the_first_checkpoint_leaves_no_run(
    wrong: str, words: str, unreliable: Any, tmp_path: Path, tiny_yaml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unreliable.wrong = wrong
    (tmp_path / "mine").mkdir()
    for run in ("mine", "new/folder/run"):
        command = [
            "train",
            "oracle",
            "unreliable_env:Unreliable-v0",
            "--config",
            tiny_yaml,
            "--run-dir",
            tmp_path / run,
        ]
        assert main([*map(str, command), "--updates", "100"]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert re.search(words, line) and "checkpoint" not in line and "resume" not in line
    assert (tmp_path / "mine").is_dir() and not any((tmp_path / "mine").iterdir())  # a folder that was there stays
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_learning_that_breaks_down_asks_for_a_new_run_with_a_lower_rate(
    unreliable: Any, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = (
        r"NaN or infinite before update \d+, and would again in a resumed run.*sparc train.*--learning-rate 3e\+19\.$"
    )
    env, fields = "unreliable_env:Unreliable-v0", {**tiny, "num_quantiles": 1, "learning_rate": 1e20}
    with pytest.raises(RunFailure, match=remedy):
        sparc.train("oracle", env, run_dir=tmp_path / "run", updates=100, **fields)
    with pytest.raises(RunFailure, match=remedy):
        sparc.resume(tmp_path / "run")


@pytest.mark.slow
def test_a_run_goes_on_once_its_environment_is_repaired(
    unreliable: Any, tmp_path: Path, tiny: dict[str, Any], assert_same_run: Compare
) -> None:
    env = "unreliable_env:Unreliable-v0"
    straight = sparc.train("oracle", env, run_dir=tmp_path / "straight", updates=100, **tiny)
    unreliable.wrong, unreliable.wrong_at = "observation", 23  # while learning, before anything is evaluated
    run = tmp_path / "run"
    with pytest.raises(RunFailure, match="NaN or infinity in an observation at environment step 110"):
        sparc.train("oracle", env, run_dir=run, updates=100, **tiny)
    assert newest(run).name == "0"
    unreliable.wrong = ""
    sparc.resume(run)
    assert_same_run(run, straight)


def test_of_two_runs_that_begin_at_once_neither_takes_the_others_place(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configs = [make_config({"method": "oracle", "env": BOAT, **tiny, "width": width}) for width in range(8, 16)]
    with ThreadPoolExecutor(8) as pool:  # most of them within one second, which is all that a name tells
        runs = list(pool.map(Run.create, configs))
    assert len({run.path for run in runs}) == len(configs)
    assert [Run.open(run.path).config for run in runs] == configs

    def create(config: Config) -> bool:
        try:
            return bool(Run.create(config, tmp_path / "same"))
        except UserError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, configs)) == 1


FAULTS = """
import resource, sys
import numpy as np
from sparc.machine import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def use():
    np.ones(8_000_000).sum()
use(), use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep what is freed")
def test_memory_that_training_frees_is_used_again_without_a_page_fault() -> None:
    given, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("give back", "keep")
    )
    assert kept < given / 4, (kept, given)
