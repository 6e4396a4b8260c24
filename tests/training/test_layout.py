"""A replay whose lanes become more or fewer: every window stays one that really was, and no step is counted twice."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import SIZES, Worker, World, check, everything, names

import sparc
from sparc.config import make_config
from sparc.errors import RunFailure, UserError
from sparc.methods.batch import Batch
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.layout import check_shelves, replay_folder, shelf_margin
from sparc.training.loop import Trainer
from sparc.training.replay import Replay
from sparc.training.workers import source
from sparc.training.workers.link import Link

BOAT = "DriftingBoat-v0"
Ends = dict[tuple[int, int], int]


def make(path: Path | None, lanes: int, capacity: int, length: int, n: int, margin: int = 0) -> Replay:
    return Replay(
        path, capacity=capacity, num_envs=lanes, history_length=length, n_step=n, margin=margin, **SIZES
    )  # fmt: skip


def assert_same(a: Batch, b: Batch) -> None:
    for name in Batch._fields:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


class Session:
    """Takes in the blocks of some streams, in any order, some of them lost."""

    def __init__(self, replay: Replay, number: int, streams: int, rng: np.random.Generator, end: float, ends: Ends):
        self.replay, self.rng = replay, rng
        length, most = replay._length, min(20, replay.most)
        self.workers = [
            Worker((number, worker, 0), World(1, rng, end, ends), length, most) for worker in range(streams)
        ]  # fmt: skip

    def run(self, blocks: int, steps: int) -> None:
        for _ in range(blocks):
            worker = self.workers[self.rng.integers(len(self.workers))]
            for _ in range(self.rng.integers(1, steps)):
                worker.step()
            for block in worker.writer.take("expert", 0):
                if self.rng.random() < 0.95:
                    self.replay.put(block)
            if self.rng.random() < 0.02:
                self.replay.clear()


@settings(max_examples=80, deadline=None)
@given(
    sessions=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=2, max_size=4),
    room=st.integers(80, 3000), length=st.integers(1, 6), n=st.integers(1, 4), end=st.sampled_from([0, 0.05, 0.5]),
    blocks=st.integers(0, 200), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_window_is_right_in_whatever_layout_it_goes_on(
    sessions: list[tuple[int, int]], room: int, length: int, n: int, end: float, blocks: int, seed: int
) -> None:
    """Sessions with other numbers of lanes and of streams, which may be many more or fewer than the lanes."""
    rng, ends = np.random.default_rng(seed), Ends()
    replay = make(None, sessions[0][0], room, length, n, margin=50)
    for number, (lanes, streams) in enumerate(sessions):
        if number:
            other, replay = replay, make(None, lanes, room, length, n, margin=50)
            replay.take_over(other)
            assert replay.total == other.total and not replay._position.any()
            before, after = set(names(everything(other))), set(names(check(replay, length, n, ends)))
            assert after <= before
            stretches = lanes + len(other._lane)
            assert len(before - after) <= stretches * (length + 1) + room % lanes + lanes
            if replay._head.max(initial=0) <= replay._window:
                assert after == before
        Session(replay, number, streams, rng, end, ends).run(blocks, 9)
        check(replay, length, n, ends)


@settings(max_examples=40, deadline=None)
@given(
    lanes=st.tuples(st.integers(1, 30), st.integers(1, 30)), streams=st.integers(1, 60), length=st.integers(1, 4),
    end=st.sampled_from([0, 0.05, 0.5]), blocks=st.integers(0, 300), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_killed_session_in_a_new_layout_loses_nothing_also_when_the_ring_has_wrapped(
    lanes: tuple[int, int], streams: int, length: int, end: float, blocks: int, seed: int
) -> None:
    rng, ends = np.random.default_rng(seed), Ends()
    with tempfile.TemporaryDirectory() as folder:
        old = make(Path(folder) / "old", lanes[0], 600, length, 2, margin=60)
        Session(old, 1, 5, rng, end, ends).run(blocks, 9)
        (Path(folder) / "new").mkdir()
        (Path(folder) / "new" / "commits").write_bytes(b"of an earlier session")

        def open_new() -> Replay:
            return make(Path(folder) / "new", lanes[1], 600, length, 2, margin=60)

        new = open_new()
        new.take_over(old)
        session, cursor = Session(new, 2, streams, rng, end, ends), new.cursor()
        for _ in range(10):
            session.run(20, 5)
            if new.must_save:
                cursor = new.cursor()
        again = open_new()
        again.seek(cursor)
        cleared = not np.array_equal(new._floor, cursor["floor"])
        further = again.roll_forward()
        if not cleared or not further:
            check(again, length, 2, ends)
        if not cleared:
            assert again.total == new.total
            assert set(names(everything(again))) == set(names(everything(new)))


def test_a_stretch_that_begins_in_the_past_of_a_block_brings_all_of_it() -> None:
    """Of five rows of past in a row, a boundary between two lanes may leave two here and three there."""
    replay, world = make(None, 1, 400, 5, 1), World(1, np.random.default_rng(0), 0.0, {})
    worker = Worker((1, 0, 0), world, 5)
    for number in range(8):
        for _ in range(7):
            worker.step()
        for block in worker.writer.take("expert", 0):
            if number % 2:  # the others are lost
                replay.put(block)
    for lanes in range(1, 30):
        other = make(None, lanes, 400, 5, 1)
        other.take_over(replay)
        assert names(check(other, 5, 1, {})) == names(everything(replay))
        assert other.size == replay.size == 28


def test_an_emptied_replay_keeps_its_count(tmp_path: Path) -> None:
    old = make(tmp_path / "old", 3, 100, 2, 1, margin=40)
    Session(old, 1, 3, np.random.default_rng(0), 0.1, {}).run(10, 9)
    old.clear()
    new = make(tmp_path / "new", 5, 100, 2, 1, margin=40)
    new.take_over(old)
    assert (new.size, new.total) == (0, old.total) and old.total > 0
    cursor = new.cursor()
    session = Session(new, 2, 5, np.random.default_rng(1), 0.1, {})
    session.run(3, 9)
    again = make(tmp_path / "new", 5, 100, 2, 1, margin=40)
    again.seek(cursor)
    assert again.roll_forward() == new.total - old.total > 0


def test_many_more_streams_than_before_store_each_step_once() -> None:
    """What the shelves are for: without one, a stream brings H rows along with every block."""
    heads = {}
    for lanes in (20, 300):
        replay = make(None, lanes, 60_000, 50, 1)
        rng = np.random.default_rng(0)
        workers = [Worker((1, number, 0), World(1, rng, 0.0, {}), 50) for number in range(300)]
        for _ in range(20):
            for worker in workers:
                for _ in range(5):
                    worker.step()
                for block in worker.writer.take("expert", 0):
                    replay.put(block)
        heads[lanes] = replay._head.sum() / replay.total
    assert heads[300] == 1.0 and heads[20] > 5.0


def test_a_margin_is_half_a_shelf_whatever_their_number(tiny: dict[str, Any]) -> None:
    config = make_config({"method": "sparc", "env": BOAT, **tiny, "replay_capacity": 100_000}, "light")
    assert [shelf_margin(config, shelves) for shelves in (10, 100, 1000)] == [5000, 500, 50]
    assert shelf_margin(config, 20_000) == 4 * (config.history_length + 2)
    check_shelves(config, 20_000)
    with pytest.raises(UserError, match=r"^replay_capacity 100,000 has room for 20,000 workers, 5 steps each, not for"):
        check_shelves(config, 20_001)
    long = make_config({"method": "sparc", "env": BOAT, **tiny, "history_length": 90}, "light")
    check_shelves(long, 5)  # as many as without workers are never refused


def test_more_workers_than_the_replay_has_room_for(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"room for 8 workers, 50 steps each, not for 9: [^\n]* replay_capacity 450 or"):
        sparc.train("sparc", BOAT, run_dir=tmp_path / "run", workers=9, **{**tiny, "history_length": 50})
    assert not (tmp_path / "run").exists()


# Runs


class MadeUp(Link):
    """Blocks from a process without Ray."""

    module = "sparc.training.workers.traffic"


def totals(run: Path) -> tuple[int, int, int]:
    """Return the lanes, the steps and the noted steps of a run's newest checkpoint."""
    found = Run.open(run)
    arrays, meta = checkpoint.load(found.checkpoints / str(found.updates()))
    assert meta.get("shelves", 0) in (0, len(arrays["replay.head"]))
    return len(arrays["replay.head"]), int(arrays["replay.count"].sum()), int(arrays["collector.counts"][0])


