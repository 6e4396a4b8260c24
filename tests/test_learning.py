"""Every method learns: a short run on the light example, far above the policy that it began with."""

from collections.abc import Callable
from pathlib import Path

import pytest

import sparc
from sparc.envs import get_env
from sparc.methods import METHODS

BOAT = "DriftingBoat-v0"
UPDATES = {name: 1_000 if name == "history-input" else 1_500 for name in METHODS}  # its updates are the slowest
GRID = 7  # per feature: 9 contexts IND, 40 OOD
# Mean returns of 100 at most, with a margin of several points below what seeds reach.
UNTRAINED, IND = 20.0, 90.0
# OOD the current is up to twice as fast as in training; without history or context that costs most.
OOD = {"sparc": 75.0, "rma": 60.0, "only-obs": 55.0, "history-input": 60.0, "oracle": 90.0}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], dict[str, float]]:
    """Mean return of a method after so many updates, IND and OOD; each run is made once."""
    runs: dict[str, Path] = {}
    contexts = get_env(BOAT).context_space.grid(GRID)

    def of(method: str, updates: int) -> dict[str, float]:
        if method not in runs:
            folder = tmp_path_factory.mktemp("learning") / method
            updates_of = {"updates": UPDATES[method], "evaluate_every": UPDATES[method]}
            quick = {"random_steps": 2_000, "batch_size": 64}
            runs[method] = sparc.train(method, BOAT, preset="light", run_dir=folder, **updates_of, **quick)
        evaluation = sparc.evaluate(sparc.load(runs[method], updates), BOAT, contexts, threads=1)
        return {region: float(part["mean"]) for region, part in evaluation.summary().items()}

    return of


@pytest.mark.parametrize("method", METHODS)
def test_learns(method: str, result: Callable[[str, int], dict[str, float]]) -> None:
    learned = result(method, UPDATES[method])
    assert learned["ind"] > IND and learned["ood"] > OOD[method], learned


def test_it_was_learned(result: Callable[[str, int], dict[str, float]]) -> None:
    untrained = result("sparc", 0)
    assert max(untrained.values()) < UNTRAINED, untrained


def test_sparc_adapts_where_a_policy_without_memory_cannot(result: Callable[[str, int], dict[str, float]]) -> None:
    sparcs, blind = (result(method, UPDATES[method]) for method in ("sparc", "only-obs"))
    assert sparcs["ood"] > blind["ood"] + 5.0, (sparcs, blind)
