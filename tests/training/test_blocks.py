"""Blocks of workers: whatever is lost, repeated or late, every window is one that really was."""

import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import GAMMA, SIZES, A, C, O, Worker, World, check, everything, names

from sparc.errors import RunFailure
from sparc.methods.batch import Batch
from sparc.training.blocks import RANDOM, Block, RowWriter, row_dtype
from sparc.training.lanes import CLOSING
from sparc.training.replay import Replay


def make(
    path: Path | None = None, *, window: int = 1000, shelves: int = 2, length: int = 3, n: int = 1, margin: int = 0
) -> Replay:
    return Replay(
        path, capacity=window * shelves, num_envs=shelves, history_length=length, n_step=n, margin=margin, **SIZES
    )


def worker_of(num_envs: int = 1, *, seed: int = 0, end: float = 0.0, length: int = 3, name: int = 0) -> Worker:
    return Worker((1, name, 0), World(num_envs, np.random.default_rng(seed), end, {}), length)


def blocks_of(worker: Worker, steps: list[int]) -> list[Block]:
    """Return the blocks of a worker that hands over what it has after so many steps each time."""
    blocks = []
    for count in steps:
        for _ in range(count):
            worker.step()
        blocks += worker.writer.take("expert", 7)
    return blocks


def assert_same(a: Batch, b: Batch) -> None:
    for name in Batch._fields:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


# The same transitions through `add` and through blocks


@pytest.mark.parametrize("every", [1, 7, 40, 1000])
@pytest.mark.parametrize("most", [5, 500])
@pytest.mark.parametrize("end", [0.0, 0.1, 1.0])
def test_blocks_of_one_environment_make_the_same_rows_bit_by_bit(every: int, most: int, end: float) -> None:
    added, put = make(window=100, shelves=1, n=3), make(window=100, shelves=1, n=3)
    writer, world = RowWriter(O, A, C, 3, [(1, 0, 0, 0)], most), World(1, np.random.default_rng(3), end, {})
    for number in range(1, 301):
        step = world.step()
        added.add(*step)
        writer.add(*step)
        if number % 90 == 0:
            world.restart()  # no flag says so: the next observation does
        if number % every and number != 300:
            continue
        for block in writer.take("expert", 0):
            assert put.put(block) == len(block.rows) - 1 <= most
    assert put.total == added.total == 300
    np.testing.assert_array_equal(put._rows.view(np.uint8), added._rows.view(np.uint8))
    draws = [x.sample(np.random.default_rng(1), (20, 30), history=True, next_history=True) for x in (added, put)]
    assert_same(*draws)
    cursors = added.cursor(), put.cursor()
    assert all(np.array_equal(cursors[0][name], cursors[1][name]) for name in cursors[0])


@pytest.mark.parametrize("every", [1, 13, 200])
def test_blocks_of_several_environments_make_the_same_transitions(every: int) -> None:
    added, put = make(shelves=4, n=3, length=5), make(shelves=4, n=3, length=5)
    ends: dict[tuple[int, int], int] = {}
    worker = Worker((1, 0, 0), World(4, np.random.default_rng(5), 0.05, ends), 5)
    for number in range(1, 201):
        step = worker.world.step()
        added.add(*step)
        worker.writer.add(*step)
        if number % every == 0 or number == 200:
            assert sum(put.put(block) for block in worker.writer.take("expert", 0)) == 4 * ((number - 1) % every + 1)
    batches = check(added, 5, 3, ends), check(put, 5, 3, ends)
    order = [np.argsort([str(name) for name in names(batch)]) for batch in batches]
    assert_same(*(Batch(*(x[by] for x in batch)) for batch, by in zip(batches, order, strict=True)))
    assert put._head.sum() == added._head.sum()  # no row of past was needed


