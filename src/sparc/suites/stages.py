"""Stages of a suite: runs that continue other runs of the same suite, beside some that are trained anew.

stages:
  inner: {}                                   the environment as it is, for the suite's updates
  shifted: {after: inner, train_region: {x: [0.5, 1.0]}, updates: 600, keep: 0.25}
  shifted-anew: {train_region: {x: [0.5, 1.0]}, updates: 600}         without a parent, to compare with
  shifted-adapter: {after: inner, train_region: {x: [0.5, 1.0]}, only_adapter: true, methods: [rma]}

In the suite's folder, tables and figures a stage stands where a variation does. With `runs: a-suite`, a stage such as
`inner` is that suite's run; stages that differ from it are in the suite's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sparc.envs.registry import get_env
from sparc.errors import UserError, unknown
from sparc.runs.stages import KEEP, Lineage, Stage


@dataclass(frozen=True)
class SuiteStage:
    """One stage of a suite."""

    name: str
    after: str = ""  # the stage that it continues; nothing: it is trained anew
    train_region: Mapping[str, Sequence[float]] = field(default_factory=dict)
    train_cars: Sequence[str] = ()
    updates: int | None = None  # of reinforcement learning; of a first stage by default the suite's, else a tenth of it
    keep: float = KEEP
    guard: bool = False
    only_adapter: bool = False
    no_context: bool = False
    methods: Sequence[str] = ()  # that have this stage; by default all

    @property
    def usual(self) -> bool:
        """Whether it is trained anew in the environment as it is, as the runs of a suite without stages are."""
        return not (self.after or self.train_region or self.train_cars)

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
        flags = {"--guard": self.guard, "--only-adapter": self.only_adapter, "--no-context": self.no_context}
        return [*found, *(flag for flag, given in flags.items() if given)]


FIELDS = [own.name for own in fields(SuiteStage) if own.name != "name"]


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
        except UserError as error:
            raise UserError(f"stage '{name}': {error}") from error
        except (TypeError, ValueError) as error:
            raise UserError(f"stage '{name}': train_region must hold feature: [low, high] lines ({error}).") from error


def ancestry(stages: Mapping[str, SuiteStage], name: str) -> list[SuiteStage]:
    """Return a stage with those that it continues, the first one first."""
    path = [stages[name]]
    while path[0].after:
        path.insert(0, stages[path[0].after])
    return path


def lineage(stages: Mapping[str, SuiteStage], name: str) -> Lineage:
    """Return what a stage and those before it train on."""
    return Lineage(tuple(stage.stage for stage in ancestry(stages, name)))


def describe(stages: Mapping[str, SuiteStage], envs: Sequence[str]) -> dict[str, Any]:
    """Return the stages for a manifest, with the region that each trains on in every environment."""
    found: dict[str, Any] = {}
    for name, stage in stages.items():
        regions = {env: lineage(stages, name).space(get_env(env)).as_stage() for env in envs}
        found[name] = asdict(stage) | {"regions": regions}
    return found
