"""Children: they begin where their parent stopped, keep a share of what it saw, and leave it as it is."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jsonschema
import numpy as np
import pytest

import sparc
from sparc.acting.inference import ContextEstimator
from sparc.acting.policy import infer
from sparc.deploy import contract
from sparc.deploy.export import from_run
from sparc.envs.racing.torcs.installation import Installation
from sparc.errors import RunFailure, UserError
from sparc.files import Lock
from sparc.runs import checkpoint
from sparc.runs.load import load_with_psi
from sparc.runs.run import Run
from sparc.runs.stages import KEEP, Stage
from sparc.runs.tests import evaluate_run, read_written
from sparc.training.continual import make_child
from sparc.training.kept import old_rows, stage_folders
from sparc.training.loop import Trainer
from sparc.training.stages import stage_seed

BOAT = "DriftingBoat-v0"
NEW = {"x": (0.5, 1.0), "y": (0.5, 1.0)}
Compare = Callable[[Path, Path], None]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    fields = {**tiny_fields, "updates": 200, "final_lr_fraction": 0.0, "normalize_observations": True}
    return sparc.train("sparc", BOAT, run_dir=tmp_path_factory.mktemp("parent") / "run", **fields)


@pytest.fixture(scope="module")
def child(parent: Path) -> Path:
    before = contents(parent)
    made = sparc.continue_run(parent, NEW, updates=100, run_dir=parent.with_name("child"))
    assert contents(parent) == before
    return made


def contents(run: Path) -> dict[str, str]:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# Children


def test_a_child_begins_with_its_parents_policy(parent: Path, child: Path) -> None:
    run = Run.open(child)
    old, new = sparc.load(parent), sparc.load(child, 0)
    obs = np.array([[1.0, -2.0]])
    assert np.array_equal(old.act(obs), new.act(obs))
    assert new.spec.context_centre == old.spec.context_centre
    records = [record for record in run.records() if record["kind"] == "evaluation"]
    assert records[0]["updates"] == 0 and records[-1]["updates"] == 100
    assert records[0]["mean_return"] == pytest.approx((records[0]["stage_1_return"] + records[0]["stage_2_return"]) / 2)
    newest = Run.open(parent).evaluation(Run.open(parent).choose("best"))
    assert newest is not None and records[0]["stage_1_return"] == pytest.approx(newest["mean_return"], rel=1e-6)
    assert len(checkpoint.load_scores(checkpoint.load_meta(run.checkpoints / "100"))[100]) == 6  # of both stages
    manifest = run.manifest()
    assert manifest["continues"]["run"] == "run" and len(manifest["stages"]) == 2


def test_a_child_sees_observations_as_its_parent_does(parent: Path, child: Path) -> None:
    obs = [checkpoint.load(Run.open(run).checkpoints / number)[0] for run, number in ((parent, "200"), (child, "100"))]
    for name in ("norm.mean", "norm.variance"):
        found = [next(array for key, array in arrays.items() if key.endswith(name)) for arrays in obs]
        assert np.array_equal(*found) and np.abs(found[0]).max() > 0
    (count,) = (array for key, array in obs[1].items() if key.endswith("norm.count"))
    assert np.isinf(count)  # so a child that is resumed, or a child of it, does not move them either


def test_a_child_learns_from_its_own_region_and_the_kept_replay(child: Path) -> None:
    run = Run.open(child)
    trainer = Trainer(run, lambda record: None)
    try:
        batch = trainer.batches.sample(np.random.default_rng(0), (20, 8), history=8, next_history=False)
    finally:
        trainer.close()
        run.close()
    inside = run.space.train.contains(batch.context.reshape(-1, 2)).reshape(20, 8)
    assert inside[:, ~old_rows(KEEP, 8)].all(), "a new row is of another region"
    assert not inside[:, old_rows(KEEP, 8)].all()
    assert trainer.seed == stage_seed(run) != run.config.seed
    counts = {name: int(array) for name, array in checkpoint.flatten(trainer.state.optimisers, "").items()
              if name.endswith(".count")}  # fmt: skip
    assert 100 in counts.values() and 300 in counts.values()  # the schedule's own, and Adam's of both stages


def test_an_exported_child_says_what_all_stages_were_trained_on(child: Path) -> None:
    schema = json.loads((Path(contract.__file__).with_name("contract.schema.json")).read_text())
    made = from_run(Run.open(child)).contract
    jsonschema.validate(made | {"checksums": {"policy.safetensors": "0" * 64}}, schema)
    assert made["context"]["train"] == {"low": [0.5, 0.5], "high": [1.0, 1.0]}
    assert made["context"]["earlier"] == [{"low": [-0.5, -0.5], "high": [0.5, 0.5]}]


def test_the_child_of_a_child(child: Path, tmp_path: Path) -> None:
    shutil.copytree(child, copy := tmp_path / "child")
    grandchild = sparc.continue_run(copy, {"x": (-1.0, -0.5)}, keep=0.5, updates=50, run_dir=tmp_path / "grandchild")
    shutil.rmtree(copy)  # nothing outside of it is needed any more
    run = Run.open(grandchild)
    assert [folder.name for folder in stage_folders(run.replay)] == ["stage1", "stage2"]
    assert run.lineage.number == 3 and len(run.space.earlier) == 2
    _, stem = evaluate_run(run, 5, 1, "best", None)
    written = read_written(stem)
    assert len(written["stages"]) == 3 and set(written["summary"]) == {"ind", "ood"}
    sparc.resume(grandchild)
    assert sparc.load(grandchild).act(np.zeros((1, 2))).shape == (1, 2)


def test_nothing_kept(parent: Path, tmp_path: Path) -> None:
    run = sparc.continue_run(parent, NEW, keep=0, updates=50, run_dir=tmp_path / "run")
    assert not stage_folders(run / "replay")


@pytest.mark.parametrize("only_adapter", [True, False])
def test_rma_goes_on_with_both_phases_or_the_adapter_alone(
    tiny: dict[str, Any], tmp_path: Path, only_adapter: bool
) -> None:
    old = sparc.train("rma", BOAT, run_dir=tmp_path / "old", **tiny, updates=100)
    run = Run.open(sparc.continue_run(old, NEW, updates=100, only_adapter=only_adapter, run_dir=tmp_path / "run"))
    phases = [record["phase"] for record in run.records() if record["kind"] == "evaluation"]
    assert set(phases) == ({"adapter"} if only_adapter else {"expert", "adapter"})
    before, after = (checkpoint.load(folder)[0] for folder in (run.parent, run.checkpoints / str(run.updates())))
    same = {name for name in before if name.startswith("state.expert") and np.array_equal(before[name], after[name])}
    assert bool(same) == only_adapter
    sparc.resume(run.path)


def test_without_contexts_steps_are_stored_with_what_the_history_tells(
    parent: Path, tmp_path: Path, assert_same_run: Compare
) -> None:
    """The true contexts must not leak into the replay, and an interruption must not change the labels."""
    how: dict[str, Any] = {"no_context": True, "keep": 0, "updates": 100}
    whole = sparc.continue_run(parent, NEW, **how, run_dir=tmp_path / "whole")

    def interrupt(record: dict[str, Any]) -> None:
        if record.get("updates") == 50:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        sparc.continue_run(parent, NEW, **how, run_dir=tmp_path / "parts", report=interrupt)
    sparc.resume(tmp_path / "parts")
    assert_same_run(tmp_path / "parts", whole)

    run = Run.open(whole)
    trainer = Trainer(run, lambda record: None)
    batch = trainer.replay.sample(np.random.default_rng(0), (200,), history=True, next_history=True)
    trainer.close()
    run.close()
    policy, psi = load_with_psi(Run.open(parent), Run.open(parent).choose("best"))
    assert psi is not None
    estimator = ContextEstimator(psi, run.space)
    for contexts, history in ((batch.context, batch.history), (batch.next_context, batch.next_history)):
        assert contexts == pytest.approx(estimator.estimate(infer(policy.actor, history)), abs=1e-4)
    assert not run.space.train.contains(batch.context).all(), "a barely trained φ cannot know the region"


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("rma", "--no-context needs one phase, and RMA has 2"),
        ("history-input", "History Input learns without contexts as it is"),
        ("oracle", "Oracle observes the context"),
    ],
)
def test_who_cannot_read_contexts_back(method: str, says: str, tiny: dict[str, Any], tmp_path: Path) -> None:
    old = sparc.train(method, BOAT, run_dir=tmp_path / "old", **tiny, updates=100)
    with pytest.raises(UserError, match=says):
        sparc.continue_run(old, NEW, no_context=True, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_guard_keeps_the_parents_policy(parent: Path, tmp_path: Path) -> None:
    # learning this fast ruins the policy
    run = Run.open(
        sparc.continue_run(parent, NEW, updates=100, guard=True, learning_rate=0.3, run_dir=tmp_path / "run")
    )
    records = [record for record in run.records() if record["kind"] == "evaluation"]
    worse = [record for record in records if not record["accepted"]]
    assert worse, "the policy was not ruined"
    best = run.evaluation(run.choose("best"))
    assert best is not None and best["accepted"]
    for stage in ("stage_1_return", "stage_2_return"):
        assert best[stage] >= 0.99 * records[0][stage]


def test_races_go_on_in_another_physics_and_with_other_cars(
    torcs: Installation, tiny: dict[str, Any], tmp_path: Path
) -> None:
    fields = {**tiny, "num_envs": 10, "updates": 20}
    first = sparc.train("sparc", "RaceCars-g-track-1-v0", preset="mujoco", run_dir=tmp_path / "first", **fields)
    second = sparc.continue_run(first, variant="updated", updates=10, run_dir=tmp_path / "second")
    third = Run.open(sparc.continue_run(second, names=["ood"], keep=0.5, updates=10, run_dir=tmp_path / "third"))
    assert [stage.env_options.get("physics") for stage in third.lineage.stages] == [None, "updated", "updated"]
    record = third.records()[-1]
    assert {"stage_1_return", "stage_2_return", "stage_3_return", "ratio", "clean"} <= record.keys()
    own, *earlier = third.space.train, *third.space.earlier
    assert len(earlier) == 2 and not earlier[0].contains(own.low[None])[0]


WIND = sparc.ContextSpace.box(wind=("m/s", (-0.5, 0.5), (-1.0, 1.0)))


class Point(gym.Env[Any, Any]):
    """Stay at the origin; an environment that handles its context itself."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    context_space = WIND

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        given = (options or {}).get("context")
        self.context = self.draw() if given is None else np.array(given)
        self.place = self.np_random.uniform(-1, 1, 1)
        return self.place.astype(np.float32), {"context": self.context.copy()}

    def draw(self) -> Any:
        return self.context_space.sample(self.np_random)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + 0.1 * (action + self.context)
        return self.place.astype(np.float32), -abs(float(self.place[0])), False, False, {"context": self.context.copy()}


