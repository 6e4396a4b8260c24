"""The replay against plain lists of whole episodes, from which everything is worked out anew."""

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparc.acting.history import History
from sparc.errors import RunFailure, UserError
from sparc.methods.batch import Batch
from sparc.training.replay import Replay, reserve

O, A, C, GAMMA = 3, 2, 2, 0.9  # noqa: E741
HALF_CHEETAH = {"obs_size": 17, "action_size": 6, "context_size": 2, "history_length": 50}


class Step(NamedTuple):
    """The arguments of `add`: one step of every lane."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray
    context: np.ndarray
    next_context: np.ndarray


class Envs:
    """Random episodes in several num_envs, kept as plain lists; the first number of an observation is unique."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.rng, self.number, self.num_envs = np.random.default_rng(seed), 0, num_envs
        self.episodes: list[list[list[Step]]] = [[[]] for _ in range(num_envs)]  # the last one still runs
        self.obs, self.context = self._new_obs(), self._new_context()

    def _new_obs(self) -> np.ndarray:
        self.number += self.num_envs
        return np.column_stack([np.arange(self.num_envs) + self.number, self.rng.normal(size=(self.num_envs, O - 1))])

    def _new_context(self) -> np.ndarray:
        return self.rng.normal(size=(self.num_envs, C))

    def step(self, events: np.ndarray) -> Step:
        """Take one step: 0 terminates, 1 truncates, 2 does both, 3 abandons the episode after it, the rest go on."""
        changes = self.rng.random((self.num_envs, 1)) < 0.2  # the context may change within an episode
        step = Step(
            self.obs, self.rng.normal(size=(self.num_envs, A)), self.rng.normal(size=self.num_envs),
            np.isin(events, [0, 2]), np.isin(events, [1, 2]), self._new_obs(), self.context,
            np.where(changes, self._new_context(), self.context),
        )  # fmt: skip
        over = events <= 3
        self.obs = np.where(over[:, None], self._new_obs(), step.next_obs)
        self.context = np.where(over[:, None], self._new_context(), step.next_context)
        for lane, episodes in enumerate(self.episodes):
            episodes[-1].append(Step(*(x[lane] for x in step)))
            if over[lane]:
                episodes.append([])
        return step

    def transitions(self, window: int, length: int, n: int) -> dict[int, dict[str, np.ndarray]]:
        """Return what may be sampled, by the number of its observation: the newest `window` rows of each lane."""
        found = {}
        for episodes in self.episodes:
            rows: list[tuple[list[Step], int] | None] = []
            for episode in episodes:
                rows += [(episode, i) for i in range(len(episode))]
                # An abandoned episode is closed only when the next one begins; a running one is not closed.
                last = episode is episodes[-1] or (episode is episodes[-2] and not episodes[-1] and not ended(episode))
                rows += [] if last else [None]
            for episode, i in filter(None, rows[-window:]):
                found[int(episode[i].obs[0])] = transition(episode, i, length, n)
        return found


def ended(episode: list[Step]) -> bool:
    return bool(episode[-1].terminated or episode[-1].truncated)


def transition(episode: list[Step], t: int, length: int, n: int) -> dict[str, np.ndarray]:
    def history(steps: list[Step]) -> np.ndarray:
        return np.array(([np.zeros(O + A)] * length + [np.concatenate([s.obs, s.action]) for s in steps])[-length:])

    taken = episode[t : t + n]
    return {
        "obs": taken[0].obs,
        "action": taken[0].action,
        "reward": np.array(sum(GAMMA**j * step.reward for j, step in enumerate(taken))),
        "discount": np.array(0.0 if taken[-1].terminated else GAMMA ** len(taken)),
        "next_obs": taken[-1].next_obs,
        "context": taken[0].context,
        "next_context": taken[-1].next_context,
        "history": history(episode[:t]),
        "next_history": history(episode[: t + len(taken)]),
    }


def make(
    path: Path | None = None, *, window: int = 10, num_envs: int = 2, length: int = 2, n: int = 1, margin: int = 0
) -> Replay:
    return Replay(
        path, capacity=window * num_envs, num_envs=num_envs, obs_size=O, action_size=A, context_size=C,
        history_length=length, n_step=n, discount=GAMMA, margin=margin,
    )  # fmt: skip


def everything(replay: Replay) -> Batch:
    """Return every transition that `sample` may pick."""
    pick = np.arange((replay._head - replay._oldest()).sum())
    return replay._cut(pick[~replay._is_closing(pick)], history=True, next_history=True)


def assert_matches(batch: Batch, expected: dict[int, dict[str, np.ndarray]]) -> None:
    for name, values in batch._asdict().items():
        assert values.dtype == np.float32
        wanted = np.array([expected[int(number)][name] for number in batch.obs[..., 0].ravel()], np.float32)
        values = values.reshape(wanted.shape)
        if name in ("reward", "discount"):
            np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(values, wanted, err_msg=name)


