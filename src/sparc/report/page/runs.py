"""What was run: the head of the page, the gaps, and every run."""

from __future__ import annotations

from html import escape
from typing import Any

from sparc.contexts import Finite
from sparc.envs.racing.measures import JUDGED
from sparc.report.page.book import RETURN, Book, label_of
from sparc.report.page.tables import budget
from sparc.report.page.text import REGIONS, attributes
from sparc.text import count, duration, fraction, joined, listed, number, plural, ranges

WORDS = ("Environment", "Method", "State")  # the columns that hold words


def head(book: Book) -> str:
    """Return what was run, for how long, on what, and what is missing."""
    manifest, members = book.manifest, book.members
    done = sum(member["state"] == "done" for member in members)
    paper = (manifest["reference"] or {}).get("updates")
    part = f", {fraction(manifest['updates'], paper)} of the paper’s {count(paper)}" if paper else ""
    sizes = {(book.cells(env, "ind"), book.cells(env, "ood")) for env in book.results.envs}
    contexts = joined([f"{ind + ood} contexts ({ind} IND, {ood} OOD)" for ind, ood in sorted(sizes) if ind + ood])
    seeds = {member["seed"] for member in members}
    what = (
        f"{plural(len(book.names), 'method')} ({joined(list(book.names.values()))}) in "
        f"{plural(len(book.results.envs), 'environment')} ({joined(list(book.results.envs))}), "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {ranges(seeds)}: {done} of {plural(len(members), 'run')} done. "
        f"Budget of a run: {budget(book)}{part}; then a test in {contexts or 'no contexts yet'}, "
        f"{plural(manifest['episodes'], 'episode')} each. "
        f"{duration(sum(member['train_seconds'] or 0 for member in members))} of training in all."
    )
    made = [
        f"Made {manifest['made'][:16].replace('T', ' ')} UTC",
        ", ".join(f"{name} {version}" for name, version in distinct(members, "versions").items()),
        ", ".join(f"{name}: {value}" for name, value in distinct(members, "machine").items()),
    ]
    about = f"<p class='lead'>{escape(manifest['about'])}</p>" if manifest["about"] else ""
    return f"{about}<p>{escape(what)}</p><p class='quiet'>{escape('. '.join(filter(None, made)))}.</p>{gaps(book)}"


def distinct(members: list[dict[str, Any]], key: str) -> dict[str, str]:
    """Collect the values of each entry over all runs: one where all agree."""
    found: dict[str, dict[str, None]] = {}
    for member in members:
        for name, value in member[key].items():
            found.setdefault(name, {})[listed(value)] = None
    return {name: " / ".join(values) for name, values in found.items()}


