"""The NumPy runtime against JAX, on the same weights; what it refuses; what its files may do."""

import ast
import dataclasses
import json
import struct
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exporting import SPEC, SPECS, Pair

from sparc.deploy import runtime
from sparc.errors import UserError
from sparc.methods.nets import Inputs

TOLERANCE = 1e-5  # of unit actions
ROWS = 2_000

every_kind = pytest.mark.parametrize("kind", SPECS)


def open_loop_inputs(spec: Any, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, histories of all scales and lengths, contexts."""
    rng = np.random.default_rng(3)
    scale = 10.0 ** rng.uniform(-1, 2, (rows, 1))
    obs = (scale * rng.normal(size=(rows, spec.obs_size))).astype(np.float32)
    past = scale[:, None] * rng.normal(size=(rows, spec.history_length, spec.obs_size))
    actions = rng.uniform(-1, 1, (rows, spec.history_length, spec.action_size))
    history = np.concatenate([past, actions], axis=2).astype(np.float32)
    length = rng.integers(0, 2 * spec.history_length, rows)  # half of them shorter than the window
    history[np.arange(spec.history_length)[None] < spec.history_length - length[:, None]] = 0.0
    obs[:3], history[:3] = 0.0, 0.0
    return obs, history, rng.normal(size=(rows, 2)).astype(np.float32)


def unit_of(policy: runtime.Policy, action: np.ndarray) -> np.ndarray:
    return (action - policy.middle) / policy.half


@every_kind
def test_open_loop_as_jax(kind: str) -> None:
    spec, pair = SPECS[kind], Pair(SPECS[kind])
    obs, history, context = open_loop_inputs(spec)
    inputs = Inputs(obs, context, history)
    expected = np.asarray(jax.jit(lambda actor, inputs: actor.mode(inputs))(pair.jax.actor, inputs))
    assert np.abs(expected).mean() > 0.1 and expected.std() > 0.1
    for rows in (ROWS, 7, 1):
        read = {"context": context[:rows]} if spec.reads == "context" else {}
        action, state = pair.numpy.predict(obs[:rows], history[:rows] if spec.reads == "history" else None, **read)
        assert np.abs(unit_of(pair.numpy, action) - expected[:rows]).max() <= TOLERANCE
        assert (state is None) == (spec.reads != "history")
    if state is not None:
        assert (state[:, :-1] == history[:1, 1:]).all() and (state[:, -1, :5] == obs[:1]).all()


@every_kind
@pytest.mark.parametrize("rows", [1, 7])
def test_closed_loop_as_jax_with_resets_on_the_way(kind: str, rows: int) -> None:
    spec, pair = SPECS[kind], Pair(SPECS[kind])
    rng = np.random.default_rng(0)
    context = rng.normal(size=(rows, 2)).astype(np.float32) if spec.reads == "context" else None
    steps = 2 * spec.history_length + 20  # the buffer has come to its end
    for step in range(steps):
        obs = rng.normal(size=(rows, spec.obs_size)) * 3
        if step == steps // 2:
            mask = np.arange(rows) % 2 == 0
            pair.jax.reset(mask)
            pair.numpy.reset(mask)
        expected, found = pair.jax.act(obs, context), pair.numpy.act(obs, context=context)
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert np.abs(unit_of(pair.numpy, found) - unit_of(pair.numpy, expected)).max() <= TOLERANCE
    if spec.reads == "history":
        assert pair.jax.history is not None
        np.testing.assert_allclose(pair.numpy.history, pair.jax.history.array, atol=TOLERANCE)
    pair.numpy.reset()
    pair.jax.reset()
    one = None if context is None else context[0]
    single = pair.numpy.act(obs[0], context=one)
    assert single.shape == (spec.action_size,)
    np.testing.assert_allclose(single, pair.jax.act(obs[0], one), atol=1e-4)


@every_kind
def test_predict_is_act_with_the_state_outside(kind: str) -> None:
    spec, pair = SPECS[kind], Pair(SPECS[kind])
    rng = np.random.default_rng(1)
    read = {"context": rng.normal(size=(3, 2))} if spec.reads == "context" else {}
    state, start = None, np.ones(3, bool)
    for step in range(20):
        obs = rng.normal(size=(3, spec.obs_size))
        if step == 12:
            start[1] = True
            pair.numpy.reset(start)
        action, state = pair.numpy.predict(obs, state, start, **read)
        np.testing.assert_allclose(action, pair.numpy.act(obs, **read), atol=1e-5)
        start = np.zeros(3, bool)


def test_noise_is_that_of_the_trained_distribution() -> None:
    pair = Pair(SPEC)
    obs, history, _ = open_loop_inputs(SPEC, 50)
    noise = np.random.default_rng(5).standard_normal((50, 3), np.float32)
    mean, log_std = (
        np.asarray(part) for part in pair.jax.actor.distribution(Inputs(obs, None, np.zeros_like(history)))
    )

    class Given:
        """A generator whose draws are known."""

        def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            assert shape == noise.shape and dtype is np.float32
            return noise

    drawn: Any = pair.numpy.sample(obs, Given())  # type: ignore[arg-type]
    expected = pair.jax.scale(np.tanh(mean + np.exp(log_std) * noise))
    np.testing.assert_allclose(drawn, expected, atol=1e-4)
    np.testing.assert_allclose(pair.numpy.scale(pair.numpy.history[:, -1, 5:]), drawn, atol=1e-5)
    rng = np.random.default_rng(0)
    again = pair.numpy.sample(obs, rng)
    assert (again != pair.numpy.sample(obs, rng)).any()


def test_what_was_executed_takes_the_place_of_what_was_chosen() -> None:
    pair, rng = Pair(SPEC), np.random.default_rng(0)
    obs = rng.normal(size=(4, 2, 5)).astype(np.float32)
    executed = np.array([[0.5, 1.0, 5.0], [9.0, -9.0, 1.0]])  # the second one beyond its bounds
    pair.numpy.act(obs[0], executed=executed)  # nothing has been done yet: ignored
    pair.numpy.act(obs[1], executed=executed)
    history = pair.numpy.history
    unit = np.array([[0.5, 0.0, 1.0], [1.0, -1.0, 0.0]], np.float32)
    np.testing.assert_allclose(history[:, -2, 5:], unit)
    found = pair.numpy.act(obs[2])
    expected, _ = pair.numpy.predict(obs[2], history)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    pair.numpy.reset(np.array([True, False]))
    pair.numpy.act(obs[3], executed=executed)  # of the row that went on, not of the one that begins
    np.testing.assert_allclose(pair.numpy.history[1, -2, 5:], unit[1])
    assert (pair.numpy.history[0, :-1] == 0).all()


@every_kind
def test_what_was_executed_is_remembered_as_in_jax(kind: str) -> None:
    spec, pair, rng = SPECS[kind], Pair(SPECS[kind]), np.random.default_rng(0)
    context = rng.normal(size=(3, 2)).astype(np.float32) if spec.reads == "context" else None
    for step in range(2 * spec.history_length + 5):
        obs = rng.normal(size=(3, spec.obs_size))
        if step % 9 == 5:  # also right after a reset, where there is nothing to correct
            mask = rng.random(3) < 0.5
            pair.jax.reset(mask)
            pair.numpy.reset(mask)
        executed = rng.normal(size=(3, spec.action_size)) * 4 if step % 3 else None  # often beyond the bounds
        expected = pair.jax.act(obs, context, executed=executed)
        found = pair.numpy.act(obs, executed=executed, context=context)
        assert np.abs(unit_of(pair.numpy, found) - unit_of(pair.numpy, expected)).max() <= TOLERANCE
    if spec.reads == "history":
        assert pair.jax.history is not None
        np.testing.assert_allclose(pair.numpy.history, pair.jax.history.array, atol=TOLERANCE)
    assert pair.jax.history is not None
    before = pair.jax.history.array
    pair.jax.act(obs, context, executed=[[0.5, 1.0, 5.0], [9.0, -9.0, 1.0], [0.0, 0.0, 0.0]])
    unit = [[0.5, 0.0, 1.0], [1.0, -1.0, 0.0], [0.0, -1.0, -0.25]]
    np.testing.assert_allclose(pair.jax.history.array[:, -2, -3:], unit)
    assert (pair.jax.history.array[:, :-2] == before[:, 1:-1]).all()


def test_bad_executed_actions_are_refused_by_jax_too() -> None:
    policy = Pair(SPEC).jax
    policy.act(np.zeros((3, 5)))
    assert policy.history is not None
    before = policy.history.array
    for executed, message in (
        (np.zeros((3, 2)), r"executed actions of shape \(3, 3\), got \(3, 2\)"),
        (np.zeros(3), r"executed actions of shape \(3, 3\), got \(3,\)"),
        (np.full((3, 3), np.nan), "Element 0 of the executed action in row 0 is nan"),
    ):
        with pytest.raises(UserError, match=message):
            policy.act(np.zeros((3, 5)), executed=executed)
    assert policy.history.array is before


def test_weights_are_swapped_without_losing_the_history() -> None:
    pair, other = Pair(SPEC), Pair(SPEC, seed=9)
    rng = np.random.default_rng(0)
    for _ in range(60):
        pair.numpy.act(rng.normal(size=(2, 5)))
    history, obs = pair.numpy.history, rng.normal(size=(2, 5))
    given = {name: array.copy() for name, array in other.weights.items()}
    pair.numpy.set_weights(given)
    for array in given.values():
        array[...] = np.nan  # the caller's own memory, overwritten by the next weights
    assert (pair.numpy.history == history).all()
    np.testing.assert_allclose(pair.numpy.act(obs), other.numpy.predict(obs, history)[0], atol=1e-5)
    broken = other.weights | {"policy.trunk.head.bias": np.zeros(5, np.float32)}
    message = r"policy.trunk.head.bias should have the shape \(6,\), found \(5,\)"
    with pytest.raises(runtime.PolicyError, match=message):
        pair.numpy.set_weights(broken)
    del broken["policy.trunk.head.bias"]
    with pytest.raises(runtime.PolicyError, match="found nothing"):
        pair.numpy.set_weights(broken)


def test_bad_observations_are_named_and_leave_the_history_clean() -> None:
    pair, rng = Pair(SPEC), np.random.default_rng(0)
    pair.contract["inputs"]["obs"]["names"] = ["a", "b", "c", "d", "e"]
    policy = runtime.Policy(pair.contract, pair.weights)
    good = rng.normal(size=(2, 5))
    policy.act(good)
    before = policy.history
    for value in (np.nan, np.inf, -np.inf):
        bad = good.copy()
        bad[1, 2] = value
        message = rf"element 2 \(c\) of the observation of row 1 is {value}: the history is unchanged"
        with pytest.raises(runtime.PolicyError, match=message):
            policy.act(bad)
        with pytest.raises(runtime.PolicyError, match="executed action of row 0 is nan"):
            policy.act(good, executed=np.full((2, 3), np.nan))
    refused: list[tuple[Any, str]] = [
        (good[:, :4], r"the observation must be 5 numbers, got the shape \(2, 4\)"),
        (np.zeros((0, 5)), "must be 5 numbers"),
        (good[0], "has acted for 2 rows, now for 1: call reset"),
        ([1, 2, 3, 4, "wet"], r"must be 5 numbers, got \[1, 2, 3, 4, 'wet'\]"),
        ([[1, 2], [3]], r"must be 5 numbers, got \[\[1, 2\], \[3\]\]"),
        (good[None], r"got the shape \(1, 2, 5\)"),
    ]
    for obs, message in refused:
        with pytest.raises(runtime.PolicyError, match=message):
            policy.act(obs)
    with pytest.raises(runtime.PolicyError, match=r"acts for 2 rows: its mask needs as many, not \(3,\)"):
        policy.reset(np.ones(3, bool))
    with pytest.raises(runtime.PolicyError, match=r"the state must have the shape \(2, 50, 8\)"):
        policy.predict(good, np.zeros((2, 50, 7)))
    assert (policy.history == before).all()
    assert np.isfinite(policy.act(np.full((2, 5), 1e30))).all()  # huge, yet numbers


def test_a_policy_that_reads_the_context_asks_for_it() -> None:
    pair = Pair(SPECS["encoded context"])
    with pytest.raises(runtime.PolicyError, match="reads the true context: call act"):
        pair.numpy.act(np.zeros(5))
    with pytest.raises(runtime.PolicyError, match="the context must be 2 numbers"):
        pair.numpy.act(np.zeros(5), context=[1.0])


def test_other_numbers_of_actions_keep_their_type() -> None:
    spec = dataclasses.replace(SPEC, action_dtype="float64")
    pair = Pair(spec)
    assert pair.numpy.act(np.zeros(5)).dtype == np.float64


# Files


def tensors(arrays: dict[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save(arrays)


def test_safetensors_are_read_as_the_library_writes_them() -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float16([1.5]), "c": np.zeros((0, 2)),
        "d": np.array([1, 2], np.uint8), "e": np.array(7.0),
    }  # fmt: skip
    found = runtime.parse_safetensors(tensors(arrays))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and (found[name] == array).all() and found[name].shape == array.shape


@pytest.mark.parametrize(
    "header, message",
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}}, "a lies outside the file"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}}, "a lies outside the file"),
        ({"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}}, "a lies outside the file"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, r"bytes of its shape \(3,\)"),
        ({"a": {"dtype": "PICKLE", "shape": [2], "data_offsets": [0, 8]}}, "PICKLE"),
    ],
)
def test_damaged_safetensors_are_refused(header: dict[str, Any], message: str) -> None:
    text = json.dumps(header).encode()
    with pytest.raises((ValueError, KeyError), match=message):
        runtime.parse_safetensors(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ValueError, match="longer than the file"):
        runtime.parse_safetensors(struct.pack("<Q", 1 << 60) + text)
    with pytest.raises(struct.error):
        runtime.parse_safetensors(b"abc")


def test_the_runtime_imports_numpy_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(runtime.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"numpy"}


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has NumPy and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    source = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (source / name).exists():
            (packages / name).symlink_to(source / name)
    return folder / "bin" / "python"


def test_a_bare_python_with_numpy_runs_an_export(bare_python: Path, boat_export: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [bare_python, "-I", boat_export / "sparc_policy.py", boat_export], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[2].rstrip(",")) <= TOLERANCE
    code = "import sys, sparc_policy; sparc_policy.load('.'); print(sorted({n.split('.')[0] for n in sys.modules}))"
    done = subprocess.run([bare_python, "-c", code], cwd=boat_export, capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout)) - set(sys.stdlib_module_names)
    assert {name for name in loaded if not name.startswith(("_", "sitecustomize"))} == {"numpy", "sparc_policy"}
    missing = subprocess.run([bare_python, boat_export / "sparc_policy.py", tmp_path], capture_output=True, text=True)
    assert missing.returncode == 1 and missing.stderr.startswith(f"sparc_policy: {tmp_path} is no exported policy")
