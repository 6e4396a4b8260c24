"""The report of a suite: one self-contained HTML page. The modules compute what `templates/` show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparc.report.figures.entry import DrawnFigure
from sparc.report.html import write_page
from sparc.report.page import (
    answer,
    continual,
    idle,
    maps,
    measures,
    pictures,
    primary,
    probes,
    races,
    runs,
    tables,
    training,
)
from sparc.report.page.data import ReportData
from sparc.suites.results import Results

HERE = Path(__file__).parent
SECTIONS = {
    "answer": "Answer", "numbers": "Numbers", "maps": "Maps", "cars": "Cars", "pictures": "Pictures", "runs": "Runs",
    "reading": "How to read this",
}  # fmt: skip


def write_report(results: Results, path: Path, figures: Sequence[DrawnFigure]) -> None:
    """Write the page with the figures that were drawn, in the order of the registry."""
    data = ReportData(results)
    cars = races.car_tables(data)
    missing = {"maps": not data.mapped, "cars": not cars}
    write_page(
        path,
        HERE / "templates",
        title=data.manifest["title"],
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        data=maps.script_data(data),
        sections={key: name for key, name in SECTIONS.items() if not missing.get(key)},
        head=runs.head(data),
        primary=primary.primary(data),
        stages=continual.answers(data),
        answer=answer.answer(data),
        races=bool(data.races),
        measured=[
            *([races.numbers(data)] if data.races else []),
            *([measures.numbers(data)] if data.own_measured else []),
            *([learned] if (learned := continual.numbers(data)) else []),
            *([read] if (read := probes.numbers(data)) else []),
        ],
        definitions=measures.definitions(data),
        returns=returns(data),
        returns_judge=data.returns_judge,
        maps=maps.choices(data),
        static_maps=pictures.static_maps(figures),
        cars=cars,
        pictures=pictures.groups(results, figures),
        runs=runs.table(data),
        regions=runs.regions(data),
        sample_sizes=tables.sample_sizes(),
        commands=data.manifest["commands"],
    )


def returns(data: ReportData) -> list[tables.Table]:
    """Return all tables of returns."""
    envs = list(data.results.envs)
    found = [
        tables.means(data, "ood"),
        tables.means(data, "ind"),
        idle.apart(data),
        tables.worst_quarters(data, envs),
        tables.middles(data, envs),
        tables.aggregates(data),
        tables.probabilities(data, envs),
        training.experts(data),
        training.reached(data),
    ]
    return [table for table in found if table is not None]
