"""The tables of numbers, each linked to the runs it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from sparc.envs.racing.measures import MEASURES
from sparc.report import stats
from sparc.report.page.answer import pair_name
from sparc.report.page.book import RETURN, Book
from sparc.report.page.text import REGIONS, attributes
from sparc.text import MISSING, count, joined, number

STAR = "★ "
EMPTY = f"<td class='edge gap'>{MISSING}</td>"


def returns(book: Book) -> str:
    """Write all tables of returns."""
    envs = list(book.results.envs)
    middle = middles(book, envs) + aggregates(book) + probabilities(book, envs)
    return means(book, "ood") + means(book, "ind") + middle


def means(book: Book, region: str) -> str:
    """Tabulate mean returns ± s.e.m. over seeds, beside the paper's where there are some."""
    reference = book.manifest.get("reference") or {}
    paper = {env: values for env, values in reference.get(region, {}).items() if env in book.results.envs}
    best = {
        env: winner(book, {key: s.mean for key, s in row_of(book, env, region).items()}) for env in book.results.envs
    }
    best_paper = {env: winner(book, {k: v[0] for k, v in values.items()}) for env, values in paper.items()}
    rows = []
    for key in book.names:
        cells = ""
        for env in book.results.envs:
            cells += mean_cell(book, env, key, region, key == best[env])
            if env in paper:
                cells += paper_cell(paper[env].get(key), book.digits[env], key == best_paper[env])
        rows.append(row(book, key, cells))
    envs = {env: ["here", "paper"] if env in paper else ["here"] for env in book.results.envs}
    note = f"Here: {budget(book)}. "
    if paper:
        updates = f", {count(reference['updates'])} updates" if reference.get("updates") else ""
        title = reference["title"][:1].upper() + reference["title"][1:]
        note += f"{title}{updates}: for orientation, with other code and library versions. "
    note += f"{STAR}Highest mean among the contenders; that alone does not say how sure it is."
    if any(s.seeds == 1 for env in book.results.envs for s in row_of(book, env, region).values()):
        note += " n = 1: one seed only, so that no spread over seeds is known."
    if any(book.warning(env, key) for env in book.results.envs for key in book.names):
        note += " ⚠ Fewer seeds than planned: the average is over those that are there."
    return table(f"Mean return {REGIONS[region]} ({region.upper()}) ± s.e.m. over seeds", envs, rows, note)


def budget(book: Book) -> str:
    """Return how long the runs trained, and which of them longer or shorter than the suite says."""
    usual = book.manifest["updates"]
    own = {book.names[key]: {m["config"].get("updates", usual) for m in book.of(key)} for key in book.names}
    others = [f"{name} {count(max(updates))}" for name, updates in own.items() if updates != {usual}]
    return f"{count(usual)} updates" + (f" ({', '.join(others)})" if others else "")


def row_of(book: Book, test: str, region: str, measure: str = RETURN) -> dict[str, stats.Summary]:
    """Return the summaries of all labels with results."""
    if measure == RETURN:
        return {key: book.summaries[test, key, region] for key in book.names if (test, key, region) in book.summaries}
    there = [key for key in book.names if key in book.parts[test].returns]
    return {key: stats.summarise(book.values(test, key, region, measure)) for key in there}


def mean_cell(book: Book, env: str, key: str, region: str, best: bool) -> str:
    """Write a mean with its spread and, where seeds are missing, that they are."""
    summary = book.summaries.get((env, key, region))
    if summary is None:
        return f"<td class='edge gap'>{escape(book.gap(env, key))}</td>"
    decimals = book.digits[env]
    spread = f" ± {number(summary.sem, decimals)}" if math.isfinite(summary.sem) else f" (n = {summary.seeds})"
    text = book.source(number(summary.mean, decimals) + spread, env, key)
    return f"<td class='edge{' best' * best}'>{STAR * best}{text}{lacking(book, env, key)}</td>"


def lacking(book: Book, env: str, key: str) -> str:
    """Mark a number that lacks seeds."""
    text = book.warning(env, key)
    return f"<span class='sub warn'>{text}</span>" if text else ""


