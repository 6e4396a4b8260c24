"""SPARC with expert rollouts and RMA's first phase are the same reinforcement learning, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

import sparc
from sparc.runs import checkpoint

UPDATES = 100
# of `fast`, so that statistics of observations and averaged weights are compared as well
FAST = {"batch_renorm": True, "target_networks": False, "normalize_observations": True, "ema_decay": 0.99}
PARTS = ("expert", "critics", "norm", "log_temperature")


def learned(run: Path) -> dict[str, bytes]:
    """Return what the first phase learned by reinforcement."""
    arrays, meta = checkpoint.load(run / "checkpoints" / str(UPDATES))
    assert meta["updates"] == UPDATES
    return {name: array.tobytes() for name, array in arrays.items() if any(f".{part}" in name for part in PARTS)}


@pytest.mark.slow
def test_rmas_first_phase_learns_what_sparc_learns_with_expert_rollouts(tmp_path: Path, tiny: dict[str, Any]) -> None:
    fields = tiny | FAST | {"evaluate_every": UPDATES}
    own = {"sparc": {"updates": UPDATES, "rollout_policy": "expert"},
           "rma": {"updates": UPDATES + 20, "expert_updates": UPDATES}}  # fmt: skip
    runs = {
        method: sparc.train(method, "DriftingBoat-v0", run_dir=tmp_path / method, **fields, **options)
        for method, options in own.items()
    }
    first, second = map(learned, runs.values())
    assert {part for part in PARTS if any(f".{part}" in name for name in first)} == set(PARTS)
    assert first == second
