"""Results that stand in a folder of tables: they are not trained again, and reports take their rows over."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from synthetic import CARS, make_races

import sparc
from sparc import machine
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.machine import code_commit
from sparc.runs.adaptations import adapt_run
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run, stem_of
from sparc.suites.gather import gather
from sparc.suites.published import Published
from sparc.suites.results import Results
from sparc.suites.runner import Runner
from sparc.suites.suite import Suite, find_suite, read_suite
from sparc.suites.tables import read, write

RESULTS = Path(__file__).parents[2] / "results"
BOAT = "DriftingBoat-v0"
RUN = Path(BOAT) / "only-obs"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Suite:
    """A suite of two tiny runs."""
    path = tmp_path_factory.mktemp("suite") / "own.yaml"
    path.write_text(yaml.safe_dump({"methods": ["only-obs"], "envs": [BOAT], "seeds": [0, 1], "updates": 50, "grid": 3,
                                    "config": {**tiny_fields, "evaluate_every": 50}}))  # fmt: skip
    return read_suite(path)


@pytest.fixture(scope="module")
def folder(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, with both runs done."""
    folder = tmp_path_factory.mktemp("runs") / "own"
    for member in suite.members():
        fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
        run = Run.open(sparc.train("only-obs", BOAT, run_dir=folder / member.path, **fields))
        evaluate_run(run, suite.grid, suite.episodes, "best", None)
        adapt_run(run, run.choose("best"), suite.grid)
    return folder


@pytest.fixture
def first(suite: Suite, folder: Path, tmp_path: Path) -> Path:
    """The results of the machine that ran seed 0."""
    write(gather(suite.scaled(seeds=[0]), folder), tmp_path / "published")
    return tmp_path / "published"


@pytest.fixture
def second(folder: Path, tmp_path: Path) -> Path:
    """The folder of the machine that ran seed 1."""
    shutil.copytree(folder / RUN / "seed1", tmp_path / "second" / RUN / "seed1")
    return tmp_path / "second"


def rewrite(folder: Path, change: Callable[[Results], object]) -> None:
    """Write results again with something changed, as another suite would have written them."""
    results = read(folder)
    change(results)
    write(results, folder)


# Together


def test_a_report_of_two_machines_is_that_of_one(
    suite: Suite, folder: Path, first: Path, second: Path, tmp_path: Path
) -> None:
    together = gather(suite.scaled(seeds=[1]), second, published=Published([first]))
    write(together, tmp_path / "together")
    write(gather(suite, folder), tmp_path / "one")
    tables = sorted((tmp_path / "one").glob("*.csv"))
    assert len(tables) == 5  # with what doing nothing gets, which the second machine has from the first
    assert not (second / f"idle-{BOAT}.csv").exists()
    for table in tables:
        rows = [path.read_text().splitlines() for path in (table, tmp_path / "together" / table.name)]
        assert sorted(rows[0]) == sorted(rows[1]), table.name
    (mine, theirs), whole = read(tmp_path / "together").manifest["members"], read(tmp_path / "one").manifest
    assert sorted([mine["seed"], theirs["seed"]]) == [0, 1]
    for entry in (mine, theirs):  # whatever the source: checkpoint, versions, machine, commit and time
        assert entry == next(member for member in whole["members"] if member["seed"] == entry["seed"])
        assert entry["versions"]["jax"] and entry["machine"]["processor"] and entry["train_seconds"] is not None
        assert entry["commit"] == code_commit()
    # and on: what was published by both is the whole, without any run
    write(gather(suite, tmp_path / "empty", published=Published([tmp_path / "together"])), tmp_path / "again")
    for table in tables:
        assert (tmp_path / "again" / table.name).read_text().splitlines()[1:] == table.read_text().splitlines()[1:]


def test_a_member_that_nobody_has_is_a_gap(suite: Suite, first: Path, tmp_path: Path) -> None:
    found = gather(suite, tmp_path / "empty", published=Published([first]))
    assert [m["state"] for m in found.manifest["members"]] == ["done", "missing"]
    assert list(found.envs[BOAT].returns["only-obs"]) == [0]


