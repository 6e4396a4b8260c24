"""From the run directories of a suite to its tables; what is not there becomes a marked gap."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sparc.acting.evaluate import Evaluation
from sparc.envs.contextual import ProgressCall
from sparc.envs.measures import RETURN
from sparc.envs.registry import get_env
from sparc.errors import SparcError, UserError
from sparc.methods import find_method
from sparc.runs.run import Run
from sparc.suites.results import EXPLAINED, VARIANTS, Curve, EnvResults, Results, label
from sparc.suites.stages import describe as describe_stages
from sparc.suites.stages import read_stages
from sparc.suites.status import Status, finished, status_of
from sparc.suites.suite import Member, Suite
from sparc.suites.tables import by_label

OTHER_CONTEXTS = "It was tested in other contexts than the suite's: delete its evaluations and run the suite."


def gather(suite: Suite, folder: Path, progress: ProgressCall | None = None) -> Results:
    """Read everything that the suite's members have produced."""
    envs, entries = dict[str, EnvResults](), list[dict[str, Any]]()
    members = suite.members()
    for done, member in enumerate(members):
        if progress:
            progress(done, len(members))
        env = get_env(member.config.env)
        space = env.context_space.as_tested()
        contexts = space.grid(suite.grid)
        if short(member) not in envs:
            ind = space.is_train(contexts)
            variants = {name: EnvResults(space, contexts, ind, criteria=env.criteria) for name in suite.variants}
            envs[short(member)] = EnvResults(space, contexts, ind, variants=variants, criteria=env.criteria)
        part = envs[short(member)]
        entry = describe(member, status_of(suite, member, folder), folder)
        if entry["state"] == "done":
            try:
                run = Run.open(folder / member.path)
                entry |= add(part, suite, member, run) | about(run)
            except SparcError as error:
                entry |= {"state": "failed", "note": anywhere(str(error), member, folder)}
        entries.append(entry)
    manifest = {
        "suite": suite.name,
        "title": suite.title or suite.name,
        "about": suite.about,
        "updates": suite.updates,
        "grid": suite.grid,
        "episodes": suite.episodes,
        "variants": suite.variants,
        "runs": suite.runs,
        **({"stages": describe_stages(read_stages(suite.stages), suite.envs)} if suite.stages else {}),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "contexts": {env: part.space.to_dict() for env, part in envs.items()},
        "labels": {env: part.context_labels for env, part in envs.items() if by_label(part.space, part.context_labels)},
        "criteria": {env: part.criteria.to_dict() for env, part in envs.items()},
        "reference": suite.reference,
        "primary": suite.primary,
        "commands": suite.commands(),
        "methods": {method_name(member): find_method(member.config.method).describe() for member in members},
        "members": entries,
    }
    return Results(manifest, envs)


def short(member: Member) -> str:
    """Name an environment without the module that it is registered in."""
    return member.config.env.split(":")[-1]


def method_name(member: Member) -> str:
    """Return a method's name without the module that it is registered in."""
    return member.config.method.split(":")[-1]


def anywhere(note: str, member: Member, folder: Path) -> str:
    """Name files from the suite's folder on: where that lies is the machine's business."""
    return note.replace(str(folder / member.path), member.path.as_posix()).replace(str(folder), "the suite's folder")


def describe(member: Member, status: Status, folder: Path) -> dict[str, Any]:
    """Return what a member is and where it stands."""
    state, note = status.state, anywhere(status.note, member, folder)
    if state in ("waiting", "stopped", "in use"):
        state_shown = "partial" if status.updates else "missing"
        progress = f"{status.updates:,} of {member.config.updates:,} updates" if status.updates else "not started"
        note = f"{progress}{f'; {note}' if note else ''}"
    else:
        state_shown = state
    return {
        "env": short(member),
        "method": method_name(member),
        "variation": member.variation,
        "seed": member.config.seed,
        "state": state_shown,
        "note": note,
        "run": member.path.as_posix(),
        "updates": status.updates,
        "checkpoint": None,
        "train_seconds": None,
        "config": member.config.to_dict(),
        "versions": {},
        "machine": {},
    }


