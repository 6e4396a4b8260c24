"""A learner that cannot keep up: it takes in what it has time for, the rest waits where it was made. No Ray in here."""

import math
import os
import queue
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pooling import wait_for

from sparc.training.blocks import Block
from sparc.training.replay import Replay
from sparc.training.workers import link, source, wire
from sparc.training.workers.messages import Begin, Blocks, Bye, Failed, Finish, Limits
from sparc.training.workers.traffic import Noise

BOAT = "DriftingBoat-v0"
LENGTH, EPISODE = 4, 12


class Clock:
    """Time that goes on only where the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeLink:
    """A link with messages in it, and others that come later."""

    def __init__(self, clock: Clock, *messages: Any) -> None:
        self.clock, self.heard = clock, clock.now
        self.messages, self.later = deque(messages), list[tuple[float, Any]]()
        self.posted = list[Any]()
        self.process = SimpleNamespace(kill=lambda: self.posted.append("killed"))
        self.status: Any = SimpleNamespace(rows=[])

    def take(self, wait: float = 0.0) -> Any:
        if not self.messages:
            self.clock.now += wait
            while self.later and self.later[0][0] <= self.clock.now:
                self.heard, message = self.later.pop(0)
                self.messages.append(message)
        if not self.messages:
            raise queue.Empty
        return self.messages.popleft()

    @property
    def waiting(self) -> int:
        return sum(len(message.blocks) for message in self.messages if isinstance(message, Blocks))

    def silent_seconds(self) -> float:
        return self.clock.now - self.heard

    def post(self, message: Any) -> None:
        self.posted.append(message)

    def last_words(self) -> str:
        return ""

    def close(self, wait: bool) -> None: ...


def blocks_of(worker: int, count: int) -> list[Block]:
    """Return the blocks of one environment, five steps each or what its episode leaves."""
    noise = Noise((3, 2, 1), LENGTH, EPISODE, (1, worker, 0, 0))
    found = list[Block]()
    while len(found) < count:
        found += noise.blocks(5, "train", 0)
    return found[:count]


def steps_of(blocks: list[Block]) -> int:
    return sum(len(block.rows) - 1 for block in blocks)


class Learner(source.PooledSource):
    """The learner's end, with a clock that a block takes 10 ms of."""

    def __init__(self, clock: Clock, *messages: Any) -> None:
        self.clock, self.order = clock, list[tuple[int, int]]()
        self.replay = Replay(
            None, capacity=4_000, num_envs=2, obs_size=3, action_size=2, context_size=1, history_length=LENGTH,
            n_step=1, discount=0.9, margin=2_000,
        )  # fmt: skip
        self.untaken, self.recent, self.worker_counters = deque(), deque(), {}
        self.incarnations, self.estimate, self.phase = {}, None, "train"
        self.unseen = []
        self.session = 1
        self.received = self.episodes = self.failures = self.pools = self.restarts = 0
        self.published = self.arrived = self.watched = self.retry_at = self.processor_before = 0.0
        self.options = SimpleNamespace(count=2)  # type: ignore[assignment]
        self.run = SimpleNamespace(path="run", resume_command="sparc resume run")  # type: ignore[assignment]
        self.link: Any = FakeLink(clock, *messages)

    def put(self, block: Block) -> None:
        super().put(block)
        self.order.append((block.stream[1], block.sequence))
        self.clock.now += 0.01


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(source, "time", made)
    return made


def message(worker: int, blocks: list[Block]) -> Blocks:
    return Blocks(worker, "train", blocks, [], {})


# Between two chunks


def test_taking_in_ends_when_its_time_is_up_and_goes_on_where_it_was(clock: Clock) -> None:
    first, second = blocks_of(0, 7), blocks_of(1, 7)
    made = Learner(clock, message(0, first[:4]), message(1, second), message(0, first[4:]))
    assert not made.drain(most=0.025)
    assert made.order == [(0, 0), (0, 1), (0, 2)]  # the third ends after 30 ms
    assert made.waiting == 11
    assert not made.drain(most=0.0)
    assert len(made.order) == 4 and made.waiting == 10  # one, however little time there is
    for _ in range(10):
        made.drain(most=0.0)
    assert made.order == [(0, n) for n in range(4)] + [(1, n) for n in range(7)] + [(0, n) for n in range(4, 7)]
    assert made.waiting == 0
    assert made.replay.total == made.received == steps_of(first) + steps_of(second)


