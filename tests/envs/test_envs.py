"""Specifics: the wind, the boat, the adapter for any Gymnasium environment, and the registry."""

import functools
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sparc
from sparc.envs.boat.env import BoatVectorEnv
from sparc.envs.contextual import ContextualEnv, ContextualVectorEnv, pack_rng, unpack_rng
from sparc.envs.registry import all_envs, get_env
from sparc.envs.robots.robots import HALF_CHEETAH, load_robot
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.errors import RunFailure, UserError

ROOT = Path(__file__).parents[2]  # where a relative PYTHONPATH holds
HEAVY_PENDULUM = """
import sparc

def set_mass(env, context):
    env.m = float(context[0])

sparc.register_env(
    "HeavyPendulum-v0", make="Pendulum-v1", apply=set_mass,
    context_space=sparc.ContextSpace.box(m=("kg", (0.75, 1.25), (0.5, 1.5))),
)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log file where it stands


@pytest.fixture
def pendulum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One file of a third party, used through its "module:Id"; forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "heavy.py").write_text(HEAVY_PENDULUM)
    monkeypatch.delitem(sys.modules, "heavy", raising=False)
    monkeypatch.setattr("sparc.envs.registry._entries", all_envs())
    monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))
    return "heavy:HeavyPendulum-v0"


# Wind


@pytest.mark.parametrize("id", [id for id in sorted(all_envs()) if id.startswith("Wind")])
def test_the_wind_blows_on_every_body(id: str) -> None:
    context = get_env(id).context_space.test.high
    env = sparc.make_env(id)
    env.reset(seed=0, options={"context": context})
    data = env.unwrapped.data  # type: ignore[attr-defined]
    expected = np.zeros_like(data.xfrc_applied)
    expected[1:, 0], expected[1:, 2] = context
    for _ in range(3):
        np.testing.assert_array_equal(data.xfrc_applied, expected)
        env.step(env.action_space.sample())
    venv: Any = sparc.make_vector_env(id, 2)
    venv.reset(options={"context": np.stack([context, -context])})
    venv.step(np.zeros(venv.action_space.shape))
    np.testing.assert_array_equal(venv._batch.xfrc_applied, np.stack([expected, -expected]))


def test_wind_without_context_is_gymnasium() -> None:
    ours, theirs = sparc.make_env("WindWalker2d-v5"), gym.make("Walker2d-v5")
    observation, _ = ours.reset(seed=4, options={"context": [0.0, 0.0]})
    np.testing.assert_array_equal(observation, theirs.reset(seed=4)[0])
    for _ in range(30):
        action = ours.action_space.sample()
        ours_step, theirs_step = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(ours_step[0], theirs_step[0])
        assert ours_step[1:4] == theirs_step[1:4]


def falls(id: str, steps: int) -> np.ndarray:
    venv = sparc.make_vector_env(id, 4)
    venv.reset(seed=0)
    rng = np.random.default_rng(0)
    fallen = np.zeros(4, dtype=bool)
    for _ in range(steps):
        _, _, terminated, _, _ = venv.step(rng.uniform(-1, 1, venv.action_space.shape))
        fallen |= terminated
    return fallen


def test_hopper_never_terminates_and_walker_does() -> None:
    assert falls("WindWalker2d-v5", 150).all()
    assert not falls("WindHopper-v5", 150).any()


def test_episodes_are_truncated_after_1000_steps() -> None:
    venv = sparc.make_vector_env("WindHopper-v5", 1)
    venv.reset(seed=0)
    ends = [venv.step(np.zeros((1, 3)))[3][0] for _ in range(1000)]
    assert ends[-1] and not any(ends[:-1])


def test_the_wind_outlives_an_unstable_simulation() -> None:
    context = np.array([[2.5, 5.0]])
    env, venv = sparc.make_env("WindHalfCheetah-v5"), sparc.make_vector_env("WindHalfCheetah-v5", 1)
    env.reset(seed=0, options={"context": context[0]})
    venv.reset(seed=0, options={"context": context})
    env.unwrapped.data.qvel[:] = np.nan  # type: ignore[attr-defined]
    venv._qvel[:] = np.nan  # type: ignore[attr-defined]
    for _ in range(3):  # MuJoCo notices in the first one, and resets with the forces
        one, many = env.step(np.zeros(6)), venv.step(np.zeros((1, 6)))
        np.testing.assert_array_equal(one[0], many[0][0])
        np.testing.assert_array_equal(one[1], many[1][0])
    np.testing.assert_array_equal(env.unwrapped.data.xfrc_applied[1:, 2], np.full(7, 5.0))  # type: ignore[attr-defined]


def test_ant_does_not_observe_the_forces_that_are_the_wind() -> None:
    env = sparc.make_env("WindAnt-v5")
    assert env.observation_space.shape == (27,)


NOISE = """
import os, sparc
env = sparc.make_env("WindHalfCheetah-v5")
env.reset(seed=0)
venv = sparc.make_vector_env("WindHalfCheetah-v5", 2)
venv.reset(seed=0)
assert os.listdir() == [], os.listdir()
"""


def test_making_robots_prints_nothing_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", NOISE], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_warnings_of_mujoco_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    import mujoco

    def unstable(**options: Any) -> None:
        body = "<worldbody><body><joint/><geom size='1'/></body></worldbody>"
        model = mujoco.MjModel.from_xml_string(f"<mujoco><compiler settotalmass='1'/>{body}</mujoco>")
        data = mujoco.MjData(model)
        data.qpos[0] = np.nan
        mujoco.mj_checkPos(model, data)

    monkeypatch.setattr("sparc.envs.robots.robots.load_env_creator", lambda base: unstable)
    with pytest.warns(UserWarning, match="MuJoCo: Nan, Inf or huge value in QPOS") as warned:
        load_robot(HALF_CHEETAH)
    assert len(warned) == 1  # and not the one that the user can do nothing about
    assert mujoco.get_mju_user_warning() is None
    heard: list[str] = []
    mujoco.set_mju_user_warning(heard.append)
    try:
        load_robot(HALF_CHEETAH)
        assert mujoco.get_mju_user_warning() == heard.append
    finally:
        mujoco.set_mju_user_warning(None)
    assert len(heard) == 1 and "QPOS" in heard[0]


# The boat


def test_boat_dynamics_by_hand() -> None:
    env = sparc.make_env("DriftingBoat-v0")
    start, _ = env.reset(seed=0, options={"context": [0.5, -0.25]})
    observation, reward, terminated, truncated, _ = env.step(np.array([0.5, -1.0]))
    np.testing.assert_allclose(observation, start + np.array([1.5, -2.25]))
    assert reward == pytest.approx(np.exp(-np.sum((observation / 1.25) ** 2)))
    assert not terminated and not truncated


def test_a_boat_in_still_water_stays_and_nothing_leaves() -> None:
    venv = sparc.make_vector_env("DriftingBoat-v0", 4)
    start, _ = venv.reset(seed=0, options={"context": np.zeros((4, 2))})
    for _ in range(100):
        observations, _, _, truncated, _ = venv.step(np.zeros((4, 2)))
        assert (observations == start).all()
    assert truncated.all()
    for _ in range(20):
        observations, *_ = venv.step(np.ones((4, 2)))
    assert (np.abs(observations) <= 10).all() and observations.max() == 10


# Any Gymnasium environment


def test_one_file_makes_pendulum_contextual(pendulum: str) -> None:
    env = sparc.make_env(pendulum)
    _, info = env.reset(seed=0)
    assert env.unwrapped.m == info["context"][0] != 1.0  # type: ignore[attr-defined]
    assert get_env(pendulum).max_episode_steps == 200  # Pendulum's own
    theirs = gym.make("Pendulum-v1")
    theirs.reset(seed=0)
    env.reset(seed=0, options={"context": [1.0]})
    env.unwrapped.state = theirs.unwrapped.state.copy()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(env.step(np.ones(1))[0], theirs.step(np.ones(1, dtype=np.float32))[0])


@pytest.mark.parametrize("change_probability", [0.0, 0.3])
def test_sync_vector_env_restores_by_replay(pendulum: str, change_probability: float) -> None:
    options: dict[str, Any] = {"change_probability": change_probability, "max_episode_steps": 30}
    venv = sparc.make_vector_env(pendulum, 3, **options)
    assert isinstance(venv, SyncContextualVectorEnv)
    venv.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(12):
        venv.step(rng.uniform(-2, 2, (3, 1)))
    # One episode begins with a context that was given (and stays), one with a drawn one, one goes on from its seed.
    venv.reset(options={"reset_mask": np.array([True, False, False]), "context": np.full((3, 1), 1.4)})
    assert venv.contexts[0] == 1.4 and (venv.contexts[1:] != 1.4).all()
    venv.reset(options={"reset_mask": np.array([False, True, False])})
    for _ in range(8):
        venv.step(rng.uniform(-2, 2, (3, 1)))
    assert venv.contexts[0] == 1.4
    state = venv.get_state()
    actions = rng.uniform(-2, 2, (15, 3, 1))
    other = sparc.make_vector_env(pendulum, 3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.set_state(state)
    for action in actions:
        left, right = venv.step(action), other.step(action)
        for a, b in zip(left[:4], right[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(left[4]["context"], right[4]["context"])
        assert right[4]["context"][0] == 1.4
        if (mask := left[2] | left[3]).any():
            np.testing.assert_array_equal(
                venv.reset(options={"reset_mask": mask})[0], other.reset(options={"reset_mask": mask})[0]
            )


class Forgetful(gym.Env[Any, Any]):
    """Draws from a generator of its own: no replay can repeat it."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    hidden = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.hidden.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.hidden.uniform(-1, 1, 1).astype(np.float32), 0.0, False, False, {}


