"""Racing as an environment: what is seen, what it is worth, how a lap is judged, and that crashes leave no trace."""

import dataclasses
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Pilot

import sparc
from sparc.acting import evaluate as evaluation
from sparc.acting.evaluate import Evaluation, evaluate
from sparc.cli import main
from sparc.envs.racing import RACES, car_models, context_of, reference, register_track
from sparc.envs.racing.course import FAILURE_PENALTY, FELT, OBSERVATION_SIZE, REWARD_SCALE, Course, reward_of
from sparc.envs.racing.env import OFF_STEPS, RUN_UP_SLOWEST, RUN_UP_SPEED, STUCK_STEPS, RaceVectorEnv, commands
from sparc.envs.racing.reference import Reference, find_references, store_path
from sparc.envs.racing.tasks import NOT_COMPLETED, SCALE_TESTED
from sparc.envs.racing.torcs.columns import COLUMN, STATE, TRACK_COLUMNS
from sparc.envs.racing.torcs.installation import Installation
from sparc.envs.racing.torcs.simulator import CONTROL_STEP, WorkerLost
from sparc.envs.racing.tracks import TRACKS, Track
from sparc.envs.registry import get_env
from sparc.errors import RunFailure, UserError
from sparc.runs import checkpoint
from sparc.watch.play import steps_of

POWER_MASS, CARS = "RacePowerMass-g-track-1-v0", "RaceCars-g-track-1-v0"

Make = Callable[..., RaceVectorEnv]


@pytest.fixture
def make(torcs: Installation) -> Iterator[Make]:
    made: list[RaceVectorEnv] = []

    def build(id: str = POWER_MASS, cars: int = 2, **options: Any) -> RaceVectorEnv:
        venv = sparc.make_vector_env(id, cars, **options)
        assert isinstance(venv, RaceVectorEnv)
        made.append(venv)
        return venv

    yield build
    for venv in made:
        venv.close()


def place(monkeypatch: pytest.MonkeyPatch, *places: list[float]) -> None:
    """Let the next races begin at these places, in turn."""
    queue = iter(places)
    monkeypatch.setattr("sparc.envs.racing.env.draw_place", lambda rng, course: next(queue))


def pilot(states: np.ndarray, top_speed: float = 18.0, aim: np.ndarray | float = 0.0) -> np.ndarray:
    """Follow the centre line, or a line so far left of it, at a walking driver's pace."""
    error = states[:, COLUMN["track_heading"]] - states[:, COLUMN["yaw"]]
    error = (error + np.pi) % (2 * np.pi) - np.pi
    steer = 2.0 * error - np.clip(0.1 * (states[:, COLUMN["offset"]] - aim), -0.25, 0.25)
    pedal = 0.3 * (top_speed - states[:, COLUMN["vx"]])
    return np.clip(np.stack([steer, pedal], axis=1), -1, 1).astype(np.float32)


# Seen and worth


def circle(radius: float = 100.0, points: int = 400) -> Course:
    angle = np.linspace(0, 2 * np.pi, points, endpoint=False)
    columns = {"x": radius * np.cos(angle), "y": radius * np.sin(angle), "heading": angle + np.pi / 2}
    columns |= {"half_width": np.full(points, 6.0), "curvature": np.full(points, 1 / radius)}
    return Course(2 * np.pi * radius, np.stack([columns.get(name, np.zeros(points)) for name in TRACK_COLUMNS], axis=1))


def test_the_course_is_read_at_any_distance() -> None:
    course = circle()
    x, y, half_width, curvature = course.at(
        np.array([0.25 * course.length, 1.25 * course.length, -0.75 * course.length])
    ).T
    np.testing.assert_allclose(x, 0.0, atol=1e-9)
    np.testing.assert_allclose(y, 100.0)
    np.testing.assert_allclose(half_width, 6.0)
    np.testing.assert_allclose(curvature, 0.01)
    assert course.track_heading(0.0) == pytest.approx(np.pi / 2, abs=0.01)
    # From 5 m outside (to the right), 30 m ahead lies to the left.
    assert course.heading_to(0.0, -5.0, np.pi / 2, 30.0) == pytest.approx(0.15 + np.arctan2(5, 30), abs=0.03)


def rows(**values: float) -> np.ndarray:
    states = np.zeros((1, len(STATE)))
    for name, value in values.items():
        states[0, COLUMN[name]] = value
    return states


