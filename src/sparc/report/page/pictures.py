"""The pictures of the page, embedded: what to look at in each, and what it does not show."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path

from sparc.report.page.book import Book
from sparc.report.page.text import attributes
from sparc.suites.tables import VARIANTS
from sparc.text import joined

LAPS_MAPPED = (
    "Of the seeds that completed the lap, bright is fast; black where no seed completed it, a small black square where "
    "not all did (the paper blackens both). Trained inside the dashed box."
)
# name, or its beginning where there is one per environment: (heading, what to look at, what it does not show)
CAPTIONS = {
    "summary": (
        "All environments at a glance",
        "Mean return of each method with its s.e.m., a dot per seed; look for methods further apart than their seeds.",
        "where in the contexts a method wins; that is in the maps.",
    ),
    "laps": (
        "How fast against how many",
        "The share of completed and of clean laps over the ratio to the built-in AI’s lap, which counts a lap that was "
        "not completed as 2; the nearer to the upper left corner, the better. Bars are ± s.e.m., small dots the seeds.",
        "which cars or settings fail; and a lap that is not completed moves a mark in both directions.",
    ),
    "physics": (
        "A physics that no policy was trained in",
        "From the open mark, in the physics of training, to the full one, in the other physics; the shorter the arrow, "
        "the less the change matters. The built-in AI’s laps are of the same physics as the lap.",
        "the spread over seeds; that is in the table of changes.",
    ),
    "lap-time": (
        "Lap time in each context",
        LAPS_MAPPED,
        "the spread over seeds.",
    ),
    "ratio": (
        "Lap time / built-in AI’s in each context",
        LAPS_MAPPED,
        "the spread over seeds.",
    ),
    "curves": (
        "Learning curves",
        "Return in the IND settings during training, of races the share of clean laps and the ratio; look whether the "
        "curves still get better where the budget ends.",
        "anything out of distribution. The band of ± s.e.m. over few seeds is itself a rough estimate.",
    ),
    "history-length": (
        "Length of the history",
        "OOD return over the number H of steps that the policy looks back; look whether it levels off.",
        "the price: a longer history makes acting and training slower.",
    ),
    "adaptation": (
        "A new context in mid-episode",
        "How far φ(h), the guess from history, is from ψ(c), the encoding of the true context, and the reward, around "
        "a switch of the context; look how many steps it takes until both have settled.",
        "whether a closer guess makes a higher return. Episodes that have ended drop out of the average.",
    ),
    "latents": (
        "What the history tells",
        "The encoding ψ(c) of each context and the guess φ(h) of it from history, joined by a line; where the lines "
        "are short, the policy knows its context.",
        "the dimensions beyond the first two principal components, the other seeds, and the return.",
    ),
    "heatmaps": (
        "Mean return in each context",
        "All methods on one colour scale; trained inside the dashed box, tested everywhere.",
        "the spread over seeds.",
    ),
    "measures": (
        "A measure in each context",
        "All methods on one colour scale, bright is good; trained inside the dashed box, tested everywhere.",
        "the spread over seeds.",
    ),
    "measure-differences": (
        "Where the first of two is better by a measure",
        "Green where the first has the better mean over seeds, purple where the second has.",
        "the spread over seeds: a coloured cell alone is no proof.",
    ),
    "difference": (
        "Where the first of two is better",
        "Green where the first has the higher mean over seeds, purple where the second has.",
        "the spread over seeds: a coloured cell alone is no proof.",
    ),
}
# drawn by the page itself; these are for readers without JavaScript
IN_MAPS = ("lap-times", "ratios", "heatmaps", "difference")
TYPES = {"svg": "image/svg+xml", "png": "image/png"}


def section(book: Book, figures: Mapping[str, Path]) -> str:
    """Embed all pictures but the maps, those of a kind together."""
    groups: dict[str, list[str]] = {}
    for name, stem in figures.items():
        if not name.startswith(IN_MAPS):
            groups.setdefault(kind(name), []).append(embed(book, name, stem))
    order = [*(key for key in CAPTIONS if key in groups), *(key for key in groups if key not in CAPTIONS)]
    return "".join(group(book, key, groups[key]) for key in order) or "<p>There are none.</p>"


def static_maps(book: Book, figures: Mapping[str, Path]) -> str:
    """Embed the maps for readers without JavaScript, and for contexts that are no plane."""
    return "".join(embed(book, name, stem) for name, stem in figures.items() if name.startswith(IN_MAPS))


def group(book: Book, key: str, found: list[str]) -> str:
    """Write pictures of a kind below what to look at."""
    title, look, beware = CAPTIONS.get(key, (key, "", ""))
    look = " ".join([look, *remarks(book, key)])
    words = f"<p class='quiet'>{escape(look)} <i>Not shown:</i> {escape(beware)}</p>" if look else ""
    return f"<h3>{escape(title)}</h3>{words}<div class='pictures'>{''.join(found)}</div>"


def remarks(book: Book, key: str) -> list[str]:
    """Return what a reader of these results must know besides."""
    if key == "curves":
        thin = [VARIANTS[name] for name in book.results.policy_variants]
        found = [f"Pale and open: {book.results.told_note}."] if book.results.told else []
        return [*found, *([f"Thin, without marks: {joined(thin)}, in the place of what is shipped."] if thin else [])]
    parts = book.results.envs.values()
    most = max((len(part.there("traces", label)) for part in parts for label in book.names), default=0)
    if key == "adaptation" and most > 1:
        return ["The steps until it has settled are those of the mean over the seeds, not the mean of each seed’s."]
    return []


def kind(name: str) -> str:
    """Return the caption's key: the name without an environment."""
    return next((key for key in CAPTIONS if name == key or name.startswith((f"{key}-", f"{key}s-"))), name)


def env_of(book: Book, name: str) -> str:
    """Return the environment that a picture is of, if it is of one."""
    return next((env for env in book.results.envs if name.endswith(f"-{env}")), "")


def embed(book: Book, name: str, stem: Path) -> str:
    """Embed a picture as an image of its own, so that the ids of two SVGs cannot clash; the smaller of its files."""
    title, look, _ = CAPTIONS.get(kind(name), (name, "", ""))
    files = {suffix: stem.with_name(f"{stem.name}.{suffix}").read_bytes() for suffix in TYPES}
    suffix = min(files, key=lambda suffix: len(files[suffix]))
    env = env_of(book, name)
    words = f"{title}{', ' * bool(env)}{env}"
    content = base64.b64encode(files[suffix]).decode()
    image = attributes(src=f"data:{TYPES[suffix]};base64,{content}", alt=f"{words}. {look}".strip())
    caption = f"<figcaption>{escape(words)}</figcaption>" if env else ""
    return f"<figure class='picture{' wide' * (not env)}'{attributes(data_env=env)}><img{image}>{caption}</figure>"
