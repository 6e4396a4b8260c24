"""The registry of environments with a context. Imports neither MuJoCo nor JAX: an environment loads what it needs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from sparc.contexts import ContextSpace
from sparc.envs.contextual import Apply, Array, ContextualEnv, ContextualVectorEnv, ProgressCall, check_count
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.errors import UserError, unknown
from sparc.plugins import import_named, load_plugins

ENTRY_POINT_GROUP = "sparc.envs"  # each names a module that registers environments, or a function that does

Creator = Callable[..., Any]
Score = Callable[[Mapping[str, Array]], list[float]]
ChooseBy = Callable[[Mapping[str, Array]], float]
Prepare = Callable[[Array, Mapping[str, Any], ProgressCall | None], None]
Remarks = Callable[[Array, Mapping[str, Any]], list[str]]
Signals = tuple[tuple[str, str], ...]  # a name and a unit for each element of a vector


@dataclass(frozen=True)
class EnvEntry:
    """What is known of an environment before it is made."""

    id: str
    space: ContextSpace | Callable[[], ContextSpace]
    summary: str
    max_episode_steps: int
    test_options: Mapping[str, Any] = field(default_factory=dict)
    score: Score | None = None
    prepare: Prepare | None = None
    remarks: Remarks | None = None
    preset: str = "mujoco"
    choose_by: ChooseBy | None = None
    revision: int = 1
    preparing: str = "preparing the tests"
    prepared: str = "contexts"
    observation: Signals | None = None  # None: nobody has said
    action: Signals | None = None
    period: float | None = None  # s per control step

    @cached_property
    def context_space(self) -> ContextSpace:
        """The contexts, made when they are first asked for."""
        return self.space if isinstance(self.space, ContextSpace) else self.space()

    def options_of_test(self, trained: Mapping[str, Any], asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of a test: those of training, overridden by test_options, overridden by the caller's.

        So neither the setting nor the longest episode of training reaches a lap.
        """
        return {**trained, **self.test_options, **(asked or {})}

    def ready(self, contexts: Array, options: Mapping[str, Any], progress: ProgressCall | None = None) -> None:
        """Prepare tests in these contexts, which are made with these options."""
        if self.prepare:
            self.prepare(contexts, options, progress)

    def scores(self, returns: Array, measures: Mapping[str, Array]) -> list[float]:
        """Return what the Pareto front is made of: the return in each setting, or what the environment scores by."""
        return returns.tolist() if self.score is None else self.score(measures)

    def choice(self, returns: Array, measures: Mapping[str, Array]) -> float:
        """Return what the best checkpoint is chosen by, from the episodes in the choice settings; more is better."""
        scores = self.scores(returns, measures) if self.choose_by is None else self.choose_by(measures)
        return float(np.mean(scores))

    def remark(self, contexts: Array, options: Mapping[str, Any]) -> list[str]:
        """Return what a reader of such a test's results should know."""
        return self.remarks(contexts, options) if self.remarks else []


_entries: dict[str, EnvEntry] = {}
_plugins_loaded = False


def register_env(
    id: str,
    *,
    context_space: ContextSpace | Callable[[], ContextSpace],
    make: Callable[..., gym.Env[Any, Any]] | str,
    make_vector: Creator | str | None = None,
    max_episode_steps: int | None = None,
    apply: Apply | None = None,
    summary: str = "",
    test_options: Mapping[str, Any] | None = None,
    score: Score | None = None,
    prepare: Prepare | None = None,
    remarks: Remarks | None = None,
    preset: str = "mujoco",
    choose_by: ChooseBy | None = None,
    revision: int = 1,
    preparing: str = "preparing the tests",
    prepared: str = "contexts",
    observation: Sequence[tuple[str, str]] | None = None,
    action: Sequence[tuple[str, str]] | None = None,
    period: float | None = None,
) -> None:
    """Register an environment with a context, with Gymnasium as well.

    context_space may be a function that makes it, where that takes a while.
    make is a callable, "package.module:callable" (loaded when needed), or, with apply, the id of an existing Gymnasium
    environment: then apply(env.unwrapped, context) gives it the context, and its own time limit holds if none is given.

    Evaluations make it with test_options. Checkpoints are kept by the Pareto front of the returns in the settings, or
    of what score makes of the vector environment's measures() there: numbers of which more is better. The best one has
    the highest mean return in the choice settings, or the highest choose_by(measures) there; with score alone, the
    highest mean of its numbers. What takes long and is needed once for a set of contexts to be tested in,
    prepare(contexts, options, progress) does beforehand; `sparc evaluate` shows a bar with the title preparing
    meanwhile, which counts prepared. What it should say of such a test besides its results, remarks(contexts, options)
    gives. Training starts from preset unless told otherwise.

    Raise revision when actions, observations or rewards change under the same id: runs of an earlier revision are then
    refused instead of acting in a world that they were not trained for.

    observation and action name the elements of both vectors in order, each as (name, unit), and period is the time of a
    control step in seconds: what `sparc export` tells whoever puts the policy on a robot. The unit is what a value of 1
    means: "m/s", "rad", or "120 N·m" where the environment scales.
    """
    signals = _signals(id, "observation", observation), _signals(id, "action", action)
    if period is not None and not 0.0 < period < math.inf:
        raise UserError(f"{id}: period= must be the seconds of a control step, got {period!r}")
    if apply is not None:
        if not isinstance(make, str):
            raise UserError(f"{id}: apply= goes with the id of a Gymnasium environment as make=, got {make!r}")
        try:
            base_limit = gym.spec(make).max_episode_steps
        except gym.error.Error as error:
            raise UserError(f"{id}: make='{make}' is no environment that Gymnasium knows: {error}") from None
        max_episode_steps = base_limit if max_episode_steps is None else max_episode_steps
        if not isinstance(context_space, ContextSpace):
            context_space = context_space()
        make = _adapter(make, context_space, apply)
    elif isinstance(make, str) and ":" not in make:
        raise UserError(f"{id}: make='{make}' needs apply=, or the form 'package.module:callable'")
    if max_episode_steps is None:
        raise UserError(f"{id} needs max_episode_steps=: an evaluation runs until every episode has ended")
    gym.register(
        id,
        entry_point=make,
        vector_entry_point=make_vector if make_vector is not None else _sync(id),
        max_episode_steps=max_episode_steps,
    )
    own = dict(test_options or {})
    _entries[id] = EnvEntry(
        id, context_space, summary, max_episode_steps, own, score, prepare, remarks, preset, choose_by, revision,
        preparing, prepared,
        *signals, period,
    )  # fmt: skip


