"""Speed and learning as one number: the processor time after which a run's evaluations reach a return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparc.errors import UserError
from sparc.methods import find_method
from sparc.runs.metrics import read_metrics
from sparc.runs.run import Run

RULE = "reached: the first evaluation at or above the return; held: the first one from which on all are"


def times_to_return(paths: Sequence[Path], value: float) -> dict[str, Any]:
    """Read the runs' evaluations of the policy that is shipped, in the settings that checkpoints are chosen by."""
    if not math.isfinite(value):
        raise UserError(f"--return must be a finite number, not {value}.")
    return {"return": value, "rule": RULE, "runs": [time_to_return(Run.open(path), value) for path in paths]}


def time_to_return(run: Run, value: float) -> dict[str, Any]:
    """Return where one run reaches a return, and where it holds it; None where it does not."""
    phase = find_method(run.config.method).last_phase  # RMA's first phase tests the expert, not what is shipped
    metrics = read_metrics(run.metrics)
    found = [line for line in metrics.records if line["kind"] == "evaluation" and line["phase"] == phase]
    if not found:
        raise UserError(f"{run.path} has no evaluation of its policy yet: train it first, `sparc resume {run.path}`.")
    if any("processor_s" not in line for line in found):
        raise UserError(f"{run.path} was trained before processor time was noted (processor_s): train it anew.")
    above = [line["mean_return"] >= value for line in found]
    last_below = max((i for i, reached in enumerate(above) if not reached), default=-1)
    held = last_below + 1
    return {
        "run": str(run.path),
        "env": run.config.env,
        "method": run.config.method,
        "seed": run.config.seed,
        "reached": place(found[above.index(True)]) if any(above) else None,
        "held": place(found[held]) if held < len(found) else None,
        "best": max(line["mean_return"] for line in found),
        "last": found[-1]["mean_return"],
        "end": place(found[-1]),
    } | ({"note": metrics.note} if metrics.note else {})


def place(record: dict[str, Any]) -> dict[str, float]:
    """Return where in training an evaluation was, its own processor time included."""
    return {"updates": record["updates"], "processor_min": round(record["processor_s"] / 60, 3)}


def table(found: dict[str, Any]) -> str:
    """Write what was found as lines of text."""
    header = ("run", f"reaches {found['return']:g}", "holds it from", "last evaluation", "whole run")
    rows = [header]
    for run in found["runs"]:
        reached, held = (moment(run[name]) for name in ("reached", "held"))
        reached = reached or f"not reached (best {run['best']:.6g})"
        rows.append((run["run"], reached, held or "-", f"{run['last']:.6g}", moment(run["end"])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"note: {run['run']}: {run['note']}." for run in found["runs"] if "note" in run)])


def moment(place: dict[str, float] | None) -> str:
    """Write a place of training."""
    return f"{place['processor_min']:.1f} min, {place['updates']:,} updates" if place else ""