def test_a_block_says_what_it_is() -> None:
    worker = worker_of(2, length=3)
    first, second, third, fourth = blocks_of(worker, [2, 4])
    assert [block.stream for block in (first, second, third)] == [(1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 0, 0)]
    assert [block.sequence for block in (first, second, third, fourth)] == [0, 0, 1, 1]
    assert (first.phase, first.version, first.ended) == ("expert", 7, False)
    assert first.rows.dtype == row_dtype(O, A, C) and RANDOM == -1
    assert first.rows["position"].tolist() == [0, 1, CLOSING] and len(first.past) == 0
    assert third.rows["position"].tolist() == [2, 3, 4, 5, CLOSING]
    assert third.past["position"].tolist() == [CLOSING, CLOSING]
    np.testing.assert_array_equal(third.past["step"], first.rows["step"][:2])
    assert worker.writer.steps == 0 and worker.writer.take("expert", 8) == []
    worker.step()
    assert worker.writer.steps == 2


def test_an_abandoned_episode_does_not_go_on() -> None:
    worker = worker_of(length=3)
    before = blocks_of(worker, [4])
    worker.writer.abandon()
    worker.writer.abandon()
    assert worker.writer.take("expert", 0) == []
    worker.world.restart()
    (after,) = blocks_of(worker, [2])
    assert after.rows["position"].tolist() == [0, 1, CLOSING] and after.sequence == 1
    replay = make(n=3)
    assert [replay.put(block) for block in (*before, after)] == [4, 2]
    check(replay, 3, 3, {})
    worker.step()
    worker.writer.abandon()
    assert worker.writer.take("expert", 0)[0].ended


# What arrives


def test_a_repeated_block_is_dropped() -> None:
    replay = make()
    blocks = blocks_of(worker_of(), [4, 4, 4])
    assert [replay.put(blocks[i]) for i in (0, 0, 1, 0, 2, 1, 2)] == [4, 0, 4, 0, 4, 0, 0]
    assert replay.total == replay.size == 12


def test_a_lost_block_costs_only_itself() -> None:
    replay = make(shelves=1, n=3)
    blocks = blocks_of(worker_of(), [4, 4, 4])
    assert replay.put(blocks[0]) and replay.put(blocks[2])
    batch = check(replay, 3, 3, {})
    assert [t for _, _, t in names(batch)] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert replay._rows["position"][:13].tolist() == [0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11, -1]
    assert replay._rows["count"][:13].tolist() == [0, 1, 2, 3, 4, 4, 4, 4, 4, 5, 6, 7, 8]


def test_the_lost_end_of_an_episode_is_not_taken_for_its_middle() -> None:
    """After the loss comes a block of the next episode at the very position at which the first one stopped."""
    replay, world = make(shelves=1, n=3), World(1, np.random.default_rng(0), 0.0, {})
    worker = Worker((1, 0, 0), world, 3)
    blocks = blocks_of(worker, [4, 2])
    world.restart()
    blocks += blocks_of(worker, [4, 4])
    assert [replay.put(blocks[i]) for i in (0, 3)] == [4, 4]
    assert names(check(replay, 3, 3, {}))[-1][1:] == (1, 7)


def test_a_worker_that_is_gone_leaves_its_shelf_to_others() -> None:
    replay = make(shelves=2, n=2)
    one, other = blocks_of(worker_of(2), [5, 5]), blocks_of(worker_of(name=3), [5, 5])
    for block in one[:2]:
        replay.put(block)
    replay.release((1, 3))  # it holds none
    assert len(replay._held) == 2
    replay.release((1, 0))
    assert not replay._held and (replay._position == 0).all()
    replay.put(other[0])
    assert replay.put(one[2]) == 5  # late
    assert replay.put(other[1]) == 5
    check(replay, 3, 2, {})
    assert replay.size == 25


def test_shelves_stay_level_and_few_streams_use_them_all() -> None:
    replay = make(shelves=5, window=400, length=2)
    for block in blocks_of(worker_of(2, end=0.05, length=2), [10] * 200):
        replay.put(block)
    assert np.ptp(replay._head) < 150 and replay._head.sum() < 1.08 * replay.total  # of which 5 % are closing rows
    endless = make(shelves=5, window=400, length=2)
    for block in blocks_of(worker_of(1, length=2), [10] * 200):
        endless.put(block)
    assert np.ptp(endless._head) < 80 and endless._head.sum() < 1.07 * endless.total
    check(endless, 2, 1, {})


