"""Any N single environments as one vector environment, for those that have no native one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.contexts import ContextSpace
from sparc.envs.contextual import (
    BadReturn,
    ContextualVectorEnv,
    State,
    check_count,
    check_state,
    pack_rng,
    unpack_rng,
)
from sparc.errors import UserError, unknown


class SyncContextualVectorEnv(ContextualVectorEnv):
    """N single environments, one after the other; saved and restored by replaying the episode under way.

    That works for every environment that is a function of its seed or generator, its context and its actions, without
    knowing what is inside it. How a context that was given lasts is each environment's own business; the replay gives
    it again. Where the replay ends elsewhere, a new episode is started and a warning says so. A context that was
    switched in mid-episode is not part of the replay: until that episode ends there is no saving.

    Each environment's info["measures"], names to numbers, holds its measures so far; the last of an episode count.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env[Any, Any]]], measured: Sequence[str] = ()) -> None:
        check_count("num_envs", len(env_fns))
        self.envs = [make() for make in env_fns]
        space = self.envs[0].get_wrapper_attr("context_space")
        super().__init__(len(env_fns), space, self.envs[0])
        self.spec = self.envs[0].spec
        width = self.single_action_space.shape or (0,)
        self._empty = np.zeros((0, *width), dtype=self.single_action_space.dtype)
        # How each episode began, -1 and NaN standing for "not given", and what was done since.
        self._seed = np.full(self.num_envs, -1, dtype=np.int64)
        self._rng = np.zeros((self.num_envs, 6), dtype=np.uint64)
        self._given = np.full(self.contexts.shape, np.nan)
        self._actions: list[list[NDArray[Any]]] = [[] for _ in self.envs]
        self._switched = np.zeros(self.num_envs, dtype=bool)
        self._measures = {name: np.full(self.num_envs, np.nan) for name in measured}
        self._ended = np.zeros(self.num_envs, dtype=bool)  # rows that are stepped on after their episode

    def _reset(self, rows: NDArray[np.intp], seeds: Sequence[int | None], contexts: Array | None) -> None:
        for row in rows:
            seed = seeds[row]
            if seed is not None and not 0 <= seed < 2**63:
                raise UserError(f"a seed must be between 0 and 2**63, got {seed}")
            self._seed[row] = -1 if seed is None else seed
            # a seed makes the generator's state before it meaningless
            self._rng[row] = 0 if seed is not None else pack_rng([self.envs[row].unwrapped.np_random])[0]
            self._given[row] = np.nan if contexts is None else contexts[row]
            self._begin(row)

    def _begin(self, row: int) -> None:
        """Reset one environment as recorded."""
        self.row = row
        drawn = np.isnan(self._given[row]).any()
        observation, info = self.envs[row].reset(
            seed=None if self._seed[row] < 0 else int(self._seed[row]),
            options=None if drawn else {"context": self._given[row].copy()},
        )
        self._ended[row] = False
        for values in self._measures.values():
            values[row] = np.nan
        self._write(row, observation, info)
        self._actions[row] = []
        self._switched[row] = False

    def _act(self, row: int, action: NDArray[Any]) -> tuple[float, bool, bool]:
        self.row = row
        observation, reward, terminated, truncated, info = self.envs[row].step(action)
        self._write(row, observation, info)
        self._actions[row].append(action)
        self._ended[row] |= terminated or truncated
        return float(reward), bool(terminated), bool(truncated)

    def _write(self, row: int, observation: Any, info: dict[str, Any]) -> None:
        if np.shape(observation) != self.single_observation_space.shape:  # a single number would fill the whole row
            expected = self.single_observation_space.shape
            raise BadReturn(f"an observation of shape {np.shape(observation)} instead of {expected}")
        self._observations[row], self.contexts[row] = observation, info["context"]
        if not self._measures or self._ended[row]:
            return
        for name, value in info.get("measures", {}).items():
            if name not in self._measures:
                raise unknown("measure", name, self._measures, "register_env(measures=)", of="info['measures']")
            self._measures[name][row] = value

    def _step(self, actions: NDArray[Any]) -> tuple[Array, Flags, Flags]:
        results = [self._act(row, action) for row, action in enumerate(actions.copy())]
        reward, terminated, truncated = zip(*results, strict=True)
        return np.array(reward), np.array(terminated), np.array(truncated)

    def use_space(self, space: ContextSpace) -> None:
        """Draw contexts from another space: every environment's attribute context_space is replaced."""
        super().use_space(space)
        for env in self.envs:
            env.set_wrapper_attr("context_space", space)

    def measures(self) -> dict[str, Array]:
        """Return the declared measures of every row's episode, NaN where its environment has reported none."""
        return {name: values.copy() for name, values in self._measures.items()}

    def why_not_switch(self) -> str:
        """Return which environment has no set_context."""
        for env in self.envs:
            if not env.has_wrapper_attr("set_context"):
                name = type(env.unwrapped).__name__
                return f"{name} cannot switch its context in mid-episode; give it a method set_context(context)"
        return ""

    def _switch(self, contexts: Array) -> None:
        for row, env in enumerate(self.envs):
            self.row = row
            env.get_wrapper_attr("set_context")(contexts[row])
        self.contexts[:], self._switched[:] = contexts, True

    def get_state(self) -> State:
        """Return the beginning of each episode, the actions since, and where they led."""
        self._require_started("get_state")
        if self._switched.any():
            row = int(np.argmax(self._switched))
            raise UserError(f"get_state: the context of environment {row} was switched in mid-episode; reset it first")
        return {
            "seed": self._seed.copy(),
            "rng": self._rng.copy(),
            "given": self._given.copy(),
            "lengths": np.array([len(actions) for actions in self._actions]),
            "actions": np.concatenate([self._empty, *(np.stack(actions) for actions in self._actions if actions)]),
            "rng_now": pack_rng([env.unwrapped.np_random for env in self.envs]),
            "contexts": self.contexts.copy(),
            "observations": self._observations.copy(),
        }

    def set_state(self, state: State) -> None:
        """Replay each episode; where that leads elsewhere, start a new one and warn."""
        n, total = self.num_envs, int(np.sum(state.get("lengths", 0)))
        shapes = {"seed": (n,), "rng": (n, 6), "given": self.contexts.shape, "lengths": (n,), "rng_now": (n, 6)}
        shapes |= {"contexts": self.contexts.shape, "observations": self._observations.shape}
        check_state(state, shapes | {"actions": (total, *self._empty.shape[1:])})
        self._seed[:], self._rng[:], self._given[:] = state["seed"], state["rng"], state["given"]
        episodes = np.split(state["actions"], np.cumsum(state["lengths"])[:-1])
        for row, (actions, env) in enumerate(zip(episodes, self.envs, strict=True)):
            if self._seed[row] < 0:
                self._set_rng(env, state["rng"][row])
            self._begin(row)
            for action in actions:
                self._act(row, action.copy())
            same = np.array_equal(self._observations[row], state["observations"][row], equal_nan=True)
            same = same and np.array_equal(self.contexts[row], state["contexts"][row])
            same = same and np.array_equal(pack_rng([env.unwrapped.np_random])[0], state["rng_now"][row])
            if not same:
                warnings.warn(
                    f"environment {row} of {env} did not repeat its episode ({len(actions)} steps): it does not draw "
                    "all its randomness from np_random; a new episode was started there",
                    stacklevel=2,
                )
                self._reset(np.array([row]), [None] * n, None)
        self._started[:] = True

    @staticmethod
    def _set_rng(env: gym.Env[Any, Any], packed: NDArray[np.uint64]) -> None:
        # In place: the environment may keep a reference to its generator.
        env.unwrapped.np_random.bit_generator.state = unpack_rng(packed[None])[0].bit_generator.state

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()
