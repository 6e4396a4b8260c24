"""The tidy tables of a suite: what the figures and the report are made from, in memory and as a folder of small files.

manifest.json        the suite, its environments' contexts, every member: its run, checkpoint, state, versions
cells-<env>.csv      a row per member and context of the grid: the mean return over the episodes, and measures of it;
                     a context that has a name and more than two features goes by its name, as in the manifest's labels
cells-<env>-<variant>.csv  the same in a variant of the environment
curves-<env>.csv     a row per member and evaluation during training: the mean return in the IND settings that
                     checkpoints are chosen by, the phase; the measures that the environment is judged by; and what
                     explains them (docs/runs.md): the policy's variants, φ's error, the critics' bias, the entropy
traces-<env>.csv     a row per member and step around a switch of the context in mid-episode
latents-<env>.csv    a row per member and context of the grid: ψ(c) and φ(h) in two dimensions

Large tables may be packed, `gzip cells-*.csv`; any of them is read so as well. Tables that the folder of another suite
has as well are left out (`sparc.suites.manifest`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc.acting.adaptation import Latents, Trace
from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.envs.measures import RETURN, Criteria
from sparc.errors import UserError
from sparc.files import Table, cell, read_table, write_table
from sparc.methods.registry import MethodEntry, described_method
from sparc.suites.manifest import check_seals, find_table, write_manifest
from sparc.suites.older import criteria_of, with_new_names

Value = TypeVar("Value")
ByMember = dict[str, dict[int, Value]]  # label → seed → what that run gave

KEYS = ("method", "variation", "seed")
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError)  # files
LABEL = "label"  # of a context
ROUNDING = 1e-7  # relative: numbers are written with eight digits
PROTAGONIST, RIVAL = 2, 1  # the prominence of methods that comparisons are about, and of those they meet first
APART = ", "  # between an environment and the variant of it that was tested
VARIANTS = {"expert": "the expert, told the context", "newest": "the newest weights"}  # beside what is shipped
# What explains a run, at every evaluation during training.
EXPLAINED = (
    "expert_return", "newest_return", "adapter_error_0", "adapter_error_10", "adapter_error_50", "q_bias",
    "discounted_return", "entropy", "temperature", "critic_gradient_norm", "critic_clipped",
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Evaluations during training."""

    updates: Array  # (T,)
    returns: Array  # (T,) mean over the IND settings that checkpoints are chosen by
    phase: NDArray[np.str_]  # (T,) "train"; of RMA "expert", then "adapter"
    measures: dict[str, Array] = field(default_factory=dict)  # by name, (T,) each, over the same settings; NaN: none

    def values(self, name: str) -> Array:
        """Return the return or a measure, (T,); NaN where there is none."""
        return self.returns if name == RETURN else self.measures.get(name, np.full(len(self.updates), np.nan))


@dataclass(frozen=True)
class EnvResults:
    """All members of one environment."""

    space: ContextSpace
    contexts: Array  # (M, C)
    ind: NDArray[np.bool_]  # (M,)
    returns: ByMember[Array] = field(default_factory=dict)  # (M,) each
    measures: ByMember[dict[str, Array]] = field(default_factory=dict)  # by name, (M,) each; NaN: none
    curves: ByMember[Curve] = field(default_factory=dict)
    traces: ByMember[Trace] = field(default_factory=dict)
    latents: ByMember[Latents] = field(default_factory=dict)
    context_labels: list[str] = field(default_factory=list)  # (M,) what the contexts are called, where they have names
    variants: dict[str, EnvResults] = field(default_factory=dict)  # the same runs and contexts in variants of it
    criteria: Criteria = field(default_factory=Criteria)  # how the measures are read, and which of them judge

    @property
    def regions(self) -> list[str]:
        """Return the regions that have cells."""
        return [name for name, cells in (("ood", ~self.ind), ("ind", self.ind)) if cells.any()]

    @property
    def measure_names(self) -> list[str]:
        """Return the names of the measures, in the environment's order."""
        return list(dict.fromkeys(name for seeds in self.measures.values() for of in seeds.values() for name in of))

    @property
    def judged_by(self) -> tuple[str, ...]:
        """Return what the environment is judged by: measures that all runs have, or the return."""
        found = [set(of) for seeds in self.measures.values() for of in seeds.values()]
        return self.criteria.judged(set.intersection(*found)) if found else self.criteria.judged_by

    def available(self, kind: str, label: str) -> dict[int, Any]:
        """Return what the seeds of a label have of a kind of result, but for those whose table would have no row."""
        found: dict[int, Any] = getattr(self, kind).get(label, {})
        return {seed: value for seed, value in found.items() if rows_of(value)}

    def matrix(self, label: str, region: str | None = None, measure: str | None = None) -> Array:
        """Return the returns, or a measure, of a label's seeds, (seeds, cells), of all, the IND or the OOD cells."""
        own = measure in (None, RETURN)
        values = self.returns[label].values() if own else (of[str(measure)] for of in self.measures[label].values())
        rows = np.stack(list(values))
        return rows if region is None else rows[:, self.ind if region == "ind" else ~self.ind]