def test_reward_is_what_the_docs_say() -> None:
    no, one = np.array([False]), np.array([True])
    calm, ten = np.zeros(1), np.array([5.0])
    assert reward_of(rows(vx=50.0), ten, calm, no) == pytest.approx(REWARD_SCALE * 5.0)
    assert reward_of(rows(vx=50.0), ten, calm, one) == pytest.approx(REWARD_SCALE * 5.0 - FAILURE_PENALTY)
    off = reward_of(rows(vx=50.0, wheels_out=3, off_time=0.1), ten, calm, no)
    assert off == pytest.approx(-REWARD_SCALE * 2.5 * 0.1 * 180)
    assert reward_of(rows(vx=50.0, wheels_out=2), ten, calm, no) == pytest.approx(REWARD_SCALE * 5.0 / 3)
    backwards = reward_of(rows(vx=50.0, wheels_out=2), -ten, calm, no)
    assert backwards == pytest.approx(-REWARD_SCALE * 5.0)  # all of it counts
    wall = reward_of(rows(vx=10.0, wall_time=0.1), np.array([1.0]), calm, no)
    assert wall == pytest.approx(REWARD_SCALE * (1.0 - 2.5 * 0.1 * 36))
    sliding = reward_of(rows(slip_ratio_rear_left=-3.0, slip_angle_rear_left=0.2), np.zeros(1), calm, no)
    assert sliding == pytest.approx(-REWARD_SCALE * 0.25 * 1.0 * 0.2)
    swung = reward_of(rows(vx=50.0), ten, np.array([-2.0]), no)
    assert swung == pytest.approx(REWARD_SCALE * (5.0 - 0.4 * 4.0))


def test_commands_reach_full_pedal_before_the_end_and_steer_less_at_speed() -> None:
    states = np.concatenate([rows(vx=20.0), rows(vx=100 / 3), rows(vx=80.0, vy=60.0)])
    actions = np.array([[1.0, 0.5], [-1.0, 0.9], [0.5, -0.85]])
    assert commands(actions, states) == pytest.approx(np.array([[1.0, 0.6], [-1.0, 1.0], [1 / 6, -1.0]]))


LOADS = range(len(FELT) + 5 + 3 + 8, len(FELT) + 5 + 3 + 12)  # columns of the observation


