"""The motor family: each leg's motors have the strength that the context says, in every simulation of a batch."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sparc
from sparc.envs.motor.env import LEGS, ROBOTS
from sparc.envs.registry import get_env
from sparc.errors import UserError

every_motor = pytest.mark.parametrize("id", ROBOTS)
GYMNASIUM = np.ones(2)  # the context of Gymnasium's own motors


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log file where it stands


def moved(id: str, context: Any, actions: np.ndarray) -> np.ndarray:
    """Return the observations of one robot, (T, O)."""
    env = sparc.make_env(id)
    env.reset(seed=0, options={"context": context})
    return np.array([env.step(action)[0] for action in actions])


def draw_actions(steps: int, legs: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
    actions = np.random.default_rng(0).uniform(-0.5, 0.5, (steps, len(LEGS)))
    return (actions * np.array(legs)[list(LEGS)]).astype(np.float32)


@every_motor
def test_gymnasiums_motors_are_gymnasium(id: str) -> None:
    ours, theirs = sparc.make_env(id), gym.make(id.removeprefix("Motor"))
    observation, _ = ours.reset(seed=4, options={"context": GYMNASIUM})
    np.testing.assert_array_equal(observation, theirs.reset(seed=4)[0])
    for action in draw_actions(30):
        ours_step, theirs_step = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(ours_step[0], theirs_step[0])
        assert ours_step[1:4] == theirs_step[1:4]


@every_motor
def test_the_robots_legs_are_those_of_the_context(id: str) -> None:
    model = sparc.make_env(id).unwrapped.model  # type: ignore[attr-defined]
    joints = [model.joint(model.actuator_trnid[i, 0]).name for i in range(model.nu)]
    names = get_env(id).context_space.names
    told = {"rear": "b", "front": "f"} if "HalfCheetah" in id else {"right": "_joint", "left": "_left_joint"}
    for joint, leg in zip(joints, LEGS, strict=True):
        mark = told[names[leg]]
        assert joint.startswith(mark) if len(mark) == 1 else joint.endswith(mark) and ("left" in joint) == (leg == 1)


@every_motor
def test_the_torque_is_the_strength_times_gymnasiums_in_every_simulation(id: str) -> None:
    contexts = np.array([[1.0, 1.0], [-0.75, 1.0], [1.0, 1.5], [2.0, -0.25]])
    venv: Any = sparc.make_vector_env(id, len(contexts))
    venv.reset(seed=[0] * len(contexts), options={"context": contexts})
    venv._batch.bind("actuator_force")  # filled from the next step on
    action = draw_actions(1)
    venv.step(action.repeat(len(contexts), axis=0))
    torques = venv._batch.actuator_force
    np.testing.assert_allclose(torques, contexts[:, LEGS] * action.astype(np.float64), rtol=1e-15)


@every_motor
def test_half_the_strength_is_half_the_action_and_a_reversed_motor_its_opposite(id: str) -> None:
    for rear, front in ((0.5, 1.0), (1.0, -0.25), (0.0, 1.0), (-1.0, -2.0)):  # powers of two: bit for bit
        other = moved(id, [rear, front], draw_actions(20))
        np.testing.assert_array_equal(other, moved(id, GYMNASIUM, draw_actions(20, (rear, front))))
        assert (other != moved(id, GYMNASIUM, draw_actions(20))).any()


@every_motor
def test_the_settings_are_no_dead_motors(id: str) -> None:
    space = get_env(id).context_space
    assert space.settings.shape == (3, 2) and (np.abs(space.settings) >= 0.5).all()
    assert space.choice_settings.shape == (16, 2) and (np.abs(space.choice_settings) >= 0.25).all()


@every_motor
def test_the_control_cost_is_of_the_action(id: str) -> None:
    robot, _ = ROBOTS[id]
    env = sparc.make_env(id)
    action = draw_actions(1)[0]
    for context in (GYMNASIUM, np.array([0.5, 2.0])):
        env.reset(seed=0, options={"context": context})
        info = env.step(action)[4]
        assert info["reward_ctrl"] == pytest.approx(-robot.control_cost * float(np.square(action).sum()))


def test_strengths_outlive_an_unstable_simulation() -> None:
    context = np.array([[0.5, 2.0]])
    env, venv = sparc.make_env("MotorHalfCheetah-v5"), sparc.make_vector_env("MotorHalfCheetah-v5", 1)
    env.reset(seed=0, options={"context": context[0]})
    venv.reset(seed=0, options={"context": context})
    env.unwrapped.data.qvel[:] = np.nan  # type: ignore[attr-defined]
    venv._qvel[:] = np.nan  # type: ignore[attr-defined]
    for action in draw_actions(3):  # MuJoCo notices in the first one, and resets
        one, many = env.step(action), venv.step(action[None])
        np.testing.assert_array_equal(one[0], many[0][0])
        np.testing.assert_array_equal(one[1], many[1][0])


def test_a_reset_of_some_rows_leaves_the_motors_of_the_others() -> None:
    contexts = np.array([[0.5, 1.5], [1.5, 0.5], [0.75, 1.25]])
    venv: Any = sparc.make_vector_env("MotorHalfCheetah-v5", 3)
    venv.reset(seed=0, options={"context": contexts})
    other = contexts[::-1].copy()
    venv.reset(options={"reset_mask": np.array([True, False, False]), "context": other})
    np.testing.assert_array_equal(venv._gains, np.stack([other[0], *contexts[1:]])[:, LEGS])


def test_each_environment_has_a_model_of_its_own() -> None:
    weak, strong = (sparc.make_env("MotorHalfCheetah-v5") for _ in range(2))
    weak.reset(seed=0, options={"context": [0.5, 0.5]})
    strong.reset(seed=0, options={"context": [1.5, 1.5]})
    assert weak.unwrapped.model.actuator_gainprm[0, 0] == 0.5  # type: ignore[attr-defined]


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown option 'strength' of MotorHalfCheetah-v5"):
        sparc.make_vector_env("MotorHalfCheetah-v5", 2, strength=2.0)
    with pytest.raises(UserError, match="change_probability must be between 0 and 1, got 2"):
        sparc.make_env("MotorHalfCheetah-v5", change_probability=2)
    with pytest.raises(UserError, match="threads"):
        sparc.make_vector_env("MotorWalker2d-v5", 2, threads=0)


def test_a_robot_without_wind_tells_none() -> None:
    env = sparc.make_env("MotorWalker2d-v5")
    env.reset(seed=0)
    scene = env.get_wrapper_attr("scene")()
    assert np.array(scene["capsules"]).shape == (7, 8) and "wind" not in scene
