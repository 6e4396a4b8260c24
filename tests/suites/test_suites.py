"""What a suite is: its file, its members, its plan; and what a wrong file gets."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparc.errors import UserError
from sparc.suites import plan
from sparc.suites.plan import add_to_plan, cost, planned, seed_by_seed
from sparc.suites.results import label
from sparc.suites.suite import Suite, find_suite, provided, read_suite

OWN: dict[str, Any] = {
    "methods": ["sparc", "rma"],
    "envs": ["DriftingBoat-v0"],
    "seeds": [0, 1],
    "updates": 300,
    "preset": "light",
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**OWN, **changes}.items() if value is not None}))
    return path


def test_the_provided_suites_are_the_papers() -> None:
    ours = provided()
    assert {name: len(suite.members()) for name, suite in ours.items()} == {
        "continual-boat": 93, "continual-cheetah": 63, "continual-cars": 66,
        "mujoco": 150, "motor": 50, "mujoco-paper": 75, "history-length": 50, "rollout-policy": 20, "smoke": 5,
        "race-cars": 80, "race-power-mass": 40, "race-physics-update": 40, "race-rollout-policy": 20, "race-long": 9,
        "race-stiffness": 40,
    }  # fmt: skip
    lengths = {member.config.history_length for member in ours["history-length"].members()}
    assert lengths == {5, 10, 25, 50, 100}
    assert {member.config.options["rollout_policy"] for member in ours["rollout-policy"].members()} == {
        "adapter",
        "expert",
    }
    reference = ours["mujoco"].reference
    assert reference is not None
    assert {env: set(values) for env, values in reference["ood"].items()} == {
        env: set(ours["mujoco"].methods) for env in ours["mujoco"].envs
    }


def test_race_suites_have_the_papers_laps_of_every_method_and_region() -> None:
    for name, suite in provided().items():
        if not name.startswith("race-") or name == "race-stiffness":  # which the paper has nothing like
            continue
        assert suite.reference is not None
        assert "Gran Turismo 7" in suite.reference["title"] and "not comparable" in suite.reference["note"]
        once = [name for name in suite.variants if not name.startswith("draw-")]  # the paper has one update
        tests = {*suite.envs, *(f"{env}, {name}" for env in suite.envs for name in once)}
        labels = {label(member.config.method, member.variation) for member in suite.members()}
        assert set(suite.reference["measures"]) == tests
        for regions in suite.reference["measures"].values():
            assert set(regions) == {"ood", "ind"}
            for methods in regions.values():
                assert set(methods) == labels
                for measures in methods.values():
                    assert 0.9 < measures["ratio"][0] < 1.4 and 70 < measures["completed"][0] <= 100
    ours = find_suite("race-cars").reference
    assert ours is not None
    sparc = ours["measures"]["RaceCars-forza-v0"]["ood"]["sparc"]
    assert sparc == {"ratio": [1.0491, 0.0055], "completed": [98.06, 0.56]}  # the paper's Table 1, Grand Valley


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("race-physics-update", ["updated", *(f"draw-{number}" for number in range(1, 9))]),
        ("race-stiffness", ["stiffer", "softer", "updated"]),
    ],
)
def test_other_physics_test_the_runs_of_race_cars_and_train_none_of_their_own(name: str, variants: list[str]) -> None:
    shared = {member.path: member.config for member in find_suite("race-cars").members()}
    suite = find_suite(name)
    assert (suite.runs, suite.variants) == ("race-cars", variants)
    for member in suite.members():
        up, home, *rest = member.path.parts
        assert (up, home) == ("..", "race-cars") and shared[Path(*rest)] == member.config


def test_a_variation_that_differs_in_nothing_is_the_shared_suites_run(tmp_path: Path) -> None:
    plain = {member.path: member.config for member in find_suite("race-cars").members()}
    for member in find_suite("race-rollout-policy").members():
        up, home, *rest = member.path.parts
        assert (up, home) == ("..", "race-cars") and (Path(*rest) in plain) == (member.variation == "adapter")
        assert plain.get(Path(*rest), member.config) == member.config
        assert rest[1] == ("sparc" if member.variation == "adapter" else "sparc-expert")
    same = {"variations": {"a": {}, "b": {"rollout_policy": "adapter"}}, "methods": ["sparc"]}
    assert len(read_suite(write(tmp_path, **same)).members()) == 4  # without shared runs, each has its own
    with pytest.raises(UserError, match=r"the same run, \.\./mujoco/DriftingBoat-v0/sparc/seed0: leave one out"):
        read_suite(write(tmp_path, **same, runs="mujoco"))


def test_a_suite_that_shares_runs_takes_their_updates_and_never_trains_them_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "try_environments", lambda suite: None)  # does without TORCS
    add_to_plan("race-cars", tmp_path / "race-cars", updates=20_000, seeds=[0])
    suite = add_to_plan("race-physics-update", tmp_path / "race-physics-update")
    assert suite.updates == 20_000 == planned("race-physics-update", tmp_path / "race-physics-update").updates
    with pytest.raises(UserError, match=r"race-cars have 20000 updates, not 50000: leave --updates out"):
        add_to_plan("race-physics-update", tmp_path / "race-physics-update", updates=50_000)
    alone = add_to_plan("race-physics-update", tmp_path / "elsewhere" / "race-physics-update", updates=10_000)
    assert alone.updates == 10_000  # nothing was trained yet
    with pytest.raises(UserError, match=r"unknown suite 'race-carz': did you mean 'race-cars'"):
        add_to_plan(str(write(tmp_path, runs="race-carz")), tmp_path / "own")


def test_every_method_gets_the_same_reinforcement_learning_and_rma_its_second_phase_on_top() -> None:
    members = find_suite("mujoco").scaled(updates=300_000).members()
    configs = {member.config.method: member.config for member in members}
    assert {name: config.updates for name, config in configs.items()} == {
        "sparc": 300_000, "rma": 400_000, "only-obs": 300_000, "history-input": 300_000, "oracle": 300_000,
    }  # fmt: skip
    assert configs["rma"].options["expert_updates"] == 300_000


def test_members_have_distinct_folders_by_environment_method_variation_and_seed(tmp_path: Path) -> None:
    suite = read_suite(write(tmp_path, methods=["sparc"], variations={"H=5": {"history_length": 5}, "H=7": {}}))
    paths = [member.path.as_posix() for member in suite.members()]
    assert paths == [
        "DriftingBoat-v0/sparc-H=5/seed0", "DriftingBoat-v0/sparc-H=5/seed1",
        "DriftingBoat-v0/sparc-H=7/seed0", "DriftingBoat-v0/sparc-H=7/seed1",
    ]  # fmt: skip
    assert [member.config.history_length for member in suite.members()] == [5, 5, 10, 10]


def test_scaling_replaces_what_is_given() -> None:
    suite = find_suite("mujoco").scaled(updates=1000, seeds=[7], envs=["WindAnt-v5"], methods=None)
    assert (suite.updates, suite.seeds, suite.envs, len(suite.methods)) == (1000, [7], ["WindAnt-v5"], 5)


def test_members_run_seed_by_seed_and_of_a_seed_the_longest_first() -> None:
    members = seed_by_seed(find_suite("mujoco").scaled(seeds=[3, 1]).members())
    assert [member.config.seed for member in members] == [3] * 15 + [1] * 15
    costs = [cost(member.config) for member in members[:15]]
    assert costs == sorted(costs, reverse=True)
    assert members[0].config.method == "history-input" and members[14].config.method == "only-obs"
    lengths = [member.config.history_length for member in seed_by_seed(find_suite("history-length").members())][:10]
    assert lengths[0] == 100 and lengths[-1] == 5


def test_a_plan_remembers_what_was_asked_for_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    first = add_to_plan("mujoco-paper", folder, updates=1000, seeds=[0], envs=["WindHopper-v5"], methods=["sparc"])
    assert planned("mujoco-paper", folder) == first
    later = add_to_plan(
        "mujoco-paper", folder, seeds=[1], methods=["sparc", "oracle"]
    )  # a forgotten --updates is the folder's
    assert (later.updates, later.seeds, later.methods, len(later.envs)) == (1000, [1], ["sparc", "oracle"], 3)
    plan = planned("mujoco-paper", folder)
    assert (plan.updates, plan.seeds, plan.methods) == (1000, [0, 1], ["sparc", "oracle"])
    assert plan.envs == find_suite("mujoco-paper").envs  # in the suite's order, whatever was asked for first
    assert add_to_plan("mujoco-paper", folder) == plan  # the name alone goes on with all of it
    assert add_to_plan("mujoco-paper", folder, updates=2000).updates == planned("mujoco-paper", folder).updates == 2000


def test_what_a_user_adds_to_the_own_file_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "own"
    stays = {"final_lr_fraction": 1.0}  # or the runs could not be made longer
    add_to_plan(str(write(tmp_path, config=stays, methods=["sparc"])), folder)
    edited = add_to_plan(
        str(write(tmp_path, config=stays, methods=["sparc", "oracle"], seeds=[0, 1, 2], title="New")), folder
    )
    assert (edited.methods, edited.seeds) == (["sparc", "oracle"], [0, 1, 2])
    assert planned("own", folder) == edited
    assert add_to_plan(str(write(tmp_path, config=stays, methods=["sparc"], updates=400)), folder).updates == 400
    with pytest.raises(UserError, match="run with --updates 400, not 300"):
        add_to_plan(str(write(tmp_path, config=stays, methods=["sparc"])), folder)
    assert add_to_plan("own", folder) == planned("own", folder)  # by the name of its folder, as status and report
    with pytest.raises(UserError, match="unknown suite 'nowhere'"):
        planned("nowhere", tmp_path)


def test_a_plan_is_not_changed_to_another_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "try_environments", lambda suite: None)  # does without TORCS
    folder = tmp_path / "runs"
    add_to_plan("mujoco-paper", folder, updates=1000, seeds=[0])
    before = (folder / "suite.yaml").read_text()
    with pytest.raises(UserError, match=r"run with --updates 1000, not 500.*--run-dir"):
        add_to_plan("mujoco-paper", folder, updates=500)
    with pytest.raises(UserError, match=r"RMA's second phase cannot be undone.*--run-dir"):
        add_to_plan("mujoco-paper", folder, updates=2000)
    races = tmp_path / "races"
    add_to_plan("race-cars", races, methods=["oracle"])
    with pytest.raises(UserError, match=r"learning rates that fall to the end of a run cannot rise.*--run-dir"):
        add_to_plan("race-cars", races, updates=80_000)
    assert planned("race-cars", races).updates == 50_000
    with pytest.raises(UserError, match=r"another preset and variations and runs.*--run-dir"):
        add_to_plan("history-length", folder)
    with pytest.raises(UserError, match="another preset and config"):
        add_to_plan(str(write(tmp_path, config={"width": 8})), folder)
    assert (folder / "suite.yaml").read_text() == before


def test_runners_that_begin_at_once_all_get_into_the_plan(tmp_path: Path) -> None:
    path = write(tmp_path)
    code = "import sys; from pathlib import Path; from sparc.suites.plan import add_to_plan; sys.stdin.readline()\n"
    code += f"add_to_plan({str(path)!r}, Path({str(tmp_path / 'runs')!r}), seeds=[int(sys.argv[1])])"
    words = [sys.executable, "-c", code]
    started = [subprocess.Popen([*words, str(seed)], stdin=subprocess.PIPE, text=True) for seed in range(4)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0, 0]
    assert sorted(planned("own", tmp_path / "runs").seeds) == [0, 1, 2, 3]


def test_a_suite_knows_the_commands_that_give_its_results(tmp_path: Path) -> None:
    scaled = find_suite("mujoco").scaled(updates=300_000, seeds=[0, 1])
    assert scaled.commands() == [
        "sparc suite run mujoco --updates 300000 --seeds 0 1", "sparc suite report mujoco",
    ]  # fmt: skip
    assert find_suite("smoke").commands()[0] == "sparc suite run smoke"
    own = read_suite(write(tmp_path)).commands()
    assert own[0].startswith("sparc suite run own.yaml --updates 300 --methods sparc rma") and "--seeds 0 1" in own[0]


def test_a_user_may_write_numbers_as_text_and_leave_out_what_has_a_default(tmp_path: Path) -> None:
    suite = read_suite(write(tmp_path, updates="1e4"))
    assert (suite.name, suite.updates, suite.grid, suite.variations) == ("own", 10_000, 21, {})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"seed": [0]}, "unknown suite field 'seed': did you mean 'seeds'"),
    "unknown method": ({"methods": ["spark"]}, "unknown method 'spark'.*sparc"),
    "unknown environment": ({"envs": ["DriftingBoat-v1"]}, "DriftingBoat-v0"),
    "unknown config field": ({"config": {"batchsize": 3}}, "batch_size"),
    "config of the wrong type": ({"config": 3}, "config must hold"),
    "a variation that is no mapping": ({"variations": {"a": 3}}, "variation 'a'"),
    "a variation that leaves the folder": ({"variations": {"a/../b": {}}}, "a/../b"),
    "a config that sets the seed": ({"config": {"seed": 3}}, "cannot set seed"),
    "a seed that is none": ({"seeds": [-1]}, "seed must be at least 0"),
    "no seeds": ({"seeds": []}, "seeds must be a list"),
    "a seed twice": ({"seeds": [1, 1]}, "twice"),
    "one method instead of a list": ({"methods": "sparc"}, "methods must be a list"),
    "missing updates": ({"updates": None}, "lacks updates"),
    "updates between chunks": ({"updates": 310}, "multiple of chunk"),
    "updates between chunks, for RMA": ({"updates": 310, "methods": ["rma"]}, "310.*multiple of chunk"),
    "a variation that YAML reads as no": ({"variations": {False: {}}}, "False: put it in quotes"),
    "a title that is no text": ({"title": 3}, "title must be text"),
    "a config that sets RMA's phases": ({"config": {"expert_updates": 100}}, "cannot set expert_updates"),
    "a reference to an unknown environment": (
        {"reference": {"title": "x", "updates": 1, "ood": {"Boat-v0": {}}}},
        "Boat-v0",
    ),
    "a reference to an unknown method": (
        {"reference": {"title": "x", "updates": 1, "ood": {"DriftingBoat-v0": {"spark": [1, 2]}}}},
        "spark",
    ),
    "a grid of one": ({"grid": 1}, "grid must be"),
    "no episodes": ({"episodes": 0}, "episodes must be"),
    "an unknown preset": ({"preset": "lite"}, "light"),
    "a reference without updates": ({"reference": {"title": "x", "ood": {}}}, "reference must hold"),
    "a measure of an unknown method": (
        {
            "reference": {
                "title": "x",
                "updates": 1,
                "measures": {"DriftingBoat-v0": {"ood": {"spark": {"ratio": [1]}}}},
            }
        },
        "spark",
    ),
    "a measure that is no number": (
        {"reference": {"title": "x", "updates": 1, "laps": {"DriftingBoat-v0": {"ood": {"sparc": {"ratio": ["a"]}}}}}},
        "reference must hold",
    ),
    "one method as a primary pair": ({"primary": [["sparc"]]}, "primary must be a list of pairs"),
    "a method against itself": ({"primary": [["sparc", "sparc"]]}, "primary must be a list of pairs"),
    "a primary pair without its list": ({"primary": ["sparc", "rma"]}, "primary must be a list of pairs"),
    "an unknown method in a primary pair": ({"primary": [["sparc", "rna"]]}, "did you mean 'rma'"),
    "a variant that it lacks": (
        {"variants": ["updated"]},
        "unknown test variant 'updated' of DriftingBoat-v0.",
    ),
    "an unknown variant": (
        {"variants": ["updatd"], "envs": ["RaceCars-forza-v0"]},
        "'updatd'.*: did you mean 'updated'",
    ),
    "an old name": ({"physics": ["updatd"], "envs": ["RaceCars-forza-v0"]}, "'updatd'.*: did you mean 'updated'"),
    "the variant of training": ({"variants": ["standard"], "envs": ["RaceCars-forza-v0"]}, "is tested in anyway"),
    "one variant instead of a list": ({"variants": "updated"}, "variants must be a list"),
    "an old name beside the new one": ({"variants": ["updated"], "physics": ["updated"]}, "unknown .* 'physics'"),
}


def test_names_of_earlier_suite_files_are_read(tmp_path: Path) -> None:
    env = "RaceCars-forza-v0"
    values = {"ood": {"sparc": {"ratio": [1.1]}}}
    laps = {env: values, f"{env}, updated physics": values}
    path = write(tmp_path, envs=[env], physics=["updated"], reference={"title": "x", "updates": 1, "laps": laps})
    suite = read_suite(path)
    assert suite.variants == ["updated"]
    assert suite.reference == {"title": "x", "updates": 1, "measures": {env: values, f"{env}, updated": values}}
    suite.write(tmp_path)
    assert read_suite(tmp_path / "suite.yaml").reference == suite.reference


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_suite_file_is_refused_in_one_line_that_names_it(tmp_path: Path, case: str) -> None:
    changes, message = WRONG[case]
    path = write(tmp_path, **changes)
    with pytest.raises(UserError, match=message) as error:
        read_suite(path)
    assert "\n" not in str(error.value) and "own.yaml" in str(error.value)


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"suite file .*own\.yaml(: .* line 2, column 1\.| must hold)"):
        read_suite(path)


def test_an_unknown_suite_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown suite .*did you mean 'mujoco'"):
        find_suite("mujocco")
    with pytest.raises(UserError, match="Cannot read"):
        find_suite("nowhere.yaml")


def test_nothing_was_run_yet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sparc suite run mujoco"):
        planned("mujoco", tmp_path)


def test_suites_are_compared_by_value() -> None:
    assert Suite("a", ["sparc"], ["DriftingBoat-v0"], [0], 50) == Suite("a", ["sparc"], ["DriftingBoat-v0"], [0], 50)
