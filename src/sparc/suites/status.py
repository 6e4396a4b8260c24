"""Where the members of a suite are, read from their run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from sparc.acting.adaptation import Latents, Trace
from sparc.acting.evaluate import Evaluation
from sparc.envs.declared import DEFAULT_VARIANT
from sparc.envs.registry import get_env
from sparc.errors import RunFailure, SparcError
from sparc.runs.adaptations import check_adaptation, read_adaptation
from sparc.runs.metrics import read_metrics
from sparc.runs.run import Run
from sparc.runs.tests import has_expert, read_evaluation, read_summary, stem_of, variant_of
from sparc.suites.suite import Member, Suite, fixed_length

State = Literal["training", "evaluating", "failed", "in use", "other config", "stopped", "waiting", "published", "done"]
STATES: tuple[State, ...] = get_args(State)


CONTINUED = ("keep", "guard", "only_adapter", "no_context")  # how a stage continues another: its file may name none
NEWEST_BYTES = 16_384  # of the metrics: enough for the last evaluation


@dataclass(frozen=True)
class Status:
    """Where a member is."""

    state: State
    updates: int = 0
    speed: float = 0.0  # updates per second
    score: str = ""  # of the last evaluation in the IND settings; of a member that is done, of the OOD test
    note: str = ""


def status_of(suite: Suite, member: Member, folder: Path) -> Status:
    """Find out from its directory where a member is; whether the rows of its tests are whole, their readers say."""
    path = folder / member.path
    if not (path / "config.yaml").exists():
        return Status("waiting", note=last_error(path))
    try:
        run = Run.open(path)
    except SparcError as error:
        return Status("failed", note=str(error))
    if difference := other_config(run, member):
        return Status("other config", run.updates(), note=f"{difference}; move {path} away or choose another --run-dir")
    progress, note = newest(run), last_error(path)
    if run.updates() >= member.config.updates:
        try:
            summary = summary_of(suite, run)
            region = list(summary)[-1]  # OOD, where there is any
            score = f"{region.upper()} {get_env(run.config.env).criteria.outcome(summary[region])}"
            return Status("done", *progress[:2], score, read_metrics(run.metrics).note)
        except SparcError as error:
            note = note or str(error)
    if run.is_locked():  # one that is done may be in use as well: tested again, in another suite that shares it
        return Status("in use", *progress)
    begun = 0 < run.updates() < member.config.updates
    return Status("stopped" if begun else "waiting", *progress, note=note)


def other_config(run: Run, member: Member) -> str:
    """Name the first field in which a directory is not the member's, more updates aside: then it is continued."""
    there, wanted = run.config.to_dict(), member.config.to_dict()
    if there["updates"] < wanted["updates"] and not fixed_length(run.config):
        del there["updates"], wanted["updates"]
    if member.stage is not None and run.lineage.parent is not None:
        there |= {name: getattr(run.lineage.parent, name) for name in CONTINUED}
        wanted |= {name: getattr(member.stage, name) for name in CONTINUED}
    different = (name for name in wanted if there.get(name) != wanted[name])
    return next((f"its {name} is {there.get(name)}, not {wanted[name]}" for name in different), "")


def newest(run: Run) -> tuple[int, float, str]:
    """Read updates, speed and score from the newest metrics."""
    updates, speed, score = run.updates(), 0.0, ""
    criteria = get_env(run.config.env).criteria
    for record in run.records(NEWEST_BYTES):
        if record["kind"] == "train":
            updates, speed = max(updates, record["updates"]), record["updates_per_s"]
        elif record["kind"] == "evaluation":
            score = f"IND {criteria.outcome(record)}"
    return updates, speed, score


def summary_of(suite: Suite, run: Run) -> dict[str, dict[str, Any]]:
    """Return the summary of the best checkpoint's evaluation, if all its tests are there; reads no rows."""
    number = run.choose("best")
    summary = read_summary(stem_of_test(suite, run, number))  # as trained
    check_adaptation(run, number, suite.grid)
    for asked in filter(None, tests_of(suite, run).values()):
        read_summary(stem_of_test(suite, run, number, asked))
    return summary


