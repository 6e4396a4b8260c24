"""Rows that were taken in after the last checkpoint are there again after kill -9, and only if all of them are."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streams import SIZES, Worker, World, check, everything, names

from sparc.errors import RunFailure
from sparc.methods.batch import Batch
from sparc.training.commits import Commits
from sparc.training.replay import Replay

LENGTH, N, PAGE = 4, 3, 4096
Ends = dict[tuple[int, int], int]


def make(path: Path, window: int = 200, shelves: int = 4, margin: int = 60) -> Replay:
    return Replay(
        path, capacity=window * shelves, num_envs=shelves, history_length=LENGTH, n_step=N, margin=margin, **SIZES
    )


def fill(replay: Replay, ends: Ends, session: int, rounds: int, end: float = 0.05, steps: int = 4) -> None:
    """Take in blocks of two workers, so many times."""
    rng = np.random.default_rng(session)
    workers = [Worker((session, number, 0), World(2, rng, end, ends), LENGTH) for number in range(2)]
    for _ in range(rounds):
        for worker in workers:
            for _ in range(rng.integers(1, steps)):
                worker.step()
            for block in worker.writer.take("expert", 0):
                replay.put(block)


def assert_same(a: Batch, b: Batch) -> None:
    for name in Batch._fields:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_the_resumed_replay_is_where_the_killed_one_was(tmp_path: Path) -> None:
    ends: Ends = {}
    replay = make(tmp_path)
    fill(replay, ends, 1, 20)
    cursor, total = replay.cursor(), replay.total
    fill(replay, ends, 2, 10)
    assert replay.total > total
    again = make(tmp_path)
    again.seek(cursor)
    assert again.roll_forward() == replay.total - total and again.total == replay.total
    assert_same(everything(again), everything(replay))
    assert all(np.array_equal(value, replay.cursor()[name]) for name, value in again.cursor().items())
    fill(again, ends, 3, 10)  # and from there on
    check(again, LENGTH, N, ends)
    third = make(tmp_path)
    third.seek(cursor)
    third.roll_forward()
    assert_same(everything(third), everything(again))
    assert third.must_save  # what was rolled over has used up margin since the cursor


def test_without_blocks_nothing_is_noted_and_nothing_rolls(tmp_path: Path) -> None:
    replay, world = make(tmp_path), World(4, np.random.default_rng(0), 0.1, {})
    for _ in range(20):
        replay.add(*world.step())
    cursor = replay.cursor()
    replay.add(*world.step())
    assert [file.name for file in tmp_path.iterdir()] == ["rows.npy"]
    again = make(tmp_path)
    again.seek(cursor)
    assert again.roll_forward() == 0 and again.total == 80


def test_never_across_a_clear(tmp_path: Path) -> None:
    ends: Ends = {}
    replay = make(tmp_path)
    fill(replay, ends, 1, 12)
    first, then = replay.cursor(), everything(replay)
    replay.clear()
    fill(replay, ends, 2, 3)
    second = replay.cursor()
    fill(replay, ends, 3, 3)
    again = make(tmp_path)
    again.seek(first)
    assert again.roll_forward() == 0
    assert_same(everything(again), then)
    again.seek(second)
    assert again.roll_forward() > 0
    assert_same(everything(again), everything(replay))
    # cleared, but nothing of the new phase was taken in before the end
    again.cursor()
    again.clear()
    third = make(tmp_path)
    third.seek(second)
    assert third.roll_forward() > 0
    assert_same(everything(third), everything(replay))


@pytest.mark.parametrize("how", ["add", "put"])
def test_commits_of_rows_that_were_overwritten_are_forgotten(tmp_path: Path, how: str) -> None:
    """A session that stayed at its cursor writes other rows there; killed too, it must not leave the old commits."""
    ends: Ends = {}
    replay = make(tmp_path)
    fill(replay, ends, 1, 12)
    cursor = replay.cursor()
    fill(replay, ends, 2, 8)
    stayed = make(tmp_path)
    stayed.seek(cursor)
    if how == "add":
        stayed.add(*World(4, np.random.default_rng(3), 0.0, ends).step())
        assert not (tmp_path / "commits").exists()
    else:
        fill(stayed, ends, 3, 1)
    again = make(tmp_path)
    again.seek(cursor)
    assert (again.roll_forward() > 0) == (how == "put")
    check(again, LENGTH, N, ends)
    if how == "put":
        assert_same(everything(again), everything(stayed))


def test_commits_that_are_older_than_the_cursor_are_left_alone(tmp_path: Path) -> None:
    """A run that goes on without workers notes nothing; its checkpoints are newer."""
    ends: Ends = {}
    replay, world = make(tmp_path), World(4, np.random.default_rng(3), 0.1, ends)
    fill(replay, ends, 1, 12)
    old = replay.cursor()
    fill(replay, ends, 2, 2)
    middle = everything(replay)
    for _ in range(20):
        replay.add(*world.step())
    cursor, then = replay.cursor(), everything(replay)
    replay.add(*world.step())
    again = make(tmp_path)
    again.seek(cursor)
    assert again.roll_forward() == 0
    assert_same(everything(again), then)
    again.seek(old)  # the newest checkpoint is damaged
    assert again.roll_forward() > 0
    assert_same(everything(again), middle)


@pytest.mark.parametrize("case", ["continues", "begins", "lost"])
def test_a_block_that_was_cut_short_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Killed after any byte of the rows, the process had noted the block before; what stands there is whole."""
    ends: Ends = {}
    replay = make(tmp_path, window=30, shelves=2)
    fill(replay, ends, 1, 100)
    cursor = replay.cursor()
    worker = Worker((2, 0, 0), World(1, np.random.default_rng(0), 0.0, ends), LENGTH)
    blocks = []
    for number in range(3):
        for _ in range(6):
            worker.step()
        blocks += worker.writer.take("expert", 0)
        if case == "begins" and number == 0:
            worker.writer.abandon()
            worker.world.restart()
    replay.put(blocks[0])
    then, newest = everything(replay), blocks[2 if case == "lost" else 1]
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}

    class Killed(Exception):
        pass

    for cut in range(0, 10 * replay._rows.itemsize, 7):

        def write(self: Replay, lane: int, row: int, new: np.ndarray, cut: int = cut) -> None:
            at = self._at(np.array(lane), row + np.arange(len(new)))
            kept = new.view(np.uint8).reshape(len(new), -1)
            for i, slot in enumerate(at):
                part = max(0, min(kept.shape[1], cut - i * kept.shape[1]))
                self._rows.view(np.uint8).reshape(len(self._rows), -1)[slot, :part] = kept[i, :part]
            raise Killed

        for file, content in files.items():
            with file.open("r+b") as opened:  # the same file: it is mapped
                opened.write(content)
        replay = make(tmp_path, window=30, shelves=2)
        replay.seek(cursor)
        assert replay.roll_forward() == 6
        replay._newest[(2, 0, 0, 0)] = 0  # as it was in the process that is killed
        replay._hold(int(np.flatnonzero(replay._position == 6)[0]), (2, 0, 0, 0))
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(Replay, "_write", write)
            replay.put(newest)
        again = make(tmp_path, window=30, shelves=2)
        again.seek(cursor)
        assert again.roll_forward() == 6
        assert_same(everything(again), then)
        fill(again, ends, 3, 1)
        check(again, LENGTH, N, ends)


