"""The registry of environments with a context. Imports neither MuJoCo nor JAX: an environment loads what it needs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.envs.contextual import (
    Apply,
    ContextualEnv,
    ContextualVectorEnv,
    ProgressCall,
    check_count,
    check_spaces,
)
from sparc.envs.declared import (
    DEFAULT_VARIANT,
    Quantities,
    Signals,
    check_period,
    check_probes,
    check_signals,
    check_variants,
    is_reference,
)
from sparc.envs.measures import RETURN, Criteria, Measure, make_criteria
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.errors import UserError, unknown
from sparc.plugins import import_named, load_plugins

ENTRY_POINT_GROUP = "sparc.envs"  # each names a module that registers environments, or a function that does
RACING = "sparc.envs.racing"  # registers the races when it is imported, which `import sparc` need not wait for

Creator = Callable[..., Any]
ChooseBy = Callable[[Mapping[str, Array]], float]
Prepare = Callable[[Array, Mapping[str, Any], ProgressCall | None], None]
Remarks = Callable[[Array, Mapping[str, Any]], list[str]]
Subset = Callable[[Sequence[str]], ContextSpace]


@dataclass(frozen=True)
class EnvEntry:
    """What is known of an environment before it is made."""

    id: str
    space: ContextSpace | Callable[[], ContextSpace]
    summary: str
    max_episode_steps: int
    test_options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Prepare | None = None
    remarks: Remarks | None = None
    preset: str = "mujoco"
    choose_by: ChooseBy | None = None
    revision: int = 1
    preparing: str = "preparing the tests"
    prepared: str = "contexts"
    criteria: Criteria = field(default_factory=Criteria)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of tests: name → options
    observation: Signals | None = None  # None: nobody has said
    action: Signals | None = None
    period: float | None = None  # s per control step
    subset: Subset | None = None
    real_time: bool = False  # it goes on by the wall clock, whether or not anybody acts
    probes: Quantities = field(default_factory=dict)  # of a context: what tests read from encodings
    module: str = ""  # that has registered it

    @cached_property
    def context_space(self) -> ContextSpace:
        """The contexts, made when they are first asked for."""
        return self.space if isinstance(self.space, ContextSpace) else self.space()

    def subset_of(self, names: Sequence[str]) -> ContextSpace:
        """Return the space that trains on the contexts of these names."""
        if self.subset is None:
            raise UserError(f"the contexts of {self.id} have no names: give ranges, such as x=-1:1.")
        return self.subset(names)

    def resolve_test_options(
        self, trained: Mapping[str, Any], asked: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the options of a test: those of training, overridden by test_options, overridden by the caller's.

        So an environment may be tested in other and longer episodes than it is trained in.
        """
        return {**trained, **self.test_options, **(asked or {})}

    def variant_options(self, name: str) -> Mapping[str, Any]:
        """Return the options of a variant by its name; none of the default, which is no variant."""
        if name == DEFAULT_VARIANT:
            return {}
        if name not in self.variants:
            raise unknown("test variant", name, self.variants, of=self.id)
        return self.variants[name]

    def variant_of(self, options: Mapping[str, Any]) -> str:
        """Return the variant that a test with these options is; nothing if it is none, or the environment's default."""
        if not self.variants:
            return ""
        spec = gym.spec(self.id)
        usual = {**_defaults(spec.entry_point), **_defaults(spec.vector_entry_point)}
        found = [
            name
            for name, own in self.variants.items()
            if own.items() <= {**usual, **options}.items() and not own.items() <= usual.items()
        ]
        return max(found, key=lambda name: len(self.variants[name]), default="")

    def without_variant(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options without those of the variant that they are in: one variant takes the place of another."""
        left = self.variants.get(self.variant_of(options), {})
        return {name: value for name, value in options.items() if name not in left}

    def with_variant(self, options: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return options in a variant; nothing changes without a name."""
        return {**self.without_variant(options), **self.variant_options(name)} if name else dict(options)

    def prepare_tests(self, contexts: Array, options: Mapping[str, Any], progress: ProgressCall | None = None) -> None:
        """Prepare tests in these contexts, which are made with these options."""
        if self.prepare:
            self.prepare(contexts, options, progress)

    def scores(self, returns: Array, measures: Mapping[str, Array]) -> list[float]:
        """Return what the Pareto front is made of: the return in each setting, or the means of what judges episodes."""
        if self.criteria.judged(measures) == (RETURN,):
            return returns.tolist()
        return self.criteria.scores(returns, measures)

    def choice(self, returns: Array, measures: Mapping[str, Array]) -> float:
        """Return what the best checkpoint is chosen by, from the episodes in the choice settings; more is better."""
        if self.choose_by is not None:
            return float(self.choose_by(measures))
        return self.criteria.scores(returns, measures)[0]

    def notes(self, contexts: Array, options: Mapping[str, Any]) -> list[str]:
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
    measures: Mapping[str, Measure] | None = None,
    judged_by: str | Sequence[str] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    probes: Quantities | None = None,
    prepare: Prepare | None = None,
    preparing: str = "preparing the tests",
    prepared: str = "contexts",
    remarks: Remarks | None = None,
    preset: str = "mujoco",
    choose_by: ChooseBy | None = None,
    observation: Sequence[tuple[str, str]] | None = None,
    action: Sequence[tuple[str, str]] | None = None,
    period: float | None = None,
    real_time: bool = False,
    subset: Subset | None = None,
    revision: int = 1,
) -> None:
    """Register an environment with a context, here and with Gymnasium.

    Args:
        id: what commands, run directories and Gymnasium call it, "HeavyPendulum-v0".
        context_space: the contexts to train and to test on, or a function that returns them, where that takes a while.
        make: the id of a Gymnasium environment, a class or function that makes one, or "package.module:callable", which
            is loaded when it is needed. Options of `make_env` are passed on to it. Without `apply`, what it makes must
            handle its context itself: docs/environments/your-own.md says how.
        make_vector: a `ContextualVectorEnv`, or what makes one, called with `num_envs`; by default the single
            environments are stepped one after the other.
        max_episode_steps: the step after which an episode is truncated. Needed unless `make` is a Gymnasium id.
        apply: a function that sets a context, `apply(env.unwrapped, context)`, called before and after each reset and
            whenever the context changes. It must set values, not scale them.
        summary: one line for `sparc envs`.
        test_options: options of `make_env` that evaluations use on top of those of training.
        measures: what an episode yields besides its return, each a `sparc.Measure` by name. `info["measures"]` of a
            single environment, or `measures()` of a vector environment, has the values.
        judged_by: the measures that rank policies, the most important first; by default the return. Tables, figures
            and the Pareto front of checkpoints go by them.
        variants: further tests by name, each with options that are set on top: `sparc evaluate RUN --variant NAME`, or
            `variants:` in a suite.
        probes: quantities of a context by name, each a function that returns (M,) for contexts (M, C). Evaluations of
            policies with an adapter read them from ψ(c) and φ(h), see `sparc.acting.probe`.
        prepare: called as `prepare(contexts, options, progress)` before an evaluation, for what takes long and is
            needed once for a set of contexts.
        preparing: the title of the bar that `sparc evaluate` shows meanwhile.
        prepared: what that bar counts, by default "contexts".
        remarks: returns what `sparc evaluate` adds to its results, from `(contexts, options)`.
        preset: the preset that training starts from by default.
        choose_by: returns the number that selects the best checkpoint, more is better, from the `measures()` in the
            choice settings. By default it is the mean of the first measure in `judged_by`, or of the returns.
        observation: name and unit of each element of the observation, in order: [("angle", "rad"), …]. The unit is what
            a value of 1 means, "120 N·m" where the environment scales. `sparc export` puts all three into its contract.
        action: likewise for the elements of the action.
        period: the time of a control step in seconds.
        real_time: whether it goes on by the wall clock, as a console or a robot does. Workers then step it once per
            `period`, which it needs, and never let it wait for the learner.
        subset: returns the space that trains on contexts given by their names, for `sparc continue --train-cars`.
        revision: raise it when actions, observations or rewards change under the same id, so that runs of an earlier
            revision are refused instead of acting in a world that they were not trained for.

    Raises:
        UserError: `make` names no environment, or `max_episode_steps` is missing.

    Example:
        >>> def apply(env, context):
        ...     env.m, env.l = context
        >>> sparc.register_env(
        ...     "HeavyPendulum-v0",
        ...     make="Pendulum-v1",
        ...     apply=apply,
        ...     context_space=sparc.ContextSpace.box(m=("kg", (0.8, 1.2), (0.5, 1.5)), l=("m", (0.8, 1.2), (0.5, 1.5))),
        ... )
    """
    signals = check_signals(id, "observation", observation), check_signals(id, "action", action)
    check_period(id, period, real_time)
    if apply is not None:
        if isinstance(make, str) and not is_reference(make):
            try:
                base_limit = gym.spec(make).max_episode_steps
            except gym.error.Error as error:
                raise UserError(f"{id}: make='{make}' is no environment that Gymnasium knows: {error}") from None
            max_episode_steps = base_limit if max_episode_steps is None else max_episode_steps
        elif not isinstance(make, str) and not callable(make):
            raise UserError(
                f"{id}: make= must be a Gymnasium id, a class or function, or 'package.module:callable', got {make!r}"
            )
        make = _adapter(id, make, apply)
    elif isinstance(make, str) and not is_reference(make):
        raise UserError(f"{id}: make='{make}' needs apply=, or the form 'package.module:callable'")
    if max_episode_steps is None:
        raise UserError(f"{id} needs max_episode_steps=: an evaluation runs until every episode has ended")
    criteria, tested = make_criteria(id, measures, judged_by), check_variants(id, variants or {})
    if isinstance(context_space, ContextSpace) and (both := set(context_space.names) & set(criteria.measures)):
        raise UserError(f"{id}: '{min(both)}' is a context feature and a measure: rename one of them")
    probed = check_probes(id, probes or {}, criteria.measures)
    gym.register(
        id,
        entry_point=make,
        vector_entry_point=make_vector if make_vector is not None else _sync(id),
        max_episode_steps=max_episode_steps,
    )
    own = dict(test_options or {})
    _entries[id] = EnvEntry(
        id, context_space, summary, max_episode_steps, own, prepare, remarks, preset, choose_by, revision, preparing,
        prepared, criteria, tested, *signals, period, subset, real_time, probed,
        sys._getframe(1).f_globals.get("__name__", ""),
    )  # fmt: skip