def test_a_run_goes_before_what_is_published_of_it(suite: Suite, folder: Path, first: Path, tmp_path: Path) -> None:
    rewrite(first, lambda found: found.envs[BOAT].returns["only-obs"][0].__iadd__(1000.0))
    alone, both = gather(suite, folder), gather(suite, folder, published=Published([first]))
    for seed in (0, 1):
        np.testing.assert_array_equal(
            both.envs[BOAT].returns["only-obs"][seed], alone.envs[BOAT].returns["only-obs"][seed]
        )
    elsewhere = gather(suite, tmp_path / "empty", published=Published([first]))
    assert elsewhere.envs[BOAT].returns["only-obs"][0].min() > 500
    broken = tmp_path / "broken"
    shutil.copytree(folder / RUN / "seed0", broken / RUN / "seed0")
    run = Run.open(broken / RUN / "seed0")
    stem_of(run, run.choose("best"), suite.grid, suite.episodes).with_suffix(".csv").write_text("damaged")
    found = gather(suite, broken, published=Published([first]))
    assert found.manifest["members"][0]["state"] == "done"  # a run that cannot be read does not hide what was published
    assert found.envs[BOAT].returns["only-obs"][0].min() > 500


# What is left to run


def test_what_is_published_is_not_run_again(suite: Suite, first: Path, second: Path) -> None:
    runner = Runner(suite, second, published=Published([first]))
    assert [status.state for status in runner.statuses.values()] == ["published", "done"]
    assert runner.conclusion() == "1 done · 1 published"
    published, ran = runner.statuses.values()
    assert published.updates == 50 and published.score.startswith("OOD ") and ran.score.startswith("OOD ")
    assert runner.run() and not (second / RUN / "seed0").exists()


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("smoke", {}),
        ("continual-boat", {}),
        ("continual-cheetah", {}),
        ("mujoco", {}),
        ("motor", {}),
        ("mujoco-paper", {"updates": 300_000}),
    ],
)
def test_the_results_in_the_repository_stand(name: str, scale: dict[str, Any], tmp_path: Path) -> None:
    published, suite = Published([RESULTS / name]), find_suite(name).scaled(**scale)
    published.check(suite)
    members = published.joined(suite).members()
    found = [member for member in members if published.source(member)]
    assert len(found) == len(published.sources[0].entries) > 0
    # without their run directories, parents are trained again for children that are missing
    parents = {member.parent for member in members if member not in found}
    assert set(published.standing(members, tmp_path)) == set(found) - parents


def test_a_stage_that_an_earlier_version_wrote_has_new_fields_at_their_defaults() -> None:
    suite, published = find_suite("continual-boat"), Published([RESULTS / "continual-boat"])
    stages = published.sources[0].results.manifest["stages"]
    stage = {key: value for key, value in stages["shifted"].items() if key not in ("no_context", "variant")}
    assert len(stage) == len(stages["shifted"]) - 2
    stages["shifted"] = stage
    published.check(suite)
    for change in ({"no_context": True}, {"keep": 0.25}, {"of_a_later_version": 1}):
        stages["shifted"] = stage | change
        with pytest.raises(UserError, match="stage 'shifted' is another one"):
            published.check(suite)


