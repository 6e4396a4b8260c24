"""The tidy tables of a suite's results: a folder of small files that is written, and read again.

manifest.json        the suite, its environments' contexts, every member: its run, checkpoint, state, versions
cells-<env>.csv      a row per member and context of the grid: the mean return over the episodes, and measures of it;
                     of a policy with an adapter also expert_return, of the expert beside it, who knows the context;
                     a context that has a name and more than two features goes by its name, as in the manifest's labels
cells-<env>-<variant>.csv  the same in a variant of the environment
curves-<env>.csv     a row per member and evaluation during training: the mean return in the IND settings that
                     checkpoints are chosen by, the phase; the measures that the environment is judged by; and what
                     explains them (docs/runs.md): the policy's variants, φ's error, the critics' bias, the entropy
traces-<env>.csv     a row per member and step around a switch of the context in mid-episode
latents-<env>.csv    a row per member and context of the grid: ψ(c) and φ(h) in two dimensions
idle-<env>.csv       a row per context of the grid: the return of doing nothing, where an environment is judged by it

Large tables may be packed, `gzip cells-*.csv`; any of them is read so as well. Tables that the folder of another suite
has as well are left out (`sparc.suites.manifest`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sparc.acting.adaptation import Latents, Trace
from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.errors import UserError
from sparc.files import Table, cell, packed_as, read_table, write_table
from sparc.suites.idle import read_idle, write_idle
from sparc.suites.manifest import check_seals, find_table, write_manifest
from sparc.suites.older import criteria_of, with_new_names
from sparc.suites.results import ByMember, Curve, EnvResults, Results, env_of, label

KEYS = ("method", "variation", "seed")
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError)  # files
LABEL = "label"  # of a context
ROUNDING = 1e-7  # relative: numbers are written with eight digits


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
        idle = folder / f"idle-{env}.csv"
        idle.unlink(missing_ok=True)
        packed_as(idle).unlink(missing_ok=True)
        if part.idle is not None:
            write_idle(idle, part, part.idle)
            written.append(idle.name)
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

    part = of_cells(
        tables["cells"],
        curves=convert(tables["curves"], curve),
        traces=convert(tables["traces"], trace),
        latents=convert(tables["latents"], latents),
        variants={name: of_cells(table) for name, table in variants.items()},
    )
    idle = find(f"idle-{env}.csv")
    measured = idle.exists() or packed_as(idle).exists()  # not in every environment, nor in older results
    return replace(part, idle=read_idle(read_table(idle), part)) if measured else part


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
