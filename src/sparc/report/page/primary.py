"""The primary endpoints: what the suite was made to find out, in three sentences and a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparc.methods.registry import described_method
from sparc.report import stats
from sparc.report.page.answer import VERDICTS, verdict
from sparc.report.page.data import Endpoint, ReportData
from sparc.text import MISSING, joined, number

VERBS = {
    "better": "is better than",
    "worse": "is worse than",
    "open": "is not clearly different from",
    "few": "has too few seeds to be told from",
    "same": "has runs without a spread beside",
    "none": "has no results to compare with",
}
CLEAR = ("better", "worse")


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
    baselines: str  # how the first methods do against those that know nothing of the context; empty: there are none
    rows: list[Row]


def primary(data: ReportData) -> Primary | None:
    """Return what the primary endpoints say; None where the suite has named none."""
    if not data.endpoints:
        return None
    rows = [primary_row(data, endpoint, endpoint_verdict(endpoint)) for endpoint in data.endpoints]
    return Primary(sentences(data), baselines(data), rows)


def sentences(data: ReportData) -> list[str]:
    """Return the answer in three sentences: where the first methods are better, where not, and how sure that is."""
    found: dict[str, list[Endpoint]] = {kind: [] for kind in VERDICTS}
    for endpoint in data.endpoints:
        found[endpoint_verdict(endpoint)].append(endpoint)
    firsts = list(dict.fromkeys(name_of(data, endpoint.first) for endpoint in data.endpoints))
    better = f"{clauses(data, found['better'], VERBS['better'])}."
    if not found["better"]:
        seconds = dict.fromkeys(name_of(data, endpoint.second) for endpoint in data.endpoints)
        verb = "is" if len(firsts) == 1 else "are"
        better = f"{joined(firsts)} {verb} not shown to be better than {' or '.join(seconds)} in any test."
    rest = statements(data, {kind: found[kind] for kind in VERBS if kind != "better"})
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


def baselines(data: ReportData) -> str:
    """Return how the first methods of the endpoints do against those that read only the observation, as description.

    Their own endpoints, if they have any, stand among the others.
    """
    firsts, named = {one.first for one in data.endpoints}, {(one.first, one.second) for one in data.endpoints}
    found: dict[str, list[Endpoint]] = {kind: [] for kind in VERBS}
    for a, b in data.pairs:
        if a not in firsts or (a, b) in named or data.results.entry(b).reads != "observation":
            continue
        if data.methods[a][1] != data.methods[b][1]:
            continue
        for test, part in data.parts.items():
            for name in data.judged_by(test) if "ood" in part.regions else ():
                comparison = data.comparisons.get((test, a, b, "ood", name))
                kind = verdict(comparison) if comparison else "none"
                found[kind].append(Endpoint(test, a, b, name, comparison, math.nan, math.nan))
    return statements(data, found)


def statements(data: ReportData, found: dict[str, list[Endpoint]]) -> str:
    """Return endpoints, by their verdicts, in words; empty without any."""
    said = {kind: clauses(data, endpoints, VERBS[kind]) for kind, endpoints in found.items()}
    denied = {kind: of.replace("in every test", "in any test") for kind, of in said.items() if kind not in CLEAR}
    return "; ".join(filter(None, (said | denied).values()))


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
    method, _, variation = key.partition(" ")
    described = data.manifest.get("methods", {}).get(method, {})
    return data.names.get(key) or f"{described_method(method, described).title} {variation}".strip()


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
