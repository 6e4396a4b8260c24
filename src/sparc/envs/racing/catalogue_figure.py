"""The figure of the catalogue: where the cars lie, and why the outliers are outliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.envs.racing.cars import Car, read_catalogue
from sparc.envs.racing.catalogue import RPM
from sparc.figures import GREY, RESOLUTIONS, new_figure, with_looks, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS: dict[str, dict[str, Any]] = {  # Okabe and Ito's blue and vermilion
    "ind": {"color": "#0072B2", "marker": "o"},
    "ood": {"color": "#D55E00", "marker": "^"},
}
Value = Callable[[Car], float]
# What is shown against what: its name, the value of a car.
PLANES: tuple[tuple[tuple[str, Value], tuple[str, Value]], ...] = (
    (("mass (kg)", lambda car: car.mass), ("power / mass (W/kg)", lambda car: car.power / car.mass)),
    (("drag area (m²)", lambda car: car.drag_area), ("rev limit (1/min)", lambda car: car.rev_limit / RPM)),
)


@with_looks
def draw_figure(file: Path) -> None:
    """Draw the catalogue in two planes, and the anomaly scores class by class."""
    cars = read_catalogue()
    figure, ((first, second, third),) = new_figure(1, 3, height=4.4, width=11.5)
    for panel, plane in zip((first, second), PLANES, strict=True):
        _draw_plane(panel, cars, *plane)
    _draw_scores(third, cars)
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    write(figure, file, RESOLUTIONS, {"Software": None})


def _draw_plane(panel: Axes, cars: Sequence[Car], x: tuple[str, Value], y: tuple[str, Value]) -> None:
    for region, name in (("ind", "in distribution"), ("ood", "out of distribution")):
        chosen = [car for car in cars if car.region == region]
        places = [x[1](car) for car in chosen], [y[1](car) for car in chosen]
        panel.scatter(*places, s=12, alpha=0.5, linewidths=0, label=f"{name}: {len(chosen)} cars", **LOOKS[region])
    for name, members in _by_class(cars).items():
        middle = [float(np.median([value(car) for car in members])) for value in (x[1], y[1])]
        box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7}
        panel.annotate(name, (middle[0], middle[1]), ha="center", va="center", fontsize=7, bbox=box)
    panel.set(xscale="log", yscale="log", xlabel=x[0], ylabel=y[0])


def _draw_scores(panel: Axes, cars: Sequence[Car]) -> None:
    classes = sorted(_by_class(cars).items(), key=lambda item: float(np.median([car.anomaly for car in item[1]])))
    for row, (_, members) in enumerate(classes):
        for region, look in LOOKS.items():
            scores = [car.anomaly for car in members if car.region == region]
            panel.scatter(scores, [row] * len(scores), s=12, alpha=0.5, linewidths=0, **look)
    panel.axvline(min(car.anomaly for car in cars if car.region == "ood"), color=GREY, linewidth=0.8, linestyle="--")
    panel.set(yticks=range(len(classes)), yticklabels=[name for name, _ in classes], xlabel="anomaly score")


def _by_class(cars: Sequence[Car]) -> dict[str, list[Car]]:
    return {name: [car for car in cars if car.class_name == name] for name in dict.fromkeys(c.class_name for c in cars)}
