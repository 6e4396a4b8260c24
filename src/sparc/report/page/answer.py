"""The answer: for each pair of methods where the first is better, where not, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparc.envs.measures import RETURN
from sparc.report import stats
from sparc.report.page import races
from sparc.report.page.data import REGIONS, ReportData, Source
from sparc.text import MISSING, joined, number, slug

VERDICTS = {  # the symbol says it without colour
    "better": ("▲", "better"),
    "worse": ("▼", "worse"),
    "open": ("≈", "no clear difference"),
    "few": ("?", "too few seeds to tell luck from skill"),
    "same": ("?", "all runs of a method are equal, so that no spread is known"),
    "none": (MISSING, "no results"),
}
UNSURE = {"few": "too few seeds to tell", "same": "but all runs of a method are equal: no spread is known"}


@dataclass(frozen=True)
class DetailLink:
    """A link from a comparison to its map or, where there is none, to the table of cars."""

    env: str
    first: str
    second: str
    title: str
    table: str  # the end of the table's id; empty: there is a map


@dataclass(frozen=True)
class Mention:
    """A test in a sentence."""

    test: str
    lead: str  # ahead, behind or equal, where there is no verdict
    link: DetailLink | None


@dataclass(frozen=True)
class Line:
    """A sentence of the headline: the tests of each verdict, by one measure in one region."""

    title: str
    pair: str
    verdicts: list[tuple[str, str, str, list[Mention]]]  # kind, symbol, words, tests


@dataclass(frozen=True)
class Strip:
    """A difference and its interval on a line with zero in the middle, in per cent of the width."""

    value: str
    low: str  # empty: no interval
    high: str


@dataclass(frozen=True)
class Column:
    """A region of a card, by one measure."""

    verdict: tuple[str, str, str]  # kind, symbol, words
    difference: str
    source: Source
    percent: str  # of the second method's mean; may be empty
    strip: Strip
    interval: str
    share: str  # of cells in which the first is better; empty: says nothing of this measure
    share_interval: str
    means: str
    seeds: str
    planned: str  # empty: as many as there are


@dataclass(frozen=True)
class Card:
    """Two methods in one test: a table of regions and measures, or why there is none."""

    test: str
    link: DetailLink
    gaps: list[str]
    regions: list[str]
    measures: list[tuple[str, list[Column]]]  # each with a heading, which is empty for the return alone


@dataclass(frozen=True)
class Comparison:
    """A pair of methods; page.js shows one of them at a time."""

    name: str
    lines: list[Line]
    cards: list[Card]


@dataclass(frozen=True)
class Answer:
    """The first section of the page."""

    comparisons: list[Comparison]
    means: str
    links_lead_to: str


def answer(data: ReportData) -> Answer:
    """Return the comparisons, and what their verdicts rest on."""
    comparisons = [
        Comparison(data.pair_name(*pair), headline(data, *pair), [card(data, test, *pair) for test in data.parts])
        for pair in data.pairs
    ]
    mapped = [test in data.mapped for test in data.parts]
    targets = ["the map of the difference"] * any(mapped) + ["the table of cars"] * (not all(mapped))
    compared = dict.fromkeys(means(data, name, tests[0]) for (name, _), tests in judged_by(data).items())
    return Answer(comparisons, joined(list(compared)), " or ".join(targets))


def judged_by(data: ReportData) -> dict[tuple[str, str], list[str]]:
    """Return the tests of each measure that verdicts rest on, by its name and title."""
    found: dict[tuple[str, str], list[str]] = {}
    for test in data.parts:
        for name in data.judged_by(test):
            found.setdefault((name, data.measure(test, name).title), []).append(test)
    return found


def means(data: ReportData, name: str, test: str) -> str:
    """Return what verdicts compare, in words."""
    if name == RETURN or test in data.races:
        return {RETURN: "mean returns", **races.MEANS}[name]
    measure = data.measure(test, name)
    return f"means of the {measure.title}{', of which less is better' * (measure.better < 0)}"


def verdict(comparison: stats.Comparison) -> str:
    """Return the key of VERDICTS that a comparison belongs to."""
    few = min(comparison.x_seeds, comparison.y_seeds) < stats.MIN_RUNS
    if comparison.verdict != "open":
        return comparison.verdict
    return "few" if few else "open" if math.isfinite(comparison.difference.low) else "same"


def headline(data: ReportData, a: str, b: str) -> list[Line]:
    """Return a line per region and measure that sums up all tests."""
    lines = []
    for region, words in REGIONS.items():
        for (measure, title), tests in judged_by(data).items():
            groups: dict[str, list[Mention]] = {}
            for test in tests:
                found = data.comparisons.get((test, a, b, region, measure))
                kind = verdict(found) if found else "none"
                lead = found.lead if found and kind in UNSURE else ""
                link = detail_link(data, test, a, b) if found else None
                groups.setdefault(kind, []).append(Mention(test, lead, link))
            by = f", {title}" if measure != RETURN else ""
            found_verdicts = [(kind, *said, groups[kind]) for kind, said in VERDICTS.items() if kind in groups]
            lines.append(Line(f"{words.capitalize()}{by}", f"{data.names[a]} against {data.names[b]}", found_verdicts))
    return lines


def detail_link(data: ReportData, test: str, a: str, b: str) -> DetailLink:
    """Return the link to the map of a difference, or to the table of cars."""
    title = f"Map of {data.names[a]} − {data.names[b]} in {test}"
    return DetailLink(test, a, b, title, "" if test in data.mapped else slug(test))


def card(data: ReportData, test: str, a: str, b: str) -> Card:
    """Compare two methods in one test, in each region."""
    regions = [region for region in data.parts[test].regions if (test, a, b, region, RETURN) in data.comparisons]
    missing = [key for key in (a, b) if not data.seeds(test, key)[0]] if not regions else []
    return Card(
        test,
        detail_link(data, test, a, b),
        [f"{data.names[key]} {data.gap(test, key)}" for key in missing],
        [f"{region.upper()}, {data.cells(test, region)} cells" for region in regions],
        [(heading(data, test, name), columns(data, test, a, b, regions, name)) for name in data.judged_by(test)]
        if regions
        else [],
    )


def heading(data: ReportData, test: str, measure: str) -> str:
    """Return the heading of a card's rows on one measure; the return alone has none."""
    shown = data.measure(test, measure)
    unit, less = f" [{shown.unit}]" * bool(shown.unit), ", less is better" * (shown.better < 0)
    return f"{shown.title.capitalize()}{unit}{less}" if data.judged_by(test) != (RETURN,) else ""


