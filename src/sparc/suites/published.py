"""Published results of a suite: members whose rows stand in tables that a report wrote need no run directory.

Machines come and go, and their run directories with them; the tables stay. `sparc suite run SUITE --published DIR`
trains only what DIR lacks, and `sparc suite report SUITE --published DIR` writes both together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.config import make_config
from sparc.envs.measures import RETURN
from sparc.envs.registry import get_env
from sparc.errors import SparcError, UserError
from sparc.suites.results import EnvResults, label
from sparc.suites.stages import DERIVED, FIELDS, SuiteStage, read_stages
from sparc.suites.status import Status
from sparc.suites.suite import LISTS, PROVIDED, Member, Suite, find_suite
from sparc.suites.tables import read

KINDS = ("returns", "measures", "curves", "traces", "latents")
REMEDY = "make the suite's settings those of the results, or leave --published out"

Key = tuple[str, str, str, int]  # environment, method, variation, seed


class Source:
    """One folder of results."""

    def __init__(self, folder: Path):
        self.folder, self.results = folder, read(folder)
        self.suite: str = self.results.manifest["suite"]
        done = [entry for entry in self.results.manifest["members"] if entry["state"] == "done"]
        self.entries = {(entry["env"], entry["method"], entry["variation"], entry["seed"]): entry for entry in done}

    def key(self, member: Member) -> Key:
        """Return what a member goes by here; a plain run has no variation in the results of the suite it is of."""
        variation = "" if member.plain and self.suite == member.runs else member.variation
        return member.env, member.method, variation, member.config.seed

    def refuse(self, why: str) -> UserError:
        """Return the error for results that cannot be mixed with the suite's."""
        return UserError(f"{self.folder}: {why}; {REMEDY}.")

    def check(self, suite: Suite, members: Iterable[Member]) -> None:
        """Refuse results of another suite, of other tests, or of members with another config."""
        manifest = self.results.manifest
        if self.suite not in (suite.name, suite.runs):
            raise UserError(f"{self.folder} holds results of the suite '{self.suite}', not of '{suite.name}'.")
        own = self.suite == suite.name
        tests = {"grid": suite.grid, "episodes": suite.episodes, "variants": suite.tested_in}
        for name, here in (tests | ({"primary": suite.primary} if own else {})).items():
            if (there := manifest.get(name, [])) != plain(here):
                raise self.refuse(f"{name} is {there}, not {here}")
        stages = {name: plain(asdict(stage)) for name, stage in read_stages(suite.stages).items()}
        for name, stage in manifest.get("stages", {}).items():
            if stage_of(name, stage) != stages.get(name, {}):
                raise self.refuse(f"stage '{name}' is another one")
        found = {self.key(member): member for member in members}
        for key, entry in self.entries.items():
            if key in found:
                self.check_member(found[key], entry)
            elif own:
                raise self.refuse(f"{name_of(key)} is no member of the suite")

    def check_member(self, member: Member, entry: dict[str, Any]) -> None:
        """Refuse a member of another config or revision, or tested in other contexts or by other criteria."""
        env, part = get_env(member.config.env), self.results.envs[member.env]
        what = name_of(self.key(member))
        if part.space.to_dict() != plain(env.context_space.as_tested().to_dict()):
            raise self.refuse(f"{member.env} had other contexts")
        if part.criteria != env.criteria:
            raise self.refuse(f"{member.env} was judged by other measures")
        if (old := revision_of(entry)) != env.revision:
            raise self.refuse(f"{what} was run in revision {old} of {member.env}, which is at {env.revision}")
        try:
            there = make_config(entry["config"]).to_dict()
        except SparcError as error:
            raise self.refuse(f"the config of {what} is none of today's ({error})") from error
        for name, value in member.config.to_dict().items():
            if plain(there.get(name)) != plain(value):
                raise self.refuse(f"{what} was run with {name} {there.get(name)}, not {value}")

    def idle(self, member: Member) -> Array | None:
        """Return what doing nothing gets; None where it was not measured in the member's environment as it is today."""
        wanted = get_env(member.config.env).revision, plain(member.config.env_options)
        for entry in self.entries.values():
            if entry["env"] == member.env and (revision_of(entry), entry["config"].get("env_options", {})) == wanted:
                return self.results.envs[member.env].idle
        return None


