"""The answer: for each pair of methods where the first is better, where not, and how sure that is."""

from __future__ import annotations

import math
from html import escape

from sparc.report import stats
from sparc.report.page.book import RETURN, Book
from sparc.report.page.text import REGIONS, attributes
from sparc.text import MISSING, joined, number, slug

VERDICTS = {  # the symbol says it without colour
    "better": ("▲", "better"),
    "worse": ("▼", "worse"),
    "open": ("≈", "no clear difference"),
    "few": ("?", "too few seeds to tell luck from skill"),
    "same": ("?", "all runs of a method are equal, so that no spread is known"),
}
MEANS = {RETURN: "mean returns", "clean": "shares of clean laps", "ratio": "mean ratios, of which less is better"}


def answer(book: Book) -> str:
    """Write a part per pair; page.js shows one of them at a time."""
    if not book.pairs:
        return "<p>There is one method only: nothing to compare.</p>"
    names = [escape(pair_name(book, *pair)) for pair in book.pairs]
    options = "".join(f"<option value='{index}'>{name}</option>" for index, name in enumerate(names))
    parts = []
    for index, (name, pair) in enumerate(zip(names, book.pairs, strict=True)):
        cards = "".join(card(book, test, *pair) for test in book.parts)
        body = f"<h3>{name}</h3>{headline(book, *pair)}<div class='cards'>{cards}</div>"
        parts.append(f"<div class='comparison' data-comparison='{index}'>{body}</div>")
    return (
        f"<p class='only-js controls'><label>Compare <select id='comparison'>{options}</select></label></p>"
        f"{''.join(parts)}"
        f"<p class='quiet'>▲ better or ▼ worse: the 95 % interval of the difference of {means(book)}, over seeds, "
        "excludes zero. ≈ The interval includes zero. ? Too early to say: no interval that excludes zero, but fewer "
        "than three seeds; or all runs of a method are equal, so that no spread is known. By chance alone, about one "
        "comparison in twenty of equal methods comes out as better or worse. "
        f"The name of an environment leads to {where_to(book)}.</p>"
    )


def means(book: Book) -> str:
    """Name the means that verdicts rest on."""
    return joined([MEANS[name] for name in dict.fromkeys(name for test in book.parts for name in book.judged(test))])


def where_to(book: Book) -> str:
    """Name what the links of the environments lead to."""
    mapped = [test in book.mapped for test in book.parts]
    kinds = ["the map of the difference"] * any(mapped) + ["the table of cars"] * (not all(mapped))
    return " or ".join(kinds)


def pair_name(book: Book, a: str, b: str, link: str = "against") -> str:
    """Name a comparison."""
    return f"{book.names[a]} {link} {book.names[b]}{' (a reference)' if book.is_reference(b) else ''}"


def verdict(comparison: stats.Comparison) -> str:
    """Sort a comparison under one of VERDICTS."""
    few = min(comparison.x_seeds, comparison.y_seeds) < stats.MIN_RUNS
    if comparison.verdict != "open":
        return comparison.verdict
    return "few" if few else "open" if math.isfinite(comparison.difference.low) else "same"


def headline(book: Book, a: str, b: str) -> str:
    """Sum up all tests in a line per region and measure."""
    lines = []
    for region, words in REGIONS.items():
        for measure in dict.fromkeys(name for test in book.parts for name in book.judged(test)):
            groups: dict[str, list[str]] = {}
            for test in (test for test in book.parts if measure in book.judged(test)):
                found = book.comparisons.get((test, a, b, region, measure))
                kind = verdict(found) if found else "none"
                side = f" ({found.lead} so far)" if found and kind in ("few", "same") else ""
                name = to_map(book, test, test, a, b) if found else escape(test)
                groups.setdefault(kind, []).append(name + side)
            said = {**VERDICTS, "none": (MISSING, "no results")}
            pieces = [
                f"<span class='verdict {kind}'>{symbol} {text}</span> in {joined(groups[kind])}"
                for kind, (symbol, text) in said.items()
                if kind in groups
            ]
            by = f", {book.measure(test, measure).title}" if measure != RETURN else ""
            who = escape(f"{book.names[a]} against {book.names[b]}")
            lines.append(f"<li><b>{words.capitalize()}{by}</b>, {who}: {'; '.join(pieces)}.</li>")
    return f"<ul class='headline'>{''.join(lines)}</ul>"


def to_map(book: Book, text: str, test: str, a: str, b: str) -> str:
    """Link to the map of a difference, of which page.js chooses environment and methods; or to the table of cars."""
    if test not in book.mapped:
        return f"<a{attributes(href=f'#cars-{slug(test)}')}>{escape(text)}</a>"
    title = f"Map of {book.names[a]} − {book.names[b]} in {test}"
    target = attributes(href="#maps", title=title, data_map={"env": test, "first": a, "second": b})
    return f"<a{target}>{escape(text)}</a>"