def gaps(book: Book) -> str:
    """List the runs without results, so that no average hides them."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for member in book.members:
        if member["state"] != "done":
            why = member["state"] + (f", {member['note']}" if member["note"] else "")
            groups.setdefault((member["env"], book.names[label_of(member)], why), []).append(member["seed"])
    if not groups:
        return ""
    items = [
        f"{name} in {env}, {'seed' if len(seeds) == 1 else 'seeds'} {ranges(seeds)}: {why}"
        for (env, name, why), seeds in groups.items()
    ]
    total = sum(map(len, groups.values()))
    return (
        f"<details class='notice'{' open' * (len(items) <= 5)}><summary>⚠ {total} of "
        f"{plural(len(book.members), 'run')} without results: averages are over the rest.</summary>"
        f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul></details>"
    )


def runs(book: Book) -> str:
    """List every run, with all that is needed to find it and make it again."""
    heads = "".join(
        f"<th scope='col'{' class=left' * (name in WORDS)}><button type='button'>{name}</button></th>"
        for name in columns(book)
    )
    rows = "".join(run_row(book, index, member) for index, member in enumerate(book.members))
    return (
        "<p class='quiet'>The checkpoint is the one that was tested: the best of the evaluations in distribution "
        "during training. The details are a run’s folder below the suite’s own, its versions and its settings.</p>"
        "<p id='from' class='notice' hidden><span id='from-text' role='status'></span> "
        "<button type='button'>Back to the number</button></p>"
        "<div class='box tall' tabindex='0' role='region' aria-label='All runs; a heading sorts them'>"
        f"<table id='run-table'><thead><tr>{heads}<th scope='col' class='left'>Details</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def columns(book: Book) -> list[str]:
    """Name what is told of every run; its means are those of what it is judged by."""
    return ["Environment", "Method", "Seed", "State", "Updates", "Checkpoint", *map(" ".join, means(book)), "Training"]


def means(book: Book) -> list[tuple[str, str]]:
    """Name the means of a run by region and measure: of races, if there is nothing else, of laps."""
    laps = all(env in book.races for env in book.results.envs)
    return [(region.upper(), name) for region in REGIONS for name in (JUDGED if laps else ("mean",))]


def run_row(book: Book, index: int, member: dict[str, Any]) -> str:
    """Write one run."""
    env, key = member["env"], label_of(member)
    done = member["state"] == "done"
    state = f"{'✓' if done else '✗'} {member['state']}{': ' * bool(member['note'])}{member['note']}"
    values: list[tuple[str, Any]] = [  # as shown, and to sort by
        (env, env),
        (book.names[key], book.names[key]),
        (str(member["seed"]), member["seed"]),
        (state, state),
        (number(member["updates"]), member["updates"]),
        (number(member["checkpoint"]), member["checkpoint"]),
        *(mean_of_run(book, member, region.lower(), name) for region, name in means(book)),
        (duration(member["train_seconds"]), member["train_seconds"]),
    ]
    cells = ""
    for (text, value), name in zip(values, columns(book), strict=True):
        key_of = attributes(data_name=name, data_value="" if value is None else str(value))
        cells += f"<td{' class=left' * (name in WORDS)}{key_of}>{escape(text)}</td>"
    lines = [f"folder: {member['run']}"] + [
        line
        for name in ("versions", "machine", "config")
        for line in [f"{name}:", *(f"  {entry}: {listed(value)}" for entry, value in member[name].items())]
    ]
    more = f"<details><summary>show</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
    marks = attributes(id=f"run-{index}", data_env=env, data_label=key) + " class='gap'" * (not done)
    return f"<tr{marks}>{cells}<td class='left'>{more}</td></tr>"


def mean_of_run(book: Book, member: dict[str, Any], region: str, name: str) -> tuple[str, float | None]:
    """Return a run's mean over the cells of a region, as text and as a number."""
    env, key, seed = member["env"], label_of(member), member["seed"]
    part, measure = book.parts[env], RETURN if name == "mean" else name
    if seed not in part.returns.get(key, {}) or region not in part.regions:
        return number(None), None
    mean = float(book.values(env, key, region, measure)[list(part.returns[key]).index(seed)].mean())
    return number(mean, book.measure(env, measure).digits), mean


def commands(book: Book) -> str:
    """List what to type for the same page."""
    return escape("\n".join(map(str, book.manifest["commands"])))


def regions(book: Book) -> str:
    """List where each environment was trained and tested."""
    lines = []
    for env, part in book.results.envs.items():
        space = part.space
        if isinstance(space.train, Finite):
            trained, others = int(part.ind.sum()), int((~part.ind).sum())
            lines.append(f"<li>{escape(env)}: {trained} of a finite set to train on, {others} others to test on</li>")
            continue
        features = [
            f"{name} from {space.train.low[i]:g} to {space.train.high[i]:g}{f' {unit}' * bool(unit)} "
            f"(tested from {space.test.low[i]:g} to {space.test.high[i]:g})"
            for i, (name, unit) in enumerate(zip(space.names, space.units, strict=True))
        ]
        lines.append(f"<li>{escape(f'{env}: {joined(features)}'.replace(' -', ' −'))}</li>")
    return f"<ul>{''.join(lines)}</ul>"
