"""A policy as a user gets it: sparc.load(run), act, reset."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import sparc
from sparc.acting.policy import Policy
from sparc.config import make_config
from sparc.contexts import ContextSpace
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.methods.nets import Inputs
from sparc.runs.run import Run
from sparc.training.loop import Trainer

BOAT = "DriftingBoat-v0"
Maker = Callable[[str, str], Policy]
H, O, A = 5, 2, 2  # noqa: E741


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    fields = {**tiny_fields, "history_length": H, "updates": 10}
    return sparc.train("sparc", BOAT, run_dir=tmp_path_factory.mktemp("run"), **fields)


@pytest.fixture
def policy(run: Path) -> Policy:
    return sparc.load(run)


@pytest.fixture
def untrained(tmp_path: Path, tiny: dict[str, Any]) -> Maker:
    """Make the policy of a method that has just begun."""

    def make(method: str, env: str) -> Policy:
        run = Run.create(make_config({"method": method, "env": env, **tiny}), tmp_path / "run")
        try:
            return Trainer(run, lambda record: None).make_policy()
        finally:
            run.close()

    return make


def observations(steps: int, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (steps, rows, O)).astype(np.float32)


def test_a_run_whose_environment_has_other_contexts_by_now_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContextSpace, "fingerprint", lambda self: "another")
    for use in (sparc.load, lambda run: sparc.resume(run, updates=20)):
        with pytest.raises(UserError, match=f"trained when {BOAT} had other contexts to train on"):
            use(run)


def test_a_run_of_an_earlier_revision_of_its_environment_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = dataclasses.replace(get_env(BOAT), revision=2)
    monkeypatch.setitem(sparc.envs.registry._entries, BOAT, newer)
    for use in (sparc.load, lambda run: sparc.resume(run, updates=20)):
        with pytest.raises(UserError, match=f"{BOAT} was at revision 1, and it is at 2: its actions"):
            use(run)


# History


def test_one_observation_and_a_batch_give_the_same(policy: Policy, run: Path) -> None:
    seen = observations(2 * H, 3)
    batch = np.stack([policy.act(obs) for obs in seen])  # (T, 3, A)
    assert batch.shape == (2 * H, 3, A)
    for row in range(3):
        alone = sparc.load(run)
        singles = [alone.act(obs[row]) for obs in seen]
        assert all(action.shape == (A,) for action in singles)
        np.testing.assert_allclose(singles, batch[:, row], atol=1e-6)


def test_it_keeps_its_history_as_if_fed_by_hand(policy: Policy) -> None:
    past = np.zeros((3, H, O + A), np.float32)
    without = []
    for obs in observations(2 * H, 3):
        by_hand = np.asarray(policy.actor.mode(Inputs(obs, history=past)))
        without.append(np.asarray(policy.actor.mode(Inputs(obs, history=np.zeros_like(past)))) - by_hand)
        action = policy.act(obs)  # the boat's bounds are ±1: actions and unit actions are the same
        np.testing.assert_allclose(action, by_hand, atol=1e-6)
        past = np.concatenate([past[:, 1:], np.concatenate([obs, action], axis=1)[:, None]], axis=1)
    assert not without[0].any() and np.abs(without[1:]).min(axis=(1, 2)).all()  # the history does matter


def test_reset_forgets_everything(policy: Policy, run: Path) -> None:
    seen = observations(4, 3)
    first = [policy.act(obs) for obs in seen]
    policy.reset()
    np.testing.assert_array_equal([policy.act(obs) for obs in seen], first)
    policy.reset()
    policy.act(seen[0, :2])  # another number of rows


def test_reset_with_a_mask_forgets_the_masked_rows_alone(policy: Policy, run: Path) -> None:
    untouched, fresh = sparc.load(run), sparc.load(run)
    for obs in observations(H, 3):
        policy.act(obs), untouched.act(obs)
    mask = np.array([True, False, True])
    policy.reset(mask)
    obs = observations(1, 3, seed=1)[0]
    action, went_on, new = policy.act(obs), untouched.act(obs), fresh.act(obs)
    np.testing.assert_array_equal(action[mask], new[mask])
    np.testing.assert_array_equal(action[~mask], went_on[~mask])
    assert (np.abs(new - went_on).max(axis=1) > 1e-7).all()


def test_reset_with_a_mask_before_the_first_step_is_harmless(policy: Policy) -> None:
    policy.reset(np.ones(3, bool))
    assert policy.act(observations(1, 3)[0]).shape == (3, A)


def test_what_was_given_is_not_changed_and_what_is_given_back_is_the_callers(policy: Policy, run: Path) -> None:
    obs, other = observations(1, 3)[0], sparc.load(run)
    kept = obs.copy()
    policy.act(obs)[:] = 99.0
    other.act(obs)
    np.testing.assert_array_equal(obs, kept)
    obs[:] = 99.0
    np.testing.assert_array_equal(policy.act(kept), other.act(kept))


# Mistakes


@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (2, 2, 2), (0,)])
def test_observations_of_another_shape_are_refused(policy: Policy, shape: tuple[int, ...]) -> None:
    with pytest.raises(sparc.UserError, match=r"observations of 2 numbers, got an array of shape \("):
        policy.act(np.zeros(shape))


def test_another_number_of_rows_needs_a_reset(policy: Policy) -> None:
    policy.act(np.zeros((3, O)))
    with pytest.raises(sparc.UserError, match=r"3 rows, now for 2: call reset\(\) first"):
        policy.act(np.zeros((2, O)))
    policy.reset()
    policy.act(np.zeros((2, O)))


def test_a_mask_of_another_length_is_refused(policy: Policy) -> None:
    policy.act(np.zeros((3, O)))
    with pytest.raises(sparc.UserError, match="mask"):
        policy.reset(np.ones(2, bool))


def test_the_oracle_needs_the_context(untrained: Maker) -> None:
    policy = untrained("oracle", BOAT)
    assert policy.reads == "context"
    with pytest.raises(sparc.UserError, match=r"call act\(obs, context\)"):
        policy.act(np.zeros(O))
    obs, contexts = observations(1, 3)[0], np.array([[0.0, 0.0], [0.5, -0.5], [1.0, 1.0]])
    policy.reset()
    batch = policy.act(obs, contexts)
    assert not np.allclose(batch, (policy.reset(), policy.act(obs, -contexts - 0.1))[1])
    for row in range(3):
        policy.reset()
        np.testing.assert_allclose(policy.act(obs[row], contexts[row]), batch[row], atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 2, 2), ()])
def test_the_oracle_refuses_a_context_of_another_shape(untrained: Maker, shape: tuple[int, ...]) -> None:
    policy = untrained("oracle", BOAT)
    with pytest.raises(sparc.UserError, match="context"):
        policy.act(np.zeros((3, O)), np.zeros(shape))


def test_a_damaged_checkpoint_and_a_missing_one(run: Path) -> None:
    assert sparc.load(run, "last").reads == "history"
    with pytest.raises(sparc.UserError, match="has no checkpoint 7"):
        sparc.load(run, 7)


# Bounds


class Lopsided(gym.Env[Any, Any]):
    """Actions from 0 to 5 and from −3 to −1."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (O,))
    action_space = gym.spaces.Box(np.array([0.0, -3.0], np.float32), np.array([5.0, -1.0], np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(O, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return np.zeros(O, np.float32), 0.0, False, False, {}


SPACE = ContextSpace.box(m=("kg", (0.75, 1.25), (0.5, 1.5)))
gym.register("LopsidedBase-v0", entry_point=Lopsided, max_episode_steps=5)
sparc.register_env("Lopsided-v0", make="LopsidedBase-v0", apply=lambda env, context: None, context_space=SPACE)
sparc.register_env(
    "BoundedPendulum-v0", make="Pendulum-v1", apply=lambda env, c: setattr(env, "m", float(c[0])), context_space=SPACE
)


@pytest.mark.parametrize(("env", "size"), [("BoundedPendulum-v0", 3), ("Lopsided-v0", O)])
def test_actions_fill_the_bounds_of_the_environment_and_stay_inside(untrained: Maker, env: str, size: int) -> None:
    policy = untrained("only-obs", env)
    made = sparc.make_env(env)
    space = made.action_space
    assert isinstance(space, gym.spaces.Box)
    obs = np.random.default_rng(0).normal(0, 100.0, (2000, size))
    actions = policy.act(obs, key=jax.random.key(0))
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions)
    reach = (actions - space.low) / (space.high - space.low)  # 0 … 1
    assert (reach.min(axis=0) < 0.1).all() and (reach.max(axis=0) > 0.9).all()
    unit = policy.history.array[:, -1, size:]  # type: ignore[union-attr]  # the history holds unit actions
    np.testing.assert_allclose(reach, (unit + 1) / 2, atol=1e-5)
    made.reset(seed=0)
    policy.reset()
    made.step(policy.act(obs[0]))
    made.close()


def test_an_observation_that_is_not_finite_does_not_reach_the_history(policy: Policy) -> None:
    policy.act(np.zeros(O))
    assert policy.history is not None
    before = policy.history.array.copy()
    with pytest.raises(sparc.UserError, match="Element 0 of the observation in row 0 is nan"):
        policy.act(np.full(O, np.nan))
    assert np.array_equal(policy.history.array, before)


def test_the_latent_is_that_of_the_last_action(run: Path) -> None:
    policy = sparc.load(run)
    with pytest.raises(sparc.UserError, match="before its first action"):
        _ = policy.latent
    rng = np.random.default_rng(0)
    for _ in range(3):
        obs = rng.normal(size=(2, policy.obs_size)).astype(np.float32)
        history = policy.history.array if policy.history is not None else None
        policy.act(obs)
        if history is not None:
            np.testing.assert_allclose(policy.latent, policy.actor.latent(Inputs(obs, history=history)), rtol=1e-5)
    assert policy.latent.shape[0] == 2
    policy.reset()
    with pytest.raises(sparc.UserError, match="before its first action"):
        _ = policy.latent
