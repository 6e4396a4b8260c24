"""The loop without learning: who runs for how long, under which context, and what the policy is shown."""

import numpy as np
import pytest

import sparc
from sparc.acting.episodes import Episodes
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.registry import make_vector_env
from sparc.methods.spec import Reads

BOAT = "DriftingBoat-v0"
CONTEXTS = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.0]])


class Note:
    """Always acts alike and notes what it is shown."""

    def __init__(self, reads: Reads = "nothing") -> None:
        self.reads: Reads = reads
        self.resets, self.obs, self.contexts = 0, list[np.ndarray](), list[np.ndarray | None]()

    def reset(self) -> None:
        self.resets += 1

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        self.obs.append(obs)
        self.contexts.append(context)
        return np.full((len(obs), 2), 0.5, np.float32)


@pytest.fixture
def venv() -> ContextualVectorEnv:
    return make_vector_env(BOAT, 3, max_episode_steps=5)


def test_every_step_of_all_episodes_until_the_last_ends(venv: ContextualVectorEnv) -> None:
    policy = Note()
    episodes = Episodes(policy, venv, CONTEXTS, seed=7)
    first, _ = make_vector_env(BOAT, 3).reset(seed=7, options={"context": CONTEXTS})
    np.testing.assert_array_equal(episodes.obs, first)
    steps = list(episodes)
    assert len(steps) == episodes.steps == 5 and not episodes.running.any() and policy.resets == 1
    for step, seen in zip(steps, policy.obs, strict=True):
        assert step.running.all()
        np.testing.assert_array_equal(step.obs, seen)
        np.testing.assert_array_equal(step.contexts, CONTEXTS)
    assert policy.contexts == [None] * 5  # nobody tells it


def test_what_has_ended_is_no_longer_shown(venv: ContextualVectorEnv) -> None:
    policy = Note()
    episodes = Episodes(policy, venv, CONTEXTS)
    episodes.step()
    episodes.running[1] = False
    step = episodes.step()
    assert step.running.tolist() == [True, False, True] == episodes.running.tolist()
    assert not policy.obs[-1][1].any() and policy.obs[-1][0].any()
    assert step.obs[1].any()  # the environment's own


def test_a_switch_is_in_force_from_the_next_step_on(venv: ContextualVectorEnv) -> None:
    policy = Note("context")
    episodes = Episodes(policy, venv, CONTEXTS)
    before = episodes.step()
    episodes.switch(CONTEXTS[::-1])
    after = episodes.step()
    for step, seen, contexts in zip((before, after), policy.contexts, (CONTEXTS, CONTEXTS[::-1]), strict=True):
        np.testing.assert_array_equal(step.contexts, contexts)
        np.testing.assert_array_equal(seen, contexts)


def test_contexts_out_of_range_are_the_users_mistake(venv: ContextualVectorEnv) -> None:
    with pytest.raises(sparc.UserError, match="context"):
        Episodes(Note(), venv, 9 * CONTEXTS)
