"""Where the members of a suite are, read from their run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from sparc.acting.adaptation import Latents, Trace
from sparc.acting.evaluate import Evaluation
from sparc.errors import RunFailure, SparcError
from sparc.runs.adaptations import read_adaptation
from sparc.runs.metrics import read_metrics
from sparc.runs.run import Run
from sparc.runs.tests import read_evaluation, stem_of
from sparc.suites.suite import Member, Suite, fixed_length
from sparc.text import outcome

State = Literal["training", "evaluating", "failed", "in use", "other config", "waiting", "done"]
STATES: tuple[State, ...] = get_args(State)


NEWEST_BYTES = 16_384  # of the metrics: enough for the last evaluation


@dataclass(frozen=True)
class Standing:
    """Where a member is."""

    state: State
    updates: int = 0
    speed: float = 0.0  # updates per second
    score: str = ""  # of the last evaluation in the IND settings; of a member that is done, of the OOD test
    note: str = ""


def survey(suite: Suite, member: Member, folder: Path) -> Standing:
    """Find out from its directory where a member is."""
    path = folder / member.path
    if not (path / "config.yaml").exists():
        return Standing("waiting", note=complaint(path))
    try:
        run = Run.open(path)
    except SparcError as error:
        return Standing("failed", note=str(error))
    if difference := other_config(run, member):
        return Standing(
            "other config", run.updates(), note=f"{difference}; move {path} away or choose another --run-dir"
        )
    progress, note = newest(run), complaint(path)
    if run.updates() >= member.config.updates:
        try:
            summary = finished(suite, run).evaluation.summary()
            region = list(summary)[-1]  # OOD, where there is any
            return Standing("done", *progress[:2], f"{region.upper()} {outcome(summary[region])}",
                            read_metrics(run.metrics).note)  # fmt: skip
        except SparcError as error:
            note = note or str(error)
    if run.is_locked():  # one that is done may be in use as well: tested again, in another suite that shares it
        return Standing("in use", *progress)
    return Standing("waiting", *progress, note=note)


def other_config(run: Run, member: Member) -> str:
    """Name the first field in which a directory is not the member's; a run that has only to go on is no difference."""
    there, wanted = run.config.to_dict(), member.config.to_dict()
    if there["updates"] < wanted["updates"] and not fixed_length(run.config):
        del there["updates"], wanted["updates"]
    different = (name for name in wanted if there.get(name) != wanted[name])
    return next((f"its {name} is {there.get(name)}, not {wanted[name]}" for name in different), "")


def newest(run: Run) -> tuple[int, float, str]:
    """Read updates, speed and score from the newest metrics."""
    updates, speed, score = run.updates(), 0.0, ""
    for record in run.records(NEWEST_BYTES):
        if record["kind"] == "train":
            updates, speed = max(updates, record["updates"]), record["updates_per_s"]
        elif record["kind"] == "evaluation":
            score = f"IND {outcome(record)}"
    return updates, speed, score


class Finished(NamedTuple):
    """What a member that is done has produced."""

    checkpoint: int
    evaluation: Evaluation
    trace: Trace
    latents: Latents | None
    elsewhere: dict[str, Evaluation]  # by physics


def finished(suite: Suite, run: Run) -> Finished:
    """Return the best checkpoint with its evaluations and its adaptation, if all of that is there and whole."""
    number = run.choose("best")
    evaluation, adaptation = tested(suite, run, number), read_adaptation(run, number, suite.grid)
    return Finished(number, evaluation, *adaptation, {name: tested(suite, run, number, name) for name in suite.physics})


def tested(suite: Suite, run: Run, number: int, physics: str | None = None) -> Evaluation:
    """Return a checkpoint's evaluation in the physics of its training or in another one."""
    stem = stem_of(run, number, suite.grid, suite.episodes, physics)
    if not stem.with_suffix(".json").exists():
        raise RunFailure(f"not evaluated yet{f' in the {physics} physics' if physics else ''}")
    return read_evaluation(stem)


def next_test(suite: Suite, run: Run) -> list[str]:
    """Return the options of `sparc evaluate RUN` for the first test that a trained run lacks; none if it lacks none."""
    number = run.choose("best")
    for physics in (None, *suite.physics):
        try:
            tested(suite, run, number, physics)
            if physics is None:
                read_adaptation(run, number, suite.grid)
        except SparcError:
            return ["--adaptation"] if physics is None else ["--physics", physics]
    return []


def log_of(path: Path) -> Path:
    """Return where a member's processes write."""
    return path.with_name(f"{path.name}.log")


def complaint(path: Path) -> str:
    """Return the error that a member's last process ended with, if it did."""
    try:
        last = log_of(path).read_text(errors="replace").strip().rsplit("\n", 1)[-1]
    except OSError:
        return ""
    return last.removeprefix("sparc: ") if last.startswith("sparc: ") else ""
