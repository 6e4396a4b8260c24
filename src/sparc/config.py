"""One flat, frozen configuration; each field carries its help text and its range, so it can check itself.

The same fields are command-line options (`--batch-size 64`), keys of a YAML file and keywords of `sparc.train`.
Options that only one method has are declared where it is registered (`sparc.register_method`) and stand in
`Config.options`; outside of Python they are fields like the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

from sparc.errors import UserError, unknown


def option(default: Any, help: str, *, low: float | None = None, high: float | None = None, above: float | None = None,
           below: float | None = None, choices: tuple[str, ...] | None = None) -> Any:  # fmt: skip
    """Declare a field with its help text and its values: low ≤ value ≤ high, above < value < below, one of choices."""
    limits = {"help": help, "low": low, "high": high, "above": above, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=limits)


MAX_SEED = 2**31 - 1
MAX_FILE_BYTES, MAX_FILE_VALUES = 1_000_000, 100_000  # of a config or suite file
MIN_RENORM_BATCH = 8  # the mean and variance of fewer rows say little


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a run. The defaults are the preset `mujoco`: the paper's MuJoCo settings."""

    method: str = dataclasses.field(metadata={"help": "a method's name, or module:name, see `sparc methods`"})
    env: str = dataclasses.field(metadata={"help": "an environment id, see `sparc envs`"})
    seed: int = option(0, "seed of networks, exploration, minibatches and environments", low=0, high=MAX_SEED)
    updates: int = option(3_000_000, "number of gradient updates in all", low=1, high=10**12)
    env_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"help": "options of the environment, e.g. change_probability=0.01"}
    )

    width: int = option(256, "units of each observation and decision layer", low=1, high=16_384)
    latent: int = option(32, "units of the context encoding ψ(c) and of its estimate φ(h)", low=1, high=4_096)
    num_quantiles: int = option(32, "quantiles of each critic; 1 gives plain SAC", low=1, high=1_024)
    history_length: int = option(50, "observation-action pairs in the history h", low=1, high=10_000)

    batch_size: int = option(32, "transitions in a minibatch", low=1, high=2**20)
    learning_rate: float = option(3e-4, "Adam's step for actor and critics", above=0)
    adapter_learning_rate: float = option(3e-4, "Adam's step for the history adapter φ", above=0)
    adapter_batch_size: int = option(
        0, "most rows of the minibatch that φ's regression uses; 0: all", low=0, high=2**20
    )
    adam_beta1: float = option(0.9, "Adam's decay rate β₁ of the first moment", low=0, below=1)
    final_lr_fraction: float = option(
        1.0, "share of the learning rates left at the end, falling linearly", low=0, high=1
    )
    discount: float = option(0.99, "discount factor γ", low=0, high=1)
    n_step: int = option(1, "rewards summed before the critics take over", low=1, high=1_000)
    target_networks: bool = option(True, "bootstrap from target critics; without them, from the critics themselves")
    tau: float = option(0.005, "share τ by which the target critics follow", above=0, high=1)
    batch_renorm: bool = option(False, "batch renormalisation in the critics' layers")
    critic_clip: float = option(10.0, "largest global norm of the critics' gradient", above=0)
    temperature: float = option(0.01, "entropy temperature α (its start, when tuned)", above=0)
    tune_temperature: bool = option(False, "tune the temperature to an entropy of minus the number of actions")
    policy_delay: int = option(1, "critic updates per update of actor and temperature", low=1, high=10)
    ema_decay: float = option(
        0.0, "decay per actor update of the averaged weights, which are evaluated and shipped; 0: no average", low=0
    )
    normalize_observations: bool = option(False, "standardise observations by their running mean and variance")
    observation_clip: float = option(10.0, "largest absolute value of a standardised observation", above=0)

    num_envs: int = option(10, "environments stepped together", low=1, high=100_000)
    steps_per_update: int = option(1, "environment steps per gradient update", low=1, high=100_000)
    random_steps: int = option(
        5_000, "environment steps with random actions before the first update", low=1, high=10**9
    )
    replay_capacity: int = option(1_000_000, "newest transitions that minibatches are drawn from", low=1, high=10**10)

    chunk: int = option(
        50, "updates per compiled call; as many environment steps are collected at a time", low=1, high=10**6
    )
    log_every: int = option(1_000, "updates between two lines of metrics", low=1, high=10**12)
    evaluate_every: int = option(
        10_000, "updates between two evaluations, each followed by a checkpoint", low=1, high=10**12
    )

    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # the method's own, see `declare_options`

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            object.__setattr__(self, name, checked(field, getattr(self, name)))
        own = declared(self.method).fields
        object.__setattr__(self, "options", {name: checked(own[name], self.options.get(name, own[name].default))
                                             for name in own})  # fmt: skip
        for name in ("updates", "log_every", "evaluate_every"):
            multiple_of(name, getattr(self, name), self.chunk, "chunk")
        multiple_of("chunk × steps_per_update", self.chunk * self.steps_per_update, self.num_envs, "num_envs")
        if taken := {"id", "num_envs", "threads"} & self.env_options.keys():
            raise UserError(f"env_options cannot set {', '.join(sorted(taken))}: sparc sets it itself.")
        if self.env_options.get("max_episode_steps", 1) in (None, -1):
            raise UserError("env_options: max_episode_steps must be at least 1, an evaluation waits for every end.")
        multiple_of("chunk", self.chunk, self.policy_delay, "policy_delay")
        if not self.target_networks and not self.batch_renorm:
            raise UserError(
                "target_networks=false needs batch_renorm=true: without either, critics diverge. Set batch_renorm=true "
                "or target_networks=true."
            )
        if self.batch_renorm and self.batch_size < MIN_RENORM_BATCH:
            raise UserError(
                f"batch_renorm needs the statistics of a minibatch: raise batch_size ({self.batch_size}) to at least "
                f"{MIN_RENORM_BATCH}, or set batch_renorm=false and target_networks=true."
            )
        if self.ema_decay >= 1.0:
            raise UserError(
                f"ema_decay ({self.ema_decay:g}) must be below 1, or the average never moves: choose 0.998, say, "
                "or 0 for no average."
            )
        for name, needed in (("tau", "target_networks"), ("observation_clip", "normalize_observations")):
            if not getattr(self, needed) and getattr(self, name) != FIELDS[name].default:
                raise UserError(f"{name} changes nothing without {needed}: set {needed}=true, or leave {name} out.")
        # of a lane's newest rows every other one may close an episode, and is then no transition
        if self.replay_capacity // self.num_envs * self.num_envs < 2 * max(self.random_steps, self.num_envs):
            raise UserError(
                f"replay_capacity ({self.replay_capacity}) must be at least twice random_steps ({self.random_steps}) "
                f"and num_envs ({self.num_envs}): learning waits for that many transitions."
            )
        self.options.update(declared(self.method).resolve(self))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for YAML and JSON, the method's own options among the other fields."""
        values = dataclasses.asdict(self)
        return values | values.pop("options")

    @property
    def extendable(self) -> bool:
        """Whether a run can get more updates: learning rates that fall towards its last update cannot rise again."""
        return self.final_lr_fraction == 1.0