def make_env(id: str, **options: Any) -> gym.Env[Any, Any]:
    """Make one environment.

    Args:
        id: a registered environment, see `sparc envs`, or "module:Id", which imports the module first.
        **options: options of the environment, and of `gymnasium.make`: `render_mode="rgb_array"`, for example.

    Returns:
        A Gymnasium environment. `reset(options={"context": c})` sets the context; without it, one is drawn from the
        training region. `info["context"]` is the context of the next step.

    Raises:
        UserError: there is no such environment, or it has no such option.

    Example:
        >>> env = sparc.make_env("DriftingBoat-v0")
        >>> obs, info = env.reset(seed=0, options={"context": [0.9, -0.9]})
    """
    entry = get_env(id)
    return _call(entry, gym.spec(entry.id).entry_point, options, lambda: gym.make(entry.id, **options))


def make_vector_env(id: str, num_envs: int, threads: int = 1, **options: Any) -> ContextualVectorEnv:
    """Make environments that step together.

    Args:
        id: a registered environment, see `sparc envs`, or "module:Id", which imports the module first.
        num_envs: how many.
        threads: how many threads they may use; only MuJoCo and TORCS can use more than one.
        **options: options of the environment, and of `gymnasium.make_vec`.

    Returns:
        A vector environment with `contexts` (num_envs, C). It does not reset itself: pass the rows that ended as
        `reset(options={"reset_mask": ended})`. `get_state` and `set_state` save and restore it.

    Raises:
        UserError: there is no such environment, it has no such option, or a number is below 1.

    Example:
        >>> venv = sparc.make_vector_env("WindHopper-v5", 441, threads=2)
        >>> obs, info = venv.reset(seed=0, options={"context": venv.context_space.grid(21)})
    """
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
    if name not in _entries:
        import_module(RACING)
    entries = _entries if name in _entries else all_envs()
    if name not in entries:
        raise unknown("environment", name, sorted(entries), "`sparc envs`; for one of your own, write module:id")
    return entries[name]