def paper_cell(value: list[float] | None, decimals: int, best: bool) -> str:
    """Write the paper's mean and s.e.m."""
    if value is None:
        return f"<td class='paper'>{MISSING}</td>"
    text = " ± ".join(number(part, decimals) for part in value)
    return f"<td class='paper{' best' * best}'>{STAR * best}{text}</td>"


def winner(book: Book, values: Mapping[str, float]) -> str | None:
    """Return the contender with the highest value, if there is more than one."""
    contenders = {key: values[key] for key in book.names if key in values and not book.is_reference(key)}
    return max(contenders, key=lambda key: contenders[key]) if len(contenders) > 1 else None


def middles(book: Book, tests: Sequence[str], measure: str = RETURN) -> str:
    """Tabulate interquartile means of the returns, or of a measure, with intervals."""
    places = {(test, part): row_of(book, test, part, measure) for test in tests for part in book.parts[test].regions}
    best = {
        place: winner(book, {key: book.measure(place[0], measure).better * s.iqm.value for key, s in found.items()})
        for place, found in places.items()
    }
    rows = []
    for key in book.names:
        cells = ""
        for (env, region), found in places.items():
            summary = found.get(key)
            if summary is None:
                cells += EMPTY
                continue
            top, decimals = key == best[env, region], book.measure(env, measure).digits
            value, low, high = (number(part, decimals) for part in summary.iqm)
            interval = f"{low} to {high}" if math.isfinite(summary.iqm.low) else f"n = {summary.seeds}"
            cells += (
                f"<td class='edge{' best' * top}'>{STAR * top}{book.source(value, env, key)}"
                f"<span class='sub'>{interval}</span>{lacking(book, env, key)}</td>"
            )
        rows.append(row(book, key, cells))
    heads = {test: [region.upper() for region in book.parts[test].regions] for test in tests}
    note = "Below: 95 % interval, from three seeds on. The mean of the middle half of all runs and cells."
    if measure == RETURN:
        return table("Interquartile mean (IQM) over seeds and cells", heads, rows, note)
    note += " Less is better." * (MEASURES[measure].better < 0)
    return table(f"Interquartile mean (IQM) of the {MEASURES[measure].title} over seeds and cells", heads, rows, note)


def aggregates(book: Book) -> str:
    """Tabulate interquartile means over all environments, with intervals."""
    envs, used = list(book.results.envs), book.common
    if len(envs) < 2:
        return ""
    best = winner(book, {key: estimate.value for key, estimate in book.aggregates.items()})
    rows = []
    for key in book.names:
        estimate = book.aggregates.get(key)
        if estimate is None:
            rows.append(row(book, key, EMPTY))
            continue
        value, low, high = (number(part, 2) for part in estimate)
        done, planned = (sum(book.seeds(env, key)[i] for env in used) for i in (0, 1))
        interval = f"<span class='sub'>{low} to {high}</span>" if math.isfinite(estimate.low) else ""
        warn, of = (" warn", f" of {planned} runs ⚠") if done < planned else ("", " runs")
        runs = f"<span class='sub{warn}'>{done}{of}</span>"
        cell = f"{STAR * (key == best)}{book.source(value, '', key)}{interval}{runs}"
        rows.append(row(book, key, f"<td class='edge{' best' * (key == best)}'>{cell}</td>"))
    unit = book.names[book.yardstick]
    left = [env for env in envs if env not in used]
    note = (
        f"The mean of the middle half of all runs of {joined(used) or 'no environment'}. Of each run its mean OOD "
        f"return, divided by that of {unit} in its environment, so that 1 is as good as {unit}. Below: 95 % "
        f"interval of a bootstrap of whole runs, environments as strata, {unit}’s mean held fixed; from three seeds of "
        "each environment on."
    )
    if left:
        note += f" ⚠ Without {joined(left)}, where not all methods have results or {unit} has no positive return."
    return table("Interquartile mean (IQM) over all environments, out of distribution", {"IQM": []}, rows, note)