FIELDS = {field.name: field for field in dataclasses.fields(Config) if field.name != "options"}
RENAMED = {"final_rate": "final_lr_fraction", "target_rate": "tau"}  # earlier names, still read from files of runs
_HINTS = {name: hint for name, hint in get_type_hints(Config).items() if name in FIELDS}


def type_of(field: dataclasses.Field[Any]) -> type:
    """Return the type of a field's values, without parameters: dict for dict[str, Any]."""
    hint: Any = _HINTS.get(field.name, field.type)
    kind: type = get_origin(hint) or hint
    return kind


# Options of one method


class Declared(NamedTuple):
    """What a method adds to the config."""

    fields: Mapping[str, dataclasses.Field[Any]] = {}
    resolve: Callable[[Config], Mapping[str, Any]] = lambda config: {}  # fills in values, refuses impossible ones


OPTION_TYPES = (int, float, bool, str)
_declared: dict[str, Declared] = {}  # by the method's name


def declare_options(method: str, options: Mapping[str, Any], resolve: Callable[[Config], Mapping[str, Any]]) -> None:
    """Add a method's own options, each made with `option`; `resolve` sees a config whose single values are checked."""
    for name, field in options.items():
        if name in FIELDS:
            raise UserError(f"method '{method}': the option '{name}' is a field of every method: choose another name.")
        kind = type(field.default) if isinstance(field, dataclasses.Field) else None
        if kind not in OPTION_TYPES:
            raise UserError(
                f"method '{method}': declare the option '{name}' with sparc.config.option(default, help), "
                f"the default of type {', '.join(option_type.__name__ for option_type in OPTION_TYPES)}."
            )
        field.name, field.type = name, kind
    _declared[method] = Declared(options, resolve)