def add(part: EnvResults, suite: Suite, member: Member, run: Run) -> dict[str, Any]:
    """Put a run's results in their places and name the checkpoint that they are of."""
    number, evaluation, trace, latents, elsewhere = finished(suite, run)
    for place, tested in ((part, evaluation), *((part.variants[name], tested) for name, tested in elsewhere.items())):
        if not np.array_equal(tested.cells()[0], part.contexts):
            raise UserError(OTHER_CONTEXTS)
        check_givens(place, tested, member)
    if latents and len(latents.psi) != len(part.contexts):
        raise UserError(OTHER_CONTEXTS)
    scores = [record for record in run.records() if record["kind"] == "evaluation"]
    updates, means = (np.array([record[key] for record in scores], float) for key in ("updates", "mean_return"))
    phase = np.array([record["phase"] for record in scores], str)
    judged = [name for name in part.criteria.judged_by if name != RETURN]
    wanted = (*judged, *EXPLAINED, *(f"{variant}_{name}" for variant in VARIANTS for name in judged))
    wanted += tuple(f"stage_{number}_return" for number in range(1, run.lineage.number + 1))
    measures = {name: np.array([record.get(name, np.nan) for record in scores], float)
                for name in wanted if any(name in record for record in scores)}  # fmt: skip
    name, seed = label(method_name(member), member.variation), member.config.seed
    add_cells(part, name, seed, evaluation)
    for variant, tested in elsewhere.items():
        add_cells(part.variants[variant], name, seed, tested)
    part.curves.setdefault(name, {})[seed] = Curve(updates, means, phase, measures)
    if len(trace.step):  # none where the context cannot be switched
        part.traces.setdefault(name, {})[seed] = trace
    if latents is not None:
        part.latents.setdefault(name, {})[seed] = latents
    return {"checkpoint": number}


def check_givens(part: EnvResults, evaluation: Evaluation, member: Member) -> None:
    """Refuse an evaluation whose contexts had other givens, such as a reference time, than those of the runs before."""
    for given in (name for name in part.criteria.givens if name in evaluation.measures):
        own = evaluation.cells(evaluation.measures[given])[2]
        for name, seeds in part.measures.items():
            for seed, measures in seeds.items():
                measure = part.criteria[given]
                if not np.allclose(own, measures.get(given, own), rtol=0.0, atol=10.0**-measure.digits):
                    raise UserError(
                        f"{member.path.as_posix()} was tested with another {measure.title} than {name}, seed {seed}: "
                        "delete its evaluations, or those of the other if they are the older ones, and run the suite."
                    )


def add_cells(part: EnvResults, key: str, seed: int, evaluation: Evaluation) -> None:
    """Put an evaluation's returns and measures in their places, and what its contexts are called."""
    measures = {measure: evaluation.cells(values)[2] for measure, values in evaluation.measures.items()}
    part.returns.setdefault(key, {})[seed] = evaluation.cells()[2]
    part.measures.setdefault(key, {})[seed] = measures
    part.context_labels[:] = [
        name for name, episode in zip(evaluation.labels, evaluation.episode, strict=False) if not episode
    ]


def about(run: Run) -> dict[str, Any]:
    """Return how long a run took and with what it was made; without paths, which are of the machine."""
    sessions = run.manifest()["sessions"]
    return {"train_seconds": train_seconds(run)} | {
        kind: {
            name: ", ".join(dict.fromkeys(str(session[kind].get(name, "?")) for session in sessions))
            for name in (sessions[-1][kind] if sessions else {})
        }
        for kind in ("versions", "machine")
    }


def train_seconds(run: Run) -> float | None:
    """Add up what the processes that trained the run took, without their start-up."""
    starts = [session["from_updates"] for session in run.manifest()["sessions"]]
    records = [record for record in run.records() if record["kind"] == "train" and record["updates_per_s"]]
    seconds = 0.0
    for begin, end in pairwise([*starts, np.inf]):
        mine = [record for record in records if begin < record["updates"] <= end]
        if mine:
            seconds += (mine[-1]["updates"] - begin) / mine[-1]["updates_per_s"]
    return round(seconds, 1) if seconds else None
