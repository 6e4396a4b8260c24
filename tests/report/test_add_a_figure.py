"""The example of docs/add-a-figure.md, run as written."""

import re
from pathlib import Path
from typing import Any

import pytest
from synthetic import ENVS, make_results

from sparc.report.figures import registry
from sparc.report.page import write_report
from sparc.suites.results import Results

DOC = Path(__file__).parents[2] / "docs/add-a-figure.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's function and record, with the record as the only one of the registry."""
    function, record = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    names: dict[str, Any] = {"FigureEntry": registry.FigureEntry}
    exec(function, names)
    (entry,) = eval(f"({record})", names)
    monkeypatch.setattr(registry, "FIGURES", (entry,))
    return entry


@pytest.mark.parametrize(
    "results",
    [
        make_results(grid=5),
        make_results(grid=5, seeds=(0,)),
        make_results(grid=5, gaps=tuple((ENVS[0], "rma", seed) for seed in range(3))),
    ],
    ids=["complete", "one seed", "gap"],
)
def test_the_example_is_drawn_and_embedded(example: Any, results: Results, tmp_path: Path) -> None:
    drawn = registry.write_all(results, tmp_path / "figures")
    assert [figure.stem.name for figure in drawn] == ["ood-share"]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"ood-share.png", "ood-share.svg"}
    write_report(results, tmp_path / "report.html", drawn)
    page = (tmp_path / "report.html").read_text()
    for text in (example.heading, example.caption, example.not_shown):
        assert text in page
    lines = [line.get_ydata() for line in example.draw(results).axes[1].lines]
    part = results.envs[ENVS[1]]
    expected = part.matrix("sparc", "ood").mean(axis=1) / part.matrix("sparc", "ind").mean(axis=1)
    assert lines[0] == pytest.approx(expected)


def test_the_example_is_left_out_where_it_does_not_apply(example: Any, tmp_path: Path) -> None:
    nobody = make_results(ENVS[:1], {"sparc": 1.0}, (0,), grid=5, gaps=((ENVS[0], "sparc", 0),))
    (tmp_path / "ood-share.svg").write_text("of an older suite")
    assert registry.write_all(nobody, tmp_path) == [] and list(tmp_path.iterdir()) == []
