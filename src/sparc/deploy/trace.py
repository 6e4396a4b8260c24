"""The recorded check of an export: what the trained policy saw and did in real episodes, to be repeated."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from sparc.acting.episodes import Episodes
from sparc.acting.policy import Policy
from sparc.envs.registry import EnvEntry, make_vector_env

SEED = 0
FIRST, SECOND = 96, 32  # steps kept of two episodes: more than the longest history, and a reset in the middle
MOST_STEPS = 1500  # of the episodes that observations are seen in


class Recorded(NamedTuple):
    """What becomes check.safetensors, and the range of all observations seen."""

    arrays: dict[str, np.ndarray]
    seen_low: list[float]
    seen_high: list[float]
    about: dict[str, Any]


class Recorder:
    """A policy whose unit actions are kept."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.reads = policy, policy.reads
        self.units: list[np.ndarray] = []

    def reset(self) -> None:
        """Forget the episodes before."""
        self.policy.reset()

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Choose actions (R, A) in the environment's own range."""
        self.units.append(self.policy.choose(obs.astype(np.float32), context, None))
        return self.policy.scale(self.units[-1])


def record(policy: Policy, entry: EnvEntry, options: dict[str, Any]) -> Recorded:
    """Drive an episode in each of the environment's settings; keep the beginnings of the first two.

    `options` are those of training; the environment is as in tests.
    """
    space = entry.context_space
    contexts = space.settings if len(space.settings) > 1 else space.settings.repeat(2, axis=0)
    recorder = Recorder(policy)
    venv = make_vector_env(entry.id, len(contexts), **entry.resolve_test_options(options))
    try:
        steps = list(islice(Episodes(recorder, venv, contexts, SEED), MOST_STEPS))
    finally:
        policy.reset()
        venv.close()
    there = np.stack([step.running for step in steps])
    observations = np.stack([np.where(step.running[:, None], step.obs, 0.0) for step in steps]).astype(np.float32)
    actions = np.stack(recorder.units)
    lengths = [min(most, int(there[:, row].sum())) for row, most in enumerate((FIRST, SECOND))]
    arrays = {
        "obs": np.concatenate([observations[:length, row] for row, length in enumerate(lengths)]),
        "unit": np.concatenate([actions[:length, row] for row, length in enumerate(lengths)]),
        "start": np.concatenate([np.arange(length) == 0 for length in lengths]).astype(np.uint8),
    }
    arrays["action"] = policy.scale(arrays["unit"])
    if policy.reads == "context":
        arrays["context"] = contexts[:2].repeat(lengths, axis=0).astype(np.float32)
    shown = observations[there]
    about = {
        "made": f"the beginnings of two episodes in {entry.id}, seed {SEED}, driven by the trained policy in JAX",
        "steps": int(sum(lengths)),
        "contexts": contexts[:2].tolist(),
        "seen": f"seen_low and seen_high of the observations: {len(contexts)} episodes of up to {MOST_STEPS} steps",
    }
    return Recorded(arrays, shown.min(axis=0).tolist(), shown.max(axis=0).tolist(), about)
