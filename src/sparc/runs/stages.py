"""The stages of a run: what it trains on, and, in a child, what its parents trained on before.

A run that another one continues from is its parent. The child's config.yaml has, beside the fields of the config:

stages:                        all of the lineage, the child's own last
- ranges: {}                   of context features, where they differ from the stage before
  names: []                    or the names of contexts, such as cars
  env_options: {}
- ranges: {x: [0.5, 1.0], y: [0.5, 1.0]}
  …
continues: {run: seed0-20261118T101500Z, checkpoint: 9000, sha256: …, keep: 0.5, guard: false, only_adapter: false,
            no_context: false}

A run with neither has one stage, the environment as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sparc.config import Config
from sparc.contexts import ContextSpace
from sparc.envs.registry import EnvEntry, get_env
from sparc.errors import UserError

KEEP = 0.5  # share of a minibatch that is old: with a quarter HalfCheetah forgot more and learned no more
STAGES, CONTINUES = "stages", "continues"  # keys of config.yaml


@dataclass(frozen=True)
class Stage:
    """What one stage trains on."""

    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    names: Sequence[str] = ()
    env_options: Mapping[str, Any] = field(default_factory=dict)

    def space(self, entry: EnvEntry, before: ContextSpace | None) -> ContextSpace:
        """Return the contexts of the stage; `before` are those of the stage before it, None in a first stage."""
        own = before or entry.context_space  # as before, in another variant of the environment
        if self.names:
            own = entry.subset_of(self.names)
        elif self.ranges:
            own = own.with_train(own.region(self.ranges))
        return own if before is None else before.continued(own)


@dataclass(frozen=True)
class Parent:
    """Where a child begins, and how it goes on."""

    run: str  # the name of the parent's directory
    checkpoint: int
    sha256: str  # of the checkpoint's arrays
    keep: float  # share of each minibatch that is drawn from what the stages before have seen
    guard: bool = False  # a policy that is worse than the parent's is never the best
    only_adapter: bool = False  # of methods with phases: the expert stays as it is
    no_context: bool = False  # contexts are unknown, and read back from φ(h)


@dataclass(frozen=True)
class Lineage:
    """All stages of a run, its own last."""

    stages: tuple[Stage, ...]
    parent: Parent | None = None

    @property
    def number(self) -> int:
        """The number of stages."""
        return len(self.stages)

    def spaces(self, entry: EnvEntry) -> list[ContextSpace]:
        """Return the contexts of every stage, each with the regions of those before it."""
        found: list[ContextSpace] = []
        for stage in self.stages:
            found.append(stage.space(entry, found[-1] if found else None))
        return found

    def space(self, entry: EnvEntry) -> ContextSpace:
        """Return the contexts that the run itself trains on, with the regions before it."""
        return self.spaces(entry)[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return what config.yaml holds of it: nothing for one stage in the environment as it is."""
        if self.parent is None and not (self.stages[0].ranges or self.stages[0].names):
            return {}
        stages = [
            {
                "ranges": {name: [float(bound) for bound in bounds] for name, bounds in stage.ranges.items()},
                "names": list(stage.names),
                "env_options": dict(stage.env_options),
            }
            for stage in self.stages
        ]
        return {STAGES: stages} | ({CONTINUES: asdict(self.parent)} if self.parent else {})

    @classmethod
    def take(cls, values: dict[str, Any], where: str) -> Lineage:
        """Take what `to_dict` wrote out of the values of a config.yaml."""
        stages, parent = values.pop(STAGES, None), values.pop(CONTINUES, None)
        try:
            if stages is None and parent is None:
                return cls((Stage(env_options=values.get("env_options", {})),))
            return cls(tuple(Stage(**stage) for stage in stages), Parent(**parent) if parent else None)
        except (TypeError, ValueError) as error:
            raise UserError(f"{where}: {STAGES} and {CONTINUES} are not what sparc wrote ({error}).") from error


def first_stage(config: Config, ranges: Mapping[str, Sequence[float]], names: Sequence[str] = ()) -> Lineage:
    """Return the lineage of a run without a parent, which may train on other contexts than the environment's own."""
    lineage = Lineage((Stage(dict(ranges), tuple(names), config.env_options),))
    lineage.spaces(get_env(config.env))  # says if there is no such region
    return lineage
