"""What doing nothing gets in each context: where that is much, or much less than nothing, a test measures the context.

In the upper corners of WindHalfCheetah's grid the wind carries the robot off, at −14,900 or +14,900 whatever it does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import gymnasium as gym
import numpy as np

from sparc.acting.evaluate import evaluate
from sparc.arrays import Array
from sparc.config import Config
from sparc.envs.measures import RETURN
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import SparcError
from sparc.files import Damaged, Table, cell, read_table, write_table
from sparc.methods.spec import Reads
from sparc.suites.results import EnvResults

SIMULATOR = "simulator"  # the column of a cache that says what was measured in
ROUNDING = 1e-7  # relative: numbers are written with eight digits


class IdlePolicy:
    """Takes the action zero, whatever it sees."""

    reads: Reads = "nothing"

    def __init__(self, size: int) -> None:
        self.size = size

    def reset(self) -> None:
        """Do nothing: it remembers no episode."""

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Return zeros for observations (R, O)."""
        return np.zeros((len(obs), self.size), np.float32)


def idle_returns(part: EnvResults, config: Config, cache: Path) -> Array | None:
    """Return what doing nothing gets in each context (M,), computed once; None where that means nothing.

    What was measured in another grid, revision of the environment, or with other options of the test is measured anew.
    An environment that is not judged by its return, or whose actions have no zero, has none.
    """
    if RETURN not in part.criteria.judged_by:
        return None
    simulator = describe(config)
    try:
        if (table := read_table(cache)).text(SIMULATOR).tolist() == [simulator] * len(part.contexts):
            return read_idle(table, part)
    except (OSError, Damaged):
        pass  # there is none yet, or of another grid
    try:
        found = measure(part, config)
    except SparcError as error:
        print(f"note: {config.env} is not tested with doing nothing ({error})", file=sys.stderr)
        return None
    if found is not None:
        write_idle(cache, part, found, {SIMULATOR: simulator})
    return found


def describe(config: Config) -> str:
    """Return which simulator runs are tested in: the environment's revision and the options of the test."""
    env = get_env(config.env)
    options = env.resolve_test_options(config.env_options, {})
    return json.dumps({"revision": env.revision, "options": options}, sort_keys=True, default=str)


def measure(part: EnvResults, config: Config) -> Array | None:
    """Do nothing in every context, in the simulator that the runs were tested in."""
    options = get_env(config.env).resolve_test_options(config.env_options, {})
    venv = make_vector_env(config.env, 1, **options)
    actions = venv.single_action_space
    venv.close()
    if not isinstance(actions, gym.spaces.Box) or not actions.contains(np.zeros(actions.shape, actions.dtype)):
        return None
    return evaluate(IdlePolicy(int(np.prod(actions.shape))), config.env, part.contexts, **options).cells()[2]


def write_idle(path: Path, part: EnvResults, returns: Array, notes: Mapping[str, str] | None = None) -> None:
    """Write a row per context, with notes that are the same in all rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(*part.contexts.T, np.where(part.ind, "ind", "ood"), returns, strict=True)
    noted = notes or {}
    columns = [*part.space.names, "region", "return", *noted]
    write_table(path, columns, ([*map(cell, row), *noted.values()] for row in rows))


def read_idle(table: Table, part: EnvResults) -> Array:
    """Return the returns of a table, (M,); Damaged if it is of other contexts."""
    contexts = np.stack([table.numbers(name) for name in part.space.names], axis=1)
    slack = ROUNDING * (np.abs(part.contexts) + np.ptp(part.contexts, axis=0))
    if contexts.shape != part.contexts.shape or (np.abs(contexts - part.contexts) > slack).any():
        raise Damaged("doing nothing was tested in other contexts than the manifest's grid")
    return table.numbers("return")
