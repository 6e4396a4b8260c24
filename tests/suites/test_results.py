"""The tables of a suite survive being written and read; damaged ones are refused in one line."""

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import CARS, EXPERT_UPDATES, METHODS, POWER_MASS, make_races, make_results

from sparc.acting.adaptation import Latents, Trace
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.report.page import write_report
from sparc.suites.results import Results
from sparc.suites.tables import read, write

ENV = "WindHopper-v5"


def test_written_tables_are_read_back(tmp_path: Path) -> None:
    ours = make_results(seeds=(0, 3), grid=5, gaps=(("WindHopper-v5", "rma", 3),), variations=("", "H=5"))
    write(ours, tmp_path)
    theirs = read(tmp_path)
    assert theirs.manifest == ours.manifest
    assert theirs.labels == ours.labels and "sparc H=5" in ours.labels
    for env, part in ours.envs.items():
        other = theirs.envs[env]
        np.testing.assert_array_equal(other.contexts, part.contexts)
        np.testing.assert_array_equal(other.ind, part.ind)
        np.testing.assert_array_equal(other.space.train.low, part.space.train.low)
        for kind in ("returns", "curves", "traces", "latents"):
            mine, read_back = getattr(part, kind), getattr(other, kind)
            assert {name: list(seeds) for name, seeds in read_back.items()} == {
                name: list(seeds) for name, seeds in mine.items()
            }
            for name, seeds in mine.items():
                for seed, value in seeds.items():
                    for key, array in (vars(value) if kind != "returns" else {"": value}).items():
                        if key == "measures":
                            assert array == read_back[name][seed].measures == {}
                            continue
                        found = getattr(read_back[name][seed], key) if key else read_back[name][seed]
                        if array.dtype.kind == "U":
                            assert list(found) == list(array)
                        else:
                            np.testing.assert_allclose(found, array, rtol=1e-7)
    assert list(theirs.envs["WindHopper-v5"].returns["rma"]) == [0]


def test_tables_that_another_suite_has_as_well_are_not_written_twice(tmp_path: Path) -> None:
    ours = make_races((CARS,))
    write(ours, tmp_path / "race-cars")
    part = ours.envs[CARS]
    updated = replace(part, returns={key: {s: v - 1 for s, v in of.items()} for key, of in part.returns.items()})
    theirs = Results({**ours.manifest, "runs": "race-cars"}, {CARS: updated})
    write(theirs, tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"cells-{CARS}.csv", "manifest.json"]  # its cells are its own, the rest is the same
    assert read(tmp_path / "new").envs[CARS].curves.keys() == part.curves.keys()
    base = read(tmp_path / "new").manifest["base"]
    assert base["folder"] == "../race-cars" and len(base["tables"]) == 3
    packed = tmp_path / "race-cars" / f"curves-{CARS}.csv"
    with gzip.open(f"{packed}.gz", "wb") as file:
        file.write(packed.read_bytes())
    packed.unlink()
    again = read(tmp_path / "new")  # packed or not, it is the same table
    write(again, tmp_path / "elsewhere" / "new")  # nothing to refer to here
    assert len(list((tmp_path / "elsewhere" / "new").glob("*.csv"))) == 4
    assert "base" not in read(tmp_path / "elsewhere" / "new").manifest
    traces = tmp_path / "race-cars" / f"traces-{CARS}.csv"
    traces.write_text(traces.read_text() + "\n")
    with pytest.raises(UserError, match=r"traces-\S+ has changed since\): write them anew"):
        read(tmp_path / "new")
    traces.unlink()
    with pytest.raises(UserError, match=r"traces-\S+ is missing"):
        read(tmp_path / "new")


def test_the_published_results_hold_no_file_twice() -> None:
    files = [path for path in (Path(__file__).parents[2] / "results").rglob("*") if path.is_file()]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert files and len(set(digests)) == len(files)


def test_regions_of_the_matrix() -> None:
    part = make_results(grid=21).envs["WindHopper-v5"]
    assert part.matrix("rma").shape == (3, 441)
    assert part.matrix("rma", "ind").shape == (3, 121)
    assert part.matrix("rma", "ood").shape == (3, 320)


