"""Names, units and control period: what a registered environment tells whoever deploys its policies."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import ENVIRONMENTS

import sparc
from sparc.contexts import ContextSpace
from sparc.envs.racing import RACES
from sparc.envs.racing.course import FELT, OBSERVATION, OBSERVATION_SIZE
from sparc.envs.racing.env import Spaces
from sparc.envs.registry import get_env
from sparc.envs.robots.robots import ANT, HALF_CHEETAH, HOPPER, WALKER2D, Robot, load_robot
from sparc.errors import UserError

SPACE = ContextSpace.box(m=("kg", (0.9, 1.1), (0.5, 1.5)))


@pytest.mark.parametrize("id", ENVIRONMENTS)
def test_every_shipped_environment_names_its_signals(id: str) -> None:
    entry = get_env(id)
    env: gym.Env[Any, Any] = Spaces() if id in RACES else sparc.make_env(id)
    assert entry.observation is not None and entry.action is not None and entry.period is not None
    assert (len(entry.observation),) == env.observation_space.shape
    assert (len(entry.action),) == env.action_space.shape
    assert all(unit for _, unit in entry.action)
    env.close()


@pytest.mark.parametrize("robot", [HALF_CHEETAH, HOPPER, WALKER2D, ANT], ids=lambda robot: robot.base.split(":")[1])
def test_the_robots_signals_are_those_of_their_models(robot: Robot) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MuJoCo's, of Gymnasium's model
        env = load_robot(robot)
    model = env.model
    joints = [model.joint(model.actuator_trnid[i, 0]).name for i in range(model.nu)]
    assert robot.action == tuple(zip(joints, (f"{gear:g} N·m" for gear in model.actuator_gear[:, 0]), strict=True))
    assert robot.period == pytest.approx(env.dt)
    names = [name for name, _ in robot.observation]
    hinges = [model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] == 3]
    first = names.index(hinges[0])
    assert names[first : first + len(hinges)] == hinges
    assert names[-len(hinges) :] == [f"{hinge} velocity" for hinge in hinges]
    # A number put into one joint alone must come out under its name, position and velocity alike.
    skipped = len(env.init_qpos) + len(env.init_qvel) - len(names)
    for index, (name, _) in enumerate(robot.observation):
        qpos, qvel = np.zeros((1, model.nq)), np.zeros((1, model.nv))
        place = index + skipped
        if place < model.nq:
            qpos[0, place] = 0.5
        else:
            qvel[0, place - model.nq] = 0.5
        assert robot.observe(qpos, qvel)[0, index] == 0.5, name
        if (joint := name.removesuffix(" velocity")) in hinges:
            addresses = model.joint(joint).dofadr if name != joint else model.joint(joint).qposadr
            assert place - (model.nq if name != joint else 0) == addresses[0]
    env.close()


def test_race_observations_begin_with_what_a_driver_feels() -> None:
    assert [name for name, _ in OBSERVATION[: len(FELT)]] == [name for name, _, _ in FELT]
    assert OBSERVATION[0] == ("vx", "20 m/s") and OBSERVATION_SIZE == 116


def test_an_environment_that_names_nothing_has_none() -> None:
    sparc.register_env("Unnamed-v0", make="Pendulum-v1", apply=lambda env, context: None, context_space=SPACE)
    entry = get_env("Unnamed-v0")
    assert entry.observation is None and entry.action is None and entry.period is None


@pytest.mark.parametrize(
    "given, message",
    [
        ({"observation": ["x", "y"]}, r"observation= needs a \(name, unit\) for each element, got 'x'"),
        ({"action": [("x", "m"), ("x", "m")]}, "action= has the name 'x' more than once"),
        ({"period": 0.0}, "period= must be the seconds of a control step, got 0.0"),
        ({"period": float("nan")}, "period= must be the seconds"),
    ],
)
def test_signals_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sparc.register_env("X-v0", make="Pendulum-v1", apply=lambda env, c: None, context_space=SPACE, **given)