def test_streams_without_a_shelf_of_their_own_leave_the_others_theirs() -> None:
    replay = make(shelves=4, length=2)
    for block in blocks_of(worker_of(6, length=2), [10] * 100):
        replay.put(block)
    assert replay._head.sum() < 1.2 * replay.total  # three in six blocks bring two rows of past and a closing row
    assert np.ptp(replay._head) < 250


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.zeros(3, row_dtype(O + 1, A, C))},
        {"rows": np.zeros(3, row_dtype(O, A + 1, C - 1))},  # as many bytes
        {"past": np.zeros(2, np.float32)},
        {"rows": np.zeros(3, row_dtype(O, A, C))},
        {"rows": np.zeros(1, row_dtype(O, A, C))},
        {"rows": np.zeros((2, 2), row_dtype(O, A, C))},
        {"past": np.zeros(0, row_dtype(O, A, C))},
        {"past": np.zeros(3, row_dtype(O, A, C))},
    ],
)
def test_a_block_that_does_not_fit_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    replay = make()
    first, second = blocks_of(worker_of(), [4, 4])
    replay.put(first)
    before = replay._rows.tobytes(), replay.total
    with pytest.raises(RunFailure, match=r"^replay: a block of stream \(1, 0, 0, 0\) has [^\n]*\.$"):
        replay.put(second._replace(**changes))
    assert (replay._rows.tobytes(), replay.total) == before
    assert replay.put(second) == 4


def test_a_worker_needs_no_jax() -> None:
    code = "import sys, sparc.training.blocks; print([name for name in ('jax', 'jaxlib') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Anything may happen


