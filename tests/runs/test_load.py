"""Loading a policy from what its checkpoint says of it: no environment, no simulator, no optimiser."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import yaml

import sparc
from sparc.acting.policy import Policy
from sparc.config import Config, make_config
from sparc.envs.racing.env import Spaces
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, UserError
from sparc.methods import build, get_method, optimisers
from sparc.methods.nets import Nothing
from sparc.methods.qr_sac import QrSac, State
from sparc.methods.spec import Spec
from sparc.runs import checkpoint, load
from sparc.runs.run import Run
from sparc.seals import digest

BOAT, HOPPER, RACE = "DriftingBoat-v0", "WindHopper-v5", "RacePowerMass-forza-v0"
STORED = Path(__file__).parents[1] / "data" / "run-format-1"
# method, phase → what its policy reads, its encoder and its ψ
DESCRIBED = {
    ("sparc", "train"): ("history", "history-adapter", "context-encoder"),
    ("rma", "expert"): ("context", "context-encoder", None),
    ("rma", "adapter"): ("history", "history-adapter", "context-encoder"),
    ("only-obs", "train"): ("nothing", "none", None),
    ("history-input", "train"): ("history", "history-adapter", None),
    ("oracle", "train"): ("context", "raw-context", None),
}


def spec_of(env: str) -> Spec:
    """Return an environment's part of a Spec; that of a race without TORCS."""
    if env != RACE:
        venv = make_vector_env(env, 1)
        venv.close()
        return load.make_spec(venv)
    single = Spaces()
    return load.make_spec(
        SimpleNamespace(  # type: ignore[arg-type]
            single_observation_space=single.observation_space,
            single_action_space=single.action_space,
            context_space=get_env(env).context_space,
        )
    )