def assert_same(a: Batch, b: Batch) -> None:
    for name in Batch._fields:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def random_events(steps: int, num_envs: int, spread: int, seed: int) -> np.ndarray:
    """Return (steps, num_envs) events, one in `spread` of which ends an episode (all have length 1 if that is 1)."""
    return np.random.default_rng(seed + 1).integers(4 * spread, size=(steps, num_envs))


# A ring of at most 12 + 7 + 1 + 2 * 3 slots: 150 steps go round it many times.
scenarios = given(
    steps=st.integers(0, 150), num_envs=st.integers(1, 3), spread=st.sampled_from([1, 2, 5, 20]),
    window=st.integers(2, 12), length=st.integers(1, 7), n=st.integers(1, 4), margin=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@scenarios
def test_every_transition_is_what_the_episodes_say(
    steps: int, num_envs: int, spread: int, window: int, length: int, n: int, margin: int, seed: int
) -> None:
    replay, world = make(window=window, num_envs=num_envs, length=length, n=n, margin=margin), Envs(num_envs, seed)
    assert replay.size == 0
    for i, events in enumerate(random_events(steps, num_envs, spread, seed)):
        replay.add(*world.step(events))
        if i % 11 and i != steps - 1:
            continue
        expected = world.transitions(window, length, n)
        batch = everything(replay)
        assert sorted(batch.obs[:, 0].astype(int)) == sorted(expected)  # each once, none lost, none invented
        assert replay.size == len(expected)
        assert_matches(batch, expected)
        assert_matches(replay.sample(np.random.default_rng(seed), (2, 5), history=True, next_history=True), expected)


@settings(max_examples=60, deadline=None)
@scenarios
def test_k_steps_in_k_transitions_out(
    steps: int, num_envs: int, spread: int, window: int, length: int, n: int, margin: int, seed: int
) -> None:
    events = random_events(steps, num_envs, spread, seed)
    replay, world = make(window=2 * steps + 2, num_envs=num_envs, length=length, n=n), Envs(num_envs, seed)
    for event in events:
        replay.add(*world.step(event))
    added = {int(s.obs[0]) for episodes in world.episodes for episode in episodes for s in episode}
    assert replay.size == len(added) == events.size
    assert sorted(everything(replay).obs[:, 0].astype(int)) == sorted(added)


@settings(max_examples=60, deadline=None)
@scenarios
def test_an_older_cursor_brings_back_what_was(
    steps: int, num_envs: int, spread: int, window: int, length: int, n: int, margin: int, seed: int
) -> None:
    world = Envs(num_envs, seed)
    taken = [world.step(events) for events in random_events(steps, num_envs, spread, seed)]
    before, after = taken[: max(0, steps - margin)], taken[max(0, steps - margin) :]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        replay = make(path, window=window, num_envs=num_envs, length=length, n=n, margin=margin)
        for step in before:
            replay.add(*step)
        cursor, then = replay.cursor(), everything(replay)
        for step in after:
            replay.add(*step)
        files = {file.name: file.read_bytes() for file in path.iterdir()}
        for again in (replay, make(path, window=window, num_envs=num_envs, length=length, n=n, margin=margin)):
            again.seek(cursor)
            assert_same(everything(again), then)
            assert again.size == len(then.obs)
            for step in after:
                again.add(*step)
            again.flush()
            assert {file.name: file.read_bytes() for file in path.iterdir()} == files


def test_after_a_seek_an_environment_may_begin_anew_in_the_middle_of_an_episode() -> None:
    """What the lost run wrote after the cursor leaves no trace when the resumed one goes another way."""
    resumed, straight = make(n=3, margin=4), make(n=3, margin=4)
    first, second = Envs(2, 8), Envs(2, 9)
    for _ in range(25):
        step = first.step(np.array([9, 9]))
        resumed.add(*step)
        straight.add(*step)
    cursor = resumed.cursor()
    for _ in range(4):
        resumed.add(*first.step(np.array([9, 1])))
    resumed.seek(cursor)
    for _ in range(3):
        step = second.step(np.array([9, 9]))
        resumed.add(*step)
        straight.add(*step)
        assert_same(everything(resumed), everything(straight))


@pytest.mark.parametrize("margin", [1, 2, 5])
def test_the_margin_holds_in_the_worst_case_and_not_a_step_longer(margin: int) -> None:
    """The running episode is abandoned, then come only episodes of length 1: two rows per step, and one more."""
    replay, world = make(window=6, num_envs=2, length=4, n=2, margin=margin), Envs(2, 0)
    for i in range(40):
        replay.add(*world.step(np.full(2, 3 if i == 39 else 9)))
    cursor, then = replay.cursor(), everything(replay)
    draw = replay.sample(np.random.default_rng(7), (3, 4), history=True, next_history=True)
    for _ in range(margin):
        replay.add(*world.step(np.zeros(2, int)))
    after = replay.cursor()
    replay.seek(cursor)
    assert_same(everything(replay), then)
    assert_same(replay.sample(np.random.default_rng(7), (3, 4), history=True, next_history=True), draw)
    replay.seek(after)
    replay.add(*world.step(np.zeros(2, int)))
    with pytest.raises(RunFailure, match="newer"):
        replay.seek(cursor)


def test_returns_and_discounts_worked_out_by_hand() -> None:
    """Rewards 1, 2, 4: a truncated end bootstraps, a terminated one does not, and so does what is still running."""
    replay = Replay(
        None,
        capacity=60,
        num_envs=3,
        obs_size=1,
        action_size=1,
        context_size=1,
        history_length=2,
        n_step=2,
        discount=0.5,
    )
    for t in range(3):
        obs, ones = np.array([[t], [10 + t], [20 + t]]), np.ones((3, 1))
        last = t == 2
        flags = np.array([last, False, False]), np.array([False, last, False])
        replay.add(obs, -obs, np.full(3, 2.0**t), *flags, obs + 1, ones, ones)
    batch = everything(replay)
    assert batch.obs[:, 0].tolist() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert batch.reward.tolist() == [2, 4, 4] * 3
    assert batch.discount.tolist() == [0.25, 0, 0, 0.25, 0.25, 0.5, 0.25, 0.25, 0.5]
    assert batch.next_obs[:, 0].tolist() == [2, 3, 3, 12, 13, 13, 22, 23, 23]
    assert batch.history is not None and batch.history[2].tolist() == [[0, 0], [1, -1]]
    assert batch.next_history is not None and batch.next_history[2].tolist() == [[1, -1], [2, -2]]


def test_the_acting_policy_and_the_replay_see_the_same_history() -> None:
    num_envs, length = 3, 5
    replay, world, acting = (
        make(window=60, num_envs=num_envs, length=length),
        Envs(num_envs, 1),
        History(num_envs, length, O + A),
    )
    seen: dict[int, np.ndarray] = {}
    for events in np.random.default_rng(2).integers(12, size=(150, num_envs)):
        seen |= dict(zip(world.obs[:, 0].astype(int), acting.array, strict=True))
        step = world.step(events)
        replay.add(*step)
        acting.push(step.obs, step.action)
        acting.reset(events <= 3)
    batch = everything(replay)
    assert len(batch.obs) > 100 and batch.history is not None
    for number, history in zip(batch.obs[:, 0].astype(int), batch.history, strict=True):
        np.testing.assert_array_equal(history, seen[number])


def test_histories_of_the_first_rows_alone_are_those_of_these_rows() -> None:
    num_envs, replay = Envs(2, seed=3), make(num_envs=2)
    for events in random_events(60, 2, 12, seed=4):
        replay.add(*num_envs.step(events))
    some, whole = (
        replay.sample(np.random.default_rng(5), (4, 9), history=rows, next_history=False) for rows in (5, True)
    )
    assert some.history.shape[:2] == (4, 5) and whole.history.any()
    np.testing.assert_array_equal(some.history, whole.history[:, :5])
    np.testing.assert_array_equal(some.context, whole.context)


def test_sampling_is_uniform() -> None:
    replay, world = make(window=40, num_envs=3, length=2), Envs(3, 3)
    for i in range(100):  # num_envs with many closing rows, with few, and with none
        replay.add(*world.step(np.array([1, 1 if i % 10 == 0 else 9, 9])))
    batch = replay.sample(np.random.default_rng(4), (200, 500), history=False, next_history=False)
    assert batch.obs.shape == (200, 500, O) and batch.reward.shape == (200, 500)
    assert batch.history is None and batch.next_history is None
    counts = np.unique(batch.obs[..., 0], return_counts=True)[1]
    assert len(counts) == replay.size == 20 + 37 + 40
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < 131.1  # its 99 % quantile with 97 - 1 degrees of freedom


def test_clear_forgets_and_an_older_cursor_still_works() -> None:
    replay, world = make(window=10, num_envs=2, length=3, margin=4), Envs(2, 5)
    for _ in range(30):
        replay.add(*world.step(np.array([9, 9])))
    cursor, then = replay.cursor(), everything(replay)
    replay.clear()
    assert replay.size == 0
    with pytest.raises(RunFailure, match="nothing to sample"):
        replay.sample(np.random.default_rng(0), (1,), history=False, next_history=False)
    steps = [world.step(np.array([9, 1])) for _ in range(4)]
    for step in steps:
        replay.add(*step)
    assert sorted(everything(replay).obs[:, 0]) == sorted(np.concatenate([step.obs[:, 0] for step in steps]))
    replay.seek(cursor)
    assert_same(everything(replay), then)


def test_bytes_per_step_on_the_disk(tmp_path: Path) -> None:
    capacity = 100_000
    replay = Replay(tmp_path, capacity=capacity, num_envs=10, n_step=1, discount=0.99, margin=1000, **HALF_CHEETAH)
    files = [file.stat() for file in tmp_path.iterdir()]
    assert replay.bytes_per_step <= 200
    assert sum(file.st_size for file in files) <= 200 * capacity
    assert sum(file.st_blocks * 512 for file in files) >= replay.bytes_per_step * capacity  # reserved, no holes


def test_a_full_disk_is_an_error_at_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunFailure, match=r"Cannot write .*: the disk is full, .* needed and .* free; make room"):
        make(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    for other in ({"window": 11}, {"num_envs": 1}, {"margin": 1}, {"length": 3}):
        with pytest.raises(RunFailure, match=r"rows\.npy .* delete it"):
            make(tmp_path, **other)
    file = next(tmp_path.iterdir())
    whole = file.read_bytes()
    header = range(whole.index(b"\n"))
    for damaged in (
        *(whole[:-1], whole + b"\0", whole[:40], b""),
        *(whole[:at] + bytes(64) + whole[at + 64 :] for at in header),  # NumPy reads it as Python's source
        *(whole[:at] + b"(" + whole[at + 1 :] for at in header if whole[at] != ord("(")),
    ):
        file.write_bytes(damaged)
        with pytest.raises(RunFailure, match=r"rows\.npy"):
            make(tmp_path)
        assert file.read_bytes() == damaged


def test_a_cursor_without_its_rows_is_refused(tmp_path: Path) -> None:
    replay, world = make(tmp_path / "a"), Envs(2, 6)
    for _ in range(5):
        replay.add(*world.step(np.array([9, 1])))
    with pytest.raises(RunFailure, match="does not hold"):
        make(tmp_path / "b").seek(replay.cursor())
    with pytest.raises(RunFailure, match="does not hold"):
        make(num_envs=1).seek(replay.cursor())


@pytest.mark.parametrize("wrong", [{"window": 1}, {"length": 0}, {"n": 0}, {"margin": -1}, {"num_envs": 0}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match="replay"):
        make(None, **wrong)


def test_room_is_reserved_also_where_the_system_has_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows"
    with file.open("wb") as f:
        f.write(b"header")
        f.truncate(3_000_000)  # the rest is a hole
    before = file.read_bytes()
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    reserve(file)
    assert file.read_bytes() == before
    assert file.stat().st_blocks * 512 >= 3_000_000


# Checksums


@pytest.mark.parametrize("steps", [3, 40, 700, 2500])
def test_checksums_are_the_same_whenever_they_are_taken_and_see_every_bit_of_live_rows(steps: int) -> None:
    window, length, margin = 1200, 5, 30
    often, seldom = (make(window=window, num_envs=2, length=length, margin=margin) for _ in range(2))
    worlds = Envs(2, 1), Envs(2, 1)
    for step, events in enumerate(random_events(steps, 2, 12, seed=6)):
        for replay, world in zip((often, seldom), worlds, strict=True):
            replay.add(*world.step(events))
        if step % 37 == 0:
            often.cursor()
    cursor = seldom.cursor()
    assert all(np.array_equal(value, often.cursor()[name]) for name, value in cursor.items())
    for _ in range(margin):  # what comes after a checkpoint does not touch its rows
        seldom.add(*worlds[1].step(np.array([9, 1])))
    seldom.seek(cursor)
    rng = np.random.default_rng(7)
    for _ in range(40):
        lane = int(rng.integers(2))
        head = int(cursor["head"][lane])
        row = int(rng.integers(max(0, head - window - length), head))
        byte = seldom._rows.view(np.uint8).reshape(2, seldom._slots, -1)[lane, row % seldom._slots]
        at, bit = int(rng.integers(len(byte))), 1 << int(rng.integers(8))
        byte[at] ^= bit
        with pytest.raises(RunFailure, match=r"damaged, rows of environment|does not hold"):
            seldom.seek(cursor)
        byte[at] ^= bit
    seldom.seek(cursor)


def test_a_flipped_bit_in_the_row_written_ahead_is_noticed() -> None:
    replay, world = make(window=20, num_envs=1, length=2), Envs(1, 1)
    for _ in range(5):
        replay.add(*world.step(np.array([9])))
    cursor = replay.cursor()
    replay._rows.view(np.uint8).reshape(replay._slots, -1)[5, 0] ^= 1
    with pytest.raises(RunFailure, match="damaged"):
        replay.seek(cursor)
