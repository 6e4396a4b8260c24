"""Suites of races, run for real, with boats in two waters in place of cars in two physics: that needs no TORCS."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml

from sparc.acting.adaptation import Trace
from sparc.acting.evaluate import Evaluation
from sparc.envs.declared import check_variants
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.report.continual import chains, measure, region_mask, value_matrix
from sparc.runs.run import Run
from sparc.runs.stages import Lineage, Stage
from sparc.runs.tests import evaluate_run, stem_of
from sparc.suites.gather import add, gather
from sparc.suites.published import Published
from sparc.suites.results import EnvResults
from sparc.suites.runner import Runner
from sparc.suites.status import Finished, Status, finished, next_test, status_of
from sparc.suites.suite import read_suite
from sparc.suites.tables import read

Cli = Callable[..., subprocess.CompletedProcess[str]]
ENV = "TwoWaters-v0"
WATERS = '''
"""Boats that are judged like laps; in the updated physics, they drift twice as far."""
import numpy as np
from sparc.envs.registry import register_env
from sparc.envs.boat.env import CURRENT, BoatVectorEnv, make_boat
from sparc.envs.racing.measures import JUDGED, MEASURES

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

register_env(
    "TwoWaters-v0", context_space=CURRENT, make=make_boat, make_vector=TwoWaters, max_episode_steps=100,
    measures=MEASURES, judged_by=JUDGED, variants={"updated": {"physics": "updated"}},
    probes={"drift": lambda contexts: contexts[:, 0]},
)
'''


@pytest.fixture
def suites(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the environment, a suite of runs, and one that tests these in another physics."""
    (tmp_path / "waters.py").write_text(WATERS)
    both = {"methods": ["sparc", "only-obs"], "envs": [f"waters:{ENV}"], "seeds": [0], "grid": 3, "config": tiny}
    (tmp_path / "races.yaml").write_text(yaml.safe_dump(both | {"updates": 200}))
    (tmp_path / "again.yaml").write_text(
        yaml.safe_dump(both | {"updates": 200, "runs": "races", "variants": ["updated"]})
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_runs_are_tested_in_another_physics_without_being_trained_again(suites: Path, sparc_cli: Cli) -> None:
    first = sparc_cli("suite", "run", "races.yaml", "--methods", "sparc", "--allow-import")
    assert first.returncode == 0, first.stderr
    assert "done: IND" in first.stderr and "OOD clean 0.0 %, ratio 2.0000" in first.stderr
    status = sparc_cli("suite", "status", "races.yaml", "--allow-import").stdout
    assert "score" in status and "OOD clean 0.0 %, ratio 2.0000" in status and "return" not in status
    log = (suites / "runs" / "races" / ENV / "sparc" / "seed0.log").read_text()
    assert len(re.findall(r"updates, .* IND eval clean \d+\.\d %, ratio \d\.\d{4} ·", log)) == 2  # after 100 and 200
    assert re.search(
        r"^done: best checkpoint \d+, clean \d+\.\d %, ratio \d\.\d{4} over the IND settings", log, re.MULTILINE
    )
    again = sparc_cli("suite", "run", "again.yaml", "--allow-import")
    assert again.returncode == 0, again.stderr
    told = [line for line in again.stderr.splitlines() if line.startswith(f"../races/{ENV}/sparc/seed0")]
    assert [line.split(": ", 1)[1].split(":")[0] for line in told] == ["evaluating", "done"]  # one test, no training
    other = [line for line in again.stderr.splitlines() if line.startswith(f"../races/{ENV}/only-obs/seed0")]
    words = [line.split(": ", 1)[1].split(" ")[0].rstrip(":") for line in other]
    assert words == ["training", "evaluating", "evaluating", "done"]  # where it was missing; into the shared folder
    assert not (suites / "runs" / "again" / ENV).exists()

    pictures = suites / "runs" / "races" / ENV / "sparc" / "seed0" / "evaluations"
    (updated,) = pictures.glob("*-grid3-updated.png")
    standard = updated.with_name(updated.name.replace("-updated", "")).read_bytes()
    assert updated.read_bytes() not in (b"", standard)  # each physics has its picture

    report = sparc_cli("suite", "report", "again.yaml", "--allow-import", "--out", suites / "out")
    assert report.returncode == 0, report.stderr
    found = read(suites / "out")
    part = found.envs[ENV]
    after = part.variants["updated"]
    assert (
        part.context_labels == after.context_labels
        and part.context_labels[0] == "boat -1 -1"
        and len(part.context_labels) == 9
    )
    np.testing.assert_allclose(part.measures["sparc"][0]["ratio"], [2, 2, 2, 2, 1, 2, 2, 2, 2])
    assert not np.array_equal(part.returns["sparc"][0], after.returns["sparc"][0])
    run = Run.open(suites / "runs" / "races" / ENV / "sparc" / "seed0")
    there = Evaluation.read_csv(stem_of(run, run.choose("best"), 3, 1, "updated").with_suffix(".csv"))
    np.testing.assert_allclose(after.returns["sparc"][0], there.returns, rtol=1e-7)
    scores = [record for record in run.records() if record["kind"] == "evaluation"]
    for name in ("clean", "ratio"):  # during training
        np.testing.assert_allclose(part.curves["sparc"][0].measures[name], [score[name] for score in scores], rtol=1e-7)
    for test in (part, after):  # what φ(h) says about the current, in both physics; Only Obs has no φ
        read_off = test.measures["sparc"][0]
        np.testing.assert_allclose(read_off["drift_true"], part.contexts[:, 0])
        assert np.isfinite(read_off["drift_phi"]).all() and np.ptp(read_off["drift_psi"]) > 0
        assert np.isnan(test.measures["only-obs"][0]["drift_phi"]).all()
    np.testing.assert_allclose(after.measures["sparc"][0]["drift_psi"], part.measures["sparc"][0]["drift_psi"])
    assert not np.allclose(after.measures["sparc"][0]["drift_phi"], part.measures["sparc"][0]["drift_phi"])
    assert found.manifest["labels"] == {}  # a plane
    assert found.manifest["members"][0]["run"] == f"../races/{ENV}/sparc/seed0"
    page = (suites / "out" / "report.html").read_text()
    assert f"What the new physics changes: {ENV}, updated" in page and str(suites) not in page
    assert f"Drift read from ψ(c) and φ(h): {ENV}, out of distribution" in page
    assert (suites / "out" / "figures" / f"physics-updated-{ENV}.png").exists()


def test_stages_in_another_physics_are_tested_in_that_of_every_stage(
    suites: Path, tiny: dict[str, Any], sparc_cli: Cli
) -> None:
    corner = {"train_region": {"x": [0.5, 1.0], "y": [0.5, 1.0]}, "updates": 50}
    stages = {
        "first": {},
        "corner": {**corner, "after": "first"},
        "updated": {"after": "corner", "variant": "updated", "updates": 50},
        "back": {"after": "updated", "variant": "default", "updates": 50},
        "anew": {**corner, "variant": "updated"},
    }
    both = {"methods": ["only-obs"], "envs": [f"waters:{ENV}"], "seeds": [0], "grid": 5, "config": tiny, "updates": 60}
    (suites / "stages.yaml").write_text(yaml.safe_dump(both | {"stages": stages}, sort_keys=False))
    done = sparc_cli("suite", "run", "stages.yaml", "--allow-import", "--jobs", 2, timeout=560)
    assert done.returncode == 0, done.stderr
    home = suites / "runs" / "stages" / ENV
    runs = {name: Run.open(home / f"only-obs-{name}" / "seed0") for name in stages}
    physics = {name: run.config.env_options.get("physics", "standard") for name, run in runs.items()}
    assert physics == {"first": "standard", "corner": "standard", "updated": "updated", "back": "standard",
                       "anew": "updated"}  # fmt: skip
    assert [stage.env_options.get("physics") for stage in runs["back"].lineage.stages] == [None, None, "updated", None]
    for run in runs.values():  # each has both tests, whichever physics it was trained in
        tests = {path.stem.split("-", 1)[1] for path in run.evaluations.glob("*-grid5*.csv")}
        assert tests == {"grid5", "grid5-updated"}
        for path in run.evaluations.glob("*-grid5*.json"):
            asked = json.loads(path.read_text())["options"].get("physics", "standard")
            assert asked == ("updated" if path.stem.endswith("-updated") else "standard")

    report = sparc_cli("suite", "report", "stages.yaml", "--allow-import", "--out", suites / "out", timeout=560)
    assert report.returncode == 0, report.stderr
    results = read(suites / "out")
    assert results.manifest["variants"] == ["updated"]
    found = {chain.stages[-1]: chain for chain in chains(results, ENV)}
    assert {name: chain.anew for name, chain in found.items()} == {"corner": None, "updated": "anew", "back": None}
    # R[j, i] is of region i in the physics of its stage, whatever the physics that stage j trains in
    part = results.envs[ENV]
    masks = [region_mask(results, ENV, name) for name in ("first", "corner", "updated")]
    _, r = value_matrix(results, ENV, found["updated"])
    for j, name in enumerate(("first", "corner", "updated")):
        standard, updated = (of.returns[f"only-obs {name}"][0] for of in (part, part.variants["updated"]))
        assert not np.array_equal(standard, updated)
        expected = [standard[masks[0]].mean(), standard[masks[1]].mean(), updated[masks[2]].mean()]
        np.testing.assert_allclose(r[0, j], expected)
    # of five currents per feature, −0.5, 0 and 0.5 are in the first region, 0.5 and 1 in the corner
    by_ratio = measure(results, ENV, found["updated"], "ratio")
    first, second = (4 * 2.0 + 4 * 1.5 + 1.0) / 9, 2.0  # what policies do changes nothing
    for values, expected in (
        (by_ratio.zero_shot, 2.0),
        (by_ratio.after, (first + second) / 2),
        (by_ratio.forgetting, 0),
    ):
        np.testing.assert_allclose(values, expected)
    curve = part.curves["only-obs updated"][0].measures
    assert {"stage_3_ratio", "stage_3_clean", "stage_1_ratio"} <= curve.keys()
    assert np.isfinite(curve["stage_3_ratio"]).all() and (curve["stage_3_ratio"] > curve["stage_1_ratio"]).all()
    page = (suites / "out" / "report.html").read_text()
    assert "lost, by clean laps [%]" in page and "lost, by ratio, less is better" in page
    assert (suites / "out" / "figures" / f"stages-{ENV}.svg").is_file()
    again = Published([suites / "out"])
    planned = read_suite(suites / "stages.yaml")
    again.check(planned)
    assert len(again.standing(planned.members(), suites / "none")) == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    {
        "unknown": ({"stages": {"a": {"variant": "updatd"}}}, "stage 'a': unknown test variant 'updatd' of TwoWaters"),
        "no text": ({"stages": {"a": {"variant": 3}}}, "stage 'a': variant must be text, not 3"),
        "config": ({"stages": {"a": {}, "b": {"after": "a", "variant": "updated"}},
                    "config": {"env_options": {"physics": "updated"}}}, "config sets the variant 'updated' of"),
    }.values(),
)  # fmt: skip
def test_variants_of_stages_that_cannot_be(suites: Path, changes: dict[str, Any], says: str) -> None:
    values = {"methods": ["sparc"], "envs": [f"waters:{ENV}"], "seeds": [0], "updates": 200}
    (suites / "wrong.yaml").write_text(yaml.safe_dump(values | changes))
    with pytest.raises(UserError, match=says):
        read_suite(suites / "wrong.yaml")


