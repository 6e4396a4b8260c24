"""The pictures of the page, embedded: what to look at in each, and what it does not show."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from sparc.report.figures.entry import DrawnFigure
from sparc.suites.results import Results

TYPES = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """An embedded picture."""

    source: str  # a data URL: an image of its own, so that the ids of two SVGs cannot clash
    title: str
    alt: str
    env: str  # empty: of the whole suite


@dataclass(frozen=True)
class Group:
    """The pictures of one kind of figure."""

    heading: str
    caption: str
    not_shown: str
    pictures: list[Picture]


def groups(results: Results, figures: Sequence[DrawnFigure]) -> list[Group]:
    """Return all pictures but the maps, those of a kind together."""
    shown = [figure for figure in figures if not figure.entry.interactive]
    return [
        Group(
            entry.heading,
            " ".join([entry.caption, *entry.remarks(results)]),
            entry.not_shown,
            [embed(figure) for figure in found],
        )
        for entry, found in groupby(shown, key=lambda figure: figure.entry)
    ]


def static_maps(figures: Sequence[DrawnFigure]) -> list[Picture]:
    """Return the maps for readers without JavaScript, and for contexts that are no plane."""
    return [embed(figure) for figure in figures if figure.entry.interactive]


def embed(figure: DrawnFigure) -> Picture:
    """Return a picture from the smaller of its files."""
    files = {suffix: figure.stem.with_name(f"{figure.stem.name}.{suffix}").read_bytes() for suffix in TYPES}
    suffix = min(files, key=lambda suffix: len(files[suffix]))
    title = ", ".join(filter(None, [figure.entry.heading, figure.env]))
    content = base64.b64encode(files[suffix]).decode()
    return Picture(f"data:{TYPES[suffix]};base64,{content}", title, f"{title}. {figure.entry.caption}", figure.env)
