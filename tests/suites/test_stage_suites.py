"""A suite of stages, run for real: children wait for their parents, and its results have all of them."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sparc.errors import UserError
from sparc.report.continual import chains, measure
from sparc.runs.run import Run
from sparc.suites.gather import gather
from sparc.suites.published import Published
from sparc.suites.suite import find_suite, provided, read_suite
from sparc.suites.tables import read

BOAT = "DriftingBoat-v0"
CORNER = {"x": [0.5, 1.0], "y": [0.5, 1.0]}
STAGES: dict[str, Any] = {
    "inner": {},
    "corner": {"after": "inner", "train_region": CORNER, "updates": 50},
    "adapter": {"after": "inner", "train_region": CORNER, "updates": 50, "only_adapter": True, "methods": ["rma"]},
    "corner-anew": {"train_region": CORNER, "updates": 50},
}


def write_suite(path: Path, tiny: dict[str, Any], **more: Any) -> Path:
    fields = {**tiny, "normalize_observations": True}
    suite = {"methods": ["sparc", "rma"], "envs": [BOAT], "seeds": [0], "updates": 60, "config": fields, "grid": 5}
    path.write_text(yaml.safe_dump(suite | {"stages": STAGES} | more, sort_keys=False))
    return path


def test_the_members_of_stages(tiny: dict[str, Any], tmp_path: Path) -> None:
    suite = read_suite(write_suite(tmp_path / "stages.yaml", tiny))
    found = {member.path.as_posix().removeprefix(f"{BOAT}/"): member for member in suite.members()}
    assert list(found) == [
        "sparc-inner/seed0", "sparc-corner/seed0", "sparc-corner-anew/seed0",
        "rma-inner/seed0", "rma-corner/seed0", "rma-adapter/seed0", "rma-corner-anew/seed0",
    ]  # fmt: skip
    corner = found["rma-corner/seed0"].config
    assert corner.options["expert_updates"] == 50 and corner.updates > 50  # as much reinforcement as the others
    assert found["rma-adapter/seed0"].config.updates == 50 + suite.members()[0].config.chunk
    with pytest.raises(UserError, match="a suite of stages has no variations or variants: leave them out"):
        read_suite(write_suite(tmp_path / "wrong.yaml", tiny, variations={"a": {}}))


def test_a_stage_as_usual_is_the_run_of_the_shared_suite(tiny: dict[str, Any], tmp_path: Path) -> None:
    shorter = {**STAGES, "short": {"updates": 30}, "short-corner": {**STAGES["corner"], "after": "short"}}
    suite = read_suite(write_suite(tmp_path / "stages.yaml", tiny, runs="base", stages=shorter, methods=["sparc"]))
    assert {member.variation: member.path.as_posix() for member in suite.members()} == {
        "inner": f"../base/{BOAT}/sparc/seed0",
        "corner": f"{BOAT}/sparc-corner/seed0",
        "corner-anew": f"{BOAT}/sparc-corner-anew/seed0",
        "short": f"{BOAT}/sparc-short/seed0",
        "short-corner": f"{BOAT}/sparc-short-corner/seed0",
    }
    with pytest.raises(UserError, match=r"two members are the same run, \.\./base/.*/sparc/seed0: leave one"):
        read_suite(write_suite(tmp_path / "wrong.yaml", tiny, runs="base", stages={**STAGES, "again": {}}))


def test_a_first_stage_may_leave_the_variant_of_the_config(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    fields = {"methods": ["sparc"], "envs": ["RaceCars-forza-v0"], "seeds": [0], "updates": 1_000, "preset": "racing"}
    config = {"env_options": {"physics": "updated"}}
    path.write_text(yaml.safe_dump(fields | {"config": config, "stages": {"usual": {"variant": "default"}}}))
    (member,) = read_suite(path).members()
    assert member.config.env_options == {}


def test_the_suites_that_come_with_sparc_have_stages() -> None:
    names = {name for name, suite in provided().items() if suite.stages}
    assert names == {"continual-boat", "continual-cheetah", "continual-cars"}
    cars = find_suite("continual-cars").members()
    assert {member.parent is None for member in cars if member.variation == "added"} == {False}


def test_a_suite_of_stages_runs_to_its_end(
    tiny: dict[str, Any], tmp_path: Path, sparc_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    file = write_suite(tmp_path / "stages.yaml", tiny)
    done = sparc_cli("suite", "run", file, "--jobs", 2, timeout=560)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "stages"
    child = Run.open(folder / BOAT / "sparc-corner" / "seed0")
    assert child.lineage.parent is not None and child.lineage.parent.run == "seed0"
    assert Run.open(folder / BOAT / "sparc-corner-anew" / "seed0").space.train.low.tolist() == [0.5, 0.5]
    results = gather(read_suite(folder / "suite.yaml"), folder)
    found = {chain.last: measure(results, BOAT, chain) for chain in chains(results, BOAT)}
    assert set(found) == {"sparc corner", "rma corner", "rma adapter"}
    assert all(len(measures.seeds) == 1 for measures in found.values())
    report = sparc_cli("suite", "report", file)
    assert report.returncode == 0, report.stderr
    assert (folder / "report" / "figures" / f"stages-{BOAT}.svg").is_file()

    # runs of a version with another default share are not this suite's
    plan = yaml.safe_load((folder / "suite.yaml").read_text())
    plan["stages"]["corner"]["keep"] = 0.25
    (folder / "suite.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    status = sparc_cli("suite", "status", "stages")
    assert status.returncode == 0 and "its keep is 0.5, not 0.25; move" in " ".join(status.stdout.split())


def test_stages_go_on_from_the_runs_of_a_suite_beside(
    tiny: dict[str, Any], tmp_path: Path, sparc_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    methods = ["sparc", "only-obs"]
    base = write_suite(tmp_path / "base.yaml", tiny, methods=methods, stages={})
    unlabelled = {**STAGES["corner"], "no_context": True, "methods": ["sparc"]}
    stages = {"inner": {}, "corner": STAGES["corner"], "unlabelled": unlabelled,
              "corner-anew": {**STAGES["corner-anew"], "methods": ["sparc"]}}  # fmt: skip
    file = write_suite(tmp_path / "stages.yaml", tiny, methods=methods, stages=stages, runs="base")
    first = sparc_cli("suite", "run", base, "--methods", "sparc", "--jobs", 1, timeout=560)
    assert first.returncode == 0, first.stderr
    runs = tmp_path / "runs"
    shared = runs / "base" / BOAT / "sparc" / "seed0"
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*") if path.is_file()}
    done = sparc_cli("suite", "run", file, "--jobs", 2, timeout=560)
    assert done.returncode == 0, done.stderr
    assert "sparc/seed0: " not in done.stderr  # done before, and tested
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in (runs / "stages" / BOAT).iterdir()) == [
        "only-obs-corner", "sparc-corner", "sparc-corner-anew", "sparc-unlabelled",
    ]  # fmt: skip
    child, other = (Run.open(runs / "stages" / BOAT / name / "seed0") for name in ("sparc-corner", "only-obs-corner"))
    for run, parent in ((child, shared), (other, runs / "base" / BOAT / "only-obs" / "seed0")):
        assert run.lineage.parent is not None
        assert run.lineage.parent.checkpoint == Run.open(parent).choose("best")
    status = sparc_cli("suite", "status", file)
    assert status.returncode == 0 and f"../base/{BOAT}/sparc/seed0" in status.stdout and "6 done" in status.stdout
    rest = sparc_cli("suite", "run", base, "--jobs", 1)  # the parent that was trained for its child is this suite's
    assert rest.returncode == 0 and "training" not in rest.stderr, rest.stderr

    for name in ("base", "stages"):
        report = sparc_cli("suite", "report", tmp_path / f"{name}.yaml", "--out", tmp_path / "results" / name)
        assert report.returncode == 0, report.stderr
    results = read(tmp_path / "results" / "stages")
    members = {(entry["method"], entry["variation"]): entry["run"] for entry in results.manifest["members"]}
    assert members["sparc", "inner"] == f"../base/{BOAT}/sparc/seed0"
    assert "only-obs corner-anew" not in results.labels
    found = {chain.last: chain for chain in chains(results, BOAT)}
    assert {key: chain.anew for key, chain in found.items()} == {
        "sparc corner": "corner-anew", "sparc unlabelled": "corner-anew", "only-obs corner": None,
    }  # fmt: skip
    forward = {key: measure(results, BOAT, chain).forward for key, chain in found.items()}
    assert np.isfinite(forward["sparc corner"]).all() and np.isnan(forward["only-obs corner"]).all()
    assert np.isfinite(measure(results, BOAT, found["only-obs corner"]).zero_shot).all()

    # on another machine: both suites' tables are enough, but for a parent whose child is not there
    both = ["--published", tmp_path / "results" / "base", tmp_path / "results" / "stages"]
    planned = read_suite(file)
    assert len(Published(both[1:]).standing(planned.members(), tmp_path / "empty")) == 6
    standing = Published(both[1:2]).standing(planned.members(), tmp_path / "empty")
    assert not standing  # both parents are needed
    shutil.move(runs, tmp_path / "elsewhere")
    read_suite(base).write(runs / "base")
    again = sparc_cli("suite", "run", file, *both)
    assert again.returncode == 0 and "6 published" in again.stdout, again.stderr
    report = sparc_cli("suite", "report", file, *both, "--out", tmp_path / "again")
    assert report.returncode == 0, report.stderr
    kept = [entry | {"note": ""} for entry in read(tmp_path / "again").manifest["members"]]
    assert kept == [entry | {"note": ""} for entry in results.manifest["members"]]
