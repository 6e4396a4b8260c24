"""The answer: for each pair of methods where the first is better, where not, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparc.envs.measures import RETURN
from sparc.report import stats
from sparc.report.page import races
from sparc.report.page.data import REGIONS, Endpoint, ReportData, Source
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
class Row:
    """A primary endpoint in the table of them."""

    test: str
    pair: str
    measure: str
    verdict: tuple[str, str, str]
    difference: str
    interval: str
    p: str  # Welch's
    pooled_p: str
    seeds: str
    needed: str  # seeds to see a difference of this size


@dataclass(frozen=True)
class Primary:
    """What the suite was made to find out, in three sentences, and all endpoints."""

    sentences: list[str]
    rows: list[Row]


@dataclass(frozen=True)
class Answer:
    """The first section of the page."""

    primary: Primary | None
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
    return Answer(primary(data), comparisons, joined(list(compared)), " or ".join(targets))


def primary(data: ReportData) -> Primary | None:
    """Return what the primary endpoints say; None where the suite has named none."""
    if not data.endpoints:
        return None
    rows = [primary_row(data, endpoint, endpoint_verdict(endpoint)) for endpoint in data.endpoints]
    return Primary(sentences(data), rows)


def sentences(data: ReportData) -> list[str]:
    """Return the answer in three sentences: where the first methods are better, where not, and how sure that is."""
    found: dict[str, list[Endpoint]] = {kind: [] for kind in VERDICTS}
    for endpoint in data.endpoints:
        found[endpoint_verdict(endpoint)].append(endpoint)
    firsts = list(dict.fromkeys(name_of(data, endpoint.first) for endpoint in data.endpoints))
    better = f"{clauses(data, found['better'], 'is better than')}."
    if not found["better"]:
        seconds = dict.fromkeys(name_of(data, endpoint.second) for endpoint in data.endpoints)
        verb = "is" if len(firsts) == 1 else "are"
        better = f"{joined(firsts)} {verb} not shown to be better than {' or '.join(seconds)} in any test."
    others = {
        "worse": clauses(data, found["worse"], "is worse than"),
        "open": clauses(data, found["open"], "is not clearly different from"),
        "few": clauses(data, found["few"], "has too few seeds to be told from"),
        "same": clauses(data, found["same"], "has runs without a spread beside"),
        "none": clauses(data, found["none"], "has no results to compare with"),
    }
    denied = {kind: said.replace("in every test", "in any test") for kind, said in others.items() if kind != "worse"}
    rest = "; ".join(filter(None, (others | denied).values()))
    clear, total = len(found["better"]) + len(found["worse"]), len(data.endpoints)
    compared = [endpoint.comparison for endpoint in data.endpoints if endpoint.comparison]
    seeds = sorted({number for one in compared for number in (one.x_seeds, one.y_seeds)})
    runs = (
        f"{seeds[0]}{f' to {seeds[-1]}' * (len(seeds) > 1)} seed{'s' * (seeds[-1] > 1)} per method"
        if seeds
        else "no run"
    )
    return [
        f"Out of distribution, {better}",
        f"{rest}." if rest else "This holds in every test.",
        f"Of the {total} comparisons, named before the first run, {clear or 'none'} "
        f"{'is' if clear < 2 else 'are'} clear at the 5 % level when corrected for their number (Holm), with {runs}.",
    ]


def clauses(data: ReportData, endpoints: list[Endpoint], verb: str) -> str:
    """Return endpoints of one verdict in words: SPARC is better than RMA in A and B, and than Only Obs in C."""
    pairs = dict.fromkeys((endpoint.first, endpoint.second) for endpoint in endpoints)
    groups: dict[tuple[str, str], list[str]] = {}  # by the first method and the tests: the second ones
    for first, second in pairs:
        mine = [one for one in endpoints if (one.first, one.second) == (first, second)]
        groups.setdefault((first, where(data, mine)), []).append(name_of(data, second))
    said, preposition, before = list[str](), verb.split()[-1], ""
    for (first, tests), seconds in groups.items():
        begin = f"{name_of(data, first)} {verb}" if first != before else preposition
        said.append(f"{begin} {joined(seconds)} {tests}")
        before = first
    return ", and ".join(said)


def where(data: ReportData, endpoints: list[Endpoint]) -> str:
    """Return the tests of one pair's endpoints in words, with the measures where not all of a test are among them."""
    measures: dict[str, list[str]] = {}
    for endpoint in endpoints:
        measures.setdefault(endpoint.test, []).append(endpoint.measure)
    whole = [test for test, names in measures.items() if set(names) == set(data.judged_by(test))]
    if len(whole) == len(data.parts) > 1:
        return "in every test"
    titles = {test: joined([data.measure(test, name).title for name in names]) for test, names in measures.items()}
    return f"in {joined([test if test in whole else f'{test} ({titles[test]})' for test in measures])}"


def name_of(data: ReportData, key: str) -> str:
    """Return the name of a label, also where the suite has no run of it."""
    return data.names.get(key, key)


def endpoint_verdict(endpoint: Endpoint) -> str:
    """Return the key of VERDICTS that a primary endpoint belongs to, by its corrected p-value."""
    if endpoint.comparison is None:
        return "none"
    if math.isnan(endpoint.p):
        few = min(endpoint.comparison.x_seeds, endpoint.comparison.y_seeds) < stats.MIN_RUNS
        return "few" if few else "same"
    if endpoint.p < 1 - stats.CONFIDENCE:
        return {"ahead": "better", "behind": "worse", "equal": "open"}[endpoint.comparison.lead]
    return verdict(endpoint.comparison) if endpoint.comparison.verdict == "open" else "open"


def primary_row(data: ReportData, endpoint: Endpoint, kind: str) -> Row:
    """Return a primary endpoint as a row of their table."""
    test, name, comparison = endpoint.test, endpoint.measure, endpoint.comparison
    shown, pair = data.measure(test, name), f"{name_of(data, endpoint.first)} against {name_of(data, endpoint.second)}"
    if comparison is None:
        return Row(test, pair, shown.heading, (kind, *VERDICTS[kind]), *[MISSING] * 6)
    value, low, high = comparison.difference
    spreads = [data.values(test, key, "ood", name).mean(axis=1) for key in (endpoint.first, endpoint.second)]
    pooled = math.sqrt(sum(runs.var(ddof=1) for runs in spreads) / 2) if min(map(len, spreads)) > 1 else math.nan
    needed = stats.seeds_needed(value / pooled) if pooled > 0 else None
    return Row(
        test,
        pair,
        shown.heading,
        (kind, *VERDICTS[kind]),
        number(value, shown.digits, True),
        f"{number(low, shown.digits, True)} to {number(high, shown.digits, True)}" if math.isfinite(low) else MISSING,
        p_value(endpoint.p),
        p_value(endpoint.pooled_p),
        f"{comparison.x_seeds} and {comparison.y_seeds}",
        f"{needed}" if needed else f"> {stats.MOST_SEEDS}" if pooled > 0 else MISSING,
    )


def p_value(p: float) -> str:
    """Return a p-value as text."""
    return MISSING if math.isnan(p) else f"{p:.2g}" if p >= 0.001 else "< 0.001"


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
