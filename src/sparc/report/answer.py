"""The answer: for each pair of methods where the first is better, where not, and how sure that is."""

from __future__ import annotations

import math
from html import escape

from sparc import stats
from sparc.report.book import Book
from sparc.report.text import MISSING, REGIONS, attributes, joined, number

VERDICTS = {  # the symbol says it without colour
    "better": ("▲", "better"),
    "worse": ("▼", "worse"),
    "open": ("≈", "no clear difference"),
    "few": ("?", "too few seeds to tell luck from skill"),
}


def answer(book: Book) -> str:
    """Write a part per pair; page.js shows one of them at a time."""
    if not book.pairs:
        return "<p>There is one method only: nothing to compare.</p>"
    names = [escape(pair_name(book, *pair)) for pair in book.pairs]
    options = "".join(f"<option value='{index}'>{name}</option>" for index, name in enumerate(names))
    parts = []
    for index, (name, pair) in enumerate(zip(names, book.pairs, strict=True)):
        cards = "".join(card(book, env, *pair) for env in book.results.envs)
        body = f"<h3>{name}</h3>{headline(book, *pair)}<div class='cards'>{cards}</div>"
        parts.append(f"<div class='comparison' data-comparison='{index}'>{body}</div>")
    return (
        f"<p class='only-js controls'><label>Compare <select id='comparison'>{options}</select></label></p>"
        f"{''.join(parts)}"
        "<p class='quiet'>▲ better and ▼ worse only where the 95 % interval of the difference of mean returns, over "
        "seeds, excludes zero. ≈ it does not. ? it does not, or there is none, and one of the two has fewer than three "
        "seeds. By chance alone, about one comparison in twenty of equal methods comes out as better or worse. "
        "The name of an environment leads to the map of the difference.</p>"
    )


def pair_name(book: Book, a: str, b: str, link: str = "against") -> str:
    """Name a comparison."""
    return f"{book.names[a]} {link} {book.names[b]}{' (a reference)' if book.is_reference(b) else ''}"


def verdict(comparison: stats.Comparison) -> str:
    """Sort a comparison under one of VERDICTS."""
    few = min(comparison.x_seeds, comparison.y_seeds) < stats.MIN_RUNS
    return "few" if few and comparison.verdict == "open" else comparison.verdict


def headline(book: Book, a: str, b: str) -> str:
    """Sum up all environments in a line per region."""
    lines = []
    for region, words in REGIONS.items():
        groups: dict[str, list[str]] = {}
        for env in book.results.envs:
            found = book.comparisons.get((env, a, b, region))
            kind = verdict(found) if found else "none"
            side = f" ({lead(found)} so far)" if found and kind == "few" else ""
            name = to_map(book, env, env, a, b) if found else escape(env)
            groups.setdefault(kind, []).append(name + side)
        said = {**VERDICTS, "none": (MISSING, "no results")}
        pieces = [
            f"<span class='verdict {kind}'>{symbol} {text}</span> in {joined(groups[kind])}"
            for kind, (symbol, text) in said.items()
            if kind in groups
        ]
        who = escape(f"{book.names[a]} against {book.names[b]}")
        lines.append(f"<li><b>{words.capitalize()}</b>, {who}: {'; '.join(pieces)}.</li>")
    return f"<ul class='headline'>{''.join(lines)}</ul>"


def to_map(book: Book, text: str, env: str, a: str, b: str) -> str:
    """Link to the map of a difference; page.js chooses environment and methods."""
    title = f"Map of {book.names[a]} − {book.names[b]} in {env}"
    target = attributes(href="#maps", title=title, data_map={"env": env, "first": a, "second": b})
    return f"<a{target}>{escape(text)}</a>"


def lead(comparison: stats.Comparison) -> str:
    """Say who leads, however unsure that is."""
    return "ahead" if comparison.difference.value > 0 else "behind" if comparison.difference.value < 0 else "equal"


def card(book: Book, env: str, a: str, b: str) -> str:
    """Compare two methods in one environment, in each region."""
    found = {region: book.comparisons.get((env, a, b, region)) for region in book.results.envs[env].regions}
    there = {region: comparison for region, comparison in found.items() if comparison is not None}
    if not there:
        missing = [key for key in (a, b) if not book.seeds(env, key)[0]]
        why = "".join(f"<p>{escape(f'{book.names[key]} {book.gap(env, key)}')}</p>" for key in missing)
        return f"<div class='card gap'><h4>{escape(env)}</h4>{why}</div>"
    ends = [abs(value) for comparison in there.values() for value in comparison.difference if math.isfinite(value)]
    reach = 1.1 * max(ends) or 1.0
    columns = [rows_of_card(book, env, a, b, region, comparison, reach) for region, comparison in there.items()]
    names = ["", "Difference", "", "95 % interval", "Better in", "Means", "Seeds"]
    heads = "".join(f"<th scope='col'>{region.upper()}, {book.cells(env, region)} cells</th>" for region in there)
    rows = "".join(
        f"<tr><th scope='row'>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, *cells in zip(names, *columns, strict=True)
    )
    title = f"{escape(env)} {to_map(book, 'difference map', env, a, b)}"
    return (
        f"<div class='card'><h4>{title}</h4><table><colgroup><col class='name'></colgroup>"
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def rows_of_card(
    book: Book, env: str, a: str, b: str, region: str, comparison: stats.Comparison, reach: float
) -> list[str]:
    """Fill a card's column for one region."""
    decimals, kind = book.digits[env], verdict(comparison)
    symbol, words = VERDICTS[kind]
    value, low, high = comparison.difference
    ours, theirs = (book.summaries[env, key, region].mean for key in (a, b))
    relative = f" <small>({number(100 * value / theirs, 0, True)} %)</small>" if theirs > 0 else ""
    interval = f"{number(low, decimals, True)} to {number(high, decimals, True)}" if math.isfinite(low) else MISSING
    seeds = f"{comparison.x_seeds} vs {comparison.y_seeds}"
    planned = [book.seeds(env, key)[1] for key in (a, b)]
    if planned != [comparison.x_seeds, comparison.y_seeds]:
        seeds += f" <span class='warn'>⚠ of {planned[0]} and {planned[1]} planned</span>"
    words = f"{lead(comparison)}, too few seeds to tell" if kind == "few" else words
    return [
        f"<span class='verdict {kind}'>{symbol} {words}</span>",
        book.source(number(value, decimals, True), env, a, b) + relative,
        strip(comparison.difference, reach, kind),
        interval,
        share(comparison.share),
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
