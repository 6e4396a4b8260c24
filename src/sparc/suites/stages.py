"""Stages of a suite: runs that continue other runs of the same suite, beside some that are trained anew.

stages:
  inner: {}                                   the environment as it is, for the suite's updates
  shifted: {after: inner, train_region: {x: [0.5, 1.0]}, updates: 600, keep: 0.25}
  shifted-anew: {train_region: {x: [0.5, 1.0]}, updates: 600}         without a parent, to compare with
  shifted-adapter: {after: inner, train_region: {x: [0.5, 1.0]}, only_adapter: true, methods: [rma]}
  icy: {after: shifted, variant: icy}         in a variant of the environment, as are all that come after it

In the suite's folder, tables and figures a stage stands where a variation does. With `runs: a-suite`, a stage such as
`inner` is that suite's run; stages that differ from it are in the suite's own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sparc.envs.registry import EnvEntry, get_env
from sparc.errors import UserError, unknown
from sparc.runs.stages import KEEP, Lineage, Stage


@dataclass(frozen=True)
class SuiteStage:
    """One stage of a suite."""

    name: str
    after: str = ""  # the stage that it continues; nothing: it is trained anew
    train_region: Mapping[str, Sequence[float]] = field(default_factory=dict)
    train_cars: Sequence[str] = ()
    variant: str = ""  # of the environment, from here on; nothing: as in the stage before, "default": none
    updates: int | None = None  # of reinforcement learning; of a first stage by default the suite's, else a tenth of it
    keep: float = KEEP
    guard: bool = False
    only_adapter: bool = False
    no_context: bool = False
    methods: Sequence[str] = ()  # that have this stage; by default all

    @property
    def usual(self) -> bool:
        """Whether it is trained anew in the environment as it is, as the runs of a suite without stages are."""
        return not (self.after or self.train_region or self.train_cars or self.variant)

    @property
    def stage(self) -> Stage:
        """What it trains on."""
        return Stage(dict(self.train_region), tuple(self.train_cars))

    def options(self) -> list[str]:
        """Return the options of `sparc continue` but for the number of updates."""
        found = ["--keep", f"{self.keep:g}"]
        if self.train_region:
            found += [
                "--train-region",
                ",".join(f"{k}={low!r}:{high!r}" for k, (low, high) in self.train_region.items()),
            ]
        if self.train_cars:
            found += ["--train-cars", *self.train_cars]
        if self.variant:
            found += ["--variant", self.variant]
        flags = {"--guard": self.guard, "--only-adapter": self.only_adapter, "--no-context": self.no_context}
        return [*found, *(flag for flag, given in flags.items() if given)]


DERIVED = ("regions", "variants")  # what a manifest has of a stage besides its fields
FIELDS = [own.name for own in fields(SuiteStage) if own.name != "name"]


def is_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number above zero, or None."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


TEXT = "text", lambda value: isinstance(value, str)
TEXTS = "a list of names", is_texts
FLAG = "true or false", lambda value: isinstance(value, bool)
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "after": TEXT,
    "train_region": ("feature: [low, high] lines", lambda value: isinstance(value, dict)),
    "train_cars": TEXTS,
    "variant": TEXT,
    "updates": ("a whole number above 0", is_whole),
    "keep": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "guard": FLAG,
    "only_adapter": FLAG,
    "no_context": FLAG,
    "methods": TEXTS,
}


def read_stages(values: Any) -> dict[str, SuiteStage]:
    """Read the stages of a suite file; each must follow one above it."""
    if not isinstance(values, dict):
        raise UserError("stages must hold a `name: {…}` line for each stage.")
    found: dict[str, SuiteStage] = {}
    for name, own in values.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise UserError(f"a stage's name becomes part of a folder's name: {name!r} cannot.")
        for key in own if isinstance(own, dict) else [own]:
            if key not in FIELDS:
                raise UserError(f"stage '{name}': {unknown('field', key, FIELDS, 'docs/continual.md')}")
            kind, is_kind = KINDS[key]
            if not is_kind(own[key]):
                raise UserError(f"stage '{name}': {key} must be {kind}, not {own[key]!r}.")
        stage = SuiteStage(name, **own)
        if stage.after and stage.after not in found:
            raise UserError(f"stage '{name}' comes after '{stage.after}', which is no stage above it.")
        found[name] = stage
    return found


def check_regions(stages: Mapping[str, SuiteStage], envs: Sequence[str]) -> None:
    """Refuse stages that train where an environment does not allow it."""
    for name in stages:
        try:
            for env in envs:
                lineage(stages, name).spaces(get_env(env))
                variant_in(stages, name, get_env(env))
        except UserError as error:
            raise UserError(f"stage '{name}': {error}") from error


def ancestry(stages: Mapping[str, SuiteStage], name: str) -> list[SuiteStage]:
    """Return a stage with those that it continues, the first one first."""
    path = [stages[name]]
    while path[0].after:
        path.insert(0, stages[path[0].after])
    return path


def lineage(stages: Mapping[str, SuiteStage], name: str) -> Lineage:
    """Return what a stage and those before it train on."""
    return Lineage(tuple(stage.stage for stage in ancestry(stages, name)))


def variant_in(stages: Mapping[str, SuiteStage], name: str, entry: EnvEntry) -> str:
    """Return the variant of an environment that a stage trains in; nothing for the environment's default."""
    given = [stage.variant for stage in ancestry(stages, name) if stage.variant]
    return entry.variant_of(entry.resolve_test_options({}, entry.variant_options(given[-1]))) if given else ""


def describe(stages: Mapping[str, SuiteStage], envs: Sequence[str]) -> dict[str, Any]:
    """Return the stages for a manifest, with region and variant that each trains in, of every environment."""
    found: dict[str, Any] = {}
    for name, stage in stages.items():
        entries = [get_env(env) for env in envs]  # by their names without the module that they are registered in
        regions = {entry.id: lineage(stages, name).space(entry).as_stage() for entry in entries}
        variants = {entry.id: variant_in(stages, name, entry) for entry in entries}
        found[name] = asdict(stage) | {"regions": regions, "variants": variants}
    return found