@dataclass(frozen=True)
class Results:
    """A suite's results; `manifest` is what manifest.json holds."""

    manifest: dict[str, Any]
    envs: dict[str, EnvResults]

    @property
    def parts(self) -> dict[str, EnvResults]:
        """Return the results of every test: in each environment, and in variants of it."""
        found = {}
        for env, part in self.envs.items():
            found[env] = part
            found |= {f"{env}{APART}{name}": other for name, other in part.variants.items()}
        return found

    @property
    def labels(self) -> list[str]:
        """What is compared, in the suite's order, whether there are results of it or not."""
        return list(self.methods)

    @property
    def methods(self) -> dict[str, tuple[str, str]]:
        """Return method and variation of each label."""
        return {label(m["method"], m["variation"]): (m["method"], m["variation"]) for m in self.manifest["members"]}

    @property
    def entries(self) -> dict[str, MethodEntry]:
        """Return what is known of each method, by name: as registered here, else as the results describe it."""
        described = self.manifest.get("methods", {})
        return {name: described_method(name, described.get(name, {})) for name, _ in self.methods.values()}

    @property
    def names(self) -> dict[str, str]:
        """Return what the reader calls each label."""
        entries = self.entries
        return {key: f"{entries[name].title} {variation}".strip() for key, (name, variation) in self.methods.items()}

    def entry(self, label_: str) -> MethodEntry:
        """Return what is known of a label's method."""
        name = self.methods[label_][0]
        return described_method(name, self.manifest.get("methods", {}).get(name, {}))

    @property
    def main_labels(self) -> list[str]:
        """Return the labels that the suite is about: SPARC, or each variation of it; without one, the first label."""
        return [key for key in self.labels if self.entry(key).prominence >= PROTAGONIST] or self.labels[:1]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return what is compared, the most wanted first: ours with the rest, and with each other."""
        methods, ours = self.methods, self.main_labels
        others = sorted(methods, key=lambda key: (self.entry(key).prominence != RIVAL, self.entry(key).privileged))
        pairs = [(a, b) for a in ours for b in others if a != b and not (b in ours and ours.index(b) < ours.index(a))]
        return sorted(pairs, key=lambda pair: methods[pair[0]][1] != methods[pair[1]][1])

    @property
    def privileged_labels(self) -> list[str]:
        """Return the labels with evaluations, in a phase before the last, of an expert that observes the context."""
        curves = [
            (key, curve) for part in self.envs.values() for key in part.curves for curve in part.curves[key].values()
        ]
        return list(dict.fromkeys(key for key, curve in curves if self.observes_context(key, curve).any()))

    def observes_context(self, label_: str, curve: Curve) -> NDArray[np.bool_]:
        """Return which evaluations (T,) are of an expert that observes the context, before a method's last phase."""
        return np.isin(curve.phase, list(self.entry(label_).phases)[:-1])

    @property
    def privileged_note(self) -> str:
        """Return a sentence on these evaluations, for legends and captions."""
        titles = dict.fromkeys(f"{self.entry(key).title}'s" for key in self.privileged_labels)
        return f"{' and '.join(titles)} first phase observes the context"

    @property
    def policy_variants(self) -> list[str]:
        """Return the variants of policies that were evaluated in training."""
        curves = [curve for part in self.envs.values() for seeds in part.curves.values() for curve in seeds.values()]
        columns = {column for curve in curves for column in curve.measures}
        return [name for name in VARIANTS if any(column.startswith(f"{name}_") for column in columns)]

    def members(self, test: str, label_: str) -> list[dict[str, Any]]:
        """Return the manifest's entries of one environment, in whatever variant, and label."""
        found = (m for m in self.manifest["members"] if m["env"] == env_of(test))
        return [m for m in found if label(m["method"], m["variation"]) == label_]


def env_of(test: str) -> str:
    """Return the environment of a test."""
    return test.split(APART)[0]


def label(method: str, variation: str) -> str:
    """Name what is compared: a method, with its variation where a suite has some."""
    return f"{method} {variation}" if variation else method


