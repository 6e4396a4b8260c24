"""The tidy tables of a suite: what the figures and the report are made from, in memory and as a folder of small files.

manifest.json        the suite, its environments' contexts, every member: its run, checkpoint, state, versions
cells-<env>.csv      a row per member and context of the grid: the mean return over the episodes
curves-<env>.csv     a row per member and evaluation during training: the mean return in the IND settings
traces-<env>.csv     a row per member and step around a switch of the context in mid-episode
latents-<env>.csv    a row per member and context of the grid: ψ(c) and φ(h) in two dimensions
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc.contexts import ContextSpace
from sparc.errors import UserError
from sparc.runs import replace

Array = NDArray[np.float64]
Value = TypeVar("Value")
ByMember = dict[str, dict[int, Value]]  # label → seed → what that run gave

KEYS = ("method", "variation", "seed")


@dataclass(frozen=True)
class Curve:
    """Evaluations during training."""

    updates: Array  # (T,)
    returns: Array  # (T,) mean over the IND settings


@dataclass(frozen=True)
class Trace:
    """What a switch of the context in mid-episode does, averaged over several switches, to IND and to OOD contexts."""

    region: NDArray[np.str_]  # (T,) "ind" or "ood": where the new context lies
    step: Array  # (T,) since the switch: negative before it
    reward: Array  # (T,)
    distance: Array  # (T,) of φ(h) from ψ(c), relative to the spread of ψ over the contexts; NaN without an adapter
    rows: Array  # (T,) episodes still running


@dataclass(frozen=True)
class Latents:
    """The encodings over the grid of contexts, on the first two principal components of ψ(c)."""

    psi: Array  # (M, 2) of the true context
    phi: Array  # (M, 2) guessed from history, mean over the episode's second half


@dataclass(frozen=True)
class EnvResults:
    """All members of one environment."""

    space: ContextSpace
    contexts: Array  # (M, C)
    ind: NDArray[np.bool_]  # (M,)
    returns: ByMember[Array] = field(default_factory=dict)  # (M,) each
    curves: ByMember[Curve] = field(default_factory=dict)
    traces: ByMember[Trace] = field(default_factory=dict)
    latents: ByMember[Latents] = field(default_factory=dict)

    def matrix(self, label: str, region: str | None = None) -> Array:
        """Give the returns of a label's seeds, (seeds, cells), of all cells, the IND or the OOD ones."""
        rows = np.stack(list(self.returns[label].values()))
        return rows if region is None else rows[:, self.ind if region == "ind" else ~self.ind]


@dataclass(frozen=True)
class Results:
    """A suite's results; `manifest` is what manifest.json holds."""

    manifest: dict[str, Any]
    envs: dict[str, EnvResults]

    @property
    def labels(self) -> list[str]:
        """What is compared, in the suite's order, whether there are results of it or not."""
        return list(dict.fromkeys(label(m["method"], m["variation"]) for m in self.manifest["members"]))

    def members(self, env: str, label_: str) -> list[dict[str, Any]]:
        """Give the manifest's entries of one environment and label."""
        found = (m for m in self.manifest["members"] if m["env"] == env)
        return [m for m in found if label(m["method"], m["variation"]) == label_]


def label(method: str, variation: str) -> str:
    """Name what is compared: a method, with its variation where a suite has some."""
    return f"{method} {variation}" if variation else method


# Files