def test_a_parent_is_trained_again_as_long_as_a_child_needs_it(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corner = {"train_region": {"x": [0.5, 1.0]}, "updates": 50}
    stages = {"inner": {}, "corner": {**corner, "after": "inner"}, "farther": {**corner, "after": "corner"}}
    members = suite.scaled(seeds=[0], stages={**stages, "anew": corner}).members()

    def standing(*names: str) -> list[str]:
        monkeypatch.setattr(Published, "source", lambda _, member: member.variation in names)
        return [member.variation for member in Published().standing(members, tmp_path)]

    assert standing("inner", "anew") == ["anew"]
    assert standing("inner", "farther") == ["farther"]  # corner lacks, and inner is its parent
    assert standing("inner", "corner", "farther") == ["inner", "corner", "farther"]
    (begun := tmp_path / members[1].path).mkdir(parents=True)
    (begun / "config.yaml").touch()  # a child that has begun has all that it takes from its parent
    assert standing("inner", "farther") == ["inner", "farther"]


def test_runs_of_the_suite_that_they_are_shared_with_count_as_well(
    suite: Suite, first: Path, tmp_path: Path, tiny_fields: dict[str, Any]
) -> None:
    path = tmp_path / "widths.yaml"
    widths = {"W=16": {"width": tiny_fields["width"]}, "W=8": {"width": 8}}
    values = {"methods": ["only-obs"], "envs": [BOAT], "seeds": [0], "updates": 50, "grid": 3, "config": suite.config}
    path.write_text(yaml.safe_dump(values | {"runs": "own", "variations": widths}))
    (tmp_path / "own").mkdir()
    suite.write(tmp_path / "own")
    found = gather(read_suite(path), tmp_path / "widths", published=Published([first]))
    plain, narrow = found.manifest["members"]
    assert (plain["variation"], plain["state"], plain["run"]) == ("W=16", "done", f"../own/{BOAT}/only-obs/seed0")
    assert narrow["state"] == "missing" and list(found.envs[BOAT].returns) == ["only-obs W=16"]
    write(found, tmp_path / "out")
    assert read(tmp_path / "out").labels == ["only-obs W=16", "only-obs W=8"]


# What is refused


def refused(suite: Suite, published: Path, tmp_path: Path) -> str:
    with pytest.raises(UserError) as error:
        gather(suite, tmp_path / "none", published=Published([published]))
    assert "\n" not in str(error.value) and str(published) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    {
        "suite": ({"suite": "another"}, "holds results of the suite 'another', not of 'own'"),
        "episodes": ({"episodes": 2}, "episodes is 2, not 1; make the suite's settings those of the results, or leave"),
        "variants": ({"variants": ["windy"]}, "variants is ['windy'], not []"),
        "primary": ({"primary": [["sparc", "rma"]]}, "primary is [['sparc', 'rma']], not []"),
        "stages": ({"stages": {"inner": {"after": ""}}}, "stage 'inner' is another one"),
    }.values(),
)
def test_results_of_another_experiment_are_refused(
    suite: Suite, first: Path, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    results = read(first)
    for variant in change.get("variants", ()):
        results.envs[BOAT].variants[variant] = results.envs[BOAT]
    write(Results({**results.manifest, **change}, results.envs), first)
    assert complaint in refused(suite, first, tmp_path)


def test_members_of_another_config_grid_or_contexts_are_refused(suite: Suite, first: Path, tmp_path: Path) -> None:
    wide = suite.scaled(config={**suite.config, "width": 32})
    assert f"{BOAT}, only-obs, seed 0 was run with width 16, not 32" in refused(wide, first, tmp_path)
    assert "updates 50, not 100" in refused(suite.scaled(updates=100), first, tmp_path)
    assert "grid is 3, not 5" in refused(suite.scaled(grid=5), first, tmp_path)
    varied = suite.scaled(variations={"W=8": {"width": 8}})
    assert f"{BOAT}, only-obs, seed 0 is no member of the suite" in refused(varied, first, tmp_path)
    manifest = json.loads((first / "manifest.json").read_text())
    for seal in ("sha256", "seals"):
        del manifest[seal]  # as if another version had written it
    settings = manifest["contexts"][BOAT]["settings"]
    manifest["contexts"][BOAT]["settings"] = [[0.1, 0.1]]
    (first / "manifest.json").write_text(json.dumps(manifest))
    assert f"{BOAT} had other contexts" in refused(suite, first, tmp_path)
    manifest["contexts"][BOAT]["settings"] = settings
    manifest["criteria"][BOAT]["measures"]["depth"] = {"title": "depth"}
    (first / "manifest.json").write_text(json.dumps(manifest))
    assert f"{BOAT} was judged by other measures" in refused(suite, first, tmp_path)
    del manifest["criteria"]
    manifest["members"][0]["config"]["wheels"] = 4
    (first / "manifest.json").write_text(json.dumps(manifest))
    assert "the config of DriftingBoat-v0, only-obs, seed 0 is none of today's" in refused(suite, first, tmp_path)


def test_another_revision_of_the_environment_is_refused(
    suite: Suite, first: Path, second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = read(first).manifest["members"]
    assert entry["revision"] == 1
    rewrite(first, lambda found: found.manifest["members"][0].pop("revision"))
    published = Published([first])
    published.check(suite)  # results of earlier versions do not say, and count as 1
    assert published.idle(suite.members()[0]) is not None
    changed = replace(get_env(BOAT), revision=2)
    monkeypatch.setattr("sparc.suites.published.get_env", lambda _: changed)
    complaint = f"{BOAT}, only-obs, seed 0 was run in revision 1 of {BOAT}, which is at 2"
    assert complaint in refused(suite, first, tmp_path)
    assert published.idle(suite.members()[0]) is None
    rewrite(first, lambda found: found.manifest["members"][0].update(revision=2))
    Published([first]).check(suite)
    mine = gather(suite.scaled(seeds=[1]), second).manifest["members"][0]
    assert mine["revision"] == 1  # that of the run's checkpoints, whatever is installed


def test_damaged_and_changed_tables_are_refused(suite: Suite, first: Path, tmp_path: Path) -> None:
    table = first / f"cells-{BOAT}.csv"
    text = table.read_text()
    table.write_text(text.replace(",ood,", ",ood,1", 1))
    assert "Changed in" in refused(suite, first, tmp_path) and table.name in refused(suite, first, tmp_path)
    table.write_text(text[: len(text) // 2])
    assert "damaged" in refused(suite, first, tmp_path)
    table.unlink()
    assert f"{table.name} is missing" in refused(suite, first, tmp_path)
    assert "holds no results" in refused(suite, tmp_path / "nowhere", tmp_path)


def test_tests_with_other_reference_values_are_not_mixed() -> None:
    part = make_races((CARS,), seeds=(0, 1), cars=10).envs[CARS]
    measures = dict(part.measures["sparc"][1])
    assert part.other_given(measures) == ""
    measures["reference"] = measures["reference"] + 1.0
    assert part.other_given(measures).endswith(" than sparc, seed 0")


# The command line


def test_the_command_line_goes_on_from_published_results(
    suite: Suite, first: Path, second: Path, tmp_path: Path, sparc_cli: Callable[..., Any]
) -> None:
    suite.write(tmp_path / "plan")
    file, options = shutil.copy(tmp_path / "plan" / "suite.yaml", tmp_path / "own.yaml"), ("--published", first)
    wrong = sparc_cli("suite", "run", file, "--updates", 100, *options)
    assert wrong.returncode == 2 and "seed 0 was run with updates 50, not 100" in wrong.stderr, wrong
    assert not (tmp_path / "runs").exists()  # no plan that could not be kept
    shutil.copytree(second, tmp_path / "runs" / "own")
    done = sparc_cli("suite", "run", file, *options)
    assert done.returncode == 0, done.stderr
    assert (
        "1 done · 1 published" in done.stdout and f"next: sparc suite report {file} --published {first}" in done.stdout
    )
    status = sparc_cli("suite", "status", file, *options)
    assert status.returncode == 0 and "published" in status.stdout and "1 done · 1 published" in status.stdout
    report = sparc_cli("suite", "report", file, *options, "--out", first)  # into the same folder: it has grown
    assert report.returncode == 0 and "no results" not in report.stdout, report
    assert [entry["state"] for entry in read(first).manifest["members"]] == ["done", "done"]
    assert "1 waiting" in sparc_cli("suite", "status", file).stdout


# The commit of the code


def test_the_commit_is_that_of_the_clone_the_package_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        return subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True).stdout

    file = tmp_path / "machine.py"
    file.write_text("1\n")
    monkeypatch.setattr(machine, "__file__", str(file))
    assert code_commit() is None
    git("init", "-q")
    assert code_commit() is None  # a clone, but not of the package
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    commit = git("rev-parse", "HEAD").strip()
    assert code_commit() == commit and len(commit) == 40
    file.write_text("2\n")
    assert code_commit() == f"{commit}+changes"