def test_of_two_notes_on_a_lane_one_is_always_whole(tmp_path: Path) -> None:
    file = tmp_path / "commits"
    commits = Commits(file, 3, 5)
    assert commits.read() is None
    for number in range(1, 8):
        for lane in range(2):
            commits.write(lane, 10 * lane + number, *[number] * 4)
    newest = [[7] * 5, [17, 7, 7, 7, 7], [-1] * 5]  # nothing was ever noted on the third
    before = [[6] * 5, [16, 6, 6, 6, 6]]

    def read() -> list[list[int]]:
        found = Commits(file, 3, 5).read()
        assert found is not None
        return found.tolist()

    whole = file.read_bytes()
    assert read() == newest
    size = len(whole) // 6  # of a note; number 7 is in the second place
    for at in range(4 * size):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        lane, second = divmod(at // size, 2)
        expected = newest.copy()
        expected[lane] = before[lane] if second else newest[lane]
        assert read() == expected
    for part in range(0, size, 3):  # killed while it wrote number 8 over number 6
        file.write_bytes(b"\1" * part + whole[part:])
        assert read() == newest
    file.write_bytes(whole)
    again = Commits(file, 3, 5)
    again.write(0, 8, 8, 8, 8, 8)  # in the place of the older one
    assert read() == [[8] * 5, *newest[1:]] and file.read_bytes()[size:] == whole[size:]
    for content in (b"", whole[:-1], whole + b"\0" * 8):
        file.write_bytes(content)
        broken = Commits(file, 3, 5)
        assert broken.read() is None
        broken.write(1, 1, 1, 1, 1, 1)
        assert read()[1] == [1] * 5
    for content in (bytes(len(whole)), b"\1" * len(whole)):
        file.write_bytes(content)
        assert read() == [[-1] * 5] * 3
    assert Commits(file, 3, 6).read() is None


def test_after_a_power_cut_with_a_page_lost_it_stays_at_the_cursor(tmp_path: Path) -> None:
    """Whichever page of the rows since the checkpoint did not reach the disk."""
    ends: Ends = {}
    replay = make(tmp_path, window=800, margin=300)
    fill(replay, ends, 1, 900)  # the ring has wrapped
    assert (replay._head > replay._slots).all()
    replay.flush()
    cursor, then = replay.cursor(), everything(replay)
    rows = tmp_path / "rows.npy"
    old = rows.read_bytes()
    fill(replay, ends, 2, 150, steps=6)
    replay.flush()
    new, rolled = rows.read_bytes(), everything(replay)
    pages = [at for at in range(0, len(new), PAGE) if new[at : at + PAGE] != old[at : at + PAGE]]
    assert len(pages) > 5
    for at in [None, *pages]:
        rows.write_bytes(new if at is None else new[:at] + old[at : at + PAGE] + new[at + PAGE :])
        again = make(tmp_path, window=800, margin=300)
        again.seek(cursor)
        added = again.roll_forward()
        assert (added > 0) == (at is None)
        assert_same(everything(again), rolled if at is None else then)


def test_the_row_written_ahead_must_have_reached_the_disk_too(tmp_path: Path) -> None:
    replay = make(tmp_path)
    fill(replay, {}, 1, 12)
    cursor, then = replay.cursor(), everything(replay)
    fill(replay, {}, 2, 4)
    lane = int(np.flatnonzero(replay._position > 0)[0])
    replay._known[lane * replay._slots + replay._head[lane] % replay._slots, 0] += 1
    again = make(tmp_path)
    again.seek(cursor)
    assert again.roll_forward() == 0
    assert_same(everything(again), then)


@pytest.mark.parametrize("folder", ["replay", "replay/shelves4"])
def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    replay = make(tmp_path / "run" / folder)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RunFailure, match=r"Cannot write .*commits: the disk is full, .*; make room.*resume \S+/run`"):
        fill(replay, {}, 1, 1)


