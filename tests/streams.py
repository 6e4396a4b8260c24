"""Environments whose every number says which stream, episode and step it belongs to, so that any window can be checked.

All values are small multiples of powers of two: sums of discounted rewards are exact.
"""

from typing import Any

import numpy as np

from sparc.methods.batch import Batch
from sparc.training.blocks import RowWriter
from sparc.training.replay import Replay

O, A, C, GAMMA = 3, 2, 2, 0.5  # noqa: E741
SIZES: dict[str, Any] = {"obs_size": O, "action_size": A, "context_size": C, "discount": GAMMA}


def stack(*columns: np.ndarray) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.float32)


def observe(stream: np.ndarray, episode: np.ndarray, t: np.ndarray) -> np.ndarray:
    return stack(stream, episode, t)


def act(stream: np.ndarray, episode: np.ndarray, t: np.ndarray) -> np.ndarray:
    return stack(stream / 4 - t, episode + t / 8)


def reward(stream: np.ndarray, episode: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.asarray(stream % 8 + episode % 4 / 4 + t % 16, np.float32)


def context(stream: np.ndarray, episode: np.ndarray, t: np.ndarray) -> np.ndarray:
    return stack(stream + episode, t // 3)  # it changes within an episode


class World:
    """Several environments side by side; an episode ends, terminated or truncated, with the given probability."""

    numbers = 0  # streams so far, of all worlds

    def __init__(self, num_envs: int, rng: np.random.Generator, end: float, ends: dict[tuple[int, int], int]) -> None:
        """Note in `ends` the length of each episode that terminates."""
        self.rng, self.end, self.ends = rng, end, ends
        self.stream = World.numbers + np.arange(num_envs)
        World.numbers += num_envs
        self.episode, self.t = np.zeros((2, num_envs), int)

    def step(self) -> tuple[np.ndarray, ...]:
        """Return the arguments of `Replay.add`."""
        now, then = (self.stream, self.episode, self.t), (self.stream, self.episode, self.t + 1)
        over = self.rng.random(len(self.t)) < self.end
        terminated = over & (self.rng.random(len(self.t)) < 0.5)
        for key in zip(*(x[terminated].tolist() for x in then), strict=True):
            self.ends[key[:2]] = key[2]
        taken = (observe(*now), act(*now), reward(*now), terminated, over & ~terminated, observe(*then))
        step = (*taken, context(*now), context(*then))
        self.episode, self.t = self.episode + over, np.where(over, 0, self.t + 1)
        return step

    def restart(self) -> None:
        """Break off all episodes under way."""
        self.episode, self.t = self.episode + (self.t > 0), np.zeros_like(self.t)


class Worker:
    """A world that writes blocks."""

    def __init__(self, name: tuple[int, int, int], world: World, length: int, most: int = 500) -> None:
        self.world, num = world, len(world.stream)
        self.writer = RowWriter(O, A, C, length, [(*name, env) for env in range(num)], most)

    def step(self) -> None:
        self.writer.add(*self.world.step())


def everything(replay: Replay) -> Batch:
    """Return every transition that `sample` may pick."""
    return replay._cut(every_pick(replay), history=True, next_history=True)


def every_pick(replay: Replay) -> np.ndarray:
    pick = np.arange((replay._head - replay._oldest()).sum())
    return pick[~replay._is_closing(pick)]


def names(batch: Batch) -> list[tuple[int, ...]]:
    """Return the stream, episode and step of each transition."""
    return [tuple(row) for row in batch.obs.astype(int).tolist()]


def check(replay: Replay, length: int, n: int, ends: dict[tuple[int, int], int]) -> Batch:
    """Check every field of every transition that may be sampled, and that its return is as long as it can be."""
    batch = everything(replay)
    found = names(batch)
    assert len(set(found)) == len(found) == replay.size  # each once
    if not found:
        return batch
    stream, episode, t = (np.array(x) for x in zip(*found, strict=True))
    k = batch.next_obs[:, 2].astype(int) - t
    assert ((k >= 1) & (k <= n)).all()
    lane, row = replay._locate(every_pick(replay))
    at = replay._at(lane, row + k)
    goes_on = (replay._rows["position"][at] != -1) & (row + k < replay._head[lane])
    assert ((k == n) | ~goes_on).all()
    steps = np.arange(n)
    rewards = reward(stream[:, None], episode[:, None], t[:, None] + steps) * np.float32(GAMMA) ** steps
    last = np.array([ends.get(key, 0) for key in zip(stream.tolist(), episode.tolist(), strict=True)])
    expected = Batch(
        obs=observe(stream, episode, t),
        action=act(stream, episode, t),
        reward=np.where(steps < k[:, None], rewards, 0).sum(axis=1, dtype=np.float32),
        discount=np.where(last == t + k, 0, np.float32(GAMMA) ** k),
        next_obs=observe(stream, episode, t + k),
        context=context(stream, episode, t),
        next_context=context(stream, episode, t + k),
        history=history(stream, episode, t, length),
        next_history=history(stream, episode, t + k, length),
    )
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(batch, name), values, err_msg=name)
    return batch


def history(stream: np.ndarray, episode: np.ndarray, t: np.ndarray, length: int) -> np.ndarray:
    steps = t[:, None] + np.arange(-length, 0)
    of = stream[:, None], episode[:, None], steps
    return np.where(steps[..., None] >= 0, np.concatenate([observe(*of), act(*of)], axis=-1), 0)
