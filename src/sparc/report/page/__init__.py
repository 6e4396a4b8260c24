"""The report of a suite: one HTML page that needs nothing but itself, neither a network nor a server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from sparc.files import replace
from sparc.report.figures.entry import DrawnFigure
from sparc.report.page import answer, maps, pictures, races, runs, tables
from sparc.report.page.book import Book
from sparc.suites.tables import Results

HERE = Path(__file__).parent
SECTIONS = {
    "answer": "Answer", "numbers": "Numbers", "maps": "Maps", "cars": "Cars", "pictures": "Pictures", "runs": "Runs",
    "reading": "How to read this",
}  # fmt: skip


def write_report(results: Results, path: Path, figures: Sequence[DrawnFigure]) -> None:
    """Write the page with the figures that were drawn, in the order of the registry."""
    book = Book(results)
    style, script, page = ((HERE / name).read_text() for name in ("page.css", "page.js", "page.html"))
    script = f"\n{script}"
    cars = races.cars(book)
    missing = {"maps": not book.mapped, "cars": not cars}
    text = Template(page).substitute(
        title=escape(book.manifest["title"]),
        nav=" ".join(f"<a href='#{key}'>{name}</a>" for key, name in SECTIONS.items() if not missing.get(key)),
        head=runs.head(book),
        answer=answer.answer(book),
        numbers=numbers(book),
        no_maps=" hidden" * missing["maps"],
        cars=cars,
        definitions=races.DEFINITIONS * bool(book.races),
        env_choice=maps.env_choice(book),
        first_options=maps.method_options(book, 0),
        second_options=maps.method_options(book, 1),
        map_static=pictures.static_maps(figures),
        pictures=pictures.section(book, figures),
        runs=runs.runs(book),
        regions=runs.regions(book),
        commands=runs.commands(book),
        data=maps.data(book),
        style=style,
        script=script,
        # no other script runs, whatever the data hold
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text)


def numbers(book: Book) -> str:
    """Write all tables: of laps, where there are some, and of returns; these second and folded if all are races."""
    returns = tables.returns(book)
    if book.races and all(env in book.races for env in book.results.envs):
        words = "Returns, which training maximised and by which no race is judged"
        returns = f"<details><summary>{words}</summary>{returns}</details>"
    return races.laps(book) + returns
