"""Racing as an environment: what is seen, what it is worth, how a lap is judged, and that crashes leave no trace."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparc
from sparc.envs import get_env
from sparc.envs.racing import RACES
from sparc.envs.racing.course import FAILURE_PENALTY, OBSERVATION_SIZE, REWARD_SCALE, Course, reward_of
from sparc.envs.racing.env import NOT_COMPLETED, OFF_STEPS, RUN_UP_SPEED, STUCK_STEPS, RaceVectorEnv
from sparc.envs.racing.install import Installation
from sparc.envs.racing.reference import find_references, store_path
from sparc.envs.racing.simulator import COLUMN, CONTROL_STEP, STATE, TRACK_COLUMNS
from sparc.envs.racing.tracks import find_track
from sparc.errors import UserError
from sparc.evaluation import Evaluation, evaluate

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


def pilot(states: np.ndarray, top_speed: float = 18.0) -> np.ndarray:
    """Follow the centre line at a walking driver's pace."""
    error = states[:, COLUMN["track_heading"]] - states[:, COLUMN["yaw"]]
    error = (error + np.pi) % (2 * np.pi) - np.pi
    steer = 2.0 * error - 0.1 * states[:, COLUMN["offset"]]
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
    ten = np.array([5.0])
    assert reward_of(rows(vx=50.0), ten, no) == pytest.approx(REWARD_SCALE * 5.0)
    assert reward_of(rows(vx=50.0), ten, one) == pytest.approx(REWARD_SCALE * 5.0 - FAILURE_PENALTY)
    off = reward_of(rows(vx=50.0, wheels_out=3, off_time=0.1), ten, no)
    assert off == pytest.approx(-REWARD_SCALE * 0.01 * 0.1 * 180**2)
    assert reward_of(rows(vx=50.0, wheels_out=2), ten, no) == pytest.approx(REWARD_SCALE * 5.0)
    wall = reward_of(rows(vx=10.0, wall_time=0.1), np.array([1.0]), no)
    assert wall == pytest.approx(REWARD_SCALE * (1.0 - 0.01 * 0.1 * 36**2))
    sliding = reward_of(rows(slip_ratio_rear_left=-3.0, slip_angle_rear_left=0.2), np.zeros(1), no)
    assert sliding == pytest.approx(-REWARD_SCALE * 0.25 * 1.0 * 0.2)


def test_nothing_that_is_seen_tells_the_context(make: Make) -> None:
    """Two cars at the same place and speed look the same before they have moved."""
    venv = make(setting="lap")
    observations, _ = venv.reset(seed=0, options={"context": np.array([[0.5, 1.5], [1.5, 0.5]])})
    same = np.isclose(observations[0], observations[1], atol=1e-6)
    assert observations.shape == (2, OBSERVATION_SIZE)
    assert same.mean() > 0.97  # the revs and the gear of the first moment may differ
    for _ in range(20):
        observations, *_ = venv.step(np.tile(np.float32([0.0, 1.0]), (2, 1)))
    assert not np.isclose(observations[0], observations[1], atol=1e-3).all()


# Episodes


def test_an_episode_is_given_up_when_it_leads_nowhere(make: Make) -> None:
    venv = make(cars=3)
    venv.reset(seed=1)
    ends, reasons = np.zeros(3, int), np.zeros(3)
    for step in range(1, 200):
        actions = np.float32([[0.0, -1.0], [1.0, 1.0], [-1.0, 0.6]])  # stand still; drive in circles, off or backwards
        _, reward, terminated, _, _ = venv.step(actions)
        reasons[terminated] = reward[terminated]
        ends[terminated & (ends == 0)] = step
        if (ends > 0).all():
            break
    assert (ends > 0).all()
    assert ends[0] >= STUCK_STEPS and ends.max() < 200 and OFF_STEPS > 0
    assert (reasons < -FAILURE_PENALTY + 5).all()


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
    venv.reset(seed=0, options={"context": np.array([[1.0, 1.0], [1.5, 0.5]])})
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
    class Pilot:
        reads = "obs"

        def reset(self) -> None: ...

        def act(self, obs: np.ndarray, contexts: Any) -> np.ndarray:
            # offset and heading error are seen; at little throttle the car stays slow
            steer = np.clip(-2.0 * obs[:, 15] - 0.5 * obs[:, 14], -1, 1)
            return np.stack([steer, np.where(obs[:, 0] * 30 < 26, 0.5, -0.2)], axis=1).astype(np.float32)

    space = get_env(CARS).context_space
    contexts = space.grid(21)[[0, -1]]
    evaluation = evaluate(Pilot(), CARS, contexts)  # type: ignore[arg-type]
    assert set(evaluation.measures) >= {"completed", "clean", "lap_time", "reference", "ratio"}
    assert len(set(evaluation.labels)) == 2
    evaluation.write_csv(tmp_path / "rows.csv")
    again = Evaluation.read_csv(tmp_path / "rows.csv")
    assert again.labels == evaluation.labels and again.summary() == evaluation.summary()
    for name, values in evaluation.measures.items():
        np.testing.assert_array_equal(again.measures[name], values)


# Cars


def test_every_car_is_tested_once_and_the_split_holds() -> None:
    space = get_env("RaceCars-forza-v0").context_space
    grid = space.grid(21)
    assert len(grid) == 515 and space.is_train(grid).sum() == 412
    assert space.is_train(space.settings).all() and len(np.unique(space.settings, axis=0)) >= 20
    chosen_on, tested_on = ({row.tobytes() for row in rows} for rows in (space.settings, grid))
    assert not chosen_on & tested_on  # checkpoints are not chosen by laps that results show
    track, task = RACES["RaceCars-mixed-2-v0"]
    assert track.dirt and 180 <= len(task.space.grid(21)) <= 260


def test_a_lap_on_the_long_track_is_not_cut_short() -> None:
    id = "RaceCars-spring-v0"
    env = sparc.make_env(id, **get_env(id).test_options)
    assert env.spec is not None and env.spec.max_episode_steps is not None
    assert env.spec.max_episode_steps * CONTROL_STEP > 1000  # the AI takes up to ten minutes
    env.close()


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown track 'fozra'.*'forza'"):
        find_track("fozra")
    for option, value, hint in (("physics", "update", "updated"), ("setting", "laps", "lap")):
        with pytest.raises(UserError, match=f"{option} must be .* Did you mean '{hint}'"):
            sparc.make_vector_env(POWER_MASS, 1, **{option: value})


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
    store_path().write_bytes(b"no database" * 100)
    with pytest.raises(sparc.RunFailure, match="store of reference laps is damaged"):
        find_references(track, cars)


def test_an_ai_that_does_not_come_round_is_said(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparc.envs.racing import env
    from sparc.envs.racing.reference import Reference

    monkeypatch.setattr(
        env, "find_references", lambda track, cars: [Reference(np.nan, np.nan, np.nan, np.nan)] * len(cars)
    )
    with pytest.raises(UserError, match=r"AI does not come round g-track-1 in power ×1\.00"):
        make(setting="lap", cars=1).reset(options={"context": np.ones((1, 2))})
