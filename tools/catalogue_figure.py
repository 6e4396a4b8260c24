"""Draw where the cars of the catalogue lie, and print why the outliers are outliers.

python tools/catalogue_figure.py docs/images/cars.png
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparc.envs.racing.cars.car import Car, read_catalogue
from sparc.envs.racing.cars.catalogue import RPM
from sparc.envs.racing.cars.outliers import by_class, outlier_table
from sparc.report.figures.style import GREY, RESOLUTIONS, new_figure, with_looks, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS: dict[str, dict[str, Any]] = {  # Okabe and Ito's blue and vermilion
    "ind": {"color": "#0072B2", "marker": "o"},
    "ood": {"color": "#D55E00", "marker": "^"},
}
LABEL = (0.15, 0.034)  # room that a class's name takes, as shares of a panel


class Axis(NamedTuple):
    """What an axis shows: its name, its ticks, the value of a car."""

    name: str
    ticks: tuple[float, ...]
    value: Callable[[Car], float]


MASS = Axis("mass (kg)", (200, 500, 1000, 2000), lambda car: car.mass)
SPECIFIC_POWER = Axis("power / mass (W/kg)", (50, 100, 200, 500), lambda car: car.power / car.mass)
DRAG = Axis("drag area (m²)", (0.5, 0.7, 1.0, 1.5), lambda car: car.drag_area)
REVS = Axis("rev limit (1/min)", (5000, 10000, 15000), lambda car: car.rev_limit / RPM)


@with_looks
def draw_figure(file: Path) -> None:
    """Draw the catalogue in two planes, and the anomaly scores class by class."""
    cars = read_catalogue()
    figure, ((first, second, third),) = new_figure(1, 3, height=4.4, width=11.5)
    _draw_plane(first, cars, MASS, SPECIFIC_POWER)
    _draw_plane(second, cars, DRAG, REVS)
    _draw_scores(third, cars)
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    write(figure, file, RESOLUTIONS, {"Software": None})


def _draw_plane(panel: Axes, cars: Sequence[Car], x: Axis, y: Axis) -> None:
    panel.set(xscale="log", yscale="log", xlabel=x.name, ylabel=y.name)
    for region, name in (("ind", "in distribution"), ("ood", "out of distribution")):
        chosen = [car for car in cars if car.region == region]
        places = [x.value(car) for car in chosen], [y.value(car) for car in chosen]
        panel.scatter(*places, s=12, alpha=0.5, linewidths=0, label=f"{name}: {len(chosen)} cars", **LOOKS[region])
    for axis, ticks in ((panel.xaxis, x.ticks), (panel.yaxis, y.ticks)):
        axis.set_ticks(ticks, [f"{tick:,g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    names = by_class(cars)
    middles = [
        [float(np.median([axis.value(car) for car in members])) for axis in (x, y)] for members in names.values()
    ]
    at = (panel.transData + panel.transAxes.inverted()).transform(middles)  # shares of the panel
    box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7}
    taken: list[tuple[float, float]] = []
    for name, (across, up) in sorted(zip(names, at.tolist(), strict=True), key=lambda item: item[1][1]):
        while any(abs(across - a) < LABEL[0] and abs(up - b) < LABEL[1] for a, b in taken):
            up += LABEL[1] / 4
        taken.append((across, up))
        panel.text(across, up, name, ha="center", va="center", fontsize=7, bbox=box, transform=panel.transAxes)


def _draw_scores(panel: Axes, cars: Sequence[Car]) -> None:
    classes = sorted(by_class(cars).items(), key=lambda item: float(np.median([car.anomaly for car in item[1]])))
    for row, (_, members) in enumerate(classes):
        for region, look in LOOKS.items():
            scores = [car.anomaly for car in members if car.region == region]
            panel.scatter(scores, [row] * len(scores), s=12, alpha=0.5, linewidths=0, **look)
    panel.axvline(min(car.anomaly for car in cars if car.region == "ood"), color=GREY, linewidth=0.8, linestyle="--")
    panel.set(yticks=range(len(classes)), yticklabels=[name for name, _ in classes], xlabel="anomaly score")


if __name__ == "__main__":
    draw_figure(Path(sys.argv[1]))
    print(outlier_table())