def test_the_time_is_that_of_taking_in_not_of_waiting_for_the_first_block(clock: Clock) -> None:
    made = Learner(clock)
    made.link.later = [(clock.now + 0.1, message(0, blocks_of(0, 5)))]
    made.drain(0.1, 0.025)
    assert len(made.order) == 3


def test_without_a_limit_all_is_taken_in_but_not_over_a_checkpoint(clock: Clock) -> None:
    made = Learner(clock, message(0, blocks_of(0, 600)))
    made.replay = Replay(
        None, capacity=4_000, num_envs=2, obs_size=3, action_size=2, context_size=1, history_length=LENGTH,
        n_step=1, discount=0.9, margin=100,
    )  # fmt: skip
    assert not made.drain() and made.replay.must_save and made.waiting > 0
    saves = 0
    while made.waiting:
        made.replay.cursor()  # as a checkpoint does
        made.drain()
        saves += 1
    assert saves > 1 and made.replay.total == steps_of(blocks_of(0, 600))


def test_collecting_is_limited(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Learner(clock, message(0, blocks_of(0, 50)))
    asked = list[float]()
    monkeypatch.setattr(made, "drain", lambda wait, most: asked.append(most))
    for name in ("publish", "watch", "write_table"):
        monkeypatch.setattr(made, name, lambda *_: None)
    made.config = SimpleNamespace(random_steps=0, chunk=10, steps_per_update=10)  # type: ignore[assignment]
    made.weights, made.began, made.demand, made.base = None, None, 0, 0
    for real_time in (True, False):
        made.real_time = real_time
        made.collect(SimpleNamespace(phase="train"), None, 10, False)  # type: ignore[arg-type]
    assert asked == [source.TAKE_IN_SECONDS, math.inf]  # simulators deliver what was asked for


# At the end


def test_at_the_end_everything_is_taken_in_however_long_it_takes(clock: Clock) -> None:
    first, second = blocks_of(0, 900), blocks_of(1, 900)
    made = Learner(clock, message(0, first), message(1, second), Bye())
    made.finish()
    assert isinstance(made.link.posted[0], Finish)
    assert made.replay.total == steps_of(first) + steps_of(second) and made.waiting == 0


def test_a_pool_that_goes_on_delivering_at_the_end_is_heard_out_and_a_silent_one_is_not(clock: Clock) -> None:
    blocks = blocks_of(0, 20)
    made = Learner(clock)
    began = clock.now
    made.link.later = [(began + 2.0 * n, message(0, blocks[n - 1 : n])) for n in range(1, 21)]
    made.finish()
    assert made.replay.total == steps_of(blocks)
    assert clock.now - began - 40.0 == pytest.approx(source.LIMITS.finish + source.LINGER_SECONDS, abs=0.2)
    made = Learner(clock)
    made.link.heard = began = clock.now
    made.finish()
    assert clock.now - began == pytest.approx(source.LIMITS.finish + source.LINGER_SECONDS, abs=0.2)


@pytest.mark.parametrize(
    "end", [None, Failed("Ray's raylet died", final=False), Failed("All workers failed", final=True)]
)
def test_a_pool_that_dies_at_the_end_has_delivered_what_it_had(clock: Clock, end: Failed | None) -> None:
    """Ctrl-C often reaches a whole group of processes: what is learned must be saved all the same."""
    blocks = blocks_of(0, 20)
    made = Learner(clock, message(0, blocks[:10]))
    made.link.later = [(clock.now + 0.5, message(0, blocks[10:])), (clock.now + 1.0, end)]
    made.finish()
    assert made.link is None and made.replay.total == steps_of(blocks)


SLOW_LEARNER = """
from types import SimpleNamespace as Some
from sparc.training.workers import pool as room
from sparc.training.workers.messages import Limits

now, heard = 0.0, []
room.time = Some(monotonic=lambda: now)
pool = room.Pool.__new__(room.Pool)
pool.begin, pool.phase, pool.orders = Some(limits=Limits()), "train", None
pool.slots = [room.Slot(number, 1, 0) for number in range(4)]
for slot in pool.slots:
    slot.state = "running"
    slot.actor = Some(exchange=Some(remote=lambda weights, task: task))


def listen(seconds):
    global now
    for slot in pool.slots[:3]:  # the last one hangs
        if slot.ref is not None:
            now += 1.5
            heard.append(slot.number)
            slot.answered()
            return True
    now += seconds
    return False


pool.listen = listen
pool.collect_rest()
print(heard, 6.4 < now < 6.6)
"""


@pytest.mark.process  # Ray is imported there, not here
def test_workers_hand_over_all_though_the_learner_is_slow_to_take_it() -> None:
    """Each answer takes it 1.5 s here, and there are four: more than a worker is given."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW_LEARNER], capture_output=True, text=True, check=True
    )  # Ray stays there
    assert done.stdout.splitlines()[-1] == "[0, 1, 2] True"


# What does not fit


class Local(link.Link):
    """A link whose pool is this process: it writes to `theirs`."""

    def _start(self, theirs: int, begin: Begin) -> subprocess.Popen[bytes]:
        self.theirs = socket.socket(fileno=os.dup(theirs))
        return subprocess.Popen(["sleep", "600"])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    monkeypatch.setattr(link, "MOST_WAITING", 20)
    monkeypatch.setattr(link, "ROOM_SECONDS", 0.001)
    monkeypatch.setattr(link, "END_SECONDS", 0.1)
    found = Local(Begin(None, [1], "nowhere:1", False, {}, 0, Limits()))  # type: ignore[arg-type]
    yield found
    found.close(wait=True)
    found.theirs.close()


BIG = np.zeros(100_000, np.uint8)  # of which a socket holds two


def big(number: int) -> Blocks:
    """Return a message with one block, as large as they get."""
    return message(0, [Block((1, 0, 0, 0), number, "train", 0, BIG[:0], BIG, False)])


def test_what_the_learner_has_no_room_for_stays_with_the_pool(made: Local) -> None:
    """Without a limit the reader takes all of it, and the learner's memory grows."""
    writer = threading.Thread(target=lambda: [wire.send(made.theirs, big(n)) for n in range(200)])
    writer.start()
    wait_for(lambda: made.waiting >= 20)
    made.heard = -math.inf
    wait_for(lambda: made.heard > 0)  # it waits for room: what else should the pool say?
    assert made.waiting < 20 + link.wire.AT_ONCE // len(BIG) + 2
    assert made.silent_seconds() < 60.0
    assert writer.is_alive()  # it waits for the learner, as the pool does then
    found = [made.take(60.0).blocks[0].sequence for _ in range(200)]
    assert found == list(range(200)) and made.waiting == 0
    writer.join()


def test_the_end_of_a_pool_does_not_wait_for_room(made: Local) -> None:
    for _ in range(25):
        wire.send(made.theirs, message(0, blocks_of(0, 1)))
    wait_for(lambda: made.waiting >= 20)
    for _ in range(5):
        wire.send(made.theirs, message(0, blocks_of(0, 1)))
    made.process.kill()
    made.theirs.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: made.gone and not made.folder.exists())  # though nobody has taken anything
    assert made.waiting == 30
    assert [type(made.take(60.0)) for _ in range(31)] == [Blocks] * 30 + [type(None)]


def test_a_silent_pool_is_ended_once_all_that_it_sent_is_taken_in(clock: Clock) -> None:
    made = Learner(clock, message(0, blocks_of(0, 30)))
    ended, now = made.link, clock.now
    while made.link is ended:
        made.drain(most=0.05)
        clock.now += 10.0  # a chunk
        made.watch(False)
        made.watched = clock.now
    assert "killed" in ended.posted and clock.now - now > 31.0
    assert made.replay.total == steps_of(blocks_of(0, 30))


def test_blocks_that_wait_are_shown(clock: Clock) -> None:
    made = Learner(clock, message(0, blocks_of(0, 7)))
    made.updates, made.began = 10, None
    made.drain(most=0.0)
    assert made.numbers()["workers_blocks_waiting"] == 6.0
