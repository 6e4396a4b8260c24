"""How a run's checkpoint adapts, as files: what a switch of the context does, and the encodings over the grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sparc import seals
from sparc.acting.adaptation import NO_TRACE, Latents, Trace, latents, switches, trace
from sparc.envs.contextual import ProgressCall
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import UserError
from sparc.files import cell, read_table, replace, write_table
from sparc.runs.run import Run

TRACE, LATENTS, SEAL = "trace.csv", "latents.csv", "adaptation.json"  # behind the checkpoint's number
TRACE_COLUMNS = ("region", "step", "reward", "distance", "rows")
LATENT_COLUMNS = ("psi_1", "psi_2", "phi_1", "phi_2")


def adapt_run(run: Run, number: int, grid: int, progress: ProgressCall | None = None, out: Path | None = None) -> str:
    """Measure how a run's checkpoint adapts; write trace, latents and seal; return why there is no trace, if so.

    With out, they are written there instead of into the run. Latents need an adapter. A trace needs an environment
    whose context can be switched in mid-episode. Both are in the variant that the run was trained in.
    """
    from sparc.runs.load import load_with_psi

    env, options = run.config.env, run.config.env_options
    space = run.space
    contexts = space.grid(grid)
    policy, psi = load_with_psi(run, number)
    note = why_no_trace(env, options)
    found = NO_TRACE if note else trace(policy, psi, env, progress=progress, **options)
    if not note and not len(found.step):
        note = "all episodes ended long before their middle"
    mapped = latents(policy, psi, env, contexts, progress=progress, **options)
    folder = out or run.evaluations
    folder.mkdir(parents=True, exist_ok=True)
    seal = file_of(folder, number, SEAL)
    seal.unlink(missing_ok=True)  # it is not of what is written now
    if mapped is None:
        file_of(folder, number, LATENTS).unlink(missing_ok=True)
    else:
        regions = np.where(space.is_train(contexts), "ind", "ood")
        write_columns(
            file_of(folder, number, LATENTS),
            [*space.names, "region", *LATENT_COLUMNS],
            [*contexts.T, regions, *mapped.psi.T, *mapped.phi.T],
        )
    columns = [found.region, found.step, found.reward, found.distance, found.rows]
    write_columns(file_of(folder, number, TRACE), TRACE_COLUMNS, columns)
    rows = {"trace_rows": len(found.step), "latents_rows": None if mapped is None else len(mapped.psi)}
    written = [file_of(folder, number, name) for name in (TRACE, *([] if mapped is None else [LATENTS]))]
    # last: where it is, the rest is whole
    replace(seal, json.dumps(seals.seal({"grid": grid, **rows, "note": note}, written)) + "\n")
    return note


def why_no_trace(env: str, env_options: dict[str, Any]) -> str:
    """Return why no context can be switched in mid-episode; nothing if it can."""
    if not len(switches(get_env(env).context_space).region):
        return "there is only one context"
    venv = make_vector_env(env, 1, **env_options)
    try:
        return venv.why_not_switch()
    finally:
        venv.close()


def file_of(folder: Path, number: int, name: str) -> Path:
    """Return the path of a file of a checkpoint's adaptation."""
    return folder / f"{number}-{name}"


def write_columns(path: Path, names: Iterable[str], columns: list[Any]) -> None:
    """Write a table, all or nothing."""
    write_table(path, names, (map(cell, row) for row in zip(*columns, strict=True)))


def read_adaptation(run: Run, number: int, grid: int) -> tuple[Trace, Latents | None]:
    """Read what `adapt_run` wrote of a checkpoint, if it is of this grid and whole; None without an adapter."""
    folder = run.evaluations
    seal = check_adaptation(run, number, grid)
    with explained(number, grid):
        found = read_trace(file_of(folder, number, TRACE))
        check_rows(file_of(folder, number, TRACE), len(found.step), seal["trace_rows"])
        mapped = None
        if seal["latents_rows"] is not None:
            mapped = read_latents(file_of(folder, number, LATENTS))
            check_rows(file_of(folder, number, LATENTS), len(mapped.psi), seal["latents_rows"])
        if changed := seals.changed_files(seal, folder):
            raise ValueError(f"{changed[0]} is not what was written")
    return found, mapped


def check_adaptation(run: Run, number: int, grid: int) -> dict[str, Any]:
    """Return the seal of a checkpoint's adaptation, if it is of this grid; it is written last, so the rest is there."""
    with explained(number, grid):
        seal = read_seal(file_of(run.evaluations, number, SEAL))
        if seal["grid"] != grid:
            raise ValueError(f"it is of a grid of {seal['grid']}, not {grid}")
    return seal


@contextmanager
def explained(number: int, grid: int) -> Iterator[None]:
    """Raise a UserError with the remedy where a file is missing or damaged."""
    try:
        yield
    except (OSError, ValueError) as error:
        # an OSError would name the whole path, which is of the machine
        why = f"{Path(error.filename).name}: {error.strerror}" if isinstance(error, OSError) else error
        raise UserError(
            f"The adaptation of checkpoint {number} is missing or damaged ({why}): write it anew, "
            f"`sparc evaluate RUN --adaptation --grid {grid} --checkpoint {number}`."
        ) from error


def read_seal(path: Path) -> dict[str, Any]:
    """Read what a seal says; a ValueError tells what is wrong with it, as in all that follow."""
    try:
        seal = json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"{path.name} is no JSON") from None
    if not isinstance(seal, dict) or not seal.keys() >= {"grid", "trace_rows", "latents_rows"}:
        raise ValueError(f"{path.name} is not whole")
    if not seals.is_intact(seal):
        raise ValueError(f"{path.name} is not what was written")
    return seal


def read_trace(path: Path) -> Trace:
    """Read a trace."""
    table = read_table(path)
    return Trace(table.text("region"), *(table.numbers(name) for name in TRACE_COLUMNS[1:]))


def read_latents(path: Path) -> Latents:
    """Read latents."""
    table = read_table(path)
    found = np.stack([table.numbers(name) for name in LATENT_COLUMNS], axis=1)
    return Latents(found[:, :2], found[:, 2:])


def check_rows(path: Path, there: int, sealed: Any) -> None:
    """Hold the rows of a file against those that were written."""
    if there != sealed:
        raise ValueError(f"{path.name} has {there} rows instead of {sealed}")