def random_state(method: QrSac) -> State:
    """Return a method's state with all numbers changed, so that the average and the newest weights differ."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: leaf + jnp.asarray(rng.normal(0, 0.05, leaf.shape), leaf.dtype),
        method.init(np.random.default_rng(0)),
    )


def save_run(path: Path, config: Config, method: QrSac, state: State) -> Run:
    """Write a run with a policy alone: its training state is empty."""
    path.mkdir()
    (path / "config.yaml").write_text(yaml.safe_dump(config.to_dict()))
    entry = get_env(config.env)
    meta: dict[str, Any] = {
        "config": config.to_dict(),
        "spec": method.describe(state).to_dict(),
        "phase": method.phase,
        "scores": [],
        "contexts": entry.context_space.fingerprint(),
        "revision": entry.revision,
    }
    checkpoint.save(path / "checkpoints", 0, {}, load.policy_arrays(method, state), meta)
    return Run.open(path)


def make_run(
    path: Path, fields: dict[str, Any], name: str = "sparc", env: str = BOAT, phase: str | None = None
) -> tuple[Run, QrSac, State]:
    """Write a run whose policy has random weights, standardised observations and averaged weights."""
    config = make_config({**fields, "method": name, "env": env, "updates": 40}, preset="fast")
    method = get_method(name)(config, spec_of(env), phase)
    state = random_state(method)
    return save_run(path, config, method, state), method, state


def actions(policy: Policy, steps: int = 7) -> np.ndarray:
    """Let a policy act on random observations, three rows at a time."""
    rng = np.random.default_rng(1)
    context = np.full((3, policy.context_size), 0.3) if policy.reads == "context" else None
    return np.stack([policy.act(rng.normal(0, 2, (3, policy.obs_size)), context) for _ in range(steps)])


# What a checkpoint says, and what becomes of it


@pytest.mark.parametrize(("name", "phase"), DESCRIBED)
def test_a_loaded_policy_acts_as_in_training_bit_for_bit(
    tmp_path: Path, tiny: dict[str, Any], name: str, phase: str
) -> None:
    run, method, state = make_run(tmp_path / "run", tiny, name, BOAT, phase)
    policy, psi = load.load_with_psi(run, 0)
    assert (policy.spec.reads, policy.spec.encoder, policy.spec.psi) == DESCRIBED[name, phase]
    assert policy.reads == policy.spec.reads
    trained = actions(Policy(method.policy(state), method.spec))
    np.testing.assert_array_equal(actions(policy), trained)
    assert np.ptp(trained, axis=0).min() > 0  # the observation matters
    expert, variants = load.load_expert(run, 0), method.variants(state)
    assert (expert is None) == (DESCRIBED[name, phase][2] is None) == ("expert" not in variants)
    if expert is not None:
        assert (expert.reads, expert.spec.encoder, expert.spec.psi) == ("context", "context-encoder", None)
        np.testing.assert_array_equal(actions(expert), actions(Policy(variants["expert"], method.spec)))
        assert not np.array_equal(actions(expert), trained)
    ours, theirs = (checkpoint.flatten(tree, "") for tree in (psi, method.psi(state)))
    assert ours.keys() == theirs.keys() and (psi is None) == (policy.spec.psi is None)
    assert all(np.array_equal(ours[part], theirs[part]) for part in ours)


def test_a_spec_comes_back_from_json() -> None:
    spec = Spec(
        3, 2, (0.1, 1e-30), (1 / 3, 7.0), ("x", "ü"), ("N", "°"), (float(np.float32(-0.1)), -3.0), (5.0, -1.0),
        "float64", 50, 128, 32, 10.0, "history", "history-adapter", "context-encoder",
    )  # fmt: skip
    assert all(getattr(spec, field.name) != field.default for field in dataclasses.fields(Spec))
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_spec_with_other_fields_is_refused() -> None:
    values = Spec(3, 2, (0.0,), (1.0,)).to_dict()
    with pytest.raises(ValueError, match="missing or unknown fields: colour"):
        Spec.from_dict(values | {"colour": "red"})
    del values["width"]
    with pytest.raises(ValueError, match="missing or unknown fields: width"):
        Spec.from_dict(values)


def test_the_spec_of_a_run_says_what_its_environment_and_config_are(tmp_path: Path, tiny: dict[str, Any]) -> None:
    make_run(tmp_path / "run", tiny, env=HOPPER)
    spec = json.loads((tmp_path / "run/checkpoints/0/checkpoint.json").read_text())["checkpoint"]["spec"]
    assert (spec["obs_size"], spec["action_size"], spec["action_low"], spec["action_dtype"]) == (
        11, 3, [-1.0] * 3, "float32",
    )  # fmt: skip
    space = get_env(HOPPER).context_space
    assert (spec["context_names"], spec["context_units"]) == (["x", "z"], ["N", "N"])
    assert (spec["context_centre"], spec["context_half_range"]) == (space.centre.tolist(), space.half_range.tolist())
    assert (spec["history_length"], spec["width"], spec["latent"]) == tuple(
        tiny[name] for name in ("history_length", "width", "latent")
    )
    assert spec["observation_clip"] == 10.0


def test_an_encoder_without_a_name_is_refused_before_anything_is_saved() -> None:
    class Mine(Nothing):
        pass

    with pytest.raises(UserError, match=r"no name for the encoder Mine: add it to sparc\.methods\.build\.ENCODERS"):
        build.encoder_name(Mine())


def test_an_encoder_that_nobody_knows_is_named(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run, _, _ = make_run(tmp_path / "run", tiny, "only-obs")
    meta = checkpoint.load_meta(run.checkpoints / "0")
    checkpoint.save(run.checkpoints, 0, {}, {}, {**meta, "spec": {**meta["spec"], "encoder": "transformer"}})
    with pytest.raises(UserError, match="unknown encoder 'transformer': upgrade sparc-rl") as caught:
        sparc.load(run.path)
    assert "\n" not in str(caught.value)


# What is not needed


def test_no_environment_is_built_and_no_optimiser(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("loading a policy needs neither")

    run, _, _ = make_run(tmp_path / "run", tiny)
    monkeypatch.setattr(load, "make_vector_env", forbidden)
    monkeypatch.setattr(QrSac, "__init__", forbidden)
    (run.checkpoints / "0" / checkpoint.ARRAYS).unlink()  # nor the state of training
    assert actions(sparc.load(run.path)).shape == (7, 3, 2)


@pytest.mark.slow
def test_another_optimiser_does_not_prevent_loading(
    tmp_path: Path, tiny_fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sparc.train("sparc", BOAT, run_dir=tmp_path / "run", updates=10, **tiny_fields)
    before = actions(sparc.load(run))
    monkeypatch.setattr(optimisers, "adam", lambda rate, b1=0.9: optax.sgd(rate, momentum=b1))
    np.testing.assert_array_equal(actions(sparc.load(run)), before)
    with pytest.raises(RunFailure, match="does not fit its config"):  # the optimiser's state is another one indeed
        sparc.resume(run, updates=20)


@pytest.mark.parametrize("env", ["no_such_module:Thing-v0", "Thing-v0", "broken:Thing-v0"])
def test_a_policy_acts_where_its_environment_cannot_be_imported(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, env: str
) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('libsimulator.so: cannot open shared object file')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run, _, _ = make_run(tmp_path / "run", tiny)
    before = actions(sparc.load(run.path))
    run.write_config(dataclasses.replace(run.config, env=env))
    meta = checkpoint.load_meta(run.checkpoints / "0")
    meta["config"]["env"] = env
    text = json.dumps({"sha256": digest(meta), "checkpoint": meta})
    (run.checkpoints / "0" / checkpoint.META).write_text(text)
    np.testing.assert_array_equal(actions(sparc.load(run.path)), before)


BARE = """
import json, sys
sys.modules["mujoco"] = None  # importing it fails
from pathlib import Path
import numpy as np
import sparc
from sparc.envs.racing.torcs import installation

