"""A pool without workers: it sends what so many real-time workers would, for `sparc bench workers`. Without Ray.

`python -m sparc.training.workers.traffic FD FOLDER`, in the place of the pool. What it sends has the sizes, rates and
order of the real thing, each worker's blocks every half second; only the numbers in it are noise.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

from sparc.envs.registry import get_env, make_vector_env
from sparc.training.blocks import MOST, Block, Stream
from sparc.training.lanes import CLOSING, row_dtype
from sparc.training.workers import wire
from sparc.training.workers.messages import Begin, Blocks, Bye, Finish, Status
from sparc.training.workers.rollout import REAL_TIME_EXCHANGE_SECONDS, Reply, Stats, Weights
from sparc.training.workers.slots import Slot

STATUS_SECONDS = 1.0
TICK_SECONDS = 0.05
BEHIND_SECONDS = 0.25  # of a tick: this process was stopped, and so would be the workers


class Noise:
    """One environment that nobody simulates. Its blocks cost next to nothing, so that one process can be hundreds."""

    def __init__(
        self, sizes: tuple[int, int, int], history_length: int, episode: int, stream: Stream, most: int = MOST
    ) -> None:
        self.length, self.episode, self.stream, self.most = history_length, episode, stream, most
        self.position = self.sequence = 0
        self.rows = np.zeros(history_length + most + 1, row_dtype(*sizes))
        rng = np.random.default_rng(stream)
        for name in ("step", "reward"):
            self.rows[name] = rng.normal(size=self.rows[name].shape).clip(-1.0, 1.0)

    def blocks(self, steps: int, phase: str, version: int) -> list[Block]:
        """Return the blocks of the next steps."""
        found = []
        while steps:
            n, position = min(steps, self.most, self.episode - self.position), self.position
            past = self.rows[: min(self.length, position)].copy()
            past["position"] = CLOSING
            rows = self.rows[self.length : self.length + n + 1].copy()
            rows["position"] = np.arange(position, position + n + 1)
            rows["position"][-1] = CLOSING
            ended = position + n == self.episode
            found.append(Block(self.stream, self.sequence, phase, version, past, rows, ended))
            self.sequence += 1
            self.position = 0 if ended else position + n
            steps -= n
        return found


class Traffic:
    """The workers' end of the link."""

    def __init__(self, sock: socket.socket, folder: Path):
        self.sock, self.folder = sock, folder
        self.begin: Begin = wire.receive(sock)
        self.weights: Weights | None = None
        self.finishing = False
        self.ticking, self.ticked, self.stood_still = threading.Lock(), time.monotonic(), 0.0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Take what the learner sends, weights above all; when it is gone, end."""
        try:
            while True:
                message = wire.receive(self.sock)
                if isinstance(message, Weights):
                    self.weights = message
                self.finishing |= isinstance(message, Finish)
        except EOFError:
            self.end()

    def watch(self) -> None:
        """Notice when this process was stopped. While it only waits for the learner, the workers would go on."""
        while True:
            self.clock()
            time.sleep(TICK_SECONDS)

    def clock(self) -> float:
        """Return the time by the workers' clocks."""
        with self.ticking:
            now = time.monotonic()
            passed, self.ticked = now - self.ticked, now
            self.stood_still += passed if passed > BEHIND_SECONDS else 0.0
            return now - self.stood_still

    def end(self) -> NoReturn:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def run(self) -> None:
        """Let one worker after the other deliver what it has done since its turn before, an exchange or more ago."""
        setup, count = self.begin.setup, len(self.begin.envs)
        entry, venv = get_env(setup.env), make_vector_env(setup.env, 1)
        spaces = venv.single_observation_space, venv.single_action_space
        obs, action = (int(np.prod(space.shape or ())) for space in spaces)
        sizes = obs, action, setup.lineage.space(entry).size
        venv.close()
        period = entry.period or REAL_TIME_EXCHANGE_SECONDS
        first = self.begin.first_incarnation
        noises = [
            Noise(sizes, setup.history_length, entry.max_episode_steps, stream, setup.block_rows)
            for stream in ((setup.session, worker, first, 0) for worker in range(count))
        ]
        slots = [Slot(worker, 1, first) for worker in range(count)]
        for slot in slots:
            slot.state = "running"
        while self.weights is None:
            time.sleep(0.01)
        threading.Thread(target=self.watch, daemon=True).start()
        began, turn, reported = self.clock(), 0, 0.0
        done = [
            began + REAL_TIME_EXCHANGE_SECONDS * (worker / count - 1) for worker in range(count)
        ]  # until when each has stepped
        while not self.finishing:
            worker, turn = turn % count, turn + 1
            while (early := done[worker] + REAL_TIME_EXCHANGE_SECONDS - self.clock()) > 0:
                time.sleep(early)
            steps = max(1, int((self.clock() - done[worker]) / period + 1e-6))
            done[worker] += steps * period
            phase = self.weights.phase
            blocks = noises[worker].blocks(steps, phase, self.weights.version)
            slots[worker].heard(Reply(blocks, Stats(steps=round((done[worker] - began) / period)), [], [], {}, phase))
            wire.send(self.sock, Blocks(worker, phase, blocks, [], {}))
            if time.monotonic() - reported >= STATUS_SECONDS:
                reported = time.monotonic()
                wire.send(self.sock, Status([slot.row() for slot in slots], []))
        wire.send(self.sock, Bye())


def main() -> None:
    """Be the pool of the learner at the other end of a socket."""
    traffic = Traffic(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    try:
        traffic.run()
    finally:
        traffic.end()


if __name__ == "__main__":
    main()
