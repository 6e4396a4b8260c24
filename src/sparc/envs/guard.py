"""Vector environments that go wrong: one line names the environment, the step, the context and the line of code.

Whoever runs episodes, in training or without learning, calls `reset`, `step` and `switch` here instead of those of the
vector environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparc.arrays import Array, Flags
from sparc.envs.contextual import BadReturn, ContextualVectorEnv
from sparc.errors import RunFailure, SparcError, UserError, line_of

MAX_REWARD = 1e15  # the squares of returns must stay within single precision
SHOWN = 3  # contexts in a message, at most


class EnvFailure(RunFailure):
    """An environment raised an error or returned what nobody can learn from."""


def reset(venv: ContextualVectorEnv, at: str, **how: Any) -> Array:
    """Reset a vector environment and return its observations, or raise an EnvFailure."""
    contexts = (how.get("options") or {}).get("context")  # drawn ones are not known before the reset is done
    with explained(venv, at, contexts):
        obs: Array = venv.reset(**how)[0]
        check_obs(venv, obs, at, venv.contexts)
        check_contexts(venv, at)
    return obs


def step(
    venv: ContextualVectorEnv, actions: np.ndarray, at: str, contexts: Array, running: Flags | None = None
) -> tuple[Array, Array, Flags, Flags]:
    """Step a vector environment under these contexts; return observations, rewards, terminated and truncated.

    Raise an EnvFailure where that goes wrong. Numbers of rows that are not running are not looked at.
    """
    with explained(venv, at, contexts):
        obs, reward, terminated, truncated, _ = venv.step(actions)
        check_obs(venv, obs, at, contexts, running)
        if np.shape(reward) != (venv.num_envs,):
            raise BadReturn(f"rewards of shape {np.shape(reward)} instead of {(venv.num_envs,)}")
        check_rewards(venv, reward, at, contexts, running)
        check_contexts(venv, at, running)
    return obs, reward, terminated, truncated


def switch(venv: ContextualVectorEnv, contexts: Array, at: str) -> None:
    """Switch the contexts of a vector environment in mid-episode, or raise an EnvFailure."""
    with explained(venv, at, contexts):
        venv.set_contexts(contexts)


@contextmanager
def explained(venv: ContextualVectorEnv, at: str, contexts: Array | None) -> Iterator[None]:
    """Raise an EnvFailure where the environment raises anything but an error that explains itself."""
    try:
        yield
    except SparcError:
        raise
    except Exception as error:
        if contexts is not None and venv.row is not None:
            contexts = np.asarray(contexts)[[venv.row]]
        if isinstance(error, BadReturn):
            raise EnvFailure(f"{name(venv)} returned {error} at {at}{under(venv, contexts)}.") from error
        said = " ".join(str(error).split())  # in one line
        raise EnvFailure(
            f"{name(venv)} raised {type(error).__name__} at {at}{line_of(error)}{under(venv, contexts)}"
            f"{': ' if said else ''}{said}; run again with --debug for the traceback."
        ) from error


def check_obs(venv: ContextualVectorEnv, obs: Array, at: str, contexts: Array, running: Flags | None = None) -> None:
    """Raise where observations have another shape than they should, or are not finite as float32."""
    expected = (venv.num_envs, *(venv.single_observation_space.shape or ()))
    if np.shape(obs) != expected:
        raise BadReturn(f"observations of shape {np.shape(obs)} instead of {expected}")
    with np.errstate(over="ignore"):
        finite: Flags = np.isfinite(obs.astype(np.float32)).min(axis=1)
    check_finite(venv, finite, "an observation", at, contexts, running)


def check_rewards(
    venv: ContextualVectorEnv, rewards: Array, at: str, contexts: Array, running: Flags | None = None
) -> None:
    """Raise where rewards are not finite, or larger than anything can be learned from."""
    check_finite(venv, np.isfinite(rewards), "a reward", at, contexts, running)
    large: Flags = np.abs(rewards) > MAX_REWARD
    if running is not None:
        large &= running
    if large.any():
        what = f"a reward of {rewards[large][0]:g}, more than the {MAX_REWARD:g} that can be learned from,"
        raise EnvFailure(f"{name(venv)} returned {what} at {at}{under(venv, contexts[large])}.")


def check_contexts(venv: ContextualVectorEnv, at: str, running: Flags | None = None) -> None:
    """Raise where the environment has a context now that is not finite."""
    finite: Flags = np.isfinite(venv.contexts).min(axis=1)
    check_finite(venv, finite, "a context", at, venv.contexts, running)


def check_region(venv: ContextualVectorEnv) -> None:
    """Refuse an environment that draws contexts from elsewhere than the region that `use_space` has set."""
    if not (inside := venv.context_space.train.contains(venv.contexts)).all():
        drawn = venv.context_space.text(venv.contexts[int(np.argmin(inside))])
        raise UserError(
            f"{name(venv)} drew the context {drawn}, which is outside the region to train on: its reset must draw from "
            "self.context_space, docs/environments/your-own.md."
        )


def check_finite(
    venv: ContextualVectorEnv, finite: Flags, what: str, at: str, contexts: Array, running: Flags | None
) -> None:
    """Raise an EnvFailure that names the contexts of the running rows that are not finite."""
    bad = ~finite if running is None else running & ~finite
    if bad.any():
        raise EnvFailure(f"{name(venv)} returned NaN or infinity in {what} at {at}{under(venv, contexts[bad])}.")


def name(venv: ContextualVectorEnv) -> str:
    """Return the id of an environment, or its class if it was not made by the registry."""
    return venv.spec.id if venv.spec is not None else type(venv).__name__


def under(venv: ContextualVectorEnv, contexts: Array | None) -> str:
    """Return " with x=1, y=2" for contexts (M, C), of which only the first few are written out."""
    if contexts is None:
        return ""
    rows = map(venv.context_space.text, contexts[:SHOWN])
    return f" with {'; '.join(rows)}{'; …' if len(contexts) > SHOWN else ''}"
