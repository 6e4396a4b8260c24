"""The pictures of the page, embedded: what to look at in each, and what it does not show."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from itertools import groupby

from sparc.report.figures.entry import DrawnFigure
from sparc.report.page.book import Book
from sparc.report.page.text import attributes

TYPES = {"svg": "image/svg+xml", "png": "image/png"}


def section(book: Book, figures: Sequence[DrawnFigure]) -> str:
    """Embed all pictures but the maps, those of a kind together."""
    shown = [figure for figure in figures if not figure.entry.interactive]
    parts = []
    for entry, found in groupby(shown, key=lambda figure: figure.entry):
        look = " ".join([entry.caption, *entry.remarks(book.results)])
        words = f"<p class='quiet'>{escape(look)} <i>Not shown:</i> {escape(entry.not_shown)}</p>"
        images = "".join(map(embed, found))
        parts.append(f"<h3>{escape(entry.heading)}</h3>{words}<div class='pictures'>{images}</div>")
    return "".join(parts) or "<p>There are none.</p>"


def static_maps(figures: Sequence[DrawnFigure]) -> str:
    """Embed the maps for readers without JavaScript, and for contexts that are no plane."""
    return "".join(embed(figure) for figure in figures if figure.entry.interactive)


def embed(figure: DrawnFigure) -> str:
    """Embed a picture as an image of its own, so that the ids of two SVGs cannot clash; the smaller of its files."""
    stem, env = figure.stem, figure.env
    files = {suffix: stem.with_name(f"{stem.name}.{suffix}").read_bytes() for suffix in TYPES}
    suffix = min(files, key=lambda suffix: len(files[suffix]))
    words = f"{figure.entry.heading}{', ' * bool(env)}{env}"
    content = base64.b64encode(files[suffix]).decode()
    image = attributes(src=f"data:{TYPES[suffix]};base64,{content}", alt=f"{words}. {figure.entry.caption}")
    caption = f"<figcaption>{escape(words)}</figcaption>" if env else ""
    return f"<figure class='picture{' wide' * (not env)}'{attributes(data_env=env)}><img{image}>{caption}</figure>"