@settings(max_examples=150, deadline=None)
@given(
    shelves=st.integers(1, 4), workers=st.integers(1, 12), envs=st.integers(1, 6), window=st.integers(2, 80),
    length=st.integers(1, 6), n=st.integers(1, 4), most=st.sampled_from([1, 3, 20]),
    end=st.sampled_from([0, 0.05, 0.5]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_window_is_right_whatever_happens(
    shelves: int, workers: int, envs: int, window: int, length: int, n: int, most: int, end: float, seed: int
) -> None:
    rng, ends = np.random.default_rng(seed), dict[tuple[int, int], int]()
    replay = make(window=window, shelves=shelves, length=length, n=n)
    wire: dict[tuple[int, ...], deque[Block]] = {}  # by stream: blocks on their way
    incarnation = [0] * workers
    taken: set[tuple[int, ...]] = set()  # transitions since the last `clear`

    def start(number: int) -> Worker:
        return Worker((1, number, incarnation[number]), World(envs, rng, end, ends), length, most)

    def deliver() -> None:
        full = [queue for queue in wire.values() if queue]
        if full:
            block = full[rng.integers(len(full))].popleft()
            if rng.random() < 0.9:  # else it is lost
                count = len(block.rows) - 1
                assert replay.put(block) == count
                taken.update(tuple(row) for row in block.rows["step"][:count, :O].astype(int).tolist())
                if rng.random() < 0.1:
                    assert replay.put(block) == 0

    alive, local, put_since = [start(number) for number in range(workers)], World(shelves, rng, end, ends), False
    total = 0
    for _ in range(80):
        number, event = int(rng.integers(workers)), rng.random()
        if event < 0.4:
            for _ in range(rng.integers(1, 9)):
                alive[number].step()
            for block in alive[number].writer.take("expert", 0):
                wire.setdefault(block.stream, deque()).append(block)
        elif event < 0.85:
            deliver()
            put_since = True
        elif event < 0.9:
            if rng.random() < 0.5:
                replay.release((1, number, incarnation[number]))
            incarnation[number] += 1
            alive[number] = start(number)
        elif event < 0.94:
            alive[number].writer.abandon()
            alive[number].world.restart()
        elif event < 0.97:
            if put_since:
                local.restart()
            put_since = False
            for _ in range(rng.integers(1, 9)):
                step = local.step()
                replay.add(*step)
                taken.update(tuple(row) for row in step[0].astype(int).tolist())
        elif event < 0.98:
            replay.clear()
            total += len(taken)
            taken.clear()
        if rng.random() < 0.2:
            check(replay, length, n, ends)
    found = set(names(check(replay, length, n, ends)))
    assert found <= taken and replay.total == total + len(taken)
    if len(taken) + 80 * (length + 2) < window:
        assert found == taken
    if found:
        draw = replay.sample(rng, (50,), history=2, next_history=True)
        assert set(names(draw)) <= found
        bands, position = replay.sample_bands(rng, (0, 2), 5, 100)
        known = position != CLOSING
        np.testing.assert_array_equal(bands.obs[known, 2], position[known])


@settings(max_examples=60, deadline=None)
@given(
    shelves=st.integers(1, 3), streams=st.integers(1, 30), window=st.integers(2, 30), length=st.integers(1, 4),
    margin=st.integers(14, 40), end=st.sampled_from([0, 0.05, 1]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_whoever_saves_when_told_can_go_back_to_the_newest_two_cursors(
    shelves: int, streams: int, window: int, length: int, margin: int, end: float, seed: int
) -> None:
    rng, ends = np.random.default_rng(seed), dict[tuple[int, int], int]()
    sizes: dict[str, Any] = {"window": window, "shelves": shelves, "length": length, "n": 2, "margin": margin}
    with tempfile.TemporaryDirectory() as folder:
        replay = make(Path(folder), **sizes)
        worker = Worker((1, 0, 0), World(streams, rng, end, ends), length, replay.most)
        replay._largest = length + replay.most + 2  # as after a first block of this size
        cursors: deque[tuple[dict[str, np.ndarray], Batch]] = deque(maxlen=2)
        for _ in range(40):
            for _ in range(rng.integers(1, 2 * replay.most)):
                worker.step()
            for block in worker.writer.take("expert", 0):
                if rng.random() < 0.9:
                    replay.put(block)
                if rng.random() < 0.05:
                    replay.release(())
                if replay.must_save:
                    cursors.append((replay.cursor(), everything(replay)))
                    assert not replay.must_save
            if rng.random() < 0.2:
                for cursor, then in cursors:
                    again = make(Path(folder), **sizes)
                    again.seek(cursor)
                    assert_same(everything(again), then)
        assert cursors


def test_taking_turns_with_add() -> None:
    """A run may go on without workers, and with them again."""
    rng, ends = np.random.default_rng(2), dict[tuple[int, int], int]()
    replay, local = make(window=60, shelves=3, n=3), World(3, rng, 0.1, ends)
    for turn in range(12):
        for _ in range(9):
            replay.add(*local.step())
        check(replay, 3, 3, ends)
        worker = Worker((turn, 0, 0), World(4, rng, 0.1, ends), 3)
        for block in blocks_of(worker, [4, 4]):
            replay.put(block)
        check(replay, 3, 3, ends)
        local.restart()


def test_an_observation_that_looks_the_same_does_not_join_two_episodes() -> None:
    """`add` knows that no stream's episode goes on, even if it begins with what the row written ahead holds."""
    replay = Replay(
        None, capacity=40, num_envs=1, obs_size=1, action_size=1, context_size=1, history_length=3, n_step=1,
        discount=GAMMA,
    )  # fmt: skip
    writer, same, no = RowWriter(1, 1, 1, 3, [(1, 0, 0, 0)]), np.ones((1, 1)), np.zeros(1, bool)
    for _ in range(2):
        writer.add(same, same, np.ones(1), no, no, same, same, same)
    (block,) = writer.take("expert", 0)
    replay.put(block)
    replay.add(same, same, np.ones(1), no, no, same, same, same)
    assert replay._rows["position"][:5].tolist() == [0, 1, CLOSING, 0, CLOSING]