@pytest.mark.parametrize("speed", [0.0, 20.0])
def test_cars_of_other_power_and_mass_look_the_same_before_they_have_moved(
    make: Make, monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    venv = make()
    place(monkeypatch, *[[1500.0, 0.0, 0.0, speed]] * 2)
    observations, _ = venv.reset(seed=0, options={"context": np.array([[0.5, 1.5], [1.5, 0.5]])})
    assert observations.shape == (2, OBSERVATION_SIZE)
    np.testing.assert_allclose(observations[0], observations[1], atol=1e-6)
    for _ in range(20):
        observations, *_ = venv.step(np.tile(np.float32([0.0, 1.0]), (2, 1)))
    assert not np.isclose(observations[0], observations[1], atol=1e-3).all()


@pytest.mark.parametrize("speed", [0.0, 20.0])
def test_cars_differ_at_first_only_in_what_is_felt_at_rest(
    make: Make, monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    contexts = get_env(CARS).context_space.grid(21)[::11]
    venv = make(CARS, cars=len(contexts))
    place(monkeypatch, *[[1500.0, 0.0, 0.0, speed]] * len(contexts))
    observations, _ = venv.reset(seed=0, options={"context": contexts})
    felt = [name for name, _, _ in FELT]
    may_differ = {*(felt.index(name) for name in ("vz", "roll", "pitch", "gear", "revs")), *LOADS}
    differ = set(np.flatnonzero(np.ptp(observations, axis=0) > 1e-4).tolist())
    assert set(LOADS) <= differ <= may_differ


# Episodes


def test_an_episode_is_given_up_when_it_leads_nowhere(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = make(cars=4)
    # facing backwards; beside the road, along it; standing; and one that is all right
    place(
        monkeypatch, [100.0, 0.0, 2.0, 5.0], [100.0, 10.0, 0.0, 10.0], [100.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 10.0]
    )
    venv.reset(seed=0, options={"context": np.ones((4, 2))})
    ends, last = np.zeros(4, int), np.zeros(4)
    for step in range(1, max(OFF_STEPS, STUCK_STEPS) + 10):
        actions = pilot(venv.states, 10.0, aim=np.array([0.0, 10.0, 0.0, 0.0]))
        actions[2] = 0.0, -1.0
        _, reward, terminated, _, _ = venv.step(actions)
        ends[terminated], last[terminated] = step, reward[terminated]
    assert ends.tolist() == [1, OFF_STEPS, STUCK_STEPS, 0]
    assert (last[:3] < -FAILURE_PENALTY + 5).all()


def test_rows_that_ended_stay_as_they_are(make: Make) -> None:
    venv = make()
    venv.reset(seed=0)
    terminated = np.zeros(2, bool)
    while not terminated.any():
        observations, _, terminated, *_ = venv.step(np.float32([[0.0, -1.0], [0.0, 0.2]]))
    over = int(np.argmax(terminated))
    again, reward, terminated, *_ = venv.step(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(again[over], observations[over])
    assert reward[over] == 0 and not terminated[over]


# Laps


def test_a_lap_is_timed_like_the_ais_own(make: Make) -> None:
    """The clock runs from the line to the line, whatever came before it."""
    venv = make(setting="lap")
    venv.reset(seed=0, options={"context": np.array([[0.5, 1.5], [0.5, 1.0]])})
    assert venv.states[0, COLUMN["vx"]] == RUN_UP_SPEED
    steps, crossed, alive = 0, np.zeros(2), np.ones(2, bool)
    while alive.any():
        before = venv.states[:, COLUMN["laps"]].copy()
        _, _, terminated, truncated, _ = venv.step(pilot(venv.states, 26.0))
        steps += 1
        crossed = np.where((before == 0) & (venv.states[:, COLUMN["laps"]] == 1), steps, crossed)
        ended = alive & (terminated | truncated)
        for row in np.flatnonzero(ended):
            lap = venv.measures()["lap_time"][row]
            assert lap == pytest.approx(0.1 * (steps - crossed[row]), abs=0.11)
        alive &= ~ended
    measures = venv.measures()
    assert measures["completed"].all() and measures["clean"].all()
    np.testing.assert_allclose(measures["ratio"], measures["lap_time"] / measures["reference"])
    np.testing.assert_allclose(measures["lap_time"], venv.course.length / 26.0, rtol=0.15)


def test_a_clean_lap_is_one_without_off_course_or_wall_between_the_lines(make: Make) -> None:
    venv = make(setting="lap", cars=3)
    venv.reset(seed=0, options={"context": np.array([[0.5, 1.5]] * 3)})
    alive, off, wall = np.ones(3, bool), np.zeros(3), np.zeros(3)
    # Two leave the road on the same straight, before the line and in the lap; the third goes as far as to the wall.
    lap, begin, end, aim = np.array([[0, 1450, 1535, -12], [1, 1450, 1535, -12], [1, 100, 205, -20]]).T
    while alive.any():
        at = venv.states[:, COLUMN["distance"]]
        there = (venv.states[:, COLUMN["laps"]] == lap) & (at > begin) & (at < end)
        _, _, terminated, truncated, _ = venv.step(pilot(venv.states, 26.0, np.where(there, aim, 0.0)))
        off += alive * venv.states[:, COLUMN["off_time"]]
        wall += alive * venv.states[:, COLUMN["wall_time"]]
        alive &= ~(terminated | truncated)
    assert (off > 1.0).all() and (wall > 0).tolist() == [False, False, True]
    measures = venv.measures()
    assert measures["completed"].tolist() == [1, 1, 1] and measures["clean"].tolist() == [1, 0, 0]
    venv.states[2, COLUMN["lap_off"]] = 0.0  # as if it had not been off course as well
    assert venv.measures()["clean"].tolist() == [1, 0, 0]


def test_a_lap_that_is_too_slow_is_not_completed(make: Make) -> None:
    venv = make(setting="lap", cars=1)
    venv.reset(seed=0, options={"context": np.array([[1.5, 0.5]])})
    for _ in range(3000):
        _, _, terminated, truncated, _ = venv.step(pilot(venv.states, 12.0))
        if (terminated | truncated).any():
            break
    assert truncated.all() and not terminated.any()
    measures = {name: values[0] for name, values in venv.measures().items()}
    assert (measures["completed"], measures["clean"], measures["ratio"]) == (0.0, 0.0, NOT_COMPLETED)
    assert np.isnan(measures["lap_time"]) and np.isnan(measures["completed_ratio"])


def test_measures_and_names_go_through_an_evaluation_and_its_files(torcs: Installation, tmp_path: Path) -> None:
    space = get_env(CARS).context_space
    contexts = space.grid(21)[[0, -1]]
    laps = evaluate(Pilot(), CARS, contexts)  # type: ignore[arg-type]
    assert set(laps.measures) >= {"completed", "clean", "lap_time", "reference", "ratio"}
    assert len(set(laps.labels)) == 2
    laps.write_csv(tmp_path / "rows.csv")
    again = Evaluation.read_csv(tmp_path / "rows.csv")
    assert again.labels == laps.labels and again.summary() == laps.summary()
    for name, values in laps.measures.items():
        np.testing.assert_array_equal(again.measures[name], values)


def test_an_evaluation_tells_of_a_lost_simulator_and_when_it_is_over(
    torcs: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Any] = []
    real = evaluation.make_vector_env
    monkeypatch.setattr(evaluation, "make_vector_env", lambda *args, **how: made.append(real(*args, **how)) or made[0])

    class Killer:
        reads = "obs"

        def reset(self) -> None: ...

        def act(self, obs: np.ndarray, context: Any = None) -> np.ndarray:
            if made[0]._elapsed[0] == 2:
                os.kill(made[0]._field.pids[0], signal.SIGKILL)
            return np.zeros((len(obs), 2), np.float32)

    steps: list[tuple[int, int]] = []
    with pytest.warns(UserWarning, match="The simulator of g-track-1 was lost"):
        found = evaluate(
            Killer(),  # type: ignore[arg-type]
            POWER_MASS,
            np.ones((1, 2)),
            progress=lambda *now: steps.append(now),
            setting="race",
            max_episode_steps=5,
        )
    assert steps[0] == (0, 1) and steps[-1] == (1, 1)
    assert found.counters == {"simulator_restarts": 1}  # as in the metrics of training
    found.write_json(tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["simulator_restarts"] == 1


# Cars


@pytest.mark.usefixtures("torcs")
def test_a_track_is_not_replaced_and_cars_are_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is a track 'forza' already"):
        register_track("forza", "road", dirt=False, summary="mine")
    for name, category, remark in (
        ("alborg", "road", "unknown track 'alborg' of TORCS's category 'road': did you mean 'aalborg'?"),
        ("dirt-1", "road", "'dirt-1' is of another category: it is in 'dirt', not in 'road'."),
        ("aalborg", "raod", "'aalborg' is of another category: it is in 'road', not in 'raod'."),
    ):
        with pytest.raises(UserError, match=re.escape(remark)):
            register_track(name, category, dirt=False, summary="mine")
        assert name not in TRACKS and f"RaceCars-{name}-v0" not in RACES
    assert car_models(CARS) and not car_models(POWER_MASS) and not car_models("DriftingBoat-v0")
    for option in ("track", "speed"):
        with pytest.raises(UserError, match=f"unknown option '{option}' of {CARS}"):
            sparc.make_env(CARS, **{option: "x"})
    with pytest.raises(UserError, match=r"unknown option 'options' of WindHopper-v5(?!: did you mean 'options')"):
        sparc.make_env("WindHopper-v5", options={})


def test_checkpoints_are_chosen_by_the_ratio_with_an_unclean_lap_as_1_5() -> None:
    entry = get_env(CARS)
    measures = {"clean": np.array([1.0, 0.0, 1.0, 0.0]), "ratio": np.array([0.9, 1.0, 1.6, 2.0])}
    assert entry.choice(np.zeros(4), measures) == pytest.approx(-(0.9 + 1.5 + 1.6 + 1.5) / 4)
    assert entry.scores(np.zeros(4), measures) == [0.5, -1.375]
    ranked = dataclasses.replace(entry, choose_by=None)
    assert ranked.choice(np.zeros(4), measures) == 0.5  # the first that it is judged by
    assert ranked.choice(np.array([1.0, 2.0]), {}) == 1.5  # in a setting without laps
    assert ranked.scores(np.array([1.0, 2.0]), {}) == [1.0, 2.0]


def test_the_physics_are_test_variants_and_the_standard_one_has_no_name() -> None:
    entry = get_env(CARS)
    assert entry.variant_options("updated") == {"physics": "updated"}
    assert entry.variant_of({"physics": "updated", "setting": "lap"}) == "updated"
    assert entry.variant_of({}) == entry.variant_of({"physics": "standard"}) == ""
    with pytest.raises(UserError, match=f"^unknown test variant 'updatd' of {CARS}: did you mean 'updated'"):
        entry.variant_options("updatd")
    with pytest.raises(UserError, match=f"^unknown test variant 'draw-9' of {CARS}: did you mean 'draw-"):
        entry.variant_options("draw-9")


def test_every_physics_reaches_the_cars_of_a_race(make: Make) -> None:
    """The same car, driven by the same actions from the same place, ends up elsewhere in each physics."""
    context = context_of(CARS, "gt-01", "racing-soft")[None]
    seen = {}
    for physics in ("standard", "stiffer", "softer", "draw-1", "draw-8"):
        venv = make(CARS, 1, physics=physics)
        observations, _ = venv.reset(seed=3, options={"context": context})
        for _ in range(40):
            observations = venv.step(np.array([[0.4, 0.6]], np.float32))[0]
        seen[physics] = observations[0]
        for other, before in seen.items():
            assert other == physics or np.abs(before - seen[physics]).max() > 1e-3, (other, physics)


def test_the_probe_of_cars_is_what_grip_and_compound_make() -> None:
    friction = get_env(CARS).probes["friction"]
    contexts = np.stack([context_of(CARS, "kei-07", tyre) for tyre in ("comfort-hard", "racing-soft")])
    grip = contexts[0, get_env(CARS).context_space.names.index("grip")]
    np.testing.assert_allclose(friction(contexts), [0.7 * grip, 1.4 * grip])
    assert not get_env(POWER_MASS).probes


def test_every_car_is_tested_once_and_the_split_holds() -> None:
    space = get_env("RaceCars-forza-v0").context_space
    grid = space.grid(21)
    assert len(grid) == 515 and space.is_train(grid).sum() == 412
    assert space.is_train(space.settings).all()
    tyres = np.unique(space.settings[:, space.names.index("tyre")], return_counts=True)[1]
    assert tyres.tolist() == [5] * 9 and len(np.unique(space.settings[:, :-1], axis=0)) == 45  # no car twice
    choice = space.choice_settings
    tyres = np.unique(choice[:, space.names.index("tyre")], return_counts=True)[1]
    assert tyres.tolist() == [10] * 9 and len(np.unique(choice[:, :-1], axis=0)) == 90
    np.testing.assert_array_equal(choice[:45], space.settings)
    np.testing.assert_array_equal(space.evaluated, choice)  # no lap twice
    chosen_on, tested_on = ({row.tobytes() for row in rows} for rows in (choice, grid))
    assert not chosen_on & tested_on  # checkpoints are not chosen by laps that results show
    scales = get_env(POWER_MASS).context_space
    assert len(scales.settings) == 16 and len(scales.evaluated) == len(scales.choice_settings) == 100
    assert not (np.abs(scales.evaluated[:, None] - scales.grid(21)) < 0.01).all(axis=2).any()
    dirt = get_env("RaceCars-mixed-2-v0").context_space.choice_settings
    assert len(np.unique(dirt[:, :-1], axis=0)) == 90
    track, task = RACES["RaceCars-mixed-2-v0"]
    assert track.dirt and 180 <= len(task.space.grid(21)) <= 260


@pytest.mark.usefixtures("torcs")
def test_a_lap_on_the_long_track_is_not_cut_short() -> None:
    id = "RaceCars-spring-v0"
    env = sparc.make_env(id, **get_env(id).test_options)
    assert env.spec is not None and env.spec.max_episode_steps is not None
    assert env.spec.max_episode_steps * CONTROL_STEP > 1000  # the AI takes up to ten minutes
    env.close()


@pytest.mark.usefixtures("torcs")
def test_a_reset_refuses_what_it_does_not_know_and_takes_a_car_by_name() -> None:
    env = sparc.make_env("RaceCars-g-track-1-v0")
    env.reset(options={"context": context_of("RaceCars-g-track-1-v0", "kart-01")})
    with pytest.raises(UserError, match=r"no option but 'context', got 'car'; .*context_of"):
        env.reset(options={"car": "kart-01"})
    env.close()


def test_a_lap_tells_how_long_it_can_be(make: Make) -> None:
    env = sparc.make_env(POWER_MASS, **get_env(POWER_MASS).test_options)
    assert env.get_wrapper_attr("most_steps") is None  # nobody knows before it begins
    env.reset(seed=0)
    reference = env.get_wrapper_attr("measures")()["reference"]
    assert 20 * reference < steps_of(env, 1, None) < 20 * reference + 2_500 and steps_of(env, 1, 7) == 7
    env.close()
    venv = make(cars=1)
    venv.reset(seed=0)
    assert venv.most_steps(0) is None


def test_no_lap_is_longer_than_it_tells(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = make(cars=1, setting="lap")
    venv.reset(seed=0, options={"context": np.ones((1, 2))})
    most, states = venv.most_steps(0), venv.states[0]
    assert most is not None
    # A car that crosses the line at the end of the step in which it would have been given up, and never comes round.
    steps, line = 0, venv._run_up / RUN_UP_SLOWEST + 0.99 * CONTROL_STEP  # s

    def step(actions: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        now = steps * CONTROL_STEP
        states[COLUMN["progress"]] += 1.0
        states[COLUMN["laps"]], states[COLUMN["lap_now"]] = (0, now) if now < line else (1, now - line)
        return np.zeros(1, bool)

    monkeypatch.setattr(venv._field, "step", step)
    over = False
    while not over:
        steps += 1
        _, _, terminated, truncated, _ = venv.step(np.zeros((1, 2), np.float32))
        assert not terminated[0]
        over = bool(truncated[0])
    assert most - 2 <= steps <= most


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'RaceCars-fozra-v0': did you mean 'RaceCars-forza-v0'"):
        get_env("RaceCars-fozra-v0")
    for option, value, hint in (("physics", "update", "updated"), ("setting", "laps", "lap")):
        with pytest.raises(UserError, match=f"unknown {option} '.*': did you mean '{hint}'"):
            sparc.make_vector_env(POWER_MASS, 1, **{option: value})
    for make_one in (sparc.make_env, partial(sparc.make_vector_env, num_envs=1)):
        with pytest.raises(UserError, match=r"unknown option 'phyiscs' of .*: did you mean 'physics'"):
            make_one(POWER_MASS, phyiscs="updated")


def test_a_state_of_another_physics_or_setting_is_refused(make: Make) -> None:
    context = {"context": np.ones((1, 2))}
    venv = make(cars=1)
    venv.reset(seed=0, options=context)
    state = venv.get_state()
    for options in ({"physics": "updated"}, {"setting": "lap"}):
        other = make(cars=1, **options)
        other.reset(seed=0, options=context)
        before = other.states.copy()
        with pytest.raises(UserError, match=r"state is not of physics='\w+', setting='\w+'; make the environment with"):
            other.set_state(state)
        np.testing.assert_array_equal(other.states, before)
    make(cars=1).set_state(state)


def test_the_updated_physics_drives_otherwise(make: Make) -> None:
    ends = []
    for physics in ("standard", "updated"):
        venv = make(cars=1, setting="lap", physics=physics)
        venv.reset(seed=0, options={"context": np.array([[1.0, 1.0]])})
        for _ in range(60):
            venv.step(pilot(venv.states, 30.0))
        ends.append(venv.states.copy())
    assert not np.allclose(*ends)


# Crashes


def test_killing_the_simulator_changes_nothing_but_the_count(make: Make) -> None:
    def race(kill: bool) -> tuple[list[np.ndarray], RaceVectorEnv]:
        venv = make(CARS, cars=4, threads=2)
        out = [venv.reset(seed=3)[0]]
        for step in range(40):
            if kill and step in (5, 25):
                os.kill(venv._field.pids[step % 2], signal.SIGKILL)
            observations, reward, terminated, truncated, _ = venv.step(pilot(venv.states))
            out += [observations, reward, terminated]
            if (ended := terminated | truncated).any():
                out.append(venv.reset(options={"reset_mask": ended})[0])
        return out, venv

    (expected, _), (survived, venv) = race(False), race(True)
    for left, right in zip(expected, survived, strict=True):
        np.testing.assert_array_equal(left, right)
    notes = venv.take_notes()
    assert len(notes) == 2 and "g-track-1" in notes[0] and "SIGKILL" in notes[0]
    assert venv.counters() == {"simulator_restarts": 2}
    assert not venv.take_notes()
    resumed = make(CARS, cars=4)
    resumed.set_state(venv.get_state())
    assert resumed.counters() == {"simulator_restarts": 2}


def test_a_note_names_the_car_of_its_time_and_says_whether_it_is_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = make(cars=2)
    venv.reset(seed=0, options={"context": np.array([[1.0, 1.0], [1.5, 0.5]])})
    real, broken = venv._field.step, np.array([False, True])

    def step(actions: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        real(actions, chosen)
        venv._field._parts[0][1].crashes += [(0, "first"), (1, "second"), (-1, "third")]
        return broken.copy()

    monkeypatch.setattr(venv._field, "step", step)
    venv.step(np.zeros((2, 2), np.float32))
    venv.reset(seed=1, options={"context": np.full((2, 2), 0.8)})
    first, second, third = venv.take_notes()
    assert "first; it was the turn of power ×1.00 mass ×1.00" in first and "nothing was missed" in first
    assert "second; it was the turn of power ×1.50 mass ×0.50" in second and "this car is out of its race" in second
    assert "(third)" in third and "nothing was missed" in third
    venv._field._parts[0][1].crashes.append((1, "fourth"))
    venv.reset(seed=2, options={"context": np.full((2, 2), 0.9)})
    assert "the turn of power ×0.90 mass ×0.90" in venv.take_notes()[0]


def test_a_car_that_breaks_the_simulator_is_out_and_the_others_race_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = make(cars=3)
    venv.reset(seed=0)
    real = venv._field.step

    def step(actions: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        real(actions, chosen)
        venv._field.states[1] = np.nan  # as after a simulation that blew up
        return np.array([False, False, False])

    monkeypatch.setattr(venv._field, "step", step)
    observations, reward, terminated, *_ = venv.step(np.zeros((3, 2), np.float32))
    assert terminated.tolist() == [False, True, False]
    assert np.isfinite(observations).all() and np.isfinite(reward).all() and reward[1] <= -FAILURE_PENALTY


# Reference laps


def test_reference_laps_are_kept_and_belong_to_car_and_physics(
    torcs: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparc.envs.racing.reference.cache_folder", lambda: tmp_path)
    track, task = RACES[POWER_MASS]
    cars = [task.describe(np.array(factors), "standard") for factors in ([1.0, 1.0], [1.4, 1.0], [1.0, 1.4])]
    raced: list[tuple[int, int]] = []
    base, strong, heavy = find_references(track, cars, lambda done, total: raced.append((done, total)))
    assert raced[-1] == (3, 3)
    assert strong.time < base.time < heavy.time  # power helps, mass does not
    raced.clear()
    assert find_references(track, cars, lambda *now: raced.append(now)) == [base, strong, heavy]
    assert not raced  # all known
    updated = [task.describe(np.array([1.0, 1.0]), "updated")]
    assert find_references(track, updated, lambda *now: raced.append(now))[0].time != base.time
    assert raced  # another physics is another lap
    first_page = store_path().read_bytes()[:4096]
    for damaged in (first_page + b"?" * 8192, b"no database" * 100):  # found when rows are read; when it is opened
        store_path().write_bytes(damaged)
        with pytest.raises(sparc.RunFailure, match="store of reference laps is damaged"):
            find_references(track, cars)
    store_path().unlink()
    store_path().mkdir()
    with pytest.raises(sparc.RunFailure, match=r"cannot use the store of reference laps .*: unable to open"):
        find_references(track, cars)


def test_a_reference_lap_belongs_to_all_it_depends_on(
    torcs: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in TRACKS["g-track-1"].files():
        copy = tmp_path / file.resolve().relative_to(torcs.data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    driver = tmp_path / "drivers/inferno/inferno.so"
    driver.parent.mkdir(parents=True)
    driver.write_bytes(b"a driver")
    monkeypatch.setattr("sparc.envs.racing.tracks.DATA", tmp_path)
    track, here = TRACKS["g-track-1"], dataclasses.replace(torcs, libraries=tmp_path)
    keys = [reference._road(here, track)]
    for file in (*track.files(), driver):
        file.write_bytes(file.read_bytes() + b" ")
        keys.append(reference._road(here, track))
    keys.append(reference._road(dataclasses.replace(here, version="another"), track))
    for name, value in (("NUMBER", 4), ("LAPS", 3)):
        monkeypatch.setattr(reference, name, value)
        keys.append(reference._road(here, track))
    assert len(set(keys)) == len(keys) == 8


def test_no_reference_lap_is_begun_after_an_interrupt(
    torcs: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "cache_folder", lambda: tmp_path)
    begun: list[str] = []
    interrupted = threading.Event()

    def lap(torcs: Installation, track: Track, xml: str) -> Reference:
        begun.append(xml)
        if len(begun) > 1:
            interrupted.wait(60)
            time.sleep(0.05)
        return Reference(1.0, 0.0, 0.0, 0.0)

    def interrupt(done: int, total: int) -> None:
        if done:
            interrupted.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(reference, "_flying_lap", lap)
    track, cars = TRACKS["g-track-1"], [str(number) for number in range(50)]
    assert reference.count_kept(track, cars) == 0
    with pytest.raises(KeyboardInterrupt):
        find_references(track, cars, interrupt, processes=1)
    assert len(begun) < 25
    assert reference.count_kept(track, cars) == 1  # what was driven is kept


def test_laps_to_drive_are_counted_before_and_an_interrupt_says_that_they_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> list[Reference]:
        raise KeyboardInterrupt

    monkeypatch.setattr(reference, "count_kept", lambda track, cars: 515)
    monkeypatch.setattr(reference, "find_references", interrupted)
    assert main(["references", "RaceCars-forza-v0"]) == 130
    assert capsys.readouterr().out.splitlines() == [
        "4,635 laps, 515 of them kept from before",
        "stopped; the laps so far are kept: run the same command again to continue",
    ]


def test_a_driver_that_crashes_races_again(monkeypatch: pytest.MonkeyPatch) -> None:
    crashes, laps = [2], object()

    def race(*_: Any) -> Any:
        crashes[0] -= 1
        if crashes[0] >= 0:
            raise WorkerLost("killed by SIGSEGV", 0)
        return laps

    monkeypatch.setattr(reference, "race_reference", race)
    track: Any = TRACKS["g-track-1"]
    torcs: Any = None
    car, where = '<params name="kei-07 racing-soft">', "in kei-07 racing-soft on g-track-1"
    with pytest.warns(UserWarning) as told:
        assert reference.race_safely(torcs, track, car) is laps
    first, second = (str(warning.message) for warning in told)
    assert first.startswith(f"TORCS's driver inferno crashed {where} (killed by SIGSEGV); it races again (crash ")
    number = int(first.split("(crash ")[1].split()[0])
    assert f"(crash {number + 1} of this process)" in second
    crashes[0] = 3
    with (
        pytest.warns(UserWarning, match="it races again"),
        pytest.raises(RunFailure, match=f"inferno crashes {where}, 3 times of 3: killed by SIGSEGV"),
    ):
        reference.race_safely(torcs, track, car)


def test_weak_laps_of_the_ai_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def laps(track: Any, cars: list[str], progress: Any) -> list[Reference]:
        assert len(cars) == 4 * 4 + 100  # what is tested, and what is evaluated in training
        weak = [Reference(90.0, 0.5, 0.0, 0.0), Reference(91.0, 0.0, 0.25, 12.0), Reference(*[np.nan] * 4)]
        return weak + [Reference(80.0, 0.0, 0.0, 3.0)] * 12 + [Reference(80.0, 0.0, 0.0, 0.0)] * (len(cars) - 15)

    monkeypatch.setattr(reference, "count_kept", lambda track, cars: 0)  # does without TORCS
    monkeypatch.setattr(reference, "find_references", laps)
    assert main(["references", POWER_MASS, "--grid", "4"]) == 0
    out = capsys.readouterr().out
    assert out.count("no lap: ") == 1 and out.count("weak lap: ") == 10 and "14 weak laps" in out
    assert "90.0 s, off course 0.5 s\n" in out and "91.0 s, at a wall 0.25 s, damage 12 points\n" in out


@pytest.mark.parametrize("track_name", ["forza", "mixed-2"])
def test_the_ai_drives_the_outermost_cars_soundly(torcs: Installation, track_name: str) -> None:
    """All around the tested range of power and mass; a poor lap there would flatter a policy."""
    track, task = RACES[f"RacePowerMass-{track_name}-v0"]
    grid = task.space.grid(5)
    edge = grid[np.isin(grid, SCALE_TESTED).any(axis=1)]
    laps = find_references(track, [task.describe(context, "standard") for context in edge])
    assert len(laps) == 16
    for context, lap in zip(edge, laps, strict=True):
        assert (lap.off, lap.wall, lap.damage) == (0, 0, 0), task.label(context)
    times = np.array([lap.time for lap in laps])
    assert times.max() < 1.5 * times.min()


def test_an_ai_that_does_not_come_round_is_said_before_training(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    from sparc.envs.racing import env
    from sparc.envs.racing.reference import Reference

    monkeypatch.setattr(
        env, "find_references", lambda track, cars, progress: [Reference(np.nan, np.nan, np.nan, np.nan)] * len(cars)
    )
    with pytest.raises(UserError, match=r"AI does not come round g-track-1 in power ×1\.00"):
        make(setting="lap", cars=1).reset(options={"context": np.ones((1, 2))})
    run = tmp_path / "run"
    with pytest.raises(UserError, match="AI does not come round g-track-1"):  # and not after thousands of updates
        sparc.train("only-obs", POWER_MASS, run_dir=run, **tiny)
    assert not checkpoint.numbers(run / "checkpoints")