def write(results: Results, folder: Path) -> None:
    """Write the tables; the manifest last: where it is, the rest is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    identity = {label(m["method"], m["variation"]): (m["method"], m["variation"]) for m in results.manifest["members"]}
    for env, part in results.envs.items():
        for kind, (columns, rows) in tables(part, identity).items():
            write_table(folder / f"{kind}-{env}.csv", [*KEYS, *columns], rows)
    replace(folder / "manifest.json", json.dumps(results.manifest, indent=1) + "\n")


def tables(
    part: EnvResults, identity: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[list[str], Iterator[list[Any]]]]:
    """Lay out the four tables of an environment: their columns behind the keys, and their rows."""
    names, contexts, region = list(part.space.names), list(part.contexts.T), np.where(part.ind, "ind", "ood")

    def rows(by_member: ByMember[Any], columns: Any) -> Iterator[list[Any]]:
        for name, seeds in by_member.items():
            for seed, value in seeds.items():
                for row in zip(*columns(value), strict=True):
                    yield [*identity[name], seed, *map(cell, row)]

    return {
        "cells": ([*names, "region", "return"], rows(part.returns, lambda v: (*contexts, region, v))),
        "curves": (["updates", "return"], rows(part.curves, lambda v: (v.updates, v.returns))),
        "traces": (
            ["region", "step", "reward", "distance", "rows"],
            rows(part.traces, lambda v: (v.region, v.step, v.reward, v.distance, v.rows)),
        ),
        "latents": (
            [*names, "region", "psi_1", "psi_2", "phi_1", "phi_2"],
            rows(part.latents, lambda v: (*contexts, region, *v.psi.T, *v.phi.T)),
        ),
    }


def read(folder: Path) -> Results:
    """Read the tables again."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        spaces = {env: ContextSpace.from_dict(space) for env, space in manifest["contexts"].items()}
        return Results(manifest, {env: read_env(folder, env, space) for env, space in spaces.items()})
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} holds no results: {Path(error.filename).name} is missing. `sparc suite report NAME` writes them."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"The results in {folder} are damaged ({error}): write them anew, `sparc suite report`."
        ) from error


def read_env(folder: Path, env: str, space: ContextSpace) -> EnvResults:
    """Read the four tables of an environment."""
    tables = {kind: read_table(folder / f"{kind}-{env}.csv") for kind in ("cells", "curves", "traces", "latents")}
    first = next((columns for seeds in tables["cells"].values() for columns in seeds.values()), None)
    contexts = np.empty((0, space.size))
    if first is not None:
        contexts = np.stack([first[name].astype(float) for name in space.names], axis=1)
    ind = first["region"] == "ind" if first is not None else np.empty(0, bool)

    def convert(kind: str, make: Any) -> ByMember[Any]:
        return {name: {seed: make(columns) for seed, columns in seeds.items()} for name, seeds in tables[kind].items()}

    def numbers(columns: Mapping[str, NDArray[np.str_]], *names: str) -> list[Array]:
        return [columns[name].astype(float) for name in names]

    def pairs(columns: Mapping[str, NDArray[np.str_]], name: str) -> Array:
        return np.stack(numbers(columns, f"{name}_1", f"{name}_2"), axis=1)

    def returns(columns: Mapping[str, NDArray[np.str_]]) -> Array:
        if not np.array_equal(np.stack(numbers(columns, *space.names), axis=1), contexts):
            raise ValueError(f"the runs of {env} were tested in different contexts")
        return columns["return"].astype(float)

    return EnvResults(
        space,
        contexts,
        ind,
        convert("cells", returns),
        convert("curves", lambda c: Curve(*numbers(c, "updates", "return"))),
        convert("traces", lambda c: Trace(c["region"], *numbers(c, "step", "reward", "distance", "rows"))),
        convert("latents", lambda c: Latents(pairs(c, "psi"), pairs(c, "phi"))),
    )


def cell(value: Any) -> Any:
    """Write a number with the digits that matter; NaN as nothing."""
    if isinstance(value, str):
        return str(value)
    return "" if np.isnan(value) else f"{value:.8g}"


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, all or nothing."""
    beside = path.with_name(f".{path.name}")
    with beside.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    beside.replace(path)


def read_table(path: Path) -> ByMember[dict[str, NDArray[np.str_]]]:
    """Read a CSV file and part its rows by member; an empty cell is NaN."""
    with path.open(newline="") as file:
        columns, *rows = csv.reader(file)
    grouped: dict[tuple[str, int], list[list[str]]] = {}
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{path.name} has a line of {len(row)} cells instead of {len(columns)}")
        grouped.setdefault((label(row[0], row[1]), int(row[2])), []).append([value or "nan" for value in row[3:]])
    tables: ByMember[dict[str, NDArray[np.str_]]] = {}
    for (name, seed), lines in grouped.items():
        tables.setdefault(name, {})[seed] = dict(zip(columns[3:], np.array(lines).T, strict=True))
    return tables
