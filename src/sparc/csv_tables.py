"""Small tables as CSV files, which may be packed by gzip once they are written."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np


def cell(value: Any) -> Any:
    """Write a number with the digits that matter; NaN as nothing."""
    if isinstance(value, str):
        return str(value)
    return "" if np.isnan(value) else f"{value:.8g}"


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, all or nothing."""
    beside = path.with_name(f".{path.name}")
    with beside.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    beside.replace(path)
    packed_as(path).unlink(missing_ok=True)  # it would be older


def open_table(path: Path) -> TextIO:
    """Open a CSV file, or the one packed by gzip where there is only that."""
    if not path.exists() and (packed := packed_as(path)).exists():
        return gzip.open(packed, "rt", newline="")
    return path.open(newline="")


def packed_as(path: Path) -> Path:
    """Name a table's packed file."""
    return path.with_name(f"{path.name}.gz")
