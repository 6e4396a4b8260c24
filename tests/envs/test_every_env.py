"""What every registered environment promises, whoever registered it."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import ENVIRONMENTS
from gymnasium.utils.env_checker import check_env

import sparc
from sparc.contexts import ContextSpace, Finite
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.racing import RACES
from sparc.envs.registry import get_env
from sparc.errors import UserError

N = 3
COMMON = [0.0, 0.5, 1.0]  # shares and flags, that say nothing when they are seen
LIMIT = 60  # steps per episode here, so that resets are part of every test

every_env = pytest.mark.parametrize(
    "id", [pytest.param(id, marks=pytest.mark.torcs) if id in RACES else id for id in ENVIRONMENTS]
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log file where it stands
    if request.getfixturevalue("id") in RACES:
        request.getfixturevalue("torcs")


def never_drawn(space: ContextSpace) -> np.ndarray:
    """A context outside the training region."""
    if isinstance(space.test, Finite):
        return space.test.values[~space.is_train(space.test.values)][0]
    return space.test.high


def actions_for(venv: ContextualVectorEnv, steps: int, seed: int = 0) -> np.ndarray:
    space = venv.single_action_space
    assert isinstance(space, gym.spaces.Box)
    rng = np.random.default_rng(seed)
    return rng.uniform(space.low, space.high, (steps, *venv.action_space.shape)).astype(space.dtype)  # type: ignore[misc]


def run(venv: ContextualVectorEnv, actions: np.ndarray) -> list[np.ndarray]:
    """Step and reset what ended; return everything that came out."""
    out = []
    for action in actions:
        observation, reward, terminated, truncated, info = venv.step(action)
        out += [observation, reward, terminated, truncated, info["context"]]
        if (ended := terminated | truncated).any():
            observation, info = venv.reset(options={"reset_mask": ended})
            out += [observation, info["context"]]
    return out


def assert_same(left: list[np.ndarray], right: list[np.ndarray]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@every_env
def test_gymnasium_accepts_it(id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unbounded observations, which are MuJoCo's
        check_env(gym.make(id), skip_render_check=True)
    venv = gym.make_vec(id, num_envs=N, vectorization_mode="vector_entry_point")
    assert venv.metadata["autoreset_mode"] is gym.vector.AutoresetMode.DISABLED
    assert isinstance(venv, ContextualVectorEnv)
    assert venv.reset(seed=0)[0] in venv.observation_space


@every_env
@pytest.mark.parametrize("change_probability", [0.0, 0.2])
def test_vector_is_single_bit_for_bit(id: str, change_probability: float) -> None:
    options: dict[str, Any] = {"max_episode_steps": LIMIT, "change_probability": change_probability}
    venv = sparc.make_vector_env(id, N, threads=2, **options)
    singles = [sparc.make_env(id, **options) for _ in range(N)]
    observations, info = venv.reset(seed=7)
    changes = 0
    for i, env in enumerate(singles):
        observation, single_info = env.reset(seed=7 + i)
        np.testing.assert_array_equal(observation, observations[i])
        np.testing.assert_array_equal(single_info["context"], info["context"][i])
    rng = np.random.default_rng(1)
    given = venv.context_space.test.sample(rng, N)
    for step, action in enumerate(actions_for(venv, 3 * LIMIT + 5)):
        before = venv.contexts.copy()
        observations, reward, terminated, truncated, info = venv.step(action)
        changes += int((before != venv.contexts).any())
        np.testing.assert_array_equal(info["context"], venv.contexts)
        for i, env in enumerate(singles):
            one, one_reward, one_terminated, one_truncated, one_info = env.step(action[i])
            np.testing.assert_array_equal(one, observations[i], err_msg=f"step {step}")
            assert one_reward == reward[i], f"step {step}"
            assert (one_terminated, one_truncated) == (terminated[i], truncated[i])
            np.testing.assert_array_equal(one_info["context"], info["context"][i])
        # One row is also reset in the middle of its episode, so that the rows run out of step, sometimes as told.
        mask = terminated | truncated
        mask[step % N] |= step % 13 == 0
        if mask.any():
            context = given if step % 2 else None
            kept = observations[~mask]
            observations, info = venv.reset(options={"reset_mask": mask, "context": context})
            np.testing.assert_array_equal(observations[~mask], kept)
            for i in np.flatnonzero(mask).tolist():
                one, one_info = singles[i].reset(options=None if context is None else {"context": context[i]})
                np.testing.assert_array_equal(one, observations[i])
                np.testing.assert_array_equal(one_info["context"], info["context"][i])
    assert (changes > 0) == (change_probability > 0)


@every_env
@pytest.mark.parametrize("change_probability", [0.0, 0.2])
def test_state_goes_on_bit_for_bit_in_a_new_vector_env(id: str, change_probability: float) -> None:
    options: dict[str, Any] = {"max_episode_steps": LIMIT, "change_probability": change_probability}
    first = sparc.make_vector_env(id, N, **options)
    first.reset(seed=3)
    actions = actions_for(first, 2 * LIMIT + 10)
    run(first, actions[: LIMIT + 7])  # past a reset, in the middle of an episode
    state = {name: array.copy() for name, array in first.get_state().items()}
    assert all(array.dtype.kind in "biuf" for array in state.values())
    expected = run(first, actions[LIMIT + 7 :])
    second = sparc.make_vector_env(id, N, threads=2, **options)
    second.set_state(state)
    np.testing.assert_array_equal(second.contexts, state["contexts"])
    untouched, _ = second.reset(options={"reset_mask": np.zeros(N, dtype=bool)})
    np.testing.assert_array_equal(untouched, state["observations"])
    assert_same(run(second, actions[LIMIT + 7 :]), expected)
    # The state is a copy: going on did not change it, and it can be used again.
    first.set_state(state)
    assert_same(run(first, actions[LIMIT + 7 :]), expected)
    with pytest.raises(UserError, match="does not fit"):
        sparc.make_vector_env(id, N + 1).set_state(state)


@every_env
def test_a_given_context_stays_and_a_drawn_one_changes(id: str) -> None:
    options: dict[str, Any] = {"max_episode_steps": LIMIT, "change_probability": 1.0}
    venv = sparc.make_vector_env(id, N, **options)
    given = np.tile(never_drawn(venv.context_space), (N, 1))
    venv.reset(seed=0)
    venv.reset(options={"reset_mask": np.arange(N) != 0, "context": given})
    env = sparc.make_env(id, **options)
    env.reset(seed=0, options={"context": given[0]})
    other = sparc.make_vector_env(id, N, **options)
    for action in actions_for(venv, 4):
        other.set_state(venv.get_state())  # which context was given is part of the state
        before = venv.contexts[0].copy()
        for each in (venv, other):
            contexts = each.step(action)[4]["context"]
            assert (contexts[0] != before).any()
            np.testing.assert_array_equal(contexts[1:], given[1:])
        np.testing.assert_array_equal(env.step(action[0])[4]["context"], given[0])
    # The next episode draws its context, and is free to change it.
    venv.reset()
    assert (env.reset()[1]["context"] != given[0]).any()
    drawn = venv.contexts.copy()
    assert (venv.step(actions_for(venv, 1)[0])[4]["context"] != drawn).any(axis=1).all()


@every_env
def test_same_seed_same_trajectory(id: str) -> None:
    venv = sparc.make_vector_env(id, N, max_episode_steps=LIMIT)
    actions = actions_for(venv, LIMIT + 5)
    trajectories = []
    for seed in (5, 5, 6):
        observations, _ = venv.reset(seed=seed)
        trajectories.append([observations, *run(venv, actions)])
    assert_same(trajectories[0], trajectories[1])
    assert not np.array_equal(trajectories[0][0], trajectories[2][0])
    listed, _ = venv.reset(seed=[5 + i for i in range(N)])
    np.testing.assert_array_equal(listed, trajectories[0][0])


@every_env
def test_each_context_feature_changes_the_trajectory(id: str) -> None:
    space = get_env(id).context_space
    if isinstance(space.test, Finite):
        pytest.skip("its contexts are whole cars: tests/test_racing_cars.py changes their features one by one")
    venv = sparc.make_vector_env(id, 1 + space.size)
    contexts = np.tile(space.centre, (1 + space.size, 1))
    for feature in range(space.size):
        contexts[1 + feature, feature] = space.test.high[feature]
    seeds = [0] * (1 + space.size)  # the same start everywhere
    observations, info = venv.reset(seed=seeds, options={"context": contexts})
    np.testing.assert_array_equal(info["context"], contexts)
    np.testing.assert_allclose(observations - observations[0], np.zeros_like(observations), atol=1e-6)
    action = actions_for(venv, 10)[:, :1].repeat(1 + space.size, axis=1)
    for step in action:
        observations = venv.step(step)[0]
    assert len(np.unique(observations, axis=0)) == 1 + space.size


@every_env
def test_the_context_is_drawn_from_the_training_region_and_not_observed(id: str) -> None:
    space = get_env(id).context_space
    venv = sparc.make_vector_env(id, 50)
    _, info = venv.reset(seed=0)
    assert space.is_train(info["context"]).all() and len(np.unique(info["context"], axis=0)) >= 45
    assert venv.observation_space.shape == (50, *(sparc.make_env(id).observation_space.shape or ()))
    for action in actions_for(venv, 5):
        observations, _, _, _, info = venv.step(action)
        seen = np.array([np.isin(info["context"][row], observations[row]) for row in range(50)])
        said = (seen & ~np.isin(info["context"], COMMON)).mean(axis=0)  # once in a while by chance
        assert (said < 0.5).all(), "the observation spells out the context"


@every_env
def test_a_context_outside_the_test_region_is_refused(id: str) -> None:
    space = get_env(id).context_space
    outside = space.test.high + 1.0
    with pytest.raises(UserError, match="test region"):
        sparc.make_env(id).reset(options={"context": outside})
    venv = sparc.make_vector_env(id, N)
    with pytest.raises(UserError, match="test region"):
        venv.reset(options={"context": np.tile(outside, (N, 1))})
    with pytest.raises(UserError, match="shape"):
        venv.reset(options={"context": space.centre})


@every_env
def test_bad_calls_are_refused_and_harm_nothing(id: str) -> None:
    venv = sparc.make_vector_env(id, N)
    with pytest.raises(UserError, match="never reset"):
        venv.step(np.zeros(venv.action_space.shape or ()))
    venv.reset(seed=0)
    good = actions_for(venv, 1)[0]
    before = venv.get_state()
    for bad, message in ((np.nan, "environment 1 is not finite"), (np.inf, "environment 1 is not finite")):
        action = good.copy()
        action[1, 0] = bad
        with pytest.raises(UserError, match=message):
            venv.step(action)
    for action in (good[:-1], good[:, :-1], good[0], [[1.0], [2.0, 3.0]]):
        with pytest.raises(UserError, match="shape"):
            venv.step(action)
    for options, message in (
        ({"contxt": venv.contexts}, "unknown reset option 'contxt'.*'context'"),
        ({"reset_mask": np.ones(N + 1, dtype=bool)}, "reset_mask"),
        ({"reset_mask": np.ones(N)}, "booleans"),
    ):
        with pytest.raises(UserError, match=message):
            venv.reset(options=options)
    with pytest.raises(UserError, match="one seed per environment"):
        venv.reset(seed=[1])
    for name, array in venv.get_state().items():
        np.testing.assert_array_equal(array, before[name])


@every_env
def test_returned_arrays_belong_to_the_caller(id: str) -> None:
    venv = sparc.make_vector_env(id, N)
    venv.reset(seed=0)
    observations, _, _, _, info = venv.step(actions_for(venv, 1)[0])
    kept = observations.copy()
    observations[:] = 1e6
    info["context"][:] = 1e6
    again, info = venv.reset(options={"reset_mask": np.zeros(N, dtype=bool)})
    np.testing.assert_array_equal(again, kept)
    assert (np.abs(venv.contexts) < 1e6).all()