def rows_of(value: Any) -> int:
    """Count the rows of a run's result in its table."""
    return len(value if isinstance(value, np.ndarray) else next(iter(vars(value).values())))


# Files


def by_label(space: ContextSpace, context_labels: Sequence[str]) -> bool:
    """Return whether the rows of tables go by what their contexts are called; a plane is drawn by its two features."""
    return bool(context_labels) and space.size > 2


def write(results: Results, folder: Path) -> None:
    """Write the tables; the manifest last: where it is, the rest is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for env, part in results.envs.items():
        for kind, (columns, rows) in tables(part, results.methods).items():
            write_table(folder / f"{kind}-{env}.csv", [*KEYS, *columns], rows)
            written.append(f"{kind}-{env}.csv")
        for name, other in part.variants.items():
            columns, rows = tables(other, results.methods)["cells"]
            write_table(folder / f"cells-{env}-{name}.csv", [*KEYS, *columns], rows)
            written.append(f"cells-{env}-{name}.csv")
    write_manifest(results.manifest, folder, written)


def tables(
    part: EnvResults, identity: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[list[str], Iterator[list[Any]]]]:
    """Lay out the four tables of an environment: their columns behind the keys, and their rows."""
    region, label_column = np.where(part.ind, "ind", "ood"), {LABEL: part.context_labels} if part.context_labels else {}
    features = dict(zip(part.space.names, part.contexts.T, strict=True))
    known_by: dict[str, Any] = label_column if by_label(part.space, part.context_labels) else features
    nothing = np.full(len(part.contexts), np.nan)
    measured = list(dict.fromkeys(of for seeds in part.curves.values() for v in seeds.values() for of in v.measures))
    cells: ByMember[tuple[Array, ...]] = {
        name: {
            seed: (value, *(part.measures.get(name, {}).get(seed, {}).get(of, nothing) for of in part.measure_names))
            for seed, value in seeds.items()
        }
        for name, seeds in part.returns.items()
    }

    def rows(by_member: ByMember[Any], columns: Any) -> Iterator[list[Any]]:
        for name, seeds in by_member.items():
            for seed, value in seeds.items():
                for row in zip(*columns(value), strict=True):
                    yield [*identity[name], seed, *map(cell, row)]

    return {
        "cells": (
            [*(label_column | known_by), "region", "return", *part.measure_names],
            rows(cells, lambda v: (*(label_column | known_by).values(), region, *v)),
        ),
        "curves": (
            ["updates", "return", "phase", *measured],
            rows(part.curves, lambda v: (v.updates, v.returns, v.phase, *map(v.values, measured))),
        ),
        "traces": (
            ["region", "step", "reward", "distance", "rows"],
            rows(part.traces, lambda v: (v.region, v.step, v.reward, v.distance, v.rows)),
        ),
        "latents": (
            [*known_by, "region", "psi_1", "psi_2", "phi_1", "phi_2"],
            rows(part.latents, lambda v: (*known_by.values(), region, *v.psi.T, *v.phi.T)),
        ),
    }


def read(folder: Path, accept_edits: bool = False) -> Results:
    """Read the tables again; refuse files changed since, or name them in the manifest's `edited` where accepted."""
    if (folder / "config.yaml").is_file():
        raise UserError(
            f"{folder} is a run, not the results of a suite: `sparc evaluate {folder}` tests it, and of a suite's runs "
            "`sparc suite report NAME` writes results."
        )
    try:
        manifest = with_new_names(written := json.loads((folder / "manifest.json").read_text()))
        spaces = {env: ContextSpace.from_dict(space) for env, space in manifest["contexts"].items()}
        find = partial(find_table, folder, manifest)
        envs = {env: read_env(find, env, space, manifest) for env, space in spaces.items()}
        results = Results(manifest, envs)
        check_members(results)
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} holds no results: {Path(error.filename).name} is missing. `sparc suite report NAME` writes them."
        ) from None
    except (*BROKEN, UserError) as error:
        raise UserError(
            f"The results in {folder} are damaged ({error}): write them anew, `sparc suite report`."
        ) from error
    check_seals(written, folder, manifest, accept_edits)
    return results