def test_a_copied_replay_with_blocks_opens_at_its_cursor(tmp_path: Path) -> None:
    """As a child keeps its parent's: the rows and the cursor, not the commits."""
    ends: Ends = {}
    replay = make(tmp_path / "parent")
    fill(replay, ends, 1, 150)
    cursor, then = replay.cursor(), everything(replay)
    fill(replay, ends, 2, 8)
    (tmp_path / "child").mkdir()
    shutil.copyfile(tmp_path / "parent" / "rows.npy", tmp_path / "child" / "rows.npy")
    child = make(tmp_path / "child")
    child.seek(cursor)
    assert_same(everything(child), then)
    check(child, LENGTH, N, ends)


KILLED = """
import sys
from pathlib import Path
import numpy as np
from test_commits import LENGTH, make
from streams import Worker, World

path, session, envs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
replay = make(path / "replay")
cursor = path / "cursor.npz"
if cursor.exists():
    replay.seek(np.load(cursor))
    print("rolled", replay.total, replay.roll_forward(), flush=True)
rng = np.random.default_rng(session)
World.numbers = 1000 * session
workers = [Worker((session, number, 0), World(envs, rng, 0.03, {}), LENGTH, replay.most) for number in range(3)]
saves = 0
for _ in range(10**9):
    worker = workers[rng.integers(3)]
    for _ in range(rng.integers(1, 30)):
        worker.step()
    for block in worker.writer.take("expert", 0):
        if rng.random() < 0.97:
            replay.put(block)
            print("put", replay.total, flush=True)
        if replay.must_save and rng.random() < 0.9:
            replay.flush()
            with open(path / "new", "wb") as file:
                np.savez(file, **replay.cursor())
            (path / "new").replace(cursor)
"""


@pytest.mark.process
@pytest.mark.parametrize("envs", [2, 40])  # of three workers, on four shelves
def test_no_row_that_was_taken_in_is_lost_by_kill_9(tmp_path: Path, envs: int) -> None:
    """A process takes in blocks as fast as it can; each time, the next one goes on where the last was killed."""
    here = Path(__file__).parent
    places = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    rng, said, kept = np.random.default_rng(0), 0, 0
    for session in range(1, 6):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), str(session), str(envs)],
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": places}, text=True,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for _ in range(int(rng.integers(200, 800))):
                word, total, *added = child.stdout.readline().split()
                if word == "rolled":
                    assert int(total) + int(added[0]) >= said
                    kept += int(added[0])
                said = int(total)
            child.send_signal(signal.SIGKILL)
            for line in child.stdout.read().splitlines(keepends=True):  # what it said before it was gone
                if line.endswith("\n"):
                    said = int(line.split()[1])
        replay = make(tmp_path / "replay")
        with np.load(tmp_path / "cursor.npz") as cursor:
            replay.seek(cursor)
        replay.roll_forward()
        assert replay.total >= said > 0
        found = names(everything(replay))
        assert {stream // 1000 for stream, _, _ in found} <= set(range(1, session + 1)) and len(found) > 150
        assert (replay._head > replay._slots).all()  # the ring has wrapped
        check_ends(replay)
    assert kept > 0


def check_ends(replay: Replay) -> None:
    """Check every window; which episodes terminated is known from the transitions themselves."""
    batch = everything(replay)
    over = batch.discount == 0
    ends = {tuple(key): t for *key, t in batch.next_obs[over].astype(int).tolist()}
    check(replay, LENGTH, N, ends)  # type: ignore[arg-type]
