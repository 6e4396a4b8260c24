"""The record of a figure: how it is drawn, for which results, and what the page says about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sparc.envs.measures import RETURN
from sparc.suites.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def always(*_: object) -> bool:
    """Return that every suite has the figure."""
    return True


def no_remarks(results: Results) -> list[str]:
    """Return no sentences."""
    return []


@dataclass(frozen=True)
class FigureEntry:
    """A kind of figure, of which there is one per suite, per environment, or per variant or measure of an environment.

    `draw` and `applies` take `(results)`, `(results, env)`, `(results, env, variant)` or `(results, env, measure)`
    accordingly. Of the measures, those that the environment is judged by are drawn.
    """

    name: str  # of its files: NAME, NAME-ENV, NAME-VARIANT-ENV or NAME-MEASURE-ENV
    draw: Callable[..., Figure]
    per: Literal["suite", "env", "variant", "measure"]
    heading: str
    caption: str  # what to look at
    not_shown: str  # what a reader might look for in vain
    applies: Callable[..., bool] = always  # whether the results allow it
    remarks: Callable[[Results], list[str]] = no_remarks  # further sentences of the caption, for some results only
    interactive: bool = False  # the page draws it from its data; the file is for readers without JavaScript

    def targets(self, results: Results) -> list[tuple[str, ...]]:
        """Return the arguments of `draw` behind the results, one tuple per figure."""
        if self.per == "suite":
            return [()]
        if self.per == "env":
            return [(env,) for env in results.envs]
        if self.per == "variant":
            return [(env, variant) for env, part in results.envs.items() for variant in part.variants]
        return [(env, name) for env, part in results.envs.items() for name in part.judged_by if name != RETURN]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure that was written as stem.svg and stem.png."""

    entry: FigureEntry
    stem: Path
    env: str = ""  # empty: of the whole suite