def read_env(find: Callable[[str], Path], env: str, space: ContextSpace, manifest: Mapping[str, Any]) -> EnvResults:
    """Read the tables of an environment; refuse rows of other contexts than those of the grid, or of its labels."""
    tables = {kind: read_members(find(f"{kind}-{env}.csv")) for kind in ("cells", "curves", "traces", "latents")}
    variants = {name: read_members(find(f"cells-{env}-{name}.csv")) for name in manifest.get("variants", [])}
    labels: list[str] = manifest.get("labels", {}).get(env, [])
    criteria = criteria_of(manifest, env)
    contexts = space.grid(manifest["grid"])
    ind = space.is_train(contexts)
    known = {LABEL, *space.names, "region", "return"}
    if labels and len(labels) != len(contexts):
        raise ValueError(f"the manifest has {len(labels)} labels for the {len(contexts)} contexts of {env}")

    def convert(tables: ByMember[Table], make: Any) -> ByMember[Any]:
        return {name: {seed: make(table) for seed, table in seeds.items()} for name, seeds in tables.items()}

    def numbers(table: Table, *names: str) -> list[Array]:
        return [table.numbers(name) for name in names]

    def of_grid(table: Table) -> bool:
        if by_label(space, labels):
            return table.text(LABEL).tolist() == labels
        found = np.stack(numbers(table, *space.names), axis=1)
        slack = ROUNDING * (np.abs(contexts) + np.ptp(contexts, axis=0))
        return found.shape == contexts.shape and bool((np.abs(found - contexts) <= slack).all())

    def over_grid(table: Table, *names: str) -> Array:
        if not of_grid(table):
            raise ValueError(f"a run of {env} was tested in other contexts than the manifest's grid")
        if (
            not np.array_equal(table.text("region") == "ind", ind)
            or not np.isin(table.text("region"), ["ind", "ood"]).all()
        ):
            raise ValueError(f"a run of {env} has other regions than the manifest's contexts")
        return np.stack(numbers(table, *names), axis=1)

    def of_cells(table: ByMember[Table], **others: Any) -> EnvResults:
        returns = convert(table, lambda c: over_grid(c, "return")[:, 0])
        named = {
            tuple(c.text(LABEL).tolist() if LABEL in c.columns else ())
            for seeds in table.values()
            for c in seeds.values()
        }
        if len(named) > 1:
            raise ValueError(f"the runs of {env} do not call their contexts the same")
        measures = convert(table, lambda c: {name: c.numbers(name) for name in c.columns if name not in known})
        return EnvResults(
            space, contexts, ind, returns, measures, context_labels=list(*named), criteria=criteria, **others
        )

    def curve(c: Table) -> Curve:
        measures = {name: c.numbers(name) for name in c.columns if name not in ("updates", "return", "phase")}
        return Curve(c.numbers("updates"), c.numbers("return"), c.text("phase"), measures)

    def trace(c: Table) -> Trace:
        return Trace(c.text("region"), *numbers(c, "step", "reward", "distance", "rows"))

    def latents(c: Table) -> Latents:
        return Latents(over_grid(c, "psi_1", "psi_2"), over_grid(c, "phi_1", "phi_2"))

    return of_cells(
        tables["cells"],
        curves=convert(tables["curves"], curve),
        traces=convert(tables["traces"], trace),
        latents=convert(tables["latents"], latents),
        variants={name: of_cells(table) for name, table in variants.items()},
    )


def check_members(results: Results) -> None:
    """Refuse tables that hold other runs than the manifest says are done."""
    done: dict[str, set[tuple[str, int]]] = {env: set() for env in results.envs}
    for member in results.manifest["members"]:
        runs = done[member["env"]]
        if member["state"] == "done":
            runs.add((label(member["method"], member["variation"]), member["seed"]))
    for test, part in results.parts.items():
        for kind in ("returns", "curves", "traces", "latents"):
            found = {(name, seed) for name, seeds in getattr(part, kind).items() for seed in seeds}
            wanted = done[env_of(test)]
            # a run may lack the others: not every method has encodings, not every episode gets as far as the switch
            wrong = found ^ wanted if kind == "returns" else found - wanted
            for name, seed in sorted(wrong)[:1]:
                what = "is not done but has" if (name, seed) in found else "is done but has no"
                raise ValueError(f"{name}, seed {seed}, in {test} {what} {kind}")


def read_members(path: Path) -> ByMember[Table]:
    """Read a CSV file and part its rows by member."""
    table = read_table(path)
    methods, variations, seeds = (table.text(key).tolist() for key in KEYS)
    rows: ByMember[list[int]] = {}
    for row, (method, variation, seed) in enumerate(zip(methods, variations, seeds, strict=True)):
        rows.setdefault(label(method, variation), {}).setdefault(int(seed), []).append(row)
    return {name: {seed: table.part(of, KEYS) for seed, of in seeds.items()} for name, seeds in rows.items()}