@pytest.mark.process
def test_a_run_goes_on_with_more_fewer_and_no_workers(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.PooledSource, "link_type", MadeUp)
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    replay, (_, steps, _) = run / "replay", totals(run)
    for workers, updates in ((7, 30), (3, 40), (40, 50), (40, 60), (0, 70)):
        sparc.resume(run, updates, workers=workers)
        lanes, counted, noted = totals(run)
        assert lanes == max(workers, 5) and counted == noted >= steps
        steps = counted
        assert (replay_folder(replay, lanes if workers else 0) / "rows.npy").is_file()
    assert steps < 10**6
    sparc.resume(run, 80, workers=0)
    assert totals(run)[1] == steps + 10 * Run.open(run).config.steps_per_update
    assert [file.name for file in sorted(replay.iterdir())] == ["rows.npy"]  # no other layout is left


@pytest.mark.process
def test_a_change_of_layout_that_was_cut_short_is_made_again(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the new layout was saved, the run still has the old one and its checkpoint."""
    monkeypatch.setattr(source.PooledSource, "link_type", MadeUp)
    run, before = Path(shutil.copytree(finished, tmp_path / "run")), totals(finished)

    def killed(_: Trainer) -> None:
        raise RunFailure("killed")

    with monkeypatch.context() as patched, pytest.raises(RunFailure, match="killed"):
        patched.setattr(Trainer, "save", killed)
        sparc.resume(run, 30, workers=9)
    assert totals(run) == before
    sparc.resume(run, 30, workers=9)
    assert totals(run)[0] == 9 and totals(run)[1] >= before[1]
    shutil.rmtree(run / "checkpoints" / "30")  # as if it were damaged: the one before is of the new layout too
    sparc.resume(run, 40, workers=0)
    assert totals(run)[0] == 5


@pytest.mark.process
def test_a_child_keeps_the_replay_of_a_parent_that_had_workers(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.PooledSource, "link_type", MadeUp)
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    sparc.resume(run, 30, workers=11)
    child = sparc.continue_run(run, {"x": (0.5, 1.0)}, updates=10, run_dir=tmp_path / "child")
    for path in (run / "replay" / "shelves11", child / "replay" / "stage1"):
        assert len(np.load(path / "rows.npy", mmap_mode="r")) == 11
    sparc.resume(child, 20)
    assert totals(child)[0] == 5