def test_the_phase_of_an_evaluation_is_a_column_of_its_own(tmp_path: Path) -> None:
    write(make_results(envs=(ENV,), seeds=(0,), grid=3), tmp_path)
    header, *rows = (line.split(",") for line in (tmp_path / f"curves-{ENV}.csv").read_text().splitlines())
    assert header == ["method", "variation", "seed", "updates", "return", "phase"]
    assert {row[-1] for row in rows if row[0] == "rma" and float(row[3]) <= EXPERT_UPDATES} == {"expert"}
    assert {row[-1] for row in rows if row[0] == "rma" and float(row[3]) > EXPERT_UPDATES} == {"adapter"}
    assert {row[-1] for row in rows if row[0] != "rma"} == {"train"}
    assert read(tmp_path).privileged_labels == ["rma"]


def test_what_explains_a_run_is_written_with_its_curve(tmp_path: Path) -> None:
    ours = make_results(envs=(ENV,), methods={"sparc": 1.0, "oracle": 1.0}, seeds=(0,), grid=3)
    curve = ours.envs[ENV].curves["sparc"][0]
    curve.measures.update({"expert_return": curve.returns + 1.0, "adapter_error_50": curve.returns / 1e4})
    write(ours, tmp_path)
    header = (tmp_path / f"curves-{ENV}.csv").read_text().splitlines()[0].split(",")
    assert header[4:] == ["return", "phase", "expert_return", "adapter_error_50"]
    found = read(tmp_path)
    for name in header[6:]:
        measures = found.envs[ENV].curves["sparc"][0].measures
        np.testing.assert_allclose(measures[name], curve.measures[name], rtol=1e-7)
        assert np.isnan(found.envs[ENV].curves["oracle"][0].measures[name]).all()
    assert found.policy_variants == ["expert"]


def test_a_run_without_a_trace_is_read_and_counts_as_one(tmp_path: Path) -> None:
    ours = make_results(envs=(ENV,), methods={"sparc": 1.0}, seeds=(0, 1), grid=3)
    part, empty = ours.envs[ENV], np.empty(0)
    part.traces["sparc"][1] = Trace(np.empty(0, str), empty, empty, empty, empty)
    write(ours, tmp_path)
    for results in (ours, read(tmp_path)):
        assert list(results.envs[ENV].available("traces", "sparc")) == [0]
        assert list(results.envs[ENV].available("returns", "sparc")) == [0, 1]
        assert results.envs[ENV].available("traces", "rma") == {}


def test_an_environment_without_results_keeps_its_grid(tmp_path: Path) -> None:
    write(make_results(envs=(ENV,), methods={"sparc": 1.0}, seeds=(0,), grid=5, gaps=((ENV, "sparc", 0),)), tmp_path)
    part = read(tmp_path).envs[ENV]
    assert part.contexts.shape == (25, 2) and part.regions == ["ood", "ind"] and part.returns == {}


# Races


def test_laps_names_and_another_physics_are_read_back(tmp_path: Path) -> None:
    ours = make_races(seeds=(0, 3), grid=5, cars=12, variants=("updated",), gaps=((CARS, "rma", 3),))
    write(ours, tmp_path)
    theirs = read(tmp_path)
    assert theirs.manifest == ours.manifest
    assert list(theirs.parts) == [f"{env}{rest}" for env in (POWER_MASS, CARS) for rest in ("", ", updated")]
    for test, part in ours.parts.items():
        other = theirs.parts[test]
        assert (
            other.context_labels == part.context_labels
            and other.measure_names == part.measure_names
            and other.regions == part.regions
        )
        assert list(other.returns["rma"]) == ([0] if test.startswith(CARS) else [0, 3])
        for key, seeds in part.measures.items():
            for seed, measures in seeds.items():
                for name, values in measures.items():  # NaN, where a lap was not completed, included
                    np.testing.assert_allclose(other.measures[key][seed][name], values, rtol=1e-7)
    header = (tmp_path / f"cells-{CARS}-updated.csv").read_text().splitlines()[0].split(",")
    assert header[:4] == ["method", "variation", "seed", "label"]
    assert header[-6:] == ["completed", "clean", "lap_time", "reference", "ratio", "completed_ratio"]
    assert theirs.members(f"{CARS}, updated", "sparc") == theirs.members(CARS, "sparc")