installation.DATA = installation.LIBRARIES = Path("nowhere")
for run in sys.argv[1:]:
    policy = sparc.load(run)
    rng = np.random.default_rng(1)
    print(json.dumps([policy.act(rng.normal(0, 2, (3, policy.obs_size))).tolist() for _ in range(7)]))
for env in ("WindHopper-v5", "RacePowerMass-forza-v0"):
    try:
        sparc.make_vector_env(env, 1)
    except (ImportError, sparc.UserError):
        print(env, "cannot run")
print([name for name in ("optax", "tensorboardX") if name in sys.modules])
"""


@pytest.mark.slow
def test_wind_and_race_policies_act_in_a_process_without_mujoco_and_torcs(tmp_path: Path, tiny: dict[str, Any]) -> None:
    runs = [make_run(tmp_path / env, tiny, env=env)[0] for env in (HOPPER, RACE)]
    source = str(Path(sparc.__file__).parents[1])
    environ = {**os.environ, "PYTHONPATH": source, "XDG_CACHE_HOME": str(tmp_path / "cache")}  # and no worker
    done = subprocess.run(
        [sys.executable, "-c", BARE, *(str(run.path) for run in runs)],
        cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *acted, hopper, race, heavy = done.stdout.splitlines()
    assert (hopper, race, heavy) == (f"{HOPPER} cannot run", f"{RACE} cannot run", "[]")
    for run, line in zip(runs, acted, strict=True):
        np.testing.assert_array_equal(np.array(json.loads(line), np.float32), actions(sparc.load(run.path)))


# Refusals


def test_damage_to_the_policy_is_reported_and_another_checkpoint_can_be_loaded(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    run, _, _ = make_run(tmp_path / "run", tiny)
    shutil.copytree(run.checkpoints / "0", run.checkpoints / "10")
    file = run.checkpoints / "10" / checkpoint.POLICY
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    with pytest.raises(RunFailure, match=r"10 is damaged: the checksum of policy\.safetensors is wrong") as caught:
        sparc.load(run.path, "last")
    assert "\n" not in str(caught.value)
    sparc.load(run.path, 0)


# Runs of the earlier format


def test_a_run_of_format_1_loads_and_acts_as_it_did() -> None:
    assert checkpoint.load_meta(STORED / "checkpoints" / "40")["format"] == 1
    expected = np.array(json.loads((STORED / "actions.json").read_text())["actions"])
    observations = np.random.default_rng(0).normal(0, 2, (8, 3, 2)).astype(np.float32)
    policy = sparc.load(STORED)
    np.testing.assert_allclose([policy.act(obs) for obs in observations], expected, atol=1e-6)
    assert load.load_with_psi(Run.open(STORED), 40)[1] is not None


@pytest.mark.slow
def test_a_run_of_format_1_is_resumed_and_saved_in_the_newer_one(tmp_path: Path) -> None:
    run = Path(shutil.copytree(STORED, tmp_path / "run"))
    before = actions(sparc.load(run))
    sparc.resume(run, updates=60)
    meta = checkpoint.load_meta(run / "checkpoints" / "60")
    assert meta["format"] == checkpoint.FORMAT and meta["spec"]["encoder"] == "history-adapter"
    then, now = (checkpoint.load(run / "checkpoints" / number)[0] for number in ("40", "60"))
    assert now.keys() - then.keys() == {"replay.ahead", "replay.sums"} and not then.keys() - now.keys()
    assert now["state.norm.count"] == then["state.norm.count"] + 20
    np.testing.assert_array_equal(actions(sparc.load(run, 40)), before)
    assert not np.array_equal(actions(sparc.load(run, 60)), before)