class Stubborn(Point):
    """The same, with contexts that are always drawn from the same region."""

    def draw(self) -> Any:
        return WIND.sample(self.np_random)


class Fixed(Point):
    """The same, with a context space that cannot be set."""

    @property
    def context_space(self) -> sparc.ContextSpace:
        return WIND


class Resized(Point):
    """The same, with as many observations as an option says."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**how)
        return np.repeat(obs, self.size), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, *rest = super().step(action)
        return np.repeat(obs, self.size), *rest


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (Fixed, {}, "cannot train on another region, its context_space cannot be set"),
        (Resized, {"size": 2}, "has 2 observations with these options, but the networks of .* are made for 1"),
    ],
)
def test_an_environment_that_a_child_cannot_have(
    kind: type[Point], options: dict[str, Any], says: str, tiny: dict[str, Any], tmp_path: Path
) -> None:
    id = f"Continued{kind.__name__}-v0"
    sparc.register_env(id, make=kind, context_space=WIND, max_episode_steps=20)
    old = sparc.train("only-obs", id, run_dir=tmp_path / "old", **tiny, updates=20)
    with pytest.raises(UserError, match=says):
        sparc.continue_run(old, {"wind": (0.9, 1.0)}, env_options=options, updates=10, run_dir=tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("kind", [Point, Stubborn])
def test_an_environment_of_ones_own(kind: type[Point], tiny: dict[str, Any], tmp_path: Path) -> None:
    id = f"Continued{kind.__name__}-v0"
    sparc.register_env(id, make=kind, context_space=WIND, max_episode_steps=20)
    old = sparc.train("only-obs", id, run_dir=tmp_path / "old", **tiny, updates=20)
    if kind is Stubborn:
        with pytest.raises(
            UserError, match=r"outside the region to train on: its reset must draw from self\.context_space"
        ):
            sparc.continue_run(old, {"wind": (0.9, 1.0)}, updates=10, run_dir=tmp_path / "new")
        assert not (tmp_path / "new").exists()
        return
    run = Run.open(sparc.continue_run(old, {"wind": (0.9, 1.0)}, updates=10, keep=0.5, run_dir=tmp_path / "new"))
    assert kind.context_space is WIND, "the class was changed"
    trainer = Trainer(run, lambda record: None)
    assert ((trainer.collector.venv.contexts >= 0.9) & (trainer.collector.venv.contexts <= 1.0)).all()
    trainer.close()
    run.close()


# A child is killed

KILLER = """
import os, signal, sys
what, path = sys.argv.pop(1), sys.argv.pop(1)

