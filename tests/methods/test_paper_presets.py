"""The paper's presets learn as they always did: fingerprints of the networks after 100 updates, for every method.

`data/paper-presets.json` was made with the code as it stood before the preset `fast`. The updates run in double
precision. In single precision, rounding sooner or later turns a close decision (which critic is the pessimistic one,
which unit is on), and from there two machines, or two ways to write a formula, go apart by percents.

To take seconds, layers are narrower and minibatches smaller here (`SMALL`); all other settings are the presets' own.
To write the fingerprints anew, only where the paper's settings are meant to change:

    python tests/test_paper_presets.py --write
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparc.config import make_config
from sparc.methods import all_methods, find_method, get_method, losses
from sparc.methods.batch import Batch
from sparc.methods.qr_sac import QrSac, State, scan_updates
from sparc.methods.spec import Spec

pytestmark = pytest.mark.slow

STORED = Path(__file__).parents[1] / "data" / "paper-presets.json"
UPDATES = 100
TOLERANCE = 1e-6  # of an array's root mean square
O, A, C = 5, 2, 2  # noqa: E741
SPEC = Spec(O, A, (1.0, -2.0), (2.0, 4.0))
SMALL = {"width": 32, "batch_size": 8}
PRESETS = ("mujoco", "gran-turismo")
CASES = [
    f"{preset}/{name}/{phase}" for preset in PRESETS for name in all_methods() for phase in find_method(name).phases
]
PARTS = ("expert", "adapter", "critics", "targets", "log_temperature")
# Compiling is most of the time here, and optimising is most of compiling.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Fingerprints = dict[str, list[float]]


def make(case: str, **values: Any) -> QrSac:
    preset, name, phase = case.split("/")
    config = make_config({"method": name, "env": "any", **SMALL, **values}, preset)
    return get_method(name)(config, SPEC, phase)


def batches(method: QrSac) -> Batch:
    """Draw transitions with which the critics' errors lie on both sides of κ, and their gradient's norm of the clip."""
    rng, config = np.random.default_rng(1), method.config

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=(UPDATES, config.batch_size, *shape))

    obs, next_obs, context = 12.0 * draw(O), 12.0 * draw(O), 2.0 * draw(C)
    action, reward = np.tanh(draw(A)), 6.0 * draw()
    discount = np.where(draw() < 2.0, config.discount, 0.0)  # some are terminal
    history, next_history = draw(config.history_length, O + A), draw(config.history_length, O + A)
    return Batch(
        obs, action, reward, discount, next_obs, context, context,
        history if method.wants_history else None, next_history if method.wants_next_history else None,
    )  # fmt: skip


def learn(method: QrSac) -> Fingerprints:
    """Do 100 updates in double precision."""
    with jax.enable_x64(True):
        state = method.init(np.random.default_rng(0))
        state = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, state)
        arguments = (state, batches(method), jax.random.key(2), jnp.int32(0))
        after, _ = scan_updates(method).lower(*arguments).compile(compiler_options=QUICK)(*arguments)
        return fingerprints(after)


def fingerprints(state: State) -> Fingerprints:
    """Describe each array by its root mean square and by its sums with weights 1 and ±1 over √size.

    All three have the scale of the array's elements, and so has a change of theirs where the elements change.
    """
    found = {}
    for part in PARTS:
        for path, leaf in jax.tree_util.tree_leaves_with_path(getattr(state, part)):
            assert leaf.dtype == np.float64, path
            values = np.asarray(leaf).ravel()
            signs, root = np.random.default_rng(3).choice([-1.0, 1.0], values.size), values.size**0.5
            sums = (values.sum() / root, signs @ values / root)
            found[part + jax.tree_util.keystr(path)] = [float(np.linalg.norm(values) / root), *map(float, sums)]
    return found


def deviation(case: str, **values: Any) -> float:
    """Learn with other values of the config; return the largest difference from what is stored, relative to scale."""
    stored, found = json.loads(STORED.read_text())[case], learn(make(case, **values))
    assert found.keys() == stored.keys()
    return max(float(np.abs(np.subtract(found[name], stored[name])).max()) / stored[name][0] for name in stored)


@pytest.mark.parametrize("case", CASES)
def test_networks_after_a_hundred_updates_are_those_of_before(case: str) -> None:
    assert deviation(case) < TOLERANCE


def test_a_hundredth_more_of_tau_shows() -> None:
    assert deviation("gran-turismo/only-obs/train", tau=1.01 * 0.005) > 10 * TOLERANCE


def test_a_hundredth_more_of_kappa_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "HUBER_KAPPA", 1.01)
    assert deviation("gran-turismo/only-obs/train") > 10 * TOLERANCE


def write() -> None:
    rows = []
    for case in CASES:
        lines = [f'  "{name}": [{", ".join(f"{x:.9g}" for x in found)}]' for name, found in learn(make(case)).items()]
        rows.append(f' "{case}": {{\n' + ",\n".join(lines) + "\n }")
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], f"usage: python {sys.argv[0]} --write"
    write()
