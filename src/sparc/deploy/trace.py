"""The recorded check of an export: what the trained policy saw and did in real episodes, to be repeated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparc.acting.policy import Policy
from sparc.envs.registry import EnvEntry, make_vector_env
from sparc.errors import RunFailure, SparcError

SEED = 0
FIRST, SECOND = 96, 32  # steps kept of two episodes: more than the longest history, and a reset in the middle
MOST_STEPS = 1500  # of the episodes that observations are seen in


class Recorded(NamedTuple):
    """What becomes check.safetensors, and the range of all observations seen."""

    arrays: dict[str, np.ndarray]
    seen_low: list[float]
    seen_high: list[float]
    about: dict[str, Any]


def record(policy: Policy, entry: EnvEntry, options: dict[str, Any]) -> Recorded:
    """LapPair an episode in each of the environment's settings; keep the beginnings of the first two.

    `options` are those of training: what the policy was trained for is what it must repeat.
    """
    space = entry.context_space
    contexts = space.settings if len(space.settings) > 1 else space.settings.repeat(2, axis=0)
    venv = make_vector_env(entry.id, len(contexts), **options)
    seen: list[np.ndarray] = []
    units: list[np.ndarray] = []
    alive_at: list[np.ndarray] = []
    try:
        obs, _ = venv.reset(seed=SEED, options={"context": contexts})
        policy.reset()
        alive = np.ones(len(contexts), bool)
        while alive.any() and len(seen) < MOST_STEPS:
            rows = np.where(alive[:, None], obs, 0.0).astype(np.float32)
            if not np.isfinite(rows).all():
                raise RunFailure(f"{entry.id} returned NaN or infinity at step {len(seen)} of the recorded check.")
            unit = policy.choose(rows, contexts if policy.reads == "context" else None, None)
            seen.append(rows)
            units.append(unit)
            alive_at.append(alive)
            obs, _, terminated, truncated, _ = venv.step(policy.scale(unit))
            alive = alive & ~(terminated | truncated)
    except SparcError:
        raise
    except Exception as error:
        raise RunFailure(f"{entry.id} raised {type(error).__name__} in the recorded check: {error}") from error
    finally:
        policy.reset()
        venv.close()
    observations, actions, there = np.stack(seen), np.stack(units), np.stack(alive_at)
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
