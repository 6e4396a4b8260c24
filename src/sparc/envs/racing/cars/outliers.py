"""Why the cars that are out of distribution are outliers, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sparc.envs.racing.cars.car import FEATURES, LIMITS, Car, read_catalogue

if TYPE_CHECKING:
    pass


STRANGEST = 2  # figures of a class that the table names
COMMON = (5, 95)  # per cent: between these lie the figures of nine in ten cars


def outlier_table() -> str:
    """Return Markdown: the outliers of every class, and the figures of their median car that are farthest out."""
    figures = [(name, unit) for name, unit in FEATURES if name in LIMITS]
    inside = [car for car in read_catalogue() if car.region == "ind"]
    outliers = by_class([car for car in read_catalogue() if car.region == "ood"])
    lines = ["| class | OOD | electric | farthest out |", "|---|---|---|---|"]
    for class_name, cars in sorted(outliers.items(), key=lambda item: -len(item[1])):
        places: dict[str, float] = {}
        for name, unit in figures:
            low, high = np.percentile([getattr(car, name) for car in inside], COMMON)
            median = float(np.median([getattr(car, name) for car in cars]))
            value = f"{median:,.0f}" if median >= 100 else f"{median:.2f}"
            told = f"{name} {value}{'' if unit == '1' else f' {unit}'}"
            places[told] = float((median - (low + high) / 2) / ((high - low) / 2))
        strangest = sorted(places.items(), key=lambda item: -abs(item[1]))[:STRANGEST]
        far = ", ".join(f"{told} ({place:+.1f})".replace("-", "−") for told, place in strangest)
        electric = sum(car.source == "electric" for car in cars)
        lines.append(f"| {class_name} | {len(cars)} | {electric} | {far} |")
    return "\n".join(lines)


def by_class(cars: Sequence[Car]) -> dict[str, list[Car]]:
    return {name: [car for car in cars if car.class_name == name] for name in dict.fromkeys(c.class_name for c in cars)}