def test_clean_laps_and_ratios_during_training_are_read_back(tmp_path: Path) -> None:
    ours = make_races((CARS,), seeds=(0, 1), cars=10)
    ours.envs[CARS].curves["rma"][1].measures.clear()
    write(ours, tmp_path)
    header = (tmp_path / f"curves-{CARS}.csv").read_text().splitlines()[0].split(",")
    assert header[3:] == ["updates", "return", "phase", "clean", "ratio"]
    found = read(tmp_path).envs[CARS].curves
    for name in ("clean", "ratio"):
        np.testing.assert_allclose(
            found["sparc"][0].measures[name], ours.envs[CARS].curves["sparc"][0].measures[name], rtol=1e-7
        )
        assert np.isnan(found["rma"][1].measures[name]).all()


def test_measures_of_a_region() -> None:
    part = make_races((CARS,), cars=20).envs[CARS]
    assert part.matrix("sparc", "ood", "ratio").shape == (3, 4) and part.matrix("sparc", "ind", "ratio").shape == (
        3,
        16,
    )
    np.testing.assert_array_equal(part.matrix("rma", None, "clean")[1], part.measures["rma"][1]["clean"])


def test_damaged_tables_of_races_are_refused(tmp_path: Path) -> None:
    def refused(message: str, change: Callable[[list[str]], list[str]], table: str = f"cells-{CARS}.csv") -> None:
        write(make_races((CARS,), seeds=(0, 1), cars=10, variants=("updated",)), tmp_path)
        changed(tmp_path / table, change)
        with pytest.raises(UserError, match=message):
            read(tmp_path)

    refused("other contexts", lambda lines: [*lines[:-1], lines[-1].replace("van-", "kart-")])
    other = f"cells-{CARS}-updated.csv"
    refused("updated is done but has no", lambda lines: [x for x in lines if "rma,,1," not in x], other)
    refused("other contexts", lambda lines: lines[:-1], other)
    results = make_races((CARS,), seeds=(0,), cars=10)
    results.manifest["labels"][CARS] = results.manifest["labels"][CARS][:-1]
    write(results, tmp_path)
    with pytest.raises(UserError, match="9 labels for the 10 contexts"):
        read(tmp_path)
    write(make_races((CARS,), seeds=(0, 1), cars=10, variants=("updated",)), tmp_path)
    (tmp_path / other).unlink()
    with pytest.raises(UserError, match=r"cells-RaceCars-forza-v0-updated\.csv is missing"):
        read(tmp_path)
    write(make_races((POWER_MASS,), seeds=(0, 1), grid=3), tmp_path)
    changed(tmp_path / f"cells-{POWER_MASS}.csv", lambda lines: [*lines[:-1], lines[-1].replace("mass ×", "load ×")])
    with pytest.raises(UserError, match="do not call their contexts the same"):
        read(tmp_path)


def with_encodings(results: Results) -> Results:
    part = results.envs[CARS]
    for seed in part.returns["sparc"]:
        part.latents.setdefault("sparc", {})[seed] = Latents(part.contexts[:, :2], part.contexts[:, 2:4])
    return results


def test_the_features_of_cars_are_written_once_and_rows_go_by_their_names(tmp_path: Path) -> None:
    ours = with_encodings(make_races(seeds=(0, 1), grid=3, cars=10))
    write(ours, tmp_path)
    for kind in ("cells", "latents"):
        header, first, *_ = (tmp_path / f"{kind}-{CARS}.csv").read_text().splitlines()
        assert (
            header.split(",")[3:5] == ["label", "region"] and first.split(",")[3] == ours.envs[CARS].context_labels[0]
        )
    header = (tmp_path / f"cells-{POWER_MASS}.csv").read_text().splitlines()[0].split(",")
    assert header[3:7] == ["label", "power", "mass", "region"]  # a plane keeps its axes
    found = read(tmp_path).envs[CARS]
    np.testing.assert_array_equal(found.contexts, ours.envs[CARS].contexts)
    np.testing.assert_allclose(found.latents["sparc"][1].phi, ours.envs[CARS].contexts[:, 2:4], rtol=1e-7)
    lines = (tmp_path / "manifest.json").read_text().splitlines()
    row = ", ".join(map(str, ours.envs[CARS].contexts[0].tolist()))
    assert any(line.strip().rstrip(",") == f"[{row}]" for line in lines)  # numbers side by side
    changed(tmp_path / f"latents-{CARS}.csv", lambda lines: [lines[0], lines[2], lines[1], *lines[3:]])
    with pytest.raises(UserError, match="other contexts"):
        read(tmp_path)


