"""From the run directories of a suite, and its published results, to its tables; gaps are marked."""

from __future__ import annotations

from dataclasses import replace
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
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.suites.idle import idle_returns
from sparc.suites.published import Published
from sparc.suites.results import EXPERT, EXPLAINED, VARIANTS, Curve, EnvResults, Results, label
from sparc.suites.stages import describe as describe_stages
from sparc.suites.stages import read_stages
from sparc.suites.status import Status, finished, status_of
from sparc.suites.suite import Member, Suite
from sparc.suites.tables import by_label

OTHER_CONTEXTS = "It was tested in other contexts than the suite's: delete its evaluations and run the suite."


def gather(
    suite: Suite, folder: Path, progress: ProgressCall | None = None, published: Published | None = None
) -> Results:
    """Read everything that the suite's members have produced; a run that is done goes before what is published."""
    published = published or Published()
    published.check(suite)
    suite = published.joined(suite)
    envs, entries = dict[str, EnvResults](), list[dict[str, Any]]()
    members = suite.members()
    for done, member in enumerate(members):
        if progress:
            progress(done, len(members))
        env = get_env(member.config.env)
        space = env.context_space.as_tested()
        contexts = space.grid(suite.grid)
        if member.env not in envs:
            ind = space.is_train(contexts)
            variants = {name: EnvResults(space, contexts, ind, criteria=env.criteria) for name in suite.tested_in}
            envs[member.env] = EnvResults(space, contexts, ind, variants=variants, criteria=env.criteria)
        part = envs[member.env]
        entry = describe(member, status_of(suite, member, folder), folder)
        if entry["state"] == "done":
            try:
                run = Run.open(folder / member.path)
                entry |= add(part, suite, member, run) | about(run)
            except SparcError as error:
                entry |= {"state": "failed", "note": anywhere(str(error), member, folder)}
        if entry["state"] != "done":
            entry = published.copy(member, part) or entry
        entries.append(entry)
    by_variant = sorted(members, key=lambda member: bool(member.variant))  # the default first
    for member in {member.env: member for member in reversed(by_variant)}.values():  # the first of each environment
        if (part := envs[member.env]).returns:
            idle = published.idle(member)
            cache = folder / f"idle-{member.env}.csv"
            envs[member.env] = replace(part, idle=idle_returns(part, member.config, cache) if idle is None else idle)
    manifest = {
        "suite": suite.name,
        "title": suite.title or suite.name,
        "about": suite.about,
        "updates": suite.updates,
        "grid": suite.grid,
        "episodes": suite.episodes,
        "variants": suite.tested_in,
        "runs": suite.runs,
        **({"stages": describe_stages(read_stages(suite.stages), suite.envs)} if suite.stages else {}),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "contexts": {env: part.space.to_dict() for env, part in envs.items()},
        "labels": {env: part.context_labels for env, part in envs.items() if by_label(part.space, part.context_labels)},
        "criteria": {env: part.criteria.to_dict() for env, part in envs.items()},
        "reference": suite.reference,
        "primary": suite.primary,
        "commands": suite.commands(),
        "methods": {member.method: find_method(member.config.method).describe() for member in members},
        "members": entries,
    }
    return Results(manifest, envs)


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
        "env": member.env,
        "method": member.method,
        "variation": member.variation,
        "seed": member.config.seed,
        "state": state_shown,
        "note": note,
        "run": member.path.as_posix(),
        "updates": status.updates,
        "revision": get_env(member.config.env).revision,
        "checkpoint": None,
        "train_seconds": None,
        "config": member.config.to_dict(),
        "commit": None,
        "versions": {},
        "machine": {},
        "workers": 0,
    }


def add(part: EnvResults, suite: Suite, member: Member, run: Run) -> dict[str, Any]:
    """Put a run's results in their places and name the checkpoint that they are of."""
    number, evaluation, trace, latents, elsewhere, expert = finished(suite, run)
    for place, tested in ((part, evaluation), *((part.variants[name], tested) for name, tested in elsewhere.items())):
        if not np.array_equal(tested.cells()[0], part.contexts):
            raise UserError(OTHER_CONTEXTS)
        measures = {name: tested.cells(values)[2] for name, values in tested.measures.items()}
        if given := place.other_given(measures):
            raise UserError(
                f"{member.path.as_posix()} was tested with {given}: delete its evaluations, or those of the other if "
                "they are the older ones, and run the suite."
            )
    if latents and len(latents.psi) != len(part.contexts):
        raise UserError(OTHER_CONTEXTS)
    if expert is not None and not np.array_equal(expert.cells()[0], part.contexts):
        raise UserError(OTHER_CONTEXTS)
    scores = [record for record in run.records() if record["kind"] == "evaluation"]
    updates, means = (np.array([record[key] for record in scores], float) for key in ("updates", "mean_return"))
    phase = np.array([record["phase"] for record in scores], str)
    judged = [name for name in part.criteria.judged_by if name != RETURN]
    wanted = (*judged, *EXPLAINED, *(f"{variant}_{name}" for variant in VARIANTS for name in judged))
    stages = range(1, run.lineage.number + 1)
    wanted += tuple(f"stage_{number}_{name}" for number in stages for name in (RETURN, *judged))
    measures = {name: np.array([record.get(name, np.nan) for record in scores], float)
                for name in wanted if any(name in record for record in scores)}  # fmt: skip
    name, seed = label(member.method, member.variation), member.config.seed
    add_cells(part, name, seed, evaluation)
    if expert is not None:
        part.measures[name][seed][EXPERT] = expert.cells()[2]
    for variant, tested in elsewhere.items():
        add_cells(part.variants[variant], name, seed, tested)
    part.curves.setdefault(name, {})[seed] = Curve(updates, means, phase, measures)
    if len(trace.step):  # none where the context cannot be switched
        part.traces.setdefault(name, {})[seed] = trace
    if latents is not None:
        part.latents.setdefault(name, {})[seed] = latents
    return {"checkpoint": number}


def add_cells(part: EnvResults, key: str, seed: int, evaluation: Evaluation) -> None:
    """Put an evaluation's returns and measures in their places, and what its contexts are called."""
    measures = {measure: evaluation.cells(values)[2] for measure, values in evaluation.measures.items()}
    part.returns.setdefault(key, {})[seed] = evaluation.cells()[2]
    part.measures.setdefault(key, {})[seed] = measures
    part.context_labels[:] = [
        name for name, episode in zip(evaluation.labels, evaluation.episode, strict=False) if not episode
    ]


def about(run: Run) -> dict[str, Any]:
    """Return how long a run took, in which revision of its environment, and with what; no paths of the machine."""
    sessions = run.manifest()["sessions"]
    commits = dict.fromkeys(session.get("commit") or "?" for session in sessions)
    commit = ", ".join(commits) if set(commits) - {"?"} else None
    revision = checkpoint.load_meta(run.checkpoints / str(run.choose("last"))).get("revision", 1)
    workers = max((session.get("workers", 0) for session in sessions), default=0)
    return {"train_seconds": train_seconds(run), "commit": commit, "revision": revision, "workers": workers} | {
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
