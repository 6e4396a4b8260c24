"""Every method learns: a short run on the light example, far above the policy that it began with."""

from collections.abc import Callable
from pathlib import Path

import pytest

import sparc
from sparc.envs.registry import get_env
from sparc.methods import all_methods

pytestmark = pytest.mark.slow

BOAT = "DriftingBoat-v0"
UPDATES = {"sparc": 1_500, "rma": 2_500, "only-obs": 1_500, "history-input": 4_000, "oracle": 1_500}
# Preset fast, but for the size and the pace of a small problem.
SMALL = {"width": 64, "history_length": 10, "num_quantiles": 16, "discount": 0.8, "temperature": 0.01}
SMALL |= {"adapter_batch_size": 64, "adapter_learning_rate": 3e-3, "ema_decay": 0.99}
SMALL |= {"num_envs": 50, "steps_per_update": 10, "random_steps": 2_000, "replay_capacity": 50_000}
GRID = 7  # per feature: 9 contexts IND, 40 OOD
# Mean returns of 100 at most, with a margin of several points below what seeds reach.
UNTRAINED, IND = 20.0, 90.0
# OOD the current is up to twice as fast as in training; without history or context that costs most.
OOD = {"sparc": 80.0, "rma": 75.0, "only-obs": 65.0, "history-input": 60.0, "oracle": 95.0}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], dict[str, float]]:
    """Mean return of a method after so many updates, IND and OOD; each run is made once."""
    runs: dict[str, Path] = {}
    contexts = get_env(BOAT).context_space.grid(GRID)

    def of(method: str, updates: int) -> dict[str, float]:
        if method not in runs:
            folder = tmp_path_factory.mktemp("learning") / method
            updates_of = {"updates": UPDATES[method], "evaluate_every": UPDATES[method]}
            runs[method] = sparc.train(method, BOAT, preset="fast", run_dir=folder, **updates_of, **SMALL)
        evaluation = sparc.evaluate(sparc.load(runs[method], updates), BOAT, contexts, threads=1)
        return {region: float(part["mean"]) for region, part in evaluation.summary().items()}

    return of


@pytest.mark.parametrize("method", all_methods())
def test_learns(method: str, result: Callable[[str, int], dict[str, float]]) -> None:
    learned = result(method, UPDATES[method])
    assert learned["ind"] > IND and learned["ood"] > OOD[method], learned


def test_it_was_learned(result: Callable[[str, int], dict[str, float]]) -> None:
    untrained = result("sparc", 0)
    assert max(untrained.values()) < UNTRAINED, untrained


def test_sparc_adapts_where_a_policy_without_memory_cannot(result: Callable[[str, int], dict[str, float]]) -> None:
    sparcs, blind = (result(method, UPDATES[method]) for method in ("sparc", "only-obs"))
    assert sparcs["ood"] > blind["ood"] + 5.0, (sparcs, blind)