def test_what_cannot_be_replayed_starts_anew_with_a_warning() -> None:
    space = sparc.ContextSpace.box(m=("kg", (0, 1), (0, 1)))
    venv = SyncContextualVectorEnv([lambda: ContextualEnv(Forgetful(), space, lambda env, context: None)] * 2)
    venv.reset(seed=0)
    venv.step(np.zeros((2, 1)))
    with pytest.warns(UserWarning, match=r"environment [01] .* did not repeat its episode") as warned:
        venv.set_state(venv.get_state())
    assert len(warned) == 2
    assert venv.get_state()["lengths"].tolist() == [0, 0]
    venv.step(np.zeros((2, 1)))


def test_a_replay_that_drew_other_numbers_is_noticed(pendulum: str) -> None:
    venv = sparc.make_vector_env(pendulum, 1)
    venv.reset(seed=0)
    venv.step(np.zeros((1, 1)))
    state = venv.get_state()
    state["rng_now"] = pack_rng([np.random.default_rng(1)])
    with pytest.warns(UserWarning, match="did not repeat"):
        venv.set_state(state)


class Thruster(gym.Env[Any, Any]):
    """A point that is pushed: the action times its gain, the context."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, start: float = 0.0) -> None:
        self.start, self.gain = start, 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.array([self.start])
        return self.place.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + self.gain * action
        return self.place.copy(), 0.0, False, False, {}


class Unbounded(Thruster):
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)


GAIN = sparc.ContextSpace.box(gain=("1", (1, 2), (0.5, 4)))


def set_gain(env: Thruster, context: np.ndarray) -> None:
    env.gain = float(context[0])


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards what a test registers."""
    monkeypatch.setattr("sparc.envs.registry._entries", all_envs())
    monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("make", [Thruster, lambda **options: Thruster(**options), f"{__name__}:Thruster"])
