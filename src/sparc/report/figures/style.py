"""The style of all figures, and how they are saved."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from sparc.files import beside
from sparc.suites.results import PROTAGONIST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from sparc.methods import MethodEntry
    from sparc.suites.results import Results

P = ParamSpec("P")
T = TypeVar("T")


class Style(NamedTuple):
    """The look of a label in every figure: colour, marker and dashes each identify it alone."""

    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float = 1.2


THICK = 2.0  # line width of methods that comparisons are about
# Variations of a method, in the suite's order, and methods that were registered without a colour: dark to light
SEQUENCE = (
    Style("#0d0887", "o", "-"),
    Style("#5302a3", "s", (0, (5, 1.5))),
    Style("#8a09a5", "v", (0, (3, 1, 1, 1))),
    Style("#b7318a", "^", (0, (7, 1.5, 1, 1.5))),
    Style("#da5b69", "D", (0, (1, 1.2))),
    Style("#f3874a", "P", (0, (9, 2))),
    Style("#feba2c", "X", (0, (2, 2))),
)

ALARM = "#A93226"  # notes on missing results

BAND = 0.18  # opacity of ± s.e.m.
FADED = 0.3  # opacity of a curve whose mean leaves something out
GREY = "0.45"
WIDTH = 7.0  # inches: a page's text width, so that the letters keep their size in print
LOOKS: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.titlesize": 9,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "sparc",  # the same data give the same bytes
}
RESOLUTIONS = (180, 130, 100, 80)  # dots per inch: the first with which a file is small enough
LARGEST = 300_000  # bytes of a file


def style(name: str, results: Results) -> Style:
    """Return the style of a label or a method: the method's own or, for variations, one of the sequence, far apart."""
    entries = results.entries
    if name in entries and (own := method_style(entries[name])):
        return own
    varied = [label for label in results.labels if label not in entries or not method_style(entries[label])]
    apart = max(1.0, (len(SEQUENCE) - 1) / max(1, len(varied) - 1))
    index = varied.index(name) if name in varied else 0  # a method of which there are only variations
    return SEQUENCE[round(index * apart) % len(SEQUENCE)]


def method_style(entry: MethodEntry) -> Style | None:
    """Return the style that a method was registered with, if it has a colour."""
    if entry.colour is None:
        return None
    width = THICK if entry.prominence >= PROTAGONIST else Style._field_defaults["width"]
    return Style(entry.colour, entry.marker, entry.dash, width)


def with_looks(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorator that applies our Matplotlib style, whatever the user's own settings are."""

    @wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> T:
        from matplotlib.style import context

        with context(["default", LOOKS]):
            return draw(*args, **kwargs)

    return drawing


def new_figure(rows: int, columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, Any]:
    """Return a figure outside of pyplot's global state, and its panels (rows, columns)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


@with_looks
def save(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png and stem.svg atomically: small files, and the same bytes for the same figure."""
    from matplotlib.collections import Collection

    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    write(figure, png, RESOLUTIONS, {"Software": None})
    vector: list[Any] = [artist for artist in figure.findobj(Collection) if not artist.get_rasterized()]
    if not write(figure, svg, RESOLUTIONS[:1], {"Date": None}):
        for artist in vector:  # thousands of marks are smaller as an image
            artist.set_rasterized(True)
        write(figure, svg, RESOLUTIONS[1:], {"Date": None})
    return [png, svg]


def write(figure: Figure, path: Path, resolutions: Sequence[int], metadata: dict[str, Any]) -> bool:
    """Write a file atomically in the first resolution that makes it small enough; return whether one does."""
    with beside(path) as new:
        for resolution in resolutions:
            figure.savefig(new, dpi=resolution, format=path.suffix[1:], metadata=metadata)
            figure.set_layout_engine("none")  # the panels have found their places, which takes longer than drawing them
            if small := new.stat().st_size <= LARGEST:
                break
    return small


# Lines and words


def draw_line(panel: Axes, look: Style, x: np.ndarray, mean: np.ndarray, sem: np.ndarray, **options: Any) -> None:
    """Draw a mean and a band of its standard error around it, where there is one."""
    line = {"color": look.colour, "ls": look.dash, "lw": look.width, "zorder": 1 + look.width}
    panel.plot(x, mean, **(line | options))
    if np.isfinite(sem).any():
        # a long one in an SVG as an image: it has two points per step
        band = {"color": look.colour, "alpha": BAND, "lw": 0, "zorder": 1, "rasterized": len(x) > 100}
        panel.fill_between(x, mean - sem, mean + sem, **band)  # type: ignore[arg-type]


def add_title(figure: Figure, text: str) -> None:
    """Add a title, on as many lines as it needs."""
    width = int(figure.get_figwidth() * 13.5)  # so many letters per inch
    figure.suptitle("\n".join(textwrap.fill(line, width) for line in text.splitlines()))


def add_note(figure: Figure, lines: Sequence[str], handles: Sequence[Line2D] = ()) -> None:
    """Add a note on missing results below a figure, above its legend if it has one."""
    width = figure.get_figwidth()
    text = "\n".join(textwrap.fill(line, int(width * 17)) for line in lines)  # so many letters per inch
    if handles:
        columns = legend_columns([0.55 + 0.056 * len(str(handle.get_label())) for handle in handles], width)
        heading: dict[str, Any] = {"title": text or None, "title_fontsize": 7.5, "alignment": "left"}
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2, **heading)
        legend.get_title().set_color(ALARM)
    elif text:
        figure.supxlabel(text, color=ALARM, fontsize=7.5, ha="left", x=0.01)


def legend_columns(rooms: Sequence[float], width: float) -> int:
    """Return the number of columns of a legend whose entries have these widths in inches: the most that fit."""
    fits = (n for n in range(len(rooms), 1, -1) if sum(max(part) for part in np.array_split(rooms, n)) <= width)
    return ceil(len(rooms) / ceil(len(rooms) / next(fits, 1)))


def grouped(value: float, _: float = 0) -> str:
    """Return a number with thousands separators; a Matplotlib tick formatter."""
    return f"{value:,.6g}".replace("-", "−")


def plus_minus(mean: float, sem: float) -> str:
    """Return a mean ± its standard error, if there is one, with the digits that matter."""
    digits = 0 if abs(mean) >= 1000 else 1 if abs(mean) >= 10 else 2
    return f"{mean:,.{digits}f}" + ("" if np.isnan(sem) else f" ± {sem:,.{digits}f}")


def thousands(number: float, _: float = 0) -> str:
    """Return 300000 as 300 k and 3000000 as 3 M; a Matplotlib tick formatter."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g} {letter}"
    return f"{number:g}"


# Values over contexts