class Published:
    """Folders of results that stand beside a suite's run directories; without folders there is nothing."""

    def __init__(self, folders: Iterable[Path] = ()):
        self.sources = [Source(folder) for folder in folders]

    def check(self, suite: Suite) -> None:
        """Refuse folders with anything that is not the suite's."""
        if self.sources:
            members = self.joined(suite).members()
            for source in self.sources:
                source.check(suite, members)

    def joined(self, suite: Suite) -> Suite:
        """Return the suite with all methods, environments and seeds that its own folders have."""
        order = find_suite(suite.name) if (PROVIDED / f"{suite.name}.yaml").is_file() else suite
        for source in self.sources:
            entries = source.entries.values() if source.suite == suite.name else ()
            others = {name: [entry["config"][name.removesuffix("s")] for entry in entries] for name in LISTS}
            suite = suite.joined(others, order)
        return suite

    def source(self, member: Member) -> Source | None:
        """Return the first folder that has a member."""
        return next((source for source in self.sources if source.key(member) in source.entries), None)

    def standing(self, members: list[Member], folder: Path) -> list[Member]:
        """Return the members that need no run: a parent's networks are needed as long as a child is not begun."""
        needed = set[Member]()
        for member in reversed(members):  # children come behind their parents
            stands = member not in needed and self.source(member)
            if member.parent is not None and not stands and not (folder / member.path / "config.yaml").exists():
                needed.add(member.parent)
        return [member for member in members if member not in needed and self.source(member)]

    def status(self, member: Member) -> Status:
        """Return where a member is that stands here."""
        source = self.source(member)
        assert source is not None
        env, *names, seed = source.key(member)
        part, key = source.results.envs[env], label(*names)
        cells = part.ind if part.ind.all() else ~part.ind
        judged = {name: part.measures[key][seed][name][cells] for name in part.judged_by if name != RETURN}
        means = {"mean": part.returns[key][seed][cells].mean()} | {k: np.nanmean(v) for k, v in judged.items()}
        score = f"{'IND' if part.ind.all() else 'OOD'} {part.criteria.outcome(means)}"
        return Status("published", source.entries[source.key(member)]["updates"], score=score)

    def idle(self, member: Member) -> Array | None:
        """Return what doing nothing gets in a member's environment, if a folder has it of the same revision."""
        found = (source.idle(member) for source in self.sources)
        return next((returns for returns in found if returns is not None), None)

    def copy(self, member: Member, part: EnvResults) -> dict[str, Any] | None:
        """Put a member's rows in their places and return its entry in the manifest; None: it does not stand here."""
        source = self.source(member)
        if source is None:
            return None
        env, *names, seed = key = source.key(member)
        there, mine = source.results.envs[env], label(member.method, member.variation)
        for place, tested in ((part, there), *((part.variants[name], there.variants[name]) for name in part.variants)):
            if given := place.other_given(tested.measures[label(*names)][seed]):
                raise UserError(f"{source.folder}: {name_of(key)} was tested with {given}: test one of them again.")
            if place.context_labels and place.context_labels != tested.context_labels:
                raise source.refuse(f"the contexts of {env} have other names")
            place.context_labels[:] = tested.context_labels
            for kind in KINDS:
                found = getattr(tested, kind).get(label(*names), {})
                if seed in found:
                    getattr(place, kind).setdefault(mine, {})[seed] = found[seed]
        return source.entries[key] | {"variation": member.variation, "run": member.path.as_posix()}


def stage_of(name: str, described: dict[str, Any]) -> dict[str, Any] | None:
    """Return a manifest's stage with today's fields, those it lacks at their defaults; None if it has unknown ones."""
    given = {key: value for key, value in described.items() if key not in ("name", *DERIVED)}
    if not given.get("after"):
        given.pop("keep", None)  # it has nothing to keep, whatever the default was
    return plain(asdict(SuiteStage(name, **given))) if given.keys() <= set(FIELDS) else None


def revision_of(entry: dict[str, Any]) -> int:
    """Return the revision of the environment that a member was run in; results of earlier versions do not say."""
    return int(entry.get("revision", 1))


def plain(value: Any) -> Any:
    """Return a value as JSON reads it."""
    return json.loads(json.dumps(value))


def name_of(key: Key) -> str:
    """Return a member's name for messages."""
    env, method, variation, seed = key
    return f"{env}, {label(method, variation)}, seed {seed}"