def test_apply_goes_with_a_class_a_function_or_a_reference(make: Any) -> None:
    sparc.register_env("Thruster-v0", make=make, apply=set_gain, context_space=lambda: GAIN, max_episode_steps=3)
    venv = sparc.make_vector_env("Thruster-v0", 2, start=1.0)
    venv.reset(seed=0, options={"context": np.array([[0.5], [4.0]])})
    ends = [venv.step(np.ones((2, 1)))[3] for _ in range(3)]
    np.testing.assert_array_equal(venv.reset(options={"reset_mask": np.zeros(2, bool)})[0], [[2.5], [13.0]])
    assert [end.all() for end in ends] == [False, False, True]
    with pytest.raises(UserError, match="unknown option 'speed' of Thruster-v0"):
        sparc.make_env("Thruster-v0", speed=1.0)


@pytest.mark.usefixtures("registry")
def test_what_apply_cannot_go_with_is_refused() -> None:
    register: Any = functools.partial(sparc.register_env, "Thruster-v0", apply=set_gain, context_space=GAIN)
    with pytest.raises(UserError, match=r"Thruster-v0 needs max_episode_steps="):
        register(make=Thruster)
    with pytest.raises(UserError, match=r"must be a Gymnasium id, a class or function, or .*, got 7"):
        register(make=7, max_episode_steps=3)
    register(make=dict, max_episode_steps=3)
    with pytest.raises(UserError, match=r"Thruster-v0: make= must return a gymnasium.Env, got \{\}"):
        sparc.make_env("Thruster-v0")


