"""The collector, between a scripted environment and the replay."""

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

from sparc.acting.history import History
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualEnv, ContextualVectorEnv
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.methods.batch import Batch
from sparc.training.collect import Collector
from sparc.training.replay import Replay

SPACE = ContextSpace.box(x=("m", (0.0, 1e6), (0.0, 1e6)))
GAMMA, STEPS, KEY = 0.9, 12, jax.random.key(0)
# lane 0 ends by its time limit every 4 steps, lane 1 fails every 3 steps, lane 2 does both at once every 5
EVERY = np.array([4, 3, 5])
TERMINATES, TRUNCATES = np.array([False, True, True]), np.array([True, False, True])


class Single(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)


class Scripted(ContextualVectorEnv):
    """Observations are (lane, a running number that a reset sets 100 ahead), contexts grow by one with each step."""

    def __init__(self) -> None:
        super().__init__(3, SPACE, Single())
        self.clock, self.age = 0, np.zeros(3, int)
        self.log: list[dict[str, np.ndarray]] = []

    def _reset(self, rows: Any, seeds: Any, contexts: Any) -> None:
        self._observations[:, 0] = np.arange(3)
        self._observations[rows, 1] += 100
        self.contexts[rows, 0] += 1000
        self.age[rows] = 0

    def _step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        step = {"obs": self._observations.copy(), "context": self.contexts.copy(), "action": actions.copy()}
        self.clock += 1
        self.age += 1
        self._observations[:, 1] += 1
        self.contexts += 1
        ended = self.age % EVERY == 0
        step |= {"next_obs": self._observations.copy(), "next_context": self.contexts.copy(), "ended": ended}
        step["reward"] = np.arange(3) + 10.0 * self.clock
        self.log.append(step)
        return step["reward"], ended & TERMINATES, ended & TRUNCATES

    def get_state(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        raise NotImplementedError


class Half:
    """A policy that always chooses 0.5 and notes what it was shown."""

    action_size = 1

    def __init__(self) -> None:
        self.seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def start(self, rows: int) -> None:
        self.history: History | None = History(rows, 3, 3)

    def choose(self, obs: np.ndarray, context: np.ndarray, key: jax.Array) -> np.ndarray:
        assert self.history is not None
        self.seen.append((obs, context, self.history.array))
        action = np.full((len(obs), 1), 0.5, np.float32)
        self.history.push(obs, action)
        return action

    def reset(self, mask: np.ndarray) -> None:
        assert self.history is not None
        self.history.reset(mask)

    def scale(self, unit: np.ndarray) -> np.ndarray:
        return 1.0 + 3.0 * unit


@pytest.fixture(scope="module")
def collected() -> tuple[Scripted, Half, Collector, Replay]:
    venv, policy = Scripted(), Half()
    replay = Replay(None, capacity=300, num_envs=3, obs_size=2, action_size=1, context_size=1, history_length=3,
                    n_step=1, discount=GAMMA)  # fmt: skip
    collector = Collector(venv, policy, [0, 1, 2])  # type: ignore[arg-type]
    collector.collect(replay, 5, KEY, random=False)
    collector.collect(replay, STEPS - 5, KEY, random=False)
    return venv, policy, collector, replay


def transitions(replay: Replay) -> dict[tuple[float, float], Batch]:
    """All transitions, by their observation, which is unique."""
    batch = replay.sample(np.random.default_rng(0), (2000,), history=True, next_history=False)
    rows = [Batch(*(None if field is None else field[i] for field in batch)) for i in range(2000)]
    return {(float(row.obs[0]), float(row.obs[1])): row for row in rows}


def test_k_steps_in_k_transitions_out(collected: tuple[Scripted, Half, Collector, Replay]) -> None:
    venv, _, collector, replay = collected
    assert replay.size == collector.steps == 3 * STEPS == 3 * len(venv.log)
    taken = {(float(row[0]), float(row[1])) for step in venv.log for row in step["obs"]}
    assert transitions(replay).keys() == taken
    assert collector.episodes == sum(int(step["ended"].sum()) for step in venv.log) == 3 + 4 + 2


def test_each_transition_is_what_the_environment_did(collected: tuple[Scripted, Half, Collector, Replay]) -> None:
    venv, _, _, replay = collected
    stored = transitions(replay)
    for step in venv.log:
        for lane in range(3):
            row = stored[tuple(step["obs"][lane].tolist())]
            assert row.reward == step["reward"][lane]
            # where the step led to, also at an episode's end: never where the next episode begins
            np.testing.assert_array_equal(row.next_obs, step["next_obs"][lane])
            # the context in force during the step, and the one after it; not that of the next episode
            np.testing.assert_array_equal(row.context, step["context"][lane])
            np.testing.assert_array_equal(row.next_context, step["next_context"][lane])
            # stored in [-1, 1], carried out in the environment's own range
            assert row.action == 0.5 and step["action"][lane] == 2.5
            # a truncated episode would have gone on, a terminated one would not
            gone = step["ended"][lane] and TERMINATES[lane]
            assert row.discount == (0.0 if gone else np.float32(GAMMA))


def test_the_policy_acts_on_what_the_replay_gives_back(collected: tuple[Scripted, Half, Collector, Replay]) -> None:
    _, policy, _, replay = collected
    stored = transitions(replay)
    for obs, context, history in policy.seen:
        for lane in range(3):
            row = stored[tuple(obs[lane].tolist())]
            np.testing.assert_array_equal(row.context, context[lane].astype(np.float32))
            np.testing.assert_array_equal(row.history, history[lane])


def test_returns_of_whole_episodes(collected: tuple[Scripted, Half, Collector, Replay]) -> None:
    venv, _, collector, _ = collected
    expected, running = [], np.zeros(3)
    for step in venv.log:
        running += step["reward"]
        expected += running[step["ended"]].tolist()
        running[step["ended"]] = 0.0
    assert list(collector.recent) == expected
    np.testing.assert_array_equal(collector.returns, running)


def test_random_actions_are_stored_and_remembered() -> None:
    venv, policy = Scripted(), Half()
    replay = Replay(None, capacity=300, num_envs=3, obs_size=2, action_size=1, context_size=1, history_length=3,
                    n_step=1, discount=GAMMA)  # fmt: skip
    collector = Collector(venv, policy, [0, 1, 2])  # type: ignore[arg-type]
    collector.collect(replay, 2, KEY, random=True)
    stored = transitions(replay)
    units = np.array([stored[tuple(row.tolist())].action[0] for step in venv.log for row in step["obs"]])
    assert len(set(units.tolist())) == 6 and (np.abs(units) <= 1).all()
    carried = np.concatenate([step["action"][:, 0] for step in venv.log])
    np.testing.assert_array_equal(carried, (1.0 + 3.0 * units).astype(np.float32))
    assert policy.history is not None
    np.testing.assert_array_equal(policy.history.array[:, -1, -1], units[3:])


class Restless(gym.Env[Any, Any]):
    """Begins where its own generator says, which no seed reaches, unless it is honest."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)

    def __init__(self, honest: bool) -> None:
        self.honest, self.own = honest, np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = (self.np_random if self.honest else self.own).normal(size=2)
        return self.place.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place = self.place + action[0]
        return self.place.copy(), 1.0, False, False, {}


def test_a_row_that_could_not_be_restored_begins_anew() -> None:
    def make() -> tuple[Collector, Half]:
        makers = [lambda honest=honest: ContextualEnv(Restless(honest), SPACE, lambda env, c: None)
                  for honest in (True, False)]  # fmt: skip
        policy = Half()
        return Collector(SyncContextualVectorEnv(makers), policy, [0, 1]), policy  # type: ignore[arg-type]

    collector, _ = make()
    replay = Replay(None, capacity=100, num_envs=2, obs_size=2, action_size=1, context_size=1, history_length=3,
                    n_step=1, discount=GAMMA)  # fmt: skip
    collector.collect(replay, 4, KEY, random=False)
    state = collector.get_state()
    restored, policy = make()
    with pytest.warns(UserWarning, match="did not repeat"):
        restored.set_state(state)
    assert policy.history is not None
    assert restored.returns.tolist() == [4.0, 0.0]
    assert np.array_equal(policy.history.array[0], state["history"][0]) and policy.history.array[0].any()
    assert not policy.history.array[1].any()
    assert np.array_equal(restored.obs[0], state["obs"][0]) and (restored.obs[1] != state["obs"][1]).all()