def test_one_variant_takes_the_place_of_another() -> None:
    entry = replace(
        get_env("RaceCars-forza-v0"), variants={"updated": {"physics": "updated"}, "laps": {"setting": "lap"}}
    )
    options = entry.with_variant({"width": 64}, "updated")
    assert options == {"width": 64, "physics": "updated"}
    assert entry.with_variant(options, "laps") == {"width": 64, "setting": "lap"}
    assert entry.with_variant(options, "default") == {"width": 64} and entry.with_variant(options, "") == options
    assert entry.with_variant({"physics": "another"}, "laps") == {"physics": "another", "setting": "lap"}
    with pytest.raises(UserError, match="'default' is the environment without any variant"):
        check_variants("Own-v0", {"default": {"physics": "updated"}})


def test_a_member_is_done_when_every_test_is_there_and_whole(suites: Path, tiny: dict[str, Any]) -> None:
    import waters  # noqa: F401 (registers it)

    import sparc
    from sparc.runs.adaptations import adapt_run
    from sparc.suites.suite import find_suite

    suite = find_suite("again.yaml").scaled(methods=["only-obs"])
    (member,) = suite.members()
    folder = suites / "runs" / "again"
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    sparc.train("only-obs", member.config.env, run_dir=folder / member.path, **fields)
    run = Run.open(folder / member.path)
    number = run.choose("best")

    def where() -> Status:
        return status_of(suite, member, folder)

    assert next_test(suite, run) == ["--adaptation"] and where().note == "not evaluated yet."
    assert where().score.startswith("IND clean ")  # by the training's last evaluation
    evaluate_run(run, 3, 1, "best", None)
    assert next_test(suite, run) == ["--adaptation"]
    adapt_run(run, number, 3)
    assert next_test(suite, run) == ["--variant", "updated"]
    assert (where().state, where().note) == ("waiting", "not evaluated yet in the variant updated.")
    entry = gather(suite, folder).manifest["members"][0]
    assert entry["state"] == "partial" and "variant updated" in entry["note"]

    runner = Runner(suite, folder)
    (mine,) = runner.members
    runner.statuses[mine], runner.tests[mine] = Status("evaluating"), ["--adaptation"]
    runner.conclude(mine, 0)
    assert runner.statuses[mine].state == "waiting"  # the next test can begin
    runner.statuses[mine], runner.tests[mine] = Status("evaluating"), ["--variant", "updated"]
    runner.conclude(mine, 0)
    assert runner.statuses[mine].state == "failed"  # nothing came of it

    evaluate_run(run, 3, 1, "best", None, "updated")
    assert next_test(suite, run) == [] and where().state == "done"
    assert where().score == "OOD clean 0.0 %, ratio 2.0000"
    assert set(finished(suite, run).elsewhere) == {"updated"}
    rows = stem_of(run, number, 3, 1, "updated").with_suffix(".csv")
    rows.write_text(rows.read_text()[:-40])
    assert next_test(suite, run) == ["--variant", "updated"]
    assert "damaged" in gather(suite, folder).manifest["members"][0]["note"]