def tests_of(suite: Suite, run: Run) -> dict[str, str | None]:
    """Return the tests of a run by variant, "" for the default, and what `sparc evaluate --variant` is given for each.

    Without variants of stages, the default is the environment as it is in training, None.
    """
    elsewhere = suite.stages and variant_of(run) in suite.tested_in
    return {"": DEFAULT_VARIANT if elsewhere else None} | {name: name for name in suite.tested_in}


class Finished(NamedTuple):
    """What a member that is done has produced."""

    checkpoint: int
    evaluation: Evaluation
    trace: Trace
    latents: Latents | None
    elsewhere: dict[str, Evaluation]  # by variant
    expert: Evaluation | None = None  # in the default test; None: it has none, or no sound test


def finished(suite: Suite, run: Run) -> Finished:
    """Return the best checkpoint with its evaluations and its adaptation, if all of that is there and whole."""
    number = run.choose("best")
    tests = {name: tested(suite, run, number, asked) for name, asked in tests_of(suite, run).items()}
    try:
        expert = tested_expert(suite, run, number)
    except SparcError:  # it is tested again by the next `sparc suite run`
        expert = None
    return Finished(number, tests.pop(""), *read_adaptation(run, number, suite.grid), tests, expert)


def tested(suite: Suite, run: Run, number: int, variant: str | None = None) -> Evaluation:
    """Return a checkpoint's evaluation in the environment as in training, or in a variant of it."""
    return read_evaluation(stem_of_test(suite, run, number, variant))


def tested_expert(suite: Suite, run: Run, number: int) -> Evaluation | None:
    """Return the evaluation of the expert beside a checkpoint's policy; None where there is none (yet)."""
    stem = stem_of(run, number, suite.grid, suite.episodes, tests_of(suite, run)[""], expert=True)
    return read_evaluation(stem) if stem.with_suffix(".json").exists() else None


def stem_of_test(suite: Suite, run: Run, number: int, variant: str | None = None) -> Path:
    """Return the common stem of the files of a checkpoint's evaluation, if it was evaluated."""
    stem = stem_of(run, number, suite.grid, suite.episodes, variant)
    if not stem.with_suffix(".json").exists():
        raise RunFailure(f"not evaluated yet{f' in the variant {variant}' if variant else ''}")
    return stem


def next_test(suite: Suite, run: Run) -> list[str]:
    """Return the options of `sparc evaluate RUN` for the first test that a trained run lacks; none if it lacks none.

    A test whose rows are damaged is lacking too. The expert comes last: without its test a run is done all the same, as
    runs of earlier versions are.
    """
    number, tests = run.choose("best"), tests_of(suite, run)
    variants = {name: ["--variant", asked] if asked else [] for name, asked in tests.items()}
    for name, asked in tests.items():
        try:
            tested(suite, run, number, asked)
            if not name:
                read_adaptation(run, number, suite.grid)
        except SparcError:
            return [*variants[name], *([] if name else ["--adaptation"])]
    try:
        if tested_expert(suite, run, number) is not None or not has_expert(run, number):
            return []
    except SparcError:
        pass
    return [*variants[""], "--expert"]


def lacks_expert_alone(suite: Suite, run: Run) -> bool:
    """Return whether all that a trained run lacks is the test of its expert, without which it is done all the same."""
    return next_test(suite, run)[-1:] == ["--expert"]


def log_of(path: Path) -> Path:
    """Return where a member's processes write."""
    return path.with_name(f"{path.name}.log")


def last_error(path: Path) -> str:
    """Return the error that a member's last process ended with, if it did."""
    try:
        last = log_of(path).read_text(errors="replace").strip().rsplit("\n", 1)[-1]
    except OSError:
        return ""
    return last.removeprefix("sparc: ") if last.startswith("sparc: ") else ""
