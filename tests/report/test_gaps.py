"""What a suite lacks, in words."""

import numpy as np
from synthetic import ENVS, make_results

from sparc.acting.adaptation import Trace
from sparc.report.gaps import count, gaps, how_many, labels_in, means_over, seeds, why_missing
from sparc.suites.results import Curve

ENV, OTHER = ENVS[:2]


def test_nothing_is_said_where_nothing_is_missing() -> None:
    results = make_results((ENV,), grid=3)
    assert gaps(results, ENV, "returns", results.labels) == []
    assert seeds(results, ENV, "rma") == "n = 3"
    assert means_over(results, [ENV], "returns", results.labels) == "mean ± s.e.m. over 3 seeds"


def test_missing_seeds_are_counted() -> None:
    results = make_results((ENV,), grid=3, gaps=((ENV, "rma", 0), (ENV, "rma", 2)))
    assert gaps(results, ENV, "curves", results.labels) == [f"{ENV} is incomplete: RMA 1 of 3 seeds"]
    assert seeds(results, ENV, "rma") == "n = 1 of 3"
    assert count(results, ENV, "curves", "rma") == 1
    assert means_over(results, [ENV], "curves", results.labels) == "mean ± s.e.m. over 1–3 seeds"


def test_numbers_of_seeds_that_were_planned_unevenly_are_named() -> None:
    results = make_results((ENV,), {"sparc": 1.0, "rma": 0.9}, grid=3)
    results.manifest["members"] = [m for m in results.manifest["members"] if (m["method"], m["seed"]) != ("rma", 2)]
    del results.envs[ENV].returns["rma"][2]
    assert gaps(results, ENV, "returns", results.labels) == [f"{ENV}: uneven numbers of seeds: SPARC 3, RMA 2"]


def test_an_environment_without_results() -> None:
    results = make_results((ENV,), {"sparc": 1.0}, (0, 1), 3, gaps=((ENV, "sparc", 0), (ENV, "sparc", 1)))
    results.manifest["members"][1]["state"] = "failed"
    assert gaps(results, ENV, "returns", results.labels) == [f"{ENV}: no results"]
    assert why_missing(results, ENV, "sparc") == "no results\n1 missing\n1 failed"
    assert means_over(results, [ENV], "returns", results.labels) == "no results"


def test_a_label_counts_only_where_it_is_planned() -> None:
    results = make_results((ENV, OTHER), {"sparc": 1.0, "rma": 0.9}, (0,), 3)
    results.manifest["members"] = [m for m in results.manifest["members"] if (m["env"], m["method"]) != (OTHER, "rma")]
    del results.envs[OTHER].returns["rma"]
    assert labels_in(results, OTHER) == ["sparc"]
    assert gaps(results, OTHER, "returns", results.labels) == []
    assert means_over(results, results.envs, "returns", results.labels, shown="small dots") == "one seed each"


def test_a_trace_or_a_curve_without_rows_counts_as_missing() -> None:
    results = make_results((ENV,), {"sparc": 1.0, "rma": 0.9}, (0, 1), 3)
    part = results.envs[ENV]
    empty = np.empty(0)
    part.traces["sparc"][1] = Trace(np.empty(0, str), empty, empty, empty, empty)
    part.curves["rma"][0] = Curve(empty, empty, np.empty(0, str))
    assert count(results, ENV, "traces", "sparc") == count(results, ENV, "curves", "rma") == 1
    assert gaps(results, ENV, "traces", results.labels) == [f"{ENV} is incomplete: SPARC 1 of 2 seeds"]
    assert means_over(results, [ENV], "traces", ["sparc"]) == "one seed each"


def test_numbers_that_differ_are_a_range() -> None:
    assert [how_many([3, 3]), how_many([1]), how_many({2, 5, 3})] == ["3 seeds", "1 seed", "2–5 seeds"]