def probabilities(book: Book, tests: Sequence[str], measures: Sequence[str] = (RETURN,)) -> str:
    """Tabulate the probability that a run of the first method of a pair beats one of the second, OOD."""
    if not book.pairs:
        return ""
    averaged = len(tests) > 1 and measures == (RETURN,)
    rows = []
    for a, b in book.pairs:
        cells = "".join(probability(book, test, a, b, name) for test in tests for name in measures)
        cells += overall(book, a, b) if averaged else ""
        rows.append(f"<tr><th scope='row'>{escape(pair_name(book, a, b, 'over'))}</th>{cells}</tr>")
    names = [MEASURES[name].title for name in measures if name != RETURN]
    heads = {test: names for test in tests} | ({"All, weighted equally": list[str]()} if averaged else {})
    note = (
        "How often a run of the first method has a better mean than one of the second; 0.5 is no difference. "
        "Below: 95 % interval, from three seeds on."
    )
    by = f", by {joined(names)}" if names else ""
    return table(f"Probability of improvement out of distribution{by}", heads, rows, note)


def probability(book: Book, test: str, a: str, b: str, measure: str) -> str:
    """Write the probability of improvement in one test, by one measure."""
    found = book.comparisons.get((test, a, b, "ood", measure))
    if found is None:
        return EMPTY
    warn = " warn" if book.warning(test, a) or book.warning(test, b) else ""
    seeds = f"{found.x_seeds} × {found.y_seeds} pairs of runs{' ⚠' if warn else ''}"
    return chance(book, found.probability, test, a, b, f"<span class='sub{warn}'>{seeds}</span>")


def overall(book: Book, a: str, b: str) -> str:
    """Average the probability of improvement over the environments with results of both, by return."""
    parts = [part for env, part in book.results.envs.items() if (env, a, b, "ood", RETURN) in book.comparisons]
    if not parts:
        return EMPTY
    ours, theirs = ([part.matrix(key, "ood").mean(axis=1) for part in parts] for key in (a, b))
    half, total = len(parts), len(book.results.envs)
    ends = stats.interval(
        [*ours, *theirs], lambda runs: stats.probability_of_improvement(runs[:half], runs[half:])
    )  # fmt: skip
    estimate = stats.Estimate(stats.probability_of_improvement(ours, theirs), *ends)
    note = f"<span class='sub warn'>{half} of {total} environments ⚠</span>" if half < total else ""
    return chance(book, estimate, "", a, b, note)


def chance(book: Book, estimate: stats.Estimate, env: str, a: str, b: str, note: str) -> str:
    """Write a probability with its interval."""
    value, low, high = (number(part, 2) for part in estimate)
    interval = f"{low} to {high}" if math.isfinite(estimate.low) else "too few seeds for an interval"
    return f"<td class='edge'>{book.source(value, env, a, b)}<span class='sub'>{interval}</span>{note}</td>"


def row(book: Book, key: str, cells: str) -> str:
    """Write a method's row."""
    reference = book.is_reference(key)
    name = escape(book.names[key]) + " <small>(a reference)</small>" * reference
    return f"<tr{' class=reference' * reference}><th scope='row'>{name}</th>{cells}</tr>"


def table(title: str, heads: Mapping[str, list[str]], rows: list[str], note: str) -> str:
    """Write a table that scrolls in its own box; `heads` are the columns with those below them."""
    deep = any(heads.values())
    above = "".join(
        f"<th scope='col{'group' * deep}' class='edge' colspan='{len(below) or 1}'>{escape(name)}</th>"
        for name, below in heads.items()
    )
    subheads = "".join(
        f"<th scope='col'{' class=edge' if index == 0 or name != 'paper' else ''}>{name}</th>"
        for below in heads.values()
        for index, name in enumerate(below)
    )
    return (
        f"<h3>{escape(title)}</h3><div class='box' tabindex='0' role='region'{attributes(aria_label=title)}>"
        f"<table><thead><tr><td{' rowspan=2' * deep}></td>{above}</tr>{f'<tr>{subheads}</tr>' * deep}</thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div><p class='quiet'>{escape(note)}</p>"
    )
