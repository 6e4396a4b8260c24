"""A suite of stages, run for real: children wait for their parents, and its results have all of them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparc.errors import UserError
from sparc.report.continual import chains, measure
from sparc.runs.run import Run
from sparc.suites.gather import gather
from sparc.suites.suite import find_suite, provided, read_suite

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
    for wrong in ({"variations": {"a": {}}}, {"runs": "smoke"}):
        with pytest.raises(UserError, match="a suite of stages has no variations, variants or shared runs"):
            read_suite(write_suite(tmp_path / "wrong.yaml", tiny, **wrong))


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
