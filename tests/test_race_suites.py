"""Suites of races, run for real, with boats in two waters in place of cars in two physics: that needs no TORCS."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sparc.evaluation import Evaluation, evaluate_run, stem_of
from sparc.gather import gather
from sparc.results import read
from sparc.runner import Runner, Standing, finished, next_test, outcome, survey
from sparc.runs import Run

Cli = Callable[..., subprocess.CompletedProcess[str]]
ENV = "TwoWaters-v0"
WATERS = '''
"""Boats that are judged like laps; in the updated physics, they drift twice as far."""
import numpy as np
from sparc.envs import register_env
from sparc.envs.boat import CURRENT, BoatVectorEnv, make_boat
from sparc.envs.racing import RACES

class TwoWaters(BoatVectorEnv):
    def __init__(self, num_envs, max_episode_steps=None, change_probability=0.0, physics="standard"):
        super().__init__(num_envs, max_episode_steps, change_probability)
        self.drift = 2.0 if physics == "updated" else 1.0

    def _advance(self, actions):
        contexts, self.contexts = self.contexts, self.contexts * self.drift
        try:
            return super()._advance(actions)
        finally:
            self.contexts = contexts

    def measures(self):
        ratio = 1.0 + np.abs(self.contexts).sum(axis=1) * self.drift
        done = ratio < 2.0
        nothing = np.full(self.num_envs, np.nan)
        return {
            "completed": done * 1.0, "clean": (ratio < 1.5) * 1.0, "lap_time": np.where(done, 90 * ratio, nothing),
            "reference": np.full(self.num_envs, 90.0), "ratio": np.where(done, ratio, 2.0),
            "completed_ratio": np.where(done, ratio, nothing),
        }

    def labels(self):
        return [f"boat {x:g} {y:g}" for x, y in self.contexts]

RACES["TwoWaters-v0"] = None, None
register_env("TwoWaters-v0", context_space=CURRENT, make=make_boat, make_vector=TwoWaters, max_episode_steps=100)
'''


@pytest.fixture
def suites(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the environment, a suite of runs, and one that tests these in another physics."""
    (tmp_path / "waters.py").write_text(WATERS)
    both = {"methods": ["sparc", "only-obs"], "envs": [f"waters:{ENV}"], "seeds": [0], "grid": 3, "config": tiny}
    (tmp_path / "races.yaml").write_text(yaml.safe_dump(both | {"updates": 200}))
    (tmp_path / "again.yaml").write_text(
        yaml.safe_dump(both | {"updates": 200, "runs": "races", "physics": ["updated"]})
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_runs_are_tested_in_another_physics_without_being_trained_again(suites: Path, sparc_cli: Cli) -> None:
    first = sparc_cli("suite", "run", "races.yaml", "--methods", "sparc")
    assert first.returncode == 0, first.stderr
    assert "done: IND" in first.stderr and "clean laps, ratio 1." in first.stderr
    again = sparc_cli("suite", "run", "again.yaml")
    assert again.returncode == 0, again.stderr
    told = [line for line in again.stderr.splitlines() if line.startswith(f"../races/{ENV}/sparc/seed0")]
    assert [line.split(": ", 1)[1].split(":")[0] for line in told] == ["evaluating", "done"]  # one test, no training
    other = [line for line in again.stderr.splitlines() if line.startswith(f"../races/{ENV}/only-obs/seed0")]
    words = [line.split(": ", 1)[1].split(" ")[0].rstrip(":") for line in other]
    assert words == ["training", "evaluating", "evaluating", "done"]  # where it was missing; into the shared folder
    assert not (suites / "runs" / "again" / ENV).exists()

    report = sparc_cli("suite", "report", "again.yaml", "--out", suites / "out")
    assert report.returncode == 0, report.stderr
    found = read(suites / "out")
    part = found.envs[ENV]
    after = part.physics["updated"]
    assert part.named == after.named and part.named[0] == "boat -1 -1" and len(part.named) == 9
    np.testing.assert_allclose(part.measures["sparc"][0]["ratio"], [2, 2, 2, 2, 1, 2, 2, 2, 2])
    assert not np.array_equal(part.returns["sparc"][0], after.returns["sparc"][0])
    run = Run.open(suites / "runs" / "races" / ENV / "sparc" / "seed0")
    there = Evaluation.read_csv(stem_of(run, run.choose("best"), 3, 1, "updated").with_suffix(".csv"))
    np.testing.assert_allclose(after.returns["sparc"][0], there.returns, rtol=1e-7)
    assert found.manifest["members"][0]["run"] == f"../races/{ENV}/sparc/seed0"
    page = (suites / "out" / "report.html").read_text()
    assert f"What the new physics changes: {ENV}, updated physics" in page and str(suites) not in page
    assert (suites / "out" / "figures" / f"physics-updated-{ENV}.png").exists()


def test_a_member_is_done_when_every_test_is_there_and_whole(suites: Path, tiny: dict[str, Any]) -> None:
    import waters  # noqa: F401 (registers it)

    import sparc
    from sparc.adaptation import adapt_run
    from sparc.suites import find_suite

    suite = find_suite("again.yaml").scaled(methods=["only-obs"])
    (member,) = suite.members()
    folder = suites / "runs" / "again"
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    sparc.train("only-obs", member.config.env, run_dir=folder / member.path, **fields)
    run = Run.open(folder / member.path)
    number = run.choose("best")

    def where() -> Standing:
        return survey(suite, member, folder)

    assert next_test(suite, run) == ["--adaptation"] and where().note == "not evaluated yet"
    evaluate_run(run, 3, 1, "best", None)
    assert next_test(suite, run) == ["--adaptation"]
    adapt_run(run, number, 3)
    assert next_test(suite, run) == ["--physics", "updated"]
    assert (where().state, where().note) == ("waiting", "not evaluated yet in the updated physics")
    entry = gather(suite, folder).manifest["members"][0]
    assert entry["state"] == "partial" and "updated physics" in entry["note"]

    runner = Runner(suite, folder)
    (mine,) = runner.members
    runner.standings[mine], runner.tests[mine] = Standing("evaluating"), ["--adaptation"]
    runner.conclude(mine, 0)
    assert runner.standings[mine].state == "waiting"  # the next test can begin
    runner.standings[mine], runner.tests[mine] = Standing("evaluating"), ["--physics", "updated"]
    runner.conclude(mine, 0)
    assert runner.standings[mine].state == "failed"  # nothing came of it

    evaluate_run(run, 3, 1, "best", None, "updated")
    assert next_test(suite, run) == [] and where().state == "done"
    assert set(finished(suite, run).elsewhere) == {"updated"}
    rows = stem_of(run, number, 3, 1, "updated").with_suffix(".csv")
    rows.write_text(rows.read_text()[:-40])
    assert next_test(suite, run) == ["--physics", "updated"] and "damaged" in where().note


def test_what_a_run_comes_to_is_told_by_its_laps() -> None:
    assert outcome({"mean": 1234.56}) == "1,234.6"
    assert outcome({"mean": 1.0, "clean": 0.934, "ratio": 1.0414}) == "93% clean laps, ratio 1.041"
