"""Runs of races, from training to a page and a video of cars by name; how they are tested, and in which files."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import AGENT, AI, find_all, on_map, resize, seek, text, until
from conftest import TINY
from synthetic import Pilot
from test_play import read_mp4

import sparc
from sparc.acting.evaluate import Evaluation
from sparc.cli import display, main
from sparc.config import make_config
from sparc.envs.racing import context_of
from sparc.envs.racing.cars.car import find_car
from sparc.envs.racing.reference import Reference
from sparc.envs.racing.torcs.installation import Installation
from sparc.envs.registry import get_env
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run, stem_of, variant_of
from sparc.training.loop import Trainer
from sparc.watch import laps as race_replay
from sparc.watch.laps import replay_run
from sparc.watch.play import play

CARS, POWER_MASS = "RaceCars-g-track-1-v0", "RacePowerMass-g-track-1-v0"
KART, FORMULA = "kart-01", "formula-01"


@pytest.fixture(scope="module")
def begun(torcs: Installation, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of car races that has only begun: an untrained policy."""
    config = make_config({"method": "only-obs", "env": CARS, **TINY})
    run = Run.create(config, tmp_path_factory.mktemp("cars") / "run")
    Trainer(run, lambda record: None).close()
    run.close()
    return run


@pytest.fixture(scope="module")
def raced(torcs: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that was told how to train what it would have done anyway, and for how long."""
    folder = tmp_path_factory.mktemp("raced") / "run"
    told = {"setting": "race", "max_episode_steps": 5}
    return sparc.train("only-obs", POWER_MASS, run_dir=folder, env_options=told, updates=10, **TINY)


# Tests


def test_neither_setting_nor_longest_episode_of_training_reach_a_test(raced: Path) -> None:
    run = Run.open(raced)
    record = run.evaluation(10)
    assert record is not None and {"clean", "ratio"} <= record.keys() and record["simulator_restarts"] == 0
    evaluation, _ = evaluate_run(run, 2, 1, "last", None)
    assert (evaluation.measures["reference"] > 20).all() and evaluation.lengths.max() > 5


def test_what_is_asked_of_a_test_wins_over_what_tests_are_and_that_over_training() -> None:
    entry = get_env(POWER_MASS)
    trained = {"setting": "race", "max_episode_steps": 5, "physics": "updated"}
    assert entry.resolve_test_options(trained) == {**entry.test_options, "physics": "updated"}
    assert entry.resolve_test_options(trained, {"physics": "standard"}) == {**entry.test_options, "physics": "standard"}
    assert entry.resolve_test_options({}, {"setting": "race"})["setting"] == "race"


def test_files_are_named_by_the_physics_of_the_test(tmp_path: Path) -> None:
    for trained, asked, other in (
        ({}, None, ""),
        ({}, "standard", ""),
        ({}, "updated", "-updated"),
        ({"physics": "updated"}, None, "-updated"),
        ({"physics": "updated"}, "updated", "-updated"),
        ({"physics": "updated"}, "standard", ""),
    ):
        run = Run(tmp_path, make_config({"method": "sparc", "env": POWER_MASS, "env_options": trained}))
        assert variant_of(run, asked) == other.removeprefix("-")
        assert stem_of(run, 10, 3, 2, asked).name == f"10-grid3x2{other}"


def test_laps_of_the_ai_that_are_not_clean_are_said_beside_results(
    raced: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean, weak = Reference(80.0, 0.0, 0.0, 0.0), Reference(80.0, 0.02, 0.0, 0.0)
    monkeypatch.setattr("sparc.envs.racing.find_references", lambda track, cars: [clean, weak, clean, clean])
    assert main(["evaluate", str(raced), "--grid", "2", "--physics", "standard"]) == 0
    out = capsys.readouterr().out
    assert "1 of 4 reference laps of the AI left the course" in out and "(power ×0.50 mass ×1.50)" in out
    assert {path.name for path in (raced / "evaluations").iterdir()} == {
        f"10-grid2.{kind}" for kind in ("csv", "json", "png")
    }
    monkeypatch.setattr("sparc.envs.racing.find_references", lambda track, cars: [clean] * 4)
    assert get_env(POWER_MASS).notes(np.ones((4, 2)), {"setting": "lap"}) == []
    assert get_env("DriftingBoat-v0").notes(np.ones((4, 2)), {}) == []


def test_some_cars_are_tested_without_being_taken_for_all(
    begun: Run, torcs: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bars: list[tuple[str, ...]] = []
    monkeypatch.setattr(display, "step_bar", lambda *words: bars.append(words) or nullcontext(lambda done, total: None))
    calls = {"cars": ["--cars", KART, FORMULA], "count": ["--count", "2"]}
    stems = {}
    for name, words in calls.items():
        assert main(["evaluate", str(begun.path), *words]) == 0
        out = capsys.readouterr().out
        assert "a part of the test: 2 of 515 contexts\n" in out
        stems[name] = Path(re.findall(r"^rows: (.*)\.csv$", out, re.MULTILINE)[0])
    assert bars[:2] == [("the built-in AI drives on g-track-1", "reference laps"), (f"only-obs on {CARS}", "episodes")]
    assert stems["count"].name == "0-part2" and re.fullmatch(r"0-part2-[0-9a-f]{8}", stems["cars"].name)
    about = json.loads(stems["cars"].with_suffix(".json").read_text())
    assert [label.split()[0] for label in about["part"]] == [KART, FORMULA] and "grid" not in about
    assert len(Evaluation.read_csv(stems["cars"].with_suffix(".csv")).returns) == 2
    assert stem_of(begun, 0, 21, 1) not in stems.values()  # what suites read
    assert main(["evaluate", str(begun.path), "--count", "2", "--adaptation"]) == 2
    assert "leave out --cars and --count" in capsys.readouterr().err


# Cars by name


def test_cars_by_name_are_raced_onto_a_page_that_shows_both_drivers(
    begun: Run, quiet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(race_replay, "load", lambda path, number: Pilot())
    page = tmp_path / "page.html"
    assert main(["replay", str(begun.path), "--cars", KART, FORMULA, "--out", str(page)]) == 0
    assert f"page: {page}" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "page-lines").iterdir()} == {f"{KART}.png", f"{FORMULA}.png"}
    resize(quiet, (1280, 800))
    media = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    quiet.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for name in (KART, FORMULA):
        car = find_car(name)
        quiet.get("about:blank")
        quiet.get(f"{page.as_uri()}#{name}")
        until(quiet, lambda: not find_all(quiet, "#wait") and text(quiet, "#clock"))
        assert text(quiet, "#car") == name
        assert text(quiet, "#about").split("\n")[-1].endswith(f"{car.class_name} · {car.test_tyre} tyre")
        places = []
        for time in (5, 15):
            seek(quiet, time)
            places.append([on_map(quiet, colour)[:2] for colour in (AGENT, AI)])
            assert all(float(text(quiet, f".driver.{driver} .speed")) > 20 for driver in ("agent", "ai"))
        assert (np.linalg.norm(np.subtract(*places), axis=1) > 20).all(), places


def test_whole_cars_are_asked_for_by_name_not_by_context(begun: Run) -> None:
    with pytest.raises(sparc.UserError, match=r"races whole cars: use --car NAME \[--tyre NAME\] instead of --context"):
        play(begun.path, "mass=1000")


def test_progress_counts_every_lap_once(begun: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_replay, "load", lambda path, number: Pilot())
    entry, calls = get_env(CARS), list[tuple[int, int]]()
    entry.prepare_tests(
        np.array([context_of(CARS, name, None) for name in (KART, FORMULA)]), entry.resolve_test_options({})
    )
    replay_run(begun, "last", 0, [KART, FORMULA], None, tmp_path / "page.html", lambda *call: calls.append(call))
    assert calls[-2:] == [(0, 2), (1, 2)]  # both are drawn
    done = [done for done, _ in calls[:-2]]
    assert {most for _, most in calls[:-2]} == {4} and {*done} == {0, 1, 2, 3, 4} and done == sorted(done)


def test_one_page_at_a_time_is_made_of_a_run(begun: Run, capsys: pytest.CaptureFixture[str]) -> None:
    other = Run.open(begun.path)
    other.lock(other.evaluating)
    try:
        assert main(["replay", str(begun.path), "--count", "1"]) == 2
        assert "is in use by process" in capsys.readouterr().err
    finally:
        other.close()


def test_a_car_by_name_is_played(begun: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = tmp_path / "x.mp4"
    words = ["play", str(begun.path), "--car", KART, "--tyre", "racing-soft", "--video", str(video)]
    assert main([*words, "--steps", "6", "--width", "160"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{CARS}, {KART} racing-soft (") and "in 6 steps" in out
    frames, fps = read_mp4(video)
    assert fps == 10 and len(frames) == 7 + 10  # the start, six steps, and the last picture for a second more
    assert np.abs(frames[0].astype(int) - frames[6]).mean() > 1  # it moves
    assert main([*words[:-2], "--tyre", "racing-sift"]) == 2
    assert "did you mean 'racing-soft'" in capsys.readouterr().err
