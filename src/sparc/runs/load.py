"""From a run directory back to a policy: which checkpoint, and how its arrays become networks again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sparc.acting.policy import Policy
from sparc.config import Config
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import UserError
from sparc.methods import get_method
from sparc.methods.nets import ContextEncoder
from sparc.methods.qr_sac import QrSac, Spec, State
from sparc.runs import checkpoint
from sparc.runs.run import Run


def load(run_dir: str | Path, which: str | int = "best") -> Policy:
    """Load a run's policy: the best checkpoint, the last one, or one by its number of updates."""
    run = Run.open(run_dir)
    return load_with_psi(run, run.choose(which))[0]


def load_with_psi(run: Run, number: int) -> tuple[Policy, ContextEncoder | None]:
    """Load a checkpoint's policy and the ψ that its φ learned to guess; None where no adapter is at the wheel."""
    arrays, meta = checkpoint.load(run.checkpoints / str(number))
    venv = make_vector_env(run.config.env, 1, **run.config.env_options)
    check_env(run, meta, venv)
    method = get_method(run.config.method)(run.config, make_spec(venv), meta["phase"])
    state = restored(method, arrays)
    policy = wrap(method, state, venv, run.config)
    venv.close()
    # φ is policy.actor.encoder; RMA's expert phase has one that was never trained, and acts on ψ(c) instead
    psi = state.shipped.expert.encoder
    return policy, psi if policy.reads == "history" and isinstance(psi, ContextEncoder) else None


def check_env(run: Run, meta: dict[str, Any], venv: ContextualVectorEnv) -> None:
    """Refuse a run whose environment has changed since: other contexts to train on, other actions or rewards."""
    revision = get_env(run.config.env).revision
    if meta.get("contexts", now := venv.context_space.fingerprint()) != now:
        what = "had other contexts to train on"
    elif (old := meta.get("revision", 1)) != revision:
        what = f"was at revision {old}, and it is at {revision}: its actions, observations or rewards have changed"
    else:
        return
    raise UserError(
        f"{run.path} was trained when {run.config.env} {what}. Use the version of sparc, or of the environment's file, "
        "that it was made with, or train it anew."
    )


def restored(method: QrSac, arrays: checkpoint.Arrays) -> State:
    """Put a checkpoint's networks and optimisers into a state of the method."""
    state: State = checkpoint.unflatten(method.init(np.random.default_rng(0)), arrays, "state")
    return state


def wrap(method: QrSac, state: State, venv: ContextualVectorEnv, config: Config) -> Policy:
    """Put a method's policy into a Policy for this environment."""
    return Policy(method.policy(state), *boxes(venv), config.history_length)


def make_spec(venv: ContextualVectorEnv) -> Spec:
    """Take an environment's sizes and scales."""
    observation, action = boxes(venv)
    return Spec(
        obs_size=observation.shape[0],
        action_size=action.shape[0],
        context_centre=tuple(float(value) for value in venv.context_space.centre),
        context_half_range=tuple(float(value) for value in venv.context_space.half_range),
    )


def boxes(venv: ContextualVectorEnv) -> tuple[spaces.Box, spaces.Box]:
    """Give the observation and the action space of one environment, which refuse to be anything but boxes."""
    observation, action = venv.single_observation_space, venv.single_action_space
    assert isinstance(observation, spaces.Box) and isinstance(action, spaces.Box)
    return observation, action