@pytest.mark.usefixtures("registry")
def test_environments_that_do_not_fit_are_refused_by_their_id() -> None:
    def nothing(env: Any, context: Any) -> None:
        pass

    sparc.register_env("Cart-v0", make="CartPole-v1", apply=nothing, context_space=GAIN)
    with pytest.raises(UserError, match=r"Cart-v0 has the actions Discrete\(2\), but only continuous actions \(Box\)"):
        sparc.make_vector_env("Cart-v0", 1)
    with pytest.raises(UserError, match="CartPole-v1 has the actions"):
        ContextualEnv(gym.make("CartPole-v1"), GAIN, nothing)
    grid = gym.wrappers.ReshapeObservation(gym.make("Pendulum-v1"), (3, 1))
    with pytest.raises(UserError, match=r"one-dimensional Box is supported: wrap the environment in .*Flatten"):
        ContextualEnv(grid, GAIN, nothing)
    sparc.register_env("Free-v0", make=Unbounded, apply=set_gain, context_space=GAIN, max_episode_steps=3)
    with pytest.raises(UserError, match=r"Free-v0 has unbounded actions.*TransformAction.*Box\(-1, 1, \(1,\)\)"):
        sparc.make_env("Free-v0")


@pytest.mark.usefixtures("registry")
def test_the_wrapper_that_an_error_names_bounds_the_actions() -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformAction(Unbounded(), lambda action: 5 * action, gym.spaces.Box(-1, 1, (1,)))

    sparc.register_env("Bounded-v0", make=make, apply=set_gain, context_space=GAIN, max_episode_steps=3)
    env = sparc.make_env("Bounded-v0")
    env.reset(options={"context": [2.0]})
    assert env.step(np.array([0.5], np.float32))[0] == [5.0]


@pytest.mark.usefixtures("registry")
def test_an_error_in_apply_names_its_file_and_line() -> None:
    def apply(env: Any, context: np.ndarray) -> None:
        env.gain = np.linalg.inv(np.zeros((1, 1)))  # it is NumPy that raises, but this line is at fault

    line = apply.__code__.co_firstlineno + 1
    sparc.register_env("Thruster-v0", make=Thruster, apply=apply, context_space=GAIN, max_episode_steps=3)
    match = rf"apply of Thruster-v0 failed with the context gain=1.5: LinAlgError: .* \(test_envs.py:{line}\).*--debug"
    with pytest.raises(RunFailure, match=match):
        sparc.make_env("Thruster-v0").reset(options={"context": [1.5]})


@pytest.mark.parametrize("id", ["DriftingBoat-v0", "heavy:HeavyPendulum-v0"])
def test_contexts_change_within_an_episode_as_often_as_asked(id: str, pendulum: str) -> None:
    """For training on a world that changes on the way: drawn contexts change, those that were set stay."""
    venv = sparc.make_vector_env(id, 20, change_probability=0.25, max_episode_steps=1000)
    venv.reset(seed=0)
    action = np.zeros(venv.action_space.shape or (), np.float32)
    contexts = np.stack([venv.contexts.copy(), *(venv.step(action)[4]["context"] for _ in range(200))])
    changed = (contexts[1:] != contexts[:-1]).any(axis=2)
    assert 0.22 < changed.mean() < 0.28  # 4,000 draws: four standard deviations
    assert venv.context_space.is_train(contexts.reshape(-1, venv.context_space.size)).all()
    venv.set_contexts(given := np.tile(venv.context_space.test.high, (20, 1)))
    for _ in range(50):
        np.testing.assert_array_equal(venv.step(action)[4]["context"], given)


def test_a_change_probability_is_one() -> None:
    with pytest.raises(UserError, match="change_probability"):
        sparc.make_env("DriftingBoat-v0", change_probability=1.5)


def test_generators_survive_packing() -> None:
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    rngs[1].integers(10, dtype=np.int32)  # leaves half a word in the generator
    packed = pack_rng(rngs)
    assert packed.shape == (3, 6) and packed.dtype == np.uint64 and packed[1, 4] == 1
    for rng, again in zip(rngs, unpack_rng(packed), strict=True):
        np.testing.assert_array_equal(
            rng.integers(10, size=5, dtype=np.int32), again.integers(10, size=5, dtype=np.int32)
        )
        assert rng.random() == again.random()


