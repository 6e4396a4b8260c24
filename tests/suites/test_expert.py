"""The expert beside a policy is tested in suites as well, last; earlier runs and results without it stand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import sparc
from sparc.deploy.contract import results
from sparc.runs.adaptations import adapt_run
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run, read_evaluation, stem_of
from sparc.suites.gather import gather
from sparc.suites.published import Published
from sparc.suites.results import EXPERT, EnvResults, Results
from sparc.suites.runner import Runner
from sparc.suites.status import finished, next_test, status_of
from sparc.suites.suite import Suite, read_suite
from sparc.suites.tables import read, write

BOAT = "DriftingBoat-v0"

pytestmark = pytest.mark.slow  # trains a run


@pytest.fixture
def suite(tmp_path: Path, tiny: dict[str, Any]) -> Suite:
    """A suite of one tiny run."""
    values = {"methods": ["sparc"], "envs": [BOAT], "seeds": [0], "updates": 50, "grid": 3}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**values, "config": {**tiny, "evaluate_every": 50}}))
    return read_suite(path)


@pytest.fixture
def run(suite: Suite, tmp_path: Path) -> Run:
    """Its run, done by a version that tested no experts."""
    (member,) = suite.members()
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    run = Run.open(sparc.train("sparc", BOAT, run_dir=tmp_path / "runs" / member.path, **fields))
    evaluate_run(run, suite.grid, suite.episodes, "best", None)
    adapt_run(run, run.choose("best"), suite.grid)
    return run


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def part_of(results: Results) -> EnvResults:
    return results.envs[BOAT]


def test_the_expert_of_an_earlier_run_is_tested_when_the_suite_is_run_again(
    suite: Suite, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    (member,) = (runner := Runner(suite, folder)).members
    before = {file: file.read_bytes() for file in run.evaluations.iterdir()}
    assert status_of(suite, member, folder).state == "done"  # for a report it is
    assert finished(suite, run).expert is None and next_test(suite, run) == ["--expert"]
    assert runner.fully_tested(member, runner.statuses[member]).state == "waiting"
    run.lock(run.evaluating)  # another runner is about to do it
    assert runner.fully_tested(member, runner.statuses[member]).state == "in use"
    run.close()

    assert runner.run() and next_test(suite, run) == []
    assert all(file.read_bytes() == content for file, content in before.items())  # nothing is tested twice
    number = run.choose("best")
    assert len(results(run, number)) == 1  # the contract of an export has those of the policy alone
    stem = stem_of(run, number, suite.grid, suite.episodes, expert=True)
    expert = read_evaluation(stem).cells()[2]
    np.testing.assert_array_equal(part_of(gather(suite, folder)).measures["sparc"][0][EXPERT], expert)

    stem.with_suffix(".csv").write_text("damaged")
    assert next_test(suite, run) == ["--expert"]
    assert finished(suite, run).expert is None  # the policy's results stand

    stem.with_suffix(".csv").unlink()
    stem.with_suffix(".json").unlink()
    number = run.choose("best")
    damage(run.checkpoints / str(number) / "policy.safetensors")
    (member,) = (runner := Runner(suite, folder)).members
    assert runner.run()  # nor does it fail where the expert cannot be tested
    assert runner.statuses[member].state == "done" and member in runner.without_expert
    assert "its expert could not be tested" in capsys.readouterr().err


def test_tables_keep_the_experts_return_and_those_without_it_are_read(suite: Suite, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    def published(name: str) -> Results:
        return gather(suite, tmp_path / "no", published=Published([tmp_path / name]))

    write(gather(suite, folder), tmp_path / "earlier")
    assert EXPERT not in (tmp_path / "earlier" / f"cells-{BOAT}.csv").read_text()
    assert published("earlier").manifest["members"][0]["state"] == "done"
    assert EXPERT not in part_of(published("earlier")).measures["sparc"][0]
    expert = evaluate_run(run, suite.grid, suite.episodes, "best", None, expert=True)[0].cells()[2]
    write(gather(suite, folder), tmp_path / "out")
    for found in (read(tmp_path / "out"), published("out")):
        np.testing.assert_allclose(part_of(found).measures["sparc"][0][EXPERT], expert, rtol=1e-7)
        assert part_of(found).judged_by == ("return",)
