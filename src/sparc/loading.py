"""From a run directory back to a policy: which checkpoint, and how its arrays become networks again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium import spaces

from sparc import checkpoint, select
from sparc.config import Config
from sparc.envs import make_vector_env
from sparc.envs.contextual import ContextualVectorEnv
from sparc.errors import RunFailure, UserError
from sparc.methods import get_method
from sparc.methods.qr_sac import QrSac, Spec, State
from sparc.policy import Policy
from sparc.runs import Run


def load(run_dir: str | Path, which: str | int = "best") -> Policy:
    """Load a run's policy: the best checkpoint, the last one, or one by its number of updates."""
    run = Run.open(run_dir)
    number = choose(run, which)
    arrays, meta = checkpoint.load(run.checkpoints / str(number))
    venv = make_vector_env(run.config.env, 1, **run.config.env_options)
    method = get_method(run.config.method)(run.config, make_spec(venv), meta["phase"])
    policy = wrap(method, restored(method, arrays), venv, run.config)
    venv.close()
    return policy


def restored(method: QrSac, arrays: checkpoint.Arrays) -> State:
    """Put a checkpoint's networks and optimisers into a state of the method."""
    state: State = checkpoint.unflatten(method.init(np.random.default_rng(0)), arrays, "state")
    return state


def choose(run: Run, which: str | int) -> int:
    """Find the checkpoint meant by best, last or a number of updates."""
    there = checkpoint.numbers(run.checkpoints)
    if not there:
        raise UserError(f"{run.path} has no checkpoint yet: train it first, `sparc resume {run.path}`.")
    if str(which).isdecimal():
        if int(which) not in there:
            raise UserError(f"{run.path} has no checkpoint {which}: it has {', '.join(map(str, there))}.")
        return int(which)
    if which not in ("best", "last"):
        raise UserError(f"The checkpoint must be best, last or a number of updates, not '{which}'.")
    if which == "best":
        scores = newest_scores(run)
        found = select.best({number: score for number, score in scores.items() if number in there})
        if found is not None:
            return found
    return there[-1]


def newest_scores(run: Run) -> dict[int, list[float]]:
    """Read the evaluations of the run's current phase from its newest sound checkpoint."""
    for number in reversed(checkpoint.numbers(run.checkpoints)):
        try:
            return checkpoint.load_scores(checkpoint.load_meta(run.checkpoints / str(number)))
        except RunFailure:
            continue  # whoever loads that one is told
    return {}


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
