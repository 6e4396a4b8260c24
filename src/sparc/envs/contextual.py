"""A context for any Gymnasium environment; the base of vector environments that can be saved and restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from sparc.arrays import Array, Flags
from sparc.contexts import ContextSpace
from sparc.errors import RunFailure, SparcError, UserError, describe_exception, unknown

State = dict[str, np.ndarray]
Apply = Callable[[Any, Array], None]
ProgressCall = Callable[[int, int], None]  # how many are done, and of how many

WORD = 2**64  # PCG64 keeps its state and increment as 128-bit integers


def pack_rng(rngs: Sequence[np.random.Generator]) -> NDArray[np.uint64]:
    """Return the states of PCG64 generators as one numeric array, (N, 6)."""
    rows = []
    for rng in rngs:
        full = rng.bit_generator.state
        if full["bit_generator"] != "PCG64":
            raise UserError(f"only PCG64 generators can be saved, got {full['bit_generator']}; seed with reset(seed=)")
        words = [*divmod(full["state"]["state"], WORD), *divmod(full["state"]["inc"], WORD)]
        rows.append([*words, full["has_uint32"], full["uinteger"]])
    return np.array(rows, dtype=np.uint64).reshape(len(rows), 6)


def unpack_rng(packed: ArrayLike) -> list[np.random.Generator]:
    """Return new generators with the states that pack_rng wrote."""
    rngs = []
    for row in np.asarray(packed, dtype=np.uint64):
        high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in row)
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": high * WORD + low, "inc": inc_high * WORD + inc_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        rngs.append(np.random.Generator(bits))
    return rngs


def name_of(env: gym.Env[Any, Any]) -> str:
    """Return the id of an environment, or the name of its class where it has none."""
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else spec.id


def check_spaces(env: gym.Env[Any, Any], name: str) -> None:
    """Refuse an environment whose observations or actions the methods cannot handle; name is what it is called."""
    observation, action = env.observation_space, env.action_space
    if not isinstance(observation, gym.spaces.Box) or len(observation.shape) != 1:
        raise UserError(
            f"{name} has the observations {observation}, but only a one-dimensional Box is supported: wrap the "
            "environment in gymnasium.wrappers.FlattenObservation"
        )
    if not isinstance(action, gym.spaces.Box):
        raise UserError(f"{name} has the actions {action}, but only continuous actions (Box) are supported")
    transform = "wrap the environment in gymnasium.wrappers.TransformAction(env, func, action_space)"
    if len(action.shape) != 1:
        raise UserError(f"{name} has the actions {action}, but only a one-dimensional Box is supported: {transform}")
    if not action.is_bounded():
        raise UserError(
            f"{name} has unbounded actions, {action}, but the policy needs bounds: {transform} with a bounded Box, "
            f"for example Box(-1, 1, {action.shape})"
        )


class ContextualEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Any Gymnasium environment and a context that is drawn at each reset, unless it is given.

    The context and the environment draw from one generator, the environment's np_random: at a reset the context first
    (unless given), then whatever the environment draws. The observation never contains the context. A context that was
    given stays until the episode ends; only drawn ones change on the way, with change_probability.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        context_space: ContextSpace,
        apply: Apply,
        change_probability: float = 0.0,
    ) -> None:
        """Wrap env; apply(env.unwrapped, context) must be idempotent.

        It is called before the environment's reset (a mass must be set before), after it (a reset clears forces) and
        whenever the context changes: in an episode whose context was drawn, a new one is drawn after each step with
        change_probability. An evaluation of one context, given at the reset, must stay in that context.
        """
        super().__init__(env)
        check_spaces(env, name_of(env))
        self.context_space = context_space
        self.apply = apply
        self.change_probability = check_probability(change_probability)
        self.context = context_space.centre
        self._given = False  # whether the context in force was given

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode under options["context"], or under one drawn from the training region."""
        base = self.env.unwrapped
        if seed is not None:  # seeded here and not by the environment, whose draws must come after the context's
            base._np_random, base._np_random_seed = seeding.np_random(seed)
        rest = dict(options or {})
        given = rest.pop("context", None)
        if given is None:
            self.context = self.context_space.sample(base.np_random)
        else:
            self.context = self.context_space.check(np.reshape(given, -1))[0]
        self._given = given is not None
        self._apply()
        observation, info = self.env.reset(options=rest or None)
        self._apply()
        return observation, info | {"context": self.context.copy()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; info["context"] is the context in force for the next one."""
        # Cast as in a vector environment, so that one policy gives the same bits in both.
        action = np.asarray(action, dtype=self.action_space.dtype)
        observation, reward, terminated, truncated, info = self.env.step(action)
        changes = self.change_probability > 0 and not self._given
        if changes and self.np_random.random() < self.change_probability:
            self.context = self.context_space.sample(self.np_random)
            self._apply()
        return observation, reward, terminated, truncated, info | {"context": self.context.copy()}

    def set_context(self, context: ArrayLike) -> None:
        """Switch to another context in mid-episode, from the next step until the episode ends."""
        self.context = self.context_space.check(np.reshape(context, -1))[0]
        self._given = True
        self._apply()

    def _apply(self) -> None:
        try:
            self.apply(self.env.unwrapped, self.context)
        except SparcError:
            raise
        except Exception as error:
            raise RunFailure(
                f"apply of {name_of(self)} failed with the context {self.context_space.text(self.context)}: "
                f"{describe_exception(error)}. --debug shows the traceback."
            ) from error


def check_probability(value: float) -> float:
    """Return the probability, or raise a UserError if it is none."""
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise UserError(f"change_probability must be between 0 and 1, got {value!r}")
    return float(value)


class BadReturn(ValueError):
    """An environment returned something that has the wrong form; the message says what."""


class ContextualVectorEnv(gym.vector.VectorEnv[Any, Any, Any], ABC):
    """N environments at once; an episode that ended is reset by the caller, with options["reset_mask"]."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (Gymnasium's attribute)
    contexts: Array  # (N, C), in force for the next step
    row: int | None = None  # the one being simulated, where rows are simulated one by one: errors name its context
    _RESET_OPTIONS: ClassVar = ("reset_mask", "context")

    def __init__(self, num_envs: int, context_space: ContextSpace, single: gym.Env[Any, Any]) -> None:
        check_spaces(single, name_of(single))
        self.num_envs = check_count("num_envs", num_envs)
        self.context_space = context_space
        box = single.observation_space
        assert isinstance(box, gym.spaces.Box)
        self.single_observation_space = gym.spaces.Box(
            box.low.astype(np.float64), box.high.astype(np.float64), dtype=np.float64
        )
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.contexts = np.tile(context_space.centre, (num_envs, 1))
        self._observations = np.zeros(self.observation_space.shape or ())
        self._started = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset the rows of options["reset_mask"] (all without it); the other rows keep state and observation.

        The context of a row stays for its whole episode if options["context"] gave it.
        """
        options = options or {}
        for name in options:
            if name not in self._RESET_OPTIONS:
                raise unknown("reset option", name, self._RESET_OPTIONS)
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if mask.dtype != bool or mask.shape != (self.num_envs,):
            raise UserError(f"reset_mask must be {self.num_envs} booleans, got {mask.dtype} of shape {mask.shape}")
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise UserError(f"reset needs one seed per environment ({self.num_envs}), got {len(seeds)}")
        rows = np.flatnonzero(mask)
        given = options.get("context")
        if given is not None:
            if np.shape(given) != self.contexts.shape:
                raise UserError(f"contexts must have the shape {self.contexts.shape}, got {np.shape(given)}")
            given = np.array(given, dtype=np.float64)
            given[rows] = self.context_space.check(given[rows])
        if rows.size:
            self._reset(rows, seeds, given)
            self._started[rows] = True
        self._require_started("reset")
        return self._observations.copy(), {"context": self.contexts.copy()}

    def step(self, actions: Any) -> tuple[Array, Array, Flags, Flags, dict[str, Any]]:
        """Take one step in every environment."""
        self._require_started("step")
        try:
            actions = np.asarray(actions, dtype=self.single_action_space.dtype)
        except (TypeError, ValueError) as error:
            raise UserError(f"actions must be numbers of the shape {self.action_space.shape}: {error}") from None
        if actions.shape != self.action_space.shape:
            raise UserError(f"actions must have the shape {self.action_space.shape}, got {actions.shape}")
        if not (finite := np.isfinite(actions)).all():
            row = int(np.argmin(finite.all(axis=1)))
            raise UserError(f"the action for environment {row} is not finite: {actions[row]}; check the policy")
        reward, terminated, truncated = self._step(actions)
        return self._observations.copy(), reward, terminated, truncated, {"context": self.contexts.copy()}

    def set_contexts(self, contexts: ArrayLike) -> None:
        """Switch all rows to other contexts (N, C) in mid-episode, from the next step until their episodes end."""
        self._require_started("set_contexts")
        if np.shape(contexts) != self.contexts.shape:
            raise UserError(f"contexts must have the shape {self.contexts.shape}, got {np.shape(contexts)}")
        if reason := self.why_not_switch():
            raise UserError(reason)
        self._switch(self.context_space.check(contexts))

    def why_not_switch(self) -> str:
        """Return why contexts cannot be switched in mid-episode; nothing where they can."""
        if type(self)._switch is ContextualVectorEnv._switch:
            return f"{type(self).__name__} cannot switch contexts in mid-episode; write its method _switch(contexts)"
        return ""

    def use_space(self, space: ContextSpace) -> None:
        """Draw contexts from the training region of another space, from the next reset on."""
        self.context_space = space

    def measures(self) -> dict[str, Array]:
        """Return what an episode yields besides its return: a number for each row, NaN where there is none.

        Of a row that is stepped on after its episode has ended, the numbers are those of its end.
        """
        return {}

    def labels(self) -> list[str]:
        """Name the context of each row in words, where numbers alone would not tell; nothing elsewhere."""
        return []

    def counters(self) -> dict[str, int]:
        """Count what should be seen in the metrics, such as crashes that were survived."""
        return {}

    def take_notes(self) -> list[str]:
        """Return what happened since the last call that a person should read."""
        return []

    def _require_started(self, what: str) -> None:
        if not self._started.all():
            raise UserError(f"{what}: environment {int(np.argmin(self._started))} was never reset; call reset() first")

    @abstractmethod
    def _reset(self, rows: NDArray[np.intp], seeds: Sequence[int | None], contexts: Array | None) -> None:
        """Start episodes in these rows and write their contexts and observations."""

    @abstractmethod
    def _step(self, actions: NDArray[Any]) -> tuple[Array, Flags, Flags]:
        """Take a step, write contexts and observations, return reward, terminated, truncated."""

    def _switch(self, contexts: Array) -> None:
        """Put these contexts in force; not abstract, because only adaptation traces need it."""
        raise NotImplementedError

    @abstractmethod
    def get_state(self) -> State:
        """Return everything needed to go on bit for bit, as plain numeric arrays."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Go on exactly where get_state was called, here or in another process."""


def check_count(name: str, value: Any) -> int:
    """Return a number of things, or raise a UserError if it is not at least one."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise UserError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


class NativeVectorEnv(ContextualVectorEnv):
    """What vector environments share that simulate all rows themselves: generators, contexts, time limit, state.

    A subclass draws in _start and _advance exactly what its single environment draws, from self._rngs[row].
    """

    def __init__(
        self,
        num_envs: int,
        context_space: ContextSpace,
        single: gym.Env[Any, Any],
        max_episode_steps: int | None,
        change_probability: float,
    ) -> None:
        super().__init__(num_envs, context_space, single)
        self.change_probability = check_probability(change_probability)
        unlimited = max_episode_steps is None or max_episode_steps == -1  # -1 as in gymnasium.make
        self._limit = np.inf if unlimited else check_count("max_episode_steps", max_episode_steps)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._given = np.zeros(num_envs, dtype=bool)  # whether a row's context was given
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]

    @abstractmethod
    def _start(self, rows: NDArray[np.intp]) -> None:
        """Start an episode in these rows under self.contexts and write their observations."""

    @abstractmethod
    def _advance(self, actions: NDArray[Any]) -> tuple[Array, Flags]:
        """Simulate one step, write the observations, return reward and terminated."""

    def _arrays(self) -> State:
        """Return the live arrays that are the state, by name; a subclass adds its own."""
        return {
            "contexts": self.contexts,
            "given": self._given,
            "elapsed": self._elapsed,
            "observations": self._observations,
        }

    def _reset(self, rows: NDArray[np.intp], seeds: Sequence[int | None], contexts: Array | None) -> None:
        for row in rows:
            if seeds[row] is not None:
                self._rngs[row] = seeding.np_random(seeds[row])[0]
            self.contexts[row] = self.context_space.sample(self._rngs[row]) if contexts is None else contexts[row]
        self._given[rows] = contexts is not None
        self._elapsed[rows] = 0
        self._start(rows)

    def _switch(self, contexts: Array) -> None:
        self.contexts[:], self._given[:] = contexts, True

    def _step(self, actions: NDArray[Any]) -> tuple[Array, Flags, Flags]:
        self._elapsed += 1
        reward, terminated = self._advance(actions)
        if self.change_probability:
            for row in np.flatnonzero(~self._given):
                rng = self._rngs[row]
                if rng.random() < self.change_probability:
                    self.contexts[row] = self.context_space.sample(rng)
        return reward, terminated, self._elapsed >= self._limit

    def get_state(self) -> State:
        """Return everything needed to go on bit for bit, as plain numeric arrays."""
        self._require_started("get_state")
        return {name: array.copy() for name, array in self._arrays().items()} | {"rng": pack_rng(self._rngs)}

    def set_state(self, state: State) -> None:
        """Go on exactly where get_state was called, here or in another process."""
        live = self._arrays()
        check_state(state, {name: array.shape for name, array in live.items()} | {"rng": (self.num_envs, 6)})
        for name, array in live.items():
            array[...] = state[name]
        self._rngs = unpack_rng(state["rng"])
        self._started[:] = True


def check_state(state: State, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise a UserError unless the state has exactly these arrays."""
    found = {name: np.shape(array) for name, array in state.items()}
    if found != shapes:
        wrong = sorted(name for name in found.keys() | shapes.keys() if found.get(name) != shapes.get(name))
        raise UserError(
            f"the saved environment state does not fit in {', '.join(wrong)}; "
            "it belongs to another environment or another number of environments"
        )
