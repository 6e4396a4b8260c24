"""The page of environments that are judged by measures of their own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from browsing import find, find_all, resize
from synthetic import ENVS, make_results
from test_report import LAPTOP, point, words, write

import sparc
from sparc.envs.measures import make_criteria
from sparc.suites.results import EnvResults, Results

ENV = ENVS[1]
MEASURES = {
    "parked": sparc.Measure("parked carts", unit="%", scale=100),
    "energy": sparc.Measure("energy used", better=-1, unit="J/kg", digits=2),
    "least": sparc.Measure("least energy", better=0, unit="J/kg", digits=2),
}


def judged(results: Results) -> Results:
    """Return results in which one environment has measures: SPARC uses the least energy and parks most carts."""
    old = results.envs[ENV]
    criteria = make_criteria(ENV, MEASURES, ("parked", "energy"))
    results.envs[ENV] = part = EnvResults(old.space, old.contexts, old.ind, old.returns, criteria=criteria)
    cells = np.arange(len(old.contexts))
    for rank, (label, seeds) in enumerate(part.returns.items(), 1):
        part.measures[label] = {
            seed: {"parked": (cells % (4 + seed) >= rank) * 1.0, "energy": 2.0 * rank + 0.1 * seed + 0.001 * cells,
                   "least": np.full(len(cells), 1.5)} for seed in seeds
        }  # fmt: skip
    return results


def test_own_measures_have_verdicts_tables_and_definitions(tmp_path: Path) -> None:
    results = judged(make_results(ENVS[:2], {"sparc": 1.0, "rma": 0.9}, grid=5))
    text = words(write(tmp_path, results)[1])
    values = results.envs[ENV].matrix("sparc", "ood", "energy").mean()
    assert f"{values:.2f} vs {values + 2:.2f}" in text  # the card's means
    head = f"{ENV}, out of distribution (OOD,"
    table = text[text.index(head) :].split("in distribution (IND")[0]
    assert "parked carts [%]" in table and "energy used [J/kg], less is better" in table
    assert f"SPARC ★ {100 * results.envs[ENV].matrix('sparc', 'ood', 'parked').mean():.1f}" in table
    assert f"★ {values:.2f} ±" in table and "RMA ★" not in table
    assert f"Energy used [J/kg], less is better A measure that the author of {ENV} declared" in text
    assert "by which nothing here is judged" not in text  # the other environment is judged by its return


def test_returns_stand_back_where_measures_judge_everywhere(tmp_path: Path) -> None:
    results = judged(make_results((ENV,), {"sparc": 1.0, "rma": 0.9}, grid=5))
    html = write(tmp_path, results)[1]
    text = words(html)
    assert "Returns, which training maximised and by which nothing here is judged" in text
    assert "means of the energy used, of which less is better" in text and "laps" not in text
    shown = json.loads(html.split('id="data">')[1].split("</script>")[0])["envs"][ENV]
    parked = shown["shown"]["parked"]
    assert list(shown["shown"]) == ["parked", "energy", "return"] and shown["shown"]["energy"]["less"]
    assert parked["title"] == "parked carts [%]" and parked["limits"][1] > 1  # scaled
    assert [(it["title"], it["unit"], it["values"][0]) for it in shown["givens"]] == [("least energy", "J/kg", 1.5)]


def test_maps_show_each_measure_and_a_cell_its_values(quiet: Any, tmp_path: Path) -> None:
    results = judged(make_results((ENV,), {"sparc": 1.0, "rma": 0.9}, grid=5))
    resize(quiet, LAPTOP)
    quiet.get(write(tmp_path, results)[0].as_uri())
    labels = find_all(quiet, "#quantity-choice label")
    assert [label.text for label in labels] == ["parked carts [%]", "energy used [J/kg], less is better", "return"]
    assert not find(quiet, "#map-note").is_displayed()
    quiet.execute_script("arguments[0].click()", labels[1])
    point(quiet, "#map-panels svg[data-label='rma'] [data-cell='3']")
    head, row = (" ".join(find(quiet, f"#readout {part}").text.split()) for part in ("p", "tr.here"))
    assert "least energy 1.50 J/kg" in head and "SPARC − RMA: −2.00" in head
    energy = results.envs[ENV].matrix("rma", None, "energy")[:, 3]
    assert row.startswith(f"RMA {energy.mean():.2f} ±") and row.endswith(f"2: {energy[2]:.2f}")