# A switch in mid-episode


SWITCHING = [id for id in sorted(all_envs()) if id.startswith(("DriftingBoat", "Motor", "Wind"))]


@pytest.mark.parametrize("id", SWITCHING)
@pytest.mark.parametrize("change_probability", [0.0, 0.5])
def test_single_and_vector_switch_alike(id: str, change_probability: float) -> None:
    """Contexts are drawn before the switch; the new ones stay, whatever change_probability says."""
    space = get_env(id).context_space
    new = np.stack([space.test.high, space.test.low, space.train.high])
    venv = sparc.make_vector_env(id, 3, change_probability=change_probability)
    singles = [sparc.make_env(id, change_probability=change_probability) for _ in range(3)]
    venv.reset(seed=5)
    for row, env in enumerate(singles):
        env.reset(seed=5 + row)
    rng = np.random.default_rng(0)
    for step in range(24):
        if step == 12:
            venv.set_contexts(new)
            for row, env in enumerate(singles):
                env.get_wrapper_attr("set_context")(new[row])
            np.testing.assert_array_equal(venv.contexts, new)
        actions = rng.uniform(-0.3, 0.3, venv.action_space.shape)
        observations, rewards, terminated, _, info = venv.step(actions)
        for row, env in enumerate(singles):
            observation, reward, ended, _, single_info = env.step(actions[row])
            np.testing.assert_array_equal(observations[row], observation)
            assert (rewards[row], terminated[row]) == (reward, ended)
            np.testing.assert_array_equal(info["context"][row], single_info["context"])
        assert (step < 12) == (info["context"] != new).any()
    venv.reset(seed=5)
    assert space.is_train(venv.contexts).all()  # drawn again


def test_a_switch_holds_from_the_next_step_on() -> None:
    venv = sparc.make_vector_env("DriftingBoat-v0", 2)
    start, _ = venv.reset(seed=0, options={"context": np.zeros((2, 2))})
    still, *_ = venv.step(np.zeros((2, 2)))
    np.testing.assert_array_equal(still, start)
    venv.set_contexts([[0.5, 0.0], [0.0, -1.0]])
    moved, *_ = venv.step(np.zeros((2, 2)))
    np.testing.assert_array_equal(moved - start, [[0.5, 0.0], [0.0, -1.0]])


def test_a_native_switch_is_saved() -> None:
    venv, other = (sparc.make_vector_env("WindHopper-v5", 2, change_probability=0.9) for _ in range(2))
    venv.reset(seed=0)
    venv.set_contexts([[20.0, 5.0], [-20.0, -5.0]])
    other.set_state(venv.get_state())
    for _ in range(5):
        left, right = venv.step(np.zeros((2, 3))), other.step(np.zeros((2, 3)))
        np.testing.assert_array_equal(left[0], right[0])
        np.testing.assert_array_equal(right[4]["context"], [[20.0, 5.0], [-20.0, -5.0]])


def test_contexts_to_switch_to_are_checked(pendulum: str) -> None:
    venv = sparc.make_vector_env("DriftingBoat-v0", 2)
    with pytest.raises(UserError, match="set_contexts: environment 0 was never reset"):
        venv.set_contexts(np.zeros((2, 2)))
    venv.reset(seed=0)
    with pytest.raises(UserError, match=r"contexts must have the shape \(2, 2\), got \(2,\)"):
        venv.set_contexts(np.zeros(2))
    before = venv.contexts.copy()
    with pytest.raises(UserError, match=r"context 1: y = 1\.5 m/s is outside"):
        venv.set_contexts([[0.0, 0.0], [0.0, 1.5]])
    np.testing.assert_array_equal(venv.contexts, before)
    env = sparc.make_env(pendulum)
    env.reset(seed=0)
    with pytest.raises(UserError, match=r"^m = 9 kg is outside"):
        env.get_wrapper_attr("set_context")([9.0])