def declared(method: str) -> Declared:
    """Return what a method, by its name or "module:name", adds to the config."""
    return _declared.get(str(method).rpartition(":")[2], Declared())


def owners(option: str) -> list[str]:
    """Return the methods that have an option."""
    return [method for method, own in _declared.items() if option in own.fields]


def split_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Config` for flat values; refuse unknown names and options of other methods.

    An option of another method at its default is left out: the config files of older runs have those of all methods.
    """
    method = str(values.get("method", ""))
    shared: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for given, value in values.items():
        name = RENAMED.get(given, given)
        if name in FIELDS:
            shared[name] = value
        elif name in declared(method).fields:
            own[name] = value
        elif others := owners(name):
            field = _declared[others[0]].fields[name]
            if checked(field, value) != field.default:
                raise UserError(f"{name} is an option of {' and '.join(others)}, not of {method}: leave it out.")
        else:
            raise unknown("config field", name, [*FIELDS, *declared(method).fields], "`sparc train --help`")
    return {**shared, "options": own}


# What differs from the defaults. `fast` learns robots in the wind in minutes of one core; `light` is for small problems
# such as DriftingBoat, `racing` for TORCS on one or two cores; `mujoco` and `gran-turismo` are the paper's own.
PRESETS: dict[str, dict[str, Any]] = {
    "mujoco": {},
    "gran-turismo": {
        "width": 2048,
        "latent": 64,
        "batch_size": 1024,
        "learning_rate": 2.5e-5,
        "adapter_learning_rate": 2.5e-4,
        "discount": 0.9896,
        "updates": 9_000_000,
    },
    "fast": {
        "width": 128,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "adapter_learning_rate": 1e-3,
        "adapter_batch_size": 32,
        "adam_beta1": 0.5,
        "final_lr_fraction": 0.0,
        "target_networks": False,
        "batch_renorm": True,
        "temperature": 1.0,
        "tune_temperature": True,
        "policy_delay": 2,
        "ema_decay": 0.998,
        "normalize_observations": True,
        "updates": 300_000,
        "num_envs": 20,
        "steps_per_update": 4,
        "random_steps": 20_000,
    },
    "racing": {
        "width": 128,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "adapter_learning_rate": 1e-3,
        "adam_beta1": 0.5,
        "final_lr_fraction": 0.0,
        "discount": 0.9896,
        "n_step": 3,
        "target_networks": False,
        "batch_renorm": True,
        "policy_delay": 2,
        "ema_decay": 0.998,
        "updates": 50_000,
        "num_envs": 100,
        "steps_per_update": 16,
        "replay_capacity": 600_000,
        "log_every": 500,
        "evaluate_every": 5_000,
    },
    "light": {
        "width": 64,
        "history_length": 10,
        "num_quantiles": 16,
        "batch_size": 64,
        "discount": 0.8,
        "learning_rate": 1e-3,
        "adapter_learning_rate": 3e-3,
        "adam_beta1": 0.5,
        "final_lr_fraction": 0.0,
        "target_networks": False,
        "batch_renorm": True,
        "tune_temperature": True,
        "policy_delay": 2,
        "ema_decay": 0.995,
        "normalize_observations": True,
        "updates": 10_000,
        "num_envs": 50,
        "steps_per_update": 10,
        "replay_capacity": 150_000,
        "log_every": 500,
        "evaluate_every": 1_000,
    },
}


def field_value(name: str, values: Mapping[str, Any], preset: str) -> Any:
    """Return the value of a field that `make_config` would take, unchecked."""
    return {**PRESETS.get(preset, {}), **values}.get(name, FIELDS[name].default)


def make_config(values: Mapping[str, Any], preset: str = "mujoco") -> Config:
    """Put values over a preset; an unknown name is a UserError that names the nearest field."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    arguments = split_options(values)
    for name in ("method", "env"):
        if name not in values:
            raise UserError(f"The config lacks '{name}': {FIELDS[name].metadata['help']}.")
    merged = {**PRESETS[preset], **arguments}
    if PRESETS[preset].get("tune_temperature") and not merged["tune_temperature"] and "temperature" not in values:
        raise UserError(
            f"The preset {preset} tunes the temperature: with tune_temperature=false also set temperature to the one "
            "to keep, 0.01 say."
        )
    return Config(**merged)


def read_config(path: Path, what: str = "config file") -> dict[str, Any]:
    """Read the fields of a YAML file."""
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UserError(f"The {what} {path} has more than {MAX_FILE_BYTES:,} bytes: it is no {what}.")
        stream = BytesIO(data)  # as from a file and not from its text: the error then quotes no lines
        stream.name = str(path)
        values = yaml.safe_load(stream)
        if expanded(values, {}) > MAX_FILE_VALUES:
            raise UserError(f"The {what} {path} has more than {MAX_FILE_VALUES:,} values: it is no {what}.")
    except OSError as error:
        raise UserError(f"Cannot read the {what} {path}: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also: an invalid date; lists in lists in lists
        raise UserError(f"Cannot read the {what} {path}: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise UserError(f"The {what} {path} must hold `field: value` lines.")
    return values


def expanded(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are with every alias written out, without doing that."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_FILE_VALUES + 1  # what contains itself has no end
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(expanded(each, known) for each in inside)
    return known[id(value)]


def multiple_of(name: str, value: int, base: int, base_name: str) -> None:
    """Refuse a value that is no multiple of the base: the run's rhythm must not depend on where it was interrupted."""
    if value % base:
        below, above = value // base * base, (value // base + 1) * base
        choice = f"{below} or {above}" if below else f"{above}"
        raise UserError(f"{name} ({value}) must be a multiple of {base_name} ({base}): take {choice}.")


def checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """Convert a value to its field's type and compare it with the field's limits."""
    name, kind, limits = field.name, type_of(field), field.metadata
    try:
        if kind in (int, float):
            number = float(value)  # the command line and YAML may give 1e6 or 3e-4 as text
            if isinstance(value, bool) or not math.isfinite(number) or (kind is int and number != int(number)):
                raise ValueError
            value = int(number) if kind is int else number
        elif not isinstance(value, Mapping if kind is dict else kind):
            raise ValueError
    except (TypeError, ValueError):
        expected = {int: "a whole number", float: "a finite number"}.get(kind, f"of type {kind.__name__}")
        raise UserError(f"{name} must be {expected}, not {value!r}.") from None
    low, high, above, below, choices = (limits.get(key) for key in ("low", "high", "above", "below", "choices"))
    if choices and value not in choices:
        raise unknown(name, value, choices)
    limit = {
        f"at least {low}": low is None or value >= low,
        f"above {above}": above is None or value > above,
        f"at most {high}": high is None or value <= high,
        f"below {below}": below is None or value < below,
    }
    if broken := [text for text, kept in limit.items() if not kept]:
        raise UserError(f"{name} must be {broken[0]}, not {value}.")
    return dict(value) if isinstance(value, Mapping) else value