def columns(data: ReportData, test: str, a: str, b: str, regions: list[str], measure: str) -> list[Column]:
    """Return a card's columns on one measure, all on one scale."""
    found = [data.comparisons[test, a, b, region, measure].difference for region in regions]
    reach = 1.1 * max(abs(value) for estimate in found for value in estimate if math.isfinite(value)) or 1.0
    return [column(data, test, a, b, region, measure, reach) for region in regions]


def column(data: ReportData, test: str, a: str, b: str, region: str, measure: str, reach: float) -> Column:
    """Return a card's column for one region and measure."""
    comparison, decimals = data.comparisons[test, a, b, region, measure], data.measure(test, measure).digits
    kind = verdict(comparison)
    symbol, words = VERDICTS[kind]
    value, low, high = comparison.difference
    first, second = (float(data.values(test, key, region, measure).mean()) for key in (a, b))
    seeds, planned = (comparison.x_seeds, comparison.y_seeds), tuple(data.seeds(test, key)[1] for key in (a, b))
    share = [f"{100 * part:.0f}" for part in comparison.share]
    enough = min(seeds) >= stats.MIN_RUNS  # a percentage of one or two runs looks surer than it is
    has_share = enough and not data.all_or_nothing([test], measure)
    return Column(
        verdict=(kind, symbol, f"{comparison.lead}, {UNSURE[kind]}" if kind in UNSURE else words),
        difference=number(value, decimals, True),
        source=data.source(test, a, b),
        percent=number(100 * value / second, 0, True) if enough and second > 0 and measure == RETURN else "",
        strip=strip(comparison.difference, reach),
        interval=f"{number(low, decimals, True)} to {number(high, decimals, True)}" if math.isfinite(low) else MISSING,
        share=share[0] if has_share else "",
        share_interval=f"{share[1]}–{share[2]}" if math.isfinite(comparison.share.low) else "",
        means=f"{number(first, decimals)} vs {number(second, decimals)}",
        seeds=f"{seeds[0]} vs {seeds[1]}",
        planned=f"{planned[0]} and {planned[1]}" if planned != seeds else "",
    )


def strip(estimate: stats.Estimate, reach: float) -> Strip:
    """Return the places of a difference and its interval between −reach and reach."""
    return Strip(*(f"{50 + 50 * end / reach:.1f}%" if math.isfinite(end) else "" for end in estimate))