def test_sync_vector_env_switches_but_is_not_saved_until_the_next_reset(pendulum: str) -> None:
    venv = sparc.make_vector_env(pendulum, 2, change_probability=0.9)
    venv.reset(seed=0)
    venv.step(np.zeros((2, 1)))
    venv.set_contexts([[1.5], [0.5]])
    for _ in range(5):
        np.testing.assert_array_equal(venv.step(np.zeros((2, 1)))[4]["context"], [[1.5], [0.5]])
        assert [env.unwrapped.m for env in venv.envs] == [1.5, 0.5]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="get_state: the context of environment 0 was switched in mid-episode"):
        venv.get_state()
    venv.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(UserError, match="environment 1"):
        venv.get_state()
    venv.reset(options={"reset_mask": np.array([False, True])})
    venv.set_state(venv.get_state())


class Stubborn(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of a third party with a context that nobody can switch."""

    context_space = sparc.ContextSpace.box(m=("kg", (0, 1), (0, 1)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)[0], {"context": np.zeros(1)}


class Rigid(BoatVectorEnv):
    """A vector environment that was written without a thought of switching."""

    _switch = ContextualVectorEnv._switch


def test_environments_that_cannot_switch_say_so() -> None:
    stubborn = SyncContextualVectorEnv([lambda: Stubborn(gym.make("Pendulum-v1"))])
    for venv, context, reason in (
        (stubborn, [1.0], r"^PendulumEnv cannot switch its context in mid-episode; .* set_context\(context\)\.?$"),
        (Rigid(1), [1.0, 0.0], r"^Rigid cannot switch contexts in mid-episode; .* _switch\(contexts\)\.?$"),
    ):
        venv.reset(seed=0)
        assert re.search(reason, venv.why_not_switch())
        with pytest.raises(UserError, match=reason):
            venv.set_contexts([context])


def test_environments_that_can_switch_see_no_reason_why_not(pendulum: str) -> None:
    for id in ("DriftingBoat-v0", "WindHopper-v5", pendulum):
        assert sparc.make_vector_env(id, 1).why_not_switch() == ""


# The registry


def test_unknown_names_are_named() -> None:
    with pytest.raises(UserError, match=r"unknown environment 'WindHoper-v5': did you mean 'WindHopper-v5'\?"):
        sparc.make_env("WindHoper-v5")
    with pytest.raises(UserError, match="no_such_module"):
        sparc.make_env("no_such_module:Thing-v0")
    with pytest.raises(UserError, match=r"'change_probabilty' of .*: did you mean 'change_probability'\?"):
        sparc.make_vector_env("WindHopper-v5", 2, change_probabilty=0.1)
    with pytest.raises(UserError, match=r"'change_probabilty' of .*: did you mean 'change_probability'\?"):
        sparc.make_env("WindHopper-v5", change_probabilty=0.1)
    with pytest.raises(UserError, match="num_envs"):
        sparc.make_vector_env("DriftingBoat-v0", 0)
    with pytest.raises(UserError, match="threads"):
        sparc.make_vector_env("WindHopper-v5", 1, threads=0)


def test_unknown_options_reach_the_user_from_an_adapted_environment(pendulum: str) -> None:
    for make in (sparc.make_env, lambda id, **options: sparc.make_vector_env(id, 2, **options)):
        with pytest.raises(UserError, match=r"unknown option 'gravity' of .*-v0\.$"):
            make(pendulum, gravity=1.0)
    assert sparc.make_env(pendulum, g=1.0).unwrapped.g == 1.0  # type: ignore[attr-defined]


def test_a_registration_that_cannot_work_is_refused() -> None:
    space = sparc.ContextSpace.box(m=("kg", (0, 1), (0, 1)))
    with pytest.raises(UserError, match="no environment that Gymnasium knows"):
        sparc.register_env("X-v0", make="NoSuch-v1", apply=lambda env, context: None, context_space=space)
    with pytest.raises(UserError, match="needs apply="):
        sparc.register_env("X-v0", make="Pendulum-v1", context_space=space)


def test_plugins_register_on_the_first_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        value = "broken_plugin"

        def load(self) -> Any:
            raise ImportError("it is broken")

    called = []

    class Working(Plugin):
        def load(self) -> Any:
            return lambda: called.append(True)

    monkeypatch.setattr("sparc.envs.registry._plugins_loaded", False)
    monkeypatch.setattr(
        "sparc.plugins.entry_points",
        lambda group: [Plugin(), Working()] if group == "sparc.envs" else [],
    )
    with pytest.warns(UserWarning, match="broken_plugin"):
        all_envs()
    all_envs()
    assert called == [True]


def test_import_is_light() -> None:
    code = "import sys, sparc; print([m for m in ('jax', 'mujoco', 'torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