@pytest.mark.parametrize("variant", [None, "updated"])
def test_laps_against_another_ai_or_in_other_contexts_are_a_gap(
    suites: Path, monkeypatch: pytest.MonkeyPatch, variant: str | None
) -> None:
    import waters  # noqa: F401 (registers it)

    from sparc.suites.suite import find_suite

    suite = find_suite("again.yaml")
    space = get_env(ENV).context_space
    contexts = space.grid(3)
    zeros, ind = np.zeros(9), space.is_train(contexts)
    found = {(method, name): Evaluation(space.names, contexts.copy(), ind, zeros.astype(int), zeros, zeros, zeros > 0,
                                        {"reference": np.full(9, 90.0)})
             for method in suite.methods for name in (None, "updated")}  # fmt: skip

    def gathered() -> list[str]:
        criteria = get_env(ENV).criteria
        other = EnvResults(space, contexts, ind, criteria=criteria)
        part = EnvResults(space, contexts, ind, variants={"updated": other}, criteria=criteria)
        notes = []
        for member in suite.members():
            mine = {name: found[member.config.method, name] for name in (None, "updated")}
            empty = Trace(np.empty(0, str), *[np.empty(0)] * 4)
            done = Finished(200, mine[None], empty, None, {"updated": mine["updated"]})
            monkeypatch.setattr("sparc.suites.gather.finished", lambda *_, done=done: done)
            try:
                add(part, suite, member, cast("Run", SimpleNamespace(records=list, lineage=Lineage((Stage(),)))))
            except UserError as error:
                notes.append(str(error))
        assert len(part.returns) == len(part.variants["updated"].returns) == 2 - len(notes)  # never half a member
        return notes

    assert gathered() == []
    laps = found["only-obs", variant].measures["reference"]
    laps[4] += 0.0005  # as read from rounded numbers
    assert gathered() == []
    laps[4] += 0.1
    (note,) = gathered()
    assert note.startswith(f"../races/{ENV}/only-obs/seed0 was tested with another built-in AI's lap than sparc")
    assert "delete its evaluations" in note
    laps[4] = 90.0
    found["only-obs", variant].contexts[4] += 0.5
    assert [note.split(":")[0] for note in gathered()] == ["It was tested in other contexts than the suite's"]


def test_the_manifest_holds_the_names_of_cars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparc.suites.suite import find_suite

    env = "RaceCars-forza-v0"
    suite = find_suite("race-cars").scaled(methods=["sparc"], seeds=[0], envs=[env])
    named = [f"car {number}" for number in range(515)]

    def put(part: EnvResults, *_: Any) -> dict[str, Any]:
        part.context_labels[:] = named
        return {"checkpoint": 1}

    monkeypatch.setattr("sparc.suites.gather.add", put)
    monkeypatch.setattr("sparc.suites.gather.status_of", lambda *_: Status("done"))
    monkeypatch.setattr("sparc.suites.gather.about", lambda _: {})
    monkeypatch.setattr(Run, "open", lambda _: None)
    assert gather(suite, tmp_path).manifest["labels"] == {env: named}
