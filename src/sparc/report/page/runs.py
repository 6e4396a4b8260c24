"""What was run: the head of the page, the gaps, and every run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.contexts import Finite
from sparc.plugins import named_module
from sparc.report.page.data import REGIONS, ReportData, label_of
from sparc.report.page.tables import budget
from sparc.text import count, duration, fraction, joined, listed, number, plural, ranges

WORDS = ("Environment", "Method", "State")  # the columns that hold words
UNKNOWN = "?"  # a commit, as manifests have it
LAST = 5  # evaluations in training, whose mean stands beside the chosen checkpoint


@dataclass(frozen=True)
class Head:
    """What was run, for how long, on what, and what is missing."""

    about: str
    summary: str
    made: str
    gaps: list[str]  # the runs without results
    missing: str  # how many these are
    edited: str  # tables that were changed by hand
    mixed: list[str]  # methods of which some runs had workers and some had not
    commits: str  # that the runs are of several commits, or of an unknown one; empty: of one


def head(data: ReportData) -> Head:
    """Return the head of the page."""
    manifest, members = data.manifest, data.members
    done = sum(member["state"] == "done" for member in members)
    paper = (manifest["reference"] or {}).get("updates")
    part = f", {fraction(manifest['updates'], paper)} of the paper’s {count(paper)}" if paper else ""
    sizes = {(data.cells(env, "ind"), data.cells(env, "ood")) for env in data.results.envs}
    contexts = joined([f"{ind + ood} contexts ({ind} IND, {ood} OOD)" for ind, ood in sorted(sizes) if ind + ood])
    summary = (
        f"{compared(data)} in "
        f"{plural(len(data.results.envs), 'environment')} ({joined(list(data.results.envs))}), "
        f"{seed_list({member['seed'] for member in members})}: {done} of {plural(len(members), 'run')} done. "
        f"Budget of a run: {budget(data)}{part}; then a test in {contexts or 'no contexts yet'}, "
        f"{plural(manifest['episodes'], 'episode')} each. "
        f"{duration(sum(member['train_seconds'] or 0 for member in members))} of training in all."
    )
    made = [
        f"Made {manifest['made'][:16].replace('T', ' ')} UTC",
        " / ".join(dict.fromkeys(f"commit {short(m['commit'])}" for m in members if m.get("commit"))),
        ", ".join(f"{name} {version}" for name, version in distinct(members, "versions").items()),
        ", ".join(f"{name}: {value}" for name, value in distinct(members, "machine").items()),
    ]
    missing = f"{len(members) - done} of {plural(len(members), 'run')}"
    edited = joined(manifest.get("edited", []))
    return Head(
        manifest["about"],
        summary,
        ". ".join(filter(None, made)),
        gaps(data),
        missing,
        edited,
        mixed(data),
        commits(data),
    )


def compared(data: ReportData) -> str:
    """Return the methods, or the methods and the stages that they have."""
    if not data.stages:
        return f"{plural(len(data.names), 'method')} ({joined(list(data.names.values()))})"
    titles = list(dict.fromkeys(data.results.entries[method].title for method, _ in data.methods.values()))
    return f"{plural(len(titles), 'method')} ({joined(titles)}), {plural(len(data.stages), 'stage')}"


def short(commits: str) -> str:
    """Return commits by their first digits, and whether there were changes."""
    return ", ".join(f"{commit[:8]}{commit[40:]}" for commit in commits.split(", "))


def commits(data: ReportData) -> str:
    """Return from which commits the runs with results are, unless all are from one; a run may be of several."""
    found = Counter(member.get("commit") or UNKNOWN for member in data.members if member["state"] == "done")
    if len(found) < 2 and not any(UNKNOWN in commits.split(", ") for commits in found):
        return ""
    return joined([f"{plural(runs, 'run')} of {named(commits)}" for commits, runs in found.items()])


def named(commits: str) -> str:
    """Return the commits of a run in words."""
    return " and ".join("an unknown one" if commit == UNKNOWN else short(commit) for commit in commits.split(", "))


def command(data: ReportData, member: dict[str, Any]) -> str:
    """Return the command that trains and tests a run again, if need be with others of its seed, in a new folder."""
    suite, config = data.manifest["commands"][0].split(" --")[0], member["config"]
    env, method = (config.get(name, member[name]) for name in ("env", "method"))
    given = {
        "updates": data.manifest["updates"],
        "envs": env,
        "methods": method,
        "seeds": member["seed"],
        "run-dir": f"again/{data.manifest['suite']}",
    }
    words = [suite, *(f"--{name} {value}" for name, value in given.items())]
    return " ".join([*words, "--allow-import"] if any(map(named_module, (env, method))) else words)


def seed_list(seeds: set[int]) -> str:
    """Return seeds in words: seed 4, seeds 0–2."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {ranges(seeds)}"


def distinct(members: list[dict[str, Any]], key: str) -> dict[str, str]:
    """Return the values of each entry over all runs: one where all agree."""
    found: dict[str, dict[str, None]] = {}
    for member in members:
        for name, value in member[key].items():
            found.setdefault(name, {})[listed(value)] = None
    return {name: " / ".join(values) for name, values in found.items()}