def card(book: Book, test: str, a: str, b: str) -> str:
    """Compare two methods in one test, in each region."""
    regions = [region for region in book.parts[test].regions if (test, a, b, region, RETURN) in book.comparisons]
    if not regions:
        missing = [key for key in (a, b) if not book.seeds(test, key)[0]]
        why = "".join(f"<p>{escape(f'{book.names[key]} {book.gap(test, key)}')}</p>" for key in missing)
        return f"<div class='card gap'><h4>{escape(test)}</h4>{why}</div>"
    heads = "".join(f"<th scope='col'>{region.upper()}, {book.cells(test, region)} cells</th>" for region in regions)
    rows = "".join(rows_of_card(book, test, a, b, regions, measure) for measure in book.judged(test))
    title = f"{escape(test)} {to_map(book, 'difference map' if test in book.mapped else 'cars', test, a, b)}"
    return (
        f"<div class='card'><h4>{title}</h4><table><colgroup><col class='name'></colgroup>"
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def rows_of_card(book: Book, test: str, a: str, b: str, regions: list[str], measure: str) -> str:
    """Write a card's rows on one measure, a column per region."""
    found = {region: book.comparisons[test, a, b, region, measure] for region in regions}
    ends = [abs(value) for comparison in found.values() for value in comparison.difference if math.isfinite(value)]
    reach = 1.1 * max(ends) or 1.0
    columns = [cells_of_card(book, test, a, b, region, measure, reach) for region in regions]
    names = ["", "Difference", "", "95 % interval", "Better in", "Means", "Seeds"]
    read = book.measure(test, measure)
    words = f"{read.title.capitalize()}{f' [{read.unit}]' * bool(read.unit)}{', less is better' * (read.better < 0)}"
    head = f"<tr class='measure'><th scope='rowgroup' colspan='{len(regions) + 1}'>{words}</th></tr>"
    return head * (measure != RETURN) + "".join(
        f"<tr><th scope='row'>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, *cells in zip(names, *columns, strict=True)
        if any(cells)
    )


def cells_of_card(book: Book, test: str, a: str, b: str, region: str, measure: str, reach: float) -> list[str]:
    """Fill a card's column for one region and measure."""
    comparison, read = book.comparisons[test, a, b, region, measure], book.measure(test, measure)
    decimals, kind = read.digits, verdict(comparison)
    symbol, words = VERDICTS[kind]
    value, low, high = comparison.difference
    ours, theirs = (float(book.values(test, key, region, measure).mean()) for key in (a, b))
    share_of = f" <small>({number(100 * value / theirs, 0, True)} %)</small>" if theirs > 0 else ""
    interval = f"{number(low, decimals, True)} to {number(high, decimals, True)}" if math.isfinite(low) else MISSING
    seeds = f"{comparison.x_seeds} vs {comparison.y_seeds}"
    planned = [book.seeds(test, key)[1] for key in (a, b)]
    if planned != [comparison.x_seeds, comparison.y_seeds]:
        seeds += f" <span class='warn'>⚠ of {planned[0]} and {planned[1]} planned</span>"
    unsure = {"few": "too few seeds to tell", "same": "but all runs of a method are equal: no spread is known"}
    words = f"{comparison.lead}, {unsure[kind]}" if kind in unsure else words
    return [
        f"<span class='verdict {kind}'>{symbol} {words}</span>",
        book.source(number(value, decimals, True), test, a, b) + share_of * (measure == RETURN),
        strip(comparison.difference, reach, kind),
        interval,
        share(comparison.share) if measure != "clean" else "",  # of laps that are clean or not, most are ties
        f"{number(ours, decimals)} vs {number(theirs, decimals)}",
        seeds,
    ]


def share(estimate: stats.Estimate) -> str:
    """Write a share of cells with its interval, where there is one."""
    value, low, high = (f"{100 * part:.0f}" for part in estimate)
    interval = f" <small>({low}–{high} %)</small>" if math.isfinite(estimate.low) else ""
    return f"{value} % of cells{interval}"


def strip(estimate: stats.Estimate, reach: float, kind: str) -> str:
    """Draw a difference and its interval; zero is in the middle."""
    value, low, high = (f"{50 + 50 * end / reach:.1f}%" if math.isfinite(end) else "" for end in estimate)
    whisker = f"<line class='whisker' x1='{low}' x2='{high}' y1='9' y2='9'/>" if low else ""
    return (
        f"<svg class='strip {kind}' aria-hidden='true'><line class='zero' x1='50%' x2='50%' y1='0' y2='18'/>"
        f"{whisker}<circle cx='{value}' cy='9' r='4.5'/></svg>"
    )