def all_envs() -> dict[str, EnvEntry]:
    """Return all registered environments by id, those of installed plugins included."""
    global _plugins_loaded
    import_module(RACING)
    if not _plugins_loaded:
        _plugins_loaded = True
        load_plugins(ENTRY_POINT_GROUP)
    return dict(_entries)


def _adapter(id: str, base: Creator | str, apply: Apply) -> Creator:
    """Return a function that makes the base environment and gives it a context."""

    def make(change_probability: float = 0.0, **options: Any) -> ContextualEnv:
        env: Any
        if isinstance(base, str) and not is_reference(base):
            env = gym.make(base, max_episode_steps=-1, disable_env_checker=True, **options)
        else:
            env = (load_env_creator(base) if isinstance(base, str) else base)(**options)
            if not isinstance(env, gym.Env):
                raise UserError(f"{id}: make= must return a gymnasium.Env, got {env!r}")
        check_spaces(env, id)
        return ContextualEnv(env, get_env(id).context_space, apply, change_probability)

    return make


def _sync(id: str) -> Creator:
    def make(num_envs: int, **options: Any) -> SyncContextualVectorEnv:
        options = {"disable_env_checker": True} | options
        return SyncContextualVectorEnv(
            [lambda: gym.make(id, **options)] * num_envs, tuple(_entries[id].criteria.measures)
        )

    return make


def _signature(creator: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(load_env_creator(creator) if isinstance(creator, str) else creator).parameters


def _parameters(creator: Any) -> list[str]:
    found = _signature(creator)
    return [name for name, parameter in found.items() if parameter.kind is not parameter.VAR_KEYWORD]


def _defaults(creator: Any) -> dict[str, Any]:
    found = _signature(creator)
    return {name: parameter.default for name, parameter in found.items() if parameter.default is not parameter.empty}


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