def gaps(data: ReportData) -> list[str]:
    """Return the runs without results, so that no average hides them."""
    groups: dict[tuple[str, str, str], set[int]] = {}
    for member in data.members:
        if member["state"] != "done":
            why = member["state"] + (f", {member['note']}" if member["note"] else "")
            groups.setdefault((member["env"], data.names[label_of(member)], why), set()).add(member["seed"])
    return [f"{name} in {env}, {seed_list(seeds)}: {why}" for (env, name, why), seeds in groups.items()]


def mixed(data: ReportData) -> list[str]:
    """Return the methods of which workers collected for some runs only: their experience is not of one kind."""
    groups: dict[tuple[str, str], tuple[set[int], set[int]]] = {}
    for member in data.members:
        if member["state"] == "done":
            both = groups.setdefault((member["env"], data.names[label_of(member)]), (set(), set()))
            both[bool(member.get("workers"))].add(member["seed"])
    return [
        f"{name} in {env} ({seed_list(having)} with, {seed_list(without)} without)"
        for (env, name), (without, having) in groups.items()
        if without and having
    ]


# Every run


@dataclass(frozen=True)
class RunCell:
    """A value of a run, as text and to sort by."""

    column: str
    text: str
    value: str
    left: bool  # aligned, as words are


@dataclass(frozen=True)
class Run:
    """A row of the table of runs."""

    env: str
    label: str
    done: bool
    cells: list[RunCell]
    details: str


@dataclass(frozen=True)
class RunTable:
    """Every run, with all that is needed to find it and make it again."""

    columns: list[tuple[str, bool]]  # and whether it is left-aligned
    runs: list[Run]


def table(data: ReportData) -> RunTable:
    """Return the table of runs."""
    columns = [(name, name in WORDS) for name in run_values(data, data.members[0])]
    return RunTable(columns, [run(data, member) for member in data.members])


def run(data: ReportData, member: dict[str, Any]) -> Run:
    """Return one run."""
    cells = [
        RunCell(name, text, "" if value is None else str(value), name in WORDS)
        for name, (text, value) in run_values(data, member).items()
    ]
    noted = {name: member.get(name) for name in ("commit", "workers")}
    details = [
        f"folder: {member['run']}",
        f"again: {command(data, member)}",
        *(f"{name}: {value}" for name, value in noted.items() if value),
    ] + [
        line
        for name in ("versions", "machine", "config")
        for line in [f"{name}:", *(f"  {entry}: {listed(value)}" for entry, value in member[name].items())]
    ]
    return Run(member["env"], label_of(member), member["state"] == "done", cells, "\n".join(details))


def run_values(data: ReportData, member: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the columns of a run, as text and to sort by: the means by which any environment is judged."""
    env, name = member["env"], data.names[label_of(member)]
    note = f": {member['note']}" if member["note"] else ""
    state = f"{'✓' if member['state'] == 'done' else '✗'} {member['state']}{note}"
    measures = {name: data.measure(test, name).heading for test in data.results.envs for name in data.judged_by(test)}
    return {
        "Environment": (env, env),
        "Method": (name, name),
        "Seed": (str(member["seed"]), member["seed"]),
        "State": (state, state),
        "Updates": (number(member["updates"]), member["updates"]),
        "Checkpoint": (number(member["checkpoint"]), member["checkpoint"]),
        **{
            f"{region.upper()} {heading}": mean_of_run(data, member, region, measure)
            for region in REGIONS
            for measure, heading in measures.items()
        },
        **{
            f"Last {LAST} evaluations, IND {heading}": mean_of_last(data, member, measure)
            for measure, heading in measures.items()
        },
        "Training": (duration(member["train_seconds"]), member["train_seconds"]),
    }


def mean_of_run(data: ReportData, member: dict[str, Any], region: str, measure: str) -> tuple[str, float | None]:
    """Return a run's mean over the cells of a region, as text and as a number."""
    env, key, seed = member["env"], label_of(member), member["seed"]
    part = data.parts[env]
    if seed not in part.returns.get(key, {}) or region not in part.regions or measure not in data.judged_by(env):
        return number(None), None
    mean = float(data.values(env, key, region, measure)[list(part.returns[key]).index(seed)].mean())
    return number(mean, data.measure(env, measure).digits), mean


def mean_of_last(data: ReportData, member: dict[str, Any], measure: str) -> tuple[str, float | None]:
    """Return a run's mean over its last evaluations in training, as text and as a number."""
    env, curves = member["env"], data.parts[member["env"]].curves.get(label_of(member), {})
    if member["seed"] not in curves or measure not in data.judged_by(env):
        return number(None), None
    shown, curve = data.measure(env, measure), curves[member["seed"]]
    mean = float(shown.scale * curve.values(measure)[curve.phase == curve.phase[-1]][-LAST:].mean())
    return (number(mean, shown.digits), mean) if np.isfinite(mean) else (number(None), None)


def regions(data: ReportData) -> list[str]:
    """Return where each environment was trained and tested."""
    lines = []
    for env, part in data.results.envs.items():
        space = part.space
        if isinstance(space.train, Finite):
            trained, others = int(part.ind.sum()), int((~part.ind).sum())
            lines.append(f"{env}: {trained} of a finite set to train on, {others} others to test on")
            continue
        features = [
            f"{name} from {space.train.low[i]:g} to {space.train.high[i]:g}{f' {unit}' * bool(unit)} "
            f"(tested from {space.test.low[i]:g} to {space.test.high[i]:g})"
            for i, (name, unit) in enumerate(zip(space.names, space.units, strict=True))
        ]
        lines.append(f"{env}: {joined(features)}".replace(" -", " −"))
    return lines