def watch(event, arguments):
    if event == what and any(str(word).endswith(path) for word in arguments[:2]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from sparc.cli import main
sys.exit(main())
"""


def test_killed_and_resumed_to_the_bit(
    parent: Path, child: Path, tmp_path: Path, sparc_start: Callable[..., subprocess.Popen[str]],
    assert_same_run: Compare,
) -> None:  # fmt: skip
    run = tmp_path / "run"
    region = ",".join(f"{name}={low}:{high}" for name, (low, high) in NEW.items())
    begin = ("continue", parent, "--train-region", region, "--updates", 100, "--run-dir", run)
    points = [
        ("open", "replay/stage1/cursor.safetensors"),  # half of what it keeps is copied
        ("os.rename", ".run.new"),  # all is there but the name
        ("open", ".0.new/checkpoint.json"),  # its first checkpoint has its arrays alone
        ("open", ".50.new/arrays.safetensors"),  # halfway
    ]
    for what, path in points:
        command = ("resume", run) if run.exists() else begin
        process = sparc_start(what, path, *command, command=(sys.executable, "-c", KILLER))
        _, errors = process.communicate(timeout=240)
        assert process.returncode == -signal.SIGKILL, f"no {what} {path}: {errors}"
    sparc.resume(run)
    assert_same_run(run, child)


# What cannot be


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--train-region", "z=0:1"), "unknown context feature 'z'"),
        (("--train-region", "x=0:5"), "reaches outside the test region"),
        (("--train-region", "x:0:5"), "takes feature=low:high, not 'x:0:5'"),
        (("--train-region", "x=0:1,x=0:1"), "has x twice"),
        (("--train-region", "x=a:1"), "must be a number, not 'a'"),
        (("--train-cars", "kart-03"), "have no names"),
        (("--train-region", "x=0:1", "--train-cars", "kart-03"), "--train-cars"),
        (("--physics", "updated"), "unknown test variant 'updated' of DriftingBoat-v0: there are none."),
        (("--keep", 1), "--keep must be a share of at least 0 and less than 1, not 1"),
        (("--keep", 0.01), "is less than a row"),
        (("--updates", 55), "--updates (55) must be a multiple of chunk (10)"),
        (("--only-adapter",), "SPARC trains in one phase: leave out --only-adapter"),
        (("--set", "width=32"), "width cannot be changed in a child"),
        (("--set", "updates=20"), "updates of a child are given by --updates"),
        (("--set", "env_options=1"), "env_options of a child are given by --env-options"),
        (("--set", "wdth=32"), "unknown config field 'wdth'"),
        (("--env-options", "speed=2"), "unknown option 'speed'"),
        (("--checkpoint", 7), "has no checkpoint 7"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(
    parent: Path, tmp_path: Path, options: tuple[Any, ...], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from sparc.cli import main

    before = contents(parent)
    assert main(["continue", str(parent), *map(str, options), "--run-dir", str(tmp_path / "run")]) == 2
    error = capfd.readouterr().err
    assert says in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir()) and contents(parent) == before


def broken(parent: Path, tmp_path: Path, what: str) -> Path:
    shutil.copytree(parent, copy := tmp_path / "copy")
    best = Run.open(copy).choose("best")
    if what == "replay":
        shutil.rmtree(copy / "replay")
    elif what == "rows":
        file = copy / "replay" / "rows.npy"
        data = bytearray(file.read_bytes())
        data[-2000::7] = bytes(len(data[-2000::7]))
        data[len(data) // 2 :: 11] = bytes(len(data[len(data) // 2 :: 11]))
        file.write_bytes(data)
    elif what == "empty":
        (copy / "replay" / "rows.npy").write_bytes(b"")
    elif what == "checkpoint":
        file = copy / "checkpoints" / str(best) / checkpoint.ARRAYS
        file.write_bytes(file.read_bytes()[:-3])
    return copy


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("replay", "has no replay to keep from, .* is missing: add --keep 0"),
        ("rows", "The replay of .*copy, or what it keeps .* is damaged: continue without it, --keep 0"),
        ("empty", "The replay of .*copy, or what it keeps .* is damaged: continue without it, --keep 0"),
        ("checkpoint", "is damaged"),
    ],
)
def test_a_damaged_parent(parent: Path, tmp_path: Path, what: str, says: str) -> None:
    copy = broken(parent, tmp_path, what)
    with pytest.raises((UserError, RunFailure), match=says):
        make_child(Run.open(copy), Stage(NEW), path=tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_parent_in_training_and_an_untrained_one(parent: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    lock = Lock(parent / ".lock", "the test")
    try:
        with pytest.raises(UserError, match="is being trained: wait until it is done, or stop it"):
            make_child(Run.open(parent), Stage(NEW), path=tmp_path / "run")
    finally:
        lock.release()
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").touch()
    with pytest.raises(UserError, match="exists"):
        make_child(Run.open(parent), Stage(NEW), path=there)
    copy = Run.open(shutil.copytree(parent, tmp_path / "untrained"))
    for number in checkpoint.numbers(copy.checkpoints)[1:]:
        shutil.rmtree(copy.checkpoints / str(number))
    shutil.move(copy.checkpoints / str(checkpoint.numbers(copy.checkpoints)[0]), copy.checkpoints / "0")
    with pytest.raises(UserError, match=r"checkpoint 0 of .* is untrained: train it first"):
        make_child(copy, Stage(NEW), which=0, path=tmp_path / "run")


def test_edited_stages_are_refused(child: Path, tmp_path: Path) -> None:
    shutil.copytree(child, copy := tmp_path / "copy")
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("keep: 0.5", "keep: 0.25"))
    with pytest.raises(UserError, match="has other stages, or continues its parent otherwise"):
        sparc.load(copy)
    (copy / "config.yaml").write_text(text.replace("ranges: {}", "range: {}"))
    with pytest.raises(UserError, match="are not what sparc wrote"):
        sparc.load(copy)