def test_tables_with_the_features_of_cars_in_every_row_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = with_encodings(make_races((CARS,), seeds=(0,), cars=10))
    del ours.manifest["labels"]
    with monkeypatch.context() as patch:
        patch.setattr("sparc.suites.tables.by_label", lambda *_: False)  # as they were written once
        write(ours, tmp_path)
    assert "power,mass,length" in (tmp_path / f"cells-{CARS}.csv").read_text().splitlines()[0]
    found = read(tmp_path).envs[CARS]
    assert (
        found.context_labels == ours.envs[CARS].context_labels and found.measure_names == ours.envs[CARS].measure_names
    )
    assert list(found.latents["sparc"]) == [0]


# Names and pairs


def test_names_are_the_papers() -> None:
    results = make_results(envs=(ENV,), seeds=(0,), grid=3, variations=("", "H=5"))
    assert results.names["only-obs"] == "Only Obs" and results.names["sparc H=5"] == "SPARC H=5"
    assert list(results.names) == results.labels


def pairs(*methods: str, variations: tuple[str, ...] = ("",)) -> list[tuple[str, str]]:
    found = make_results(envs=(ENV,), methods=dict.fromkeys(methods, 1.0), seeds=(0,), grid=3, variations=variations)
    return found.pairs


def test_sparc_or_each_variation_of_it_is_compared_with_the_rest() -> None:
    rivals = ["rma", "only-obs", "history-input", "oracle"]
    assert pairs(*METHODS) == [("sparc", rival) for rival in rivals]
    assert pairs("oracle", "only-obs", "sparc", "rma") == [("sparc", r) for r in ("rma", "only-obs", "oracle")]
    assert pairs("sparc", variations=("adapter", "expert")) == [("sparc adapter", "sparc expert")]
    assert pairs("sparc", variations=("a", "b", "c")) == [("sparc a", "sparc b"), ("sparc a", "sparc c"),
                                                         ("sparc b", "sparc c")]  # fmt: skip
    assert pairs("sparc", "rma", variations=("a", "b"))[:2] == [("sparc a", "rma a"), ("sparc b", "rma b")]
    assert pairs("only-obs", "rma") == [("only-obs", "rma")] and pairs("sparc") == []