def make_env(id: str, **options: Any) -> gym.Env[Any, Any]:
    """Make one environment."""
    entry = get_env(id)
    return _call(entry, gym.spec(entry.id).entry_point, options, lambda: gym.make(entry.id, **options))


def make_vector_env(id: str, num_envs: int, threads: int = 1, **options: Any) -> ContextualVectorEnv:
    """Make num_envs environments that step together, on so many threads where the environment can use them."""
    entry = get_env(id)
    check_count("num_envs", num_envs)
    check_count("threads", threads)
    creator = gym.spec(entry.id).vector_entry_point
    extra: dict[str, Any] = {"threads": threads} if "threads" in _parameters(creator) else {}

    def build() -> Any:
        return gym.make_vec(entry.id, num_envs, "vector_entry_point", **extra, **options)

    return _call(entry, creator, options, build)


def get_env(id: str) -> EnvEntry:
    """Return the entry of an id; "module:Id" imports the module first."""
    name = import_named(id, "environment")
    entries = _entries if name in _entries else all_envs()
    if name not in entries:
        raise unknown("environment", name, sorted(entries), "`sparc envs`; for one of your own, write module:id")
    return entries[name]


def all_envs() -> dict[str, EnvEntry]:
    """Return all registered environments by id, those of installed plugins included."""
    global _plugins_loaded
    if not _plugins_loaded:
        _plugins_loaded = True
        load_plugins(ENTRY_POINT_GROUP)
    return dict(_entries)


def _signals(id: str, what: str, given: Sequence[tuple[str, str]] | None) -> Signals | None:
    """Return names and units as tuples; refuse what is none, or a name that occurs twice."""
    if given is None:
        return None
    for pair in given:
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(part, str) for part in pair) or not pair[0]:
            raise UserError(f"{id}: {what}= needs a (name, unit) for each element, got {pair!r}")
    names = [name for name, _ in given]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{id}: {what}= has the name '{twice}' more than once")
    return tuple((name, unit) for name, unit in given)


def _adapter(base: str, context_space: ContextSpace, apply: Apply) -> Creator:
    def make(change_probability: float = 0.0, **options: Any) -> ContextualEnv:
        env = gym.make(base, max_episode_steps=-1, disable_env_checker=True, **options)
        return ContextualEnv(env, context_space, apply, change_probability)

    return make


def _sync(id: str) -> Creator:
    def make(num_envs: int, **options: Any) -> SyncContextualVectorEnv:
        options = {"disable_env_checker": True} | options
        return SyncContextualVectorEnv([lambda: gym.make(id, **options)] * num_envs)

    return make


def _parameters(creator: Any) -> list[str]:
    found = inspect.signature(load_env_creator(creator) if isinstance(creator, str) else creator).parameters
    return [name for name, parameter in found.items() if parameter.kind is not parameter.VAR_KEYWORD]


def _call(entry: EnvEntry, creator: Any, options: dict[str, Any], build: Callable[[], Any]) -> Any:
    """Build an environment; say which option it does not have."""
    try:
        return build()
    except TypeError as error:
        refused = re.search(r"(?:unexpected keyword|multiple values for) argument '(\w+)'", str(error))
        if refused is None or refused[1] not in options:
            raise
        known = [name for name in _parameters(creator) if name not in ("num_envs", "threads")]
        raise unknown("option", refused[1], known, of=entry.id, complete=False) from None