def test_packed_tables_are_read_and_damaged_ones_refused(tmp_path: Path) -> None:
    races = make_races(cars=20, grid=3, variants=("updated",))
    write(races, tmp_path)
    plain = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    assert any("updated" in name for name in plain)
    for name, data in plain.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
        (tmp_path / name).unlink()
    again = tmp_path / "again"
    write(read(tmp_path), again)
    assert {path.name: path.read_bytes() for path in again.glob("*.csv")} == plain

    packed = tmp_path / f"cells-{CARS}.csv.gz"
    data = packed.read_bytes()
    for broken in (data[: len(data) // 2], b"no gzip", data[:50] + bytes(50) + data[100:]):
        packed.write_bytes(broken)
        with pytest.raises(UserError, match="damaged"):
            read(tmp_path)
    write(races, tmp_path)  # the new tables are the ones that count
    assert read(tmp_path).envs and not [*tmp_path.glob("*.gz")]


# Damage


@pytest.mark.parametrize("damage", ["no manifest", "half a manifest", "half a table", "no table", "other contexts"])
def test_damaged_results_are_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    write(make_results(envs=(ENV,), grid=3), tmp_path)
    table, manifest = tmp_path / f"cells-{ENV}.csv", tmp_path / "manifest.json"
    lines = table.read_text().splitlines()
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_text(manifest.read_text()[:100])
    elif damage == "half a table":
        table.write_text("\n".join([*lines[:-1], lines[-1][:10]]))
    elif damage == "no table":
        table.unlink()
    else:
        table.write_text("\n".join([*lines[:-1], lines[-1].replace(",20,", ",19,")]))
        assert lines[-1] != table.read_text().splitlines()[-1]
    with pytest.raises(UserError, match="sparc suite report") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)


def changed(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a file, which must then differ."""
    lines = path.read_text().splitlines()
    after = change(list(lines))
    assert after != lines
    path.write_text("\n".join(after) + "\n")


WRONG: dict[str, Callable[[list[str]], list[str]]] = {
    "fewer cells": lambda lines: lines[:-1],  # of one run
    "one cell": lambda lines: [line for line in lines if not line.startswith("rma,,0,") or ",-20,-5," in line],
    "fewer cells of all": lambda lines: [line for line in lines if ",20,5," not in line],
    "a cell twice": lambda lines: [*lines, lines[-1]],
    "another order": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "other contexts of all": lambda lines: [line.replace(",20,5,", ",20,4,") for line in lines],
    "an empty context": lambda lines: [*lines[:-1], lines[-1].replace(",20,5,", ",20,,")],
    "another region": lambda lines: [line.replace(",ood,", ",ind,") for line in lines],
    "no region": lambda lines: [line.replace(",ood,", ",,") for line in lines],
    "no keys": lambda lines: ["", ""],
}


@pytest.mark.parametrize("kind", ["cells", "latents"])
@pytest.mark.parametrize("wrong", WRONG)
def test_tables_that_do_not_fit_the_manifests_grid_are_damaged(tmp_path: Path, kind: str, wrong: str) -> None:
    write(make_results(envs=(ENV,), grid=3), tmp_path)
    read(tmp_path)
    changed(tmp_path / f"{kind}-{ENV}.csv", WRONG[wrong])
    with pytest.raises(UserError, match="damaged") as error:
        read(tmp_path)
    assert "\n" not in str(error.value) and "sparc suite report" in str(error.value)


def test_a_manifest_with_another_grid_is_damaged(tmp_path: Path) -> None:
    for grid in (5, 0, "3"):
        results = make_results(envs=(ENV,), seeds=(0,), grid=3)
        results.manifest["grid"] = grid
        write(results, tmp_path)
        with pytest.raises(UserError, match="damaged"):
            read(tmp_path)


def test_the_runs_of_the_tables_are_those_that_the_manifest_says_are_done(tmp_path: Path) -> None:
    def refused(change: Callable[[dict[str, Any]], None], message: str) -> None:
        results = make_results(envs=(ENV,), seeds=(0, 1), grid=3)
        change(next(m for m in results.manifest["members"] if (m["method"], m["seed"]) == ("rma", 1)))
        write(results, tmp_path)
        with pytest.raises(UserError, match=f"damaged .{message}"):
            read(tmp_path)

    refused(lambda member: member.update(state="failed"), f"rma, seed 1, in {ENV} is not done but has returns")
    refused(lambda member: member.update(seed=2), f"rma, seed 1, in {ENV} is not done but has returns")
    refused(lambda member: member.update(env="WindWalker2d-v5"), "'WindWalker2d-v5'")
    write(make_results(envs=(ENV,), seeds=(0, 1), grid=3), tmp_path)
    changed(tmp_path / f"cells-{ENV}.csv", lambda lines: [line for line in lines if not line.startswith("rma,,1,")])
    with pytest.raises(UserError, match=f"damaged .rma, seed 1, in {ENV} is done but has no returns"):
        read(tmp_path)


def test_results_of_earlier_versions_are_read(tmp_path: Path) -> None:
    ours = make_races((CARS,), seeds=(0, 1), cars=10, variants=("updated",))
    write(ours, tmp_path)
    file = tmp_path / "manifest.json"
    manifest = json.loads(file.read_text())
    assert "criteria" not in manifest  # as it was: then the registry knows
    del manifest["seals"], manifest["sha256"]
    manifest["physics"] = manifest.pop("variants")
    published = manifest["reference"].pop("measures")
    manifest["reference"]["laps"] = {
        test.replace(", updated", ", updated physics"): of for test, of in published.items()
    }
    file.write_text(json.dumps(manifest))
    theirs = read(tmp_path)
    assert list(theirs.parts) == list(ours.parts) == [CARS, f"{CARS}, updated"]
    assert theirs.manifest["reference"]["measures"] == published and "physics" not in theirs.manifest
    for part in theirs.parts.values():
        assert part.judged_by == ("clean", "ratio") and part.criteria == get_env(CARS).criteria


def test_results_know_how_their_measures_are_read(tmp_path: Path) -> None:
    ours = make_races((CARS,), seeds=(0, 1), cars=10)
    renamed = Results(
        json.loads(json.dumps(ours.manifest).replace(CARS, "Elsewhere-v0")), {"Elsewhere-v0": ours.envs[CARS]}
    )
    write(renamed, tmp_path)
    unknown = read(tmp_path).envs["Elsewhere-v0"]  # neither declared nor registered
    assert unknown.judged_by == ("return",) and unknown.criteria["lap_time"].title == "lap time"
    renamed.manifest["criteria"] = {"Elsewhere-v0": get_env(CARS).criteria.to_dict()}
    write(renamed, tmp_path)
    declared = read(tmp_path).envs["Elsewhere-v0"]
    assert declared.criteria == get_env(CARS).criteria and declared.judged_by == ("clean", "ratio")
    for seeds in declared.measures.values():
        seeds[0].pop("clean")
    assert declared.judged_by == ("return",)  # not of all runs


# Seals


@pytest.mark.parametrize("kind", ["cells", "curves", "traces", "latents"])
def test_one_changed_digit_is_named_and_accepted_only_if_asked(tmp_path: Path, kind: str) -> None:
    write(make_results(envs=(ENV,), grid=3), tmp_path)
    path = tmp_path / f"{kind}-{ENV}.csv"
    sound, rng = path.read_text(), np.random.default_rng(0)
    digits = [at for at, letter in enumerate(sound) if letter.isdigit() and at > sound.index("\n")]
    refused = 0
    for at in rng.choice(digits, 10, replace=False):  # thousands: `make faults`
        path.write_text(sound[:at] + str((int(sound[at]) + 1) % 10) + sound[at + 1 :])
        with pytest.raises(UserError, match=rf"damaged|{path.name}.*--accept-edits"):
            read(tmp_path)
        try:
            assert read(tmp_path, accept_edits=True).manifest["edited"] == [path.name]
            refused += 1
        except UserError as error:  # it does not fit the other tables
            assert "damaged" in str(error)
    assert refused


def test_the_page_names_tables_that_were_changed_by_hand(tmp_path: Path) -> None:
    write(make_results(envs=(ENV,), grid=3), tmp_path)
    write_report(read(tmp_path), tmp_path / "report.html", [])
    assert "Changed by hand" not in (tmp_path / "report.html").read_text()
    path = tmp_path / f"traces-{ENV}.csv"
    path.write_text(path.read_text().replace("\n", "\r\n"))  # the same numbers in other bytes
    write_report(read(tmp_path, accept_edits=True), tmp_path / "report.html", [])
    said = f"Changed by hand since the results were written: {path.name}."
    assert said in (tmp_path / "report.html").read_text()


def test_a_changed_manifest_is_named_and_one_of_an_older_version_is_read(tmp_path: Path) -> None:
    write(make_results(envs=(ENV,), grid=3), tmp_path)
    manifest = tmp_path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"updates": ', '"updates": 1', 1))
    with pytest.raises(UserError, match=r"manifest\.json"):
        read(tmp_path)
    values = json.loads(text)
    del values["sha256"]
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"manifest\.json"):
        read(tmp_path)
    del values["seals"]
    manifest.write_text(json.dumps(values))
    assert "edited" not in read(tmp_path).manifest
