"""The pool: a process of its own that looks after the workers, and the only place that imports Ray.

Ray ends the process that uses it when a daemon of its own is lost. So the learner starts this one and talks to it
through a socket: `python -m sparc.training.workers.pool FD FOLDER`. When the learner is gone, so are the pool, the
workers and everything that Ray has started.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray.exceptions import RayError, RayTaskError

from sparc.errors import UserError
from sparc.training.workers import processes, wire
from sparc.training.workers.messages import Begin, Blocks, Bye, Failed, Finish, Note, Orders, Status
from sparc.training.workers.rollout import Reply, Rollout, Task, Weights
from sparc.training.workers.slots import Slot, mismatch

LOOP_SECONDS = 0.05  # that the loop waits for an answer of a worker, at most
STATUS_SECONDS = 1.0
IDLE_SECONDS = 1.0  # after which a worker without a grant is asked for a sign of life
TELL_SECONDS = 60.0  # between two notes on workers that wait for room
STORE_BYTES = 100 * 2**20  # of Ray's object store, which holds nothing but weights
NEVER = -3600.0  # s: long before the machine started
DAEMONS = ("raylet", "gcs_server")  # without them nothing goes on


class Pool:
    """Workers on this machine or on a cluster, each with at most one call under way."""

    def __init__(self, sock: socket.socket, folder: Path):
        self.sock, self.folder = sock, folder
        self.sending = threading.Lock()
        self.begin: Begin = wire.receive(sock)
        self.weights: Weights | None = None
        self.held: tuple[int, Any] | None = None  # the newest version and its reference in Ray's store
        self.orders: Orders | None = None
        self.finishing = False
        self.phase = self.last_error = ""
        self.news = threading.Event()
        how = self.begin.first_incarnation, self.begin.limits.rest
        self.slots = [Slot(number, envs, *how) for number, envs in enumerate(self.begin.envs)]
        self.delivered = 0
        self.looked = self.told = NEVER
        self.room = 0
        self.joined = False  # a cluster
        threading.Thread(target=self.read, daemon=True).start()

    # The learner

    def read(self) -> None:
        """Take what the learner sends; when it is gone, end everything."""
        try:
            while True:
                message = wire.receive(self.sock)
                if isinstance(message, Weights):
                    self.weights = message
                elif isinstance(message, Orders):
                    self.orders = message
                elif isinstance(message, Finish):
                    self.finishing = True
                self.news.set()
        except EOFError:
            self.end()

    def send(self, message: Any) -> None:
        """Send something to the learner."""
        with self.sending, suppress(OSError):  # it is gone: `read` ends the pool
            wire.send(self.sock, message)

    def end(self) -> NoReturn:
        """Leave nothing behind: no process, no shared memory, no folder."""
        processes.kill_descendants()  # of a cluster we have none: it ends the workers of a driver that is gone
        processes.remove_folder(self.folder)  # the main thread may be starting Ray in it
        os._exit(0)

    # The loop

    def run(self) -> None:
        """Look after the workers until the learner is done."""
        self.start_ray()
        started = processes.descendants()
        daemons = [found for found in started if processes.name_of(found) in DAEMONS]
        reported = 0.0
        while not self.finishing:
            if gone := [processes.name_of(one) or "a daemon" for one in daemons if not processes.is_alive(one)]:
                return self.send(Failed(f"Ray's {gone[0]} died", final=False))
            self.place()
            self.ask()
            self.listen(LOOP_SECONDS)
            self.check_deadlines()
            if time.monotonic() - reported >= STATUS_SECONDS:
                reported = time.monotonic()
                processes.reap(besides=started)  # simulators of workers that died
                self.send(self.status())
            if all(slot.state == "given up" for slot in self.slots):
                return self.send(Failed(f"All workers failed, the last one with this: {self.last_error}", final=True))
        self.collect_rest()
        self.send(Bye())

    def start_ray(self) -> None:
        """Start Ray on this machine, or connect to a cluster."""
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.begin.cluster is not None:
            address = self.begin.cluster
            with one_line(f"cannot join the Ray cluster at {address}", partial(join_remedy, address)):
                ray.init(address=address, **common)
            self.joined = True
            return
        with one_line("Ray cannot be started"):  # in a folder of its own, for it lets everybody write there
            ray.init(
                num_cpus=len(self.slots), num_gpus=0, include_dashboard=False, object_store_memory=STORE_BYTES,
                _temp_dir=str(self.folder / "r"), _node_ip_address="127.0.0.1", **common,
            )  # fmt: skip

    def refused(self) -> bool:
        """Return whether a session's first pool could not join its cluster; later, one that is away may come back."""
        return self.begin.cluster is not None and not self.joined and self.begin.first_incarnation == 0

    def place(self) -> None:
        """Start the workers that are missing, as far as there is room."""
        now = time.monotonic()
        due = [slot for slot in self.slots if slot.state in ("waiting", "resting") and slot.retry_at <= now]
        if not due:
            return
        if self.begin.cluster is None:
            self.room = len(due)
        elif now - self.looked >= self.begin.limits.room:
            self.looked, self.room = now, int(ray.available_resources().get("CPU", 0))
        for slot in due[: self.room]:
            slot.start(ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Rollout).remote())
            slot.call("greet", slot.actor.greet.remote(), self.begin.limits.start)
        for slot in due[self.room :]:
            slot.state = "waiting"
        self.room = max(self.room - len(due), 0)
        waiting = sum(slot.state == "waiting" for slot in self.slots)
        if waiting and now - self.told >= TELL_SECONDS:
            self.told = now
            placed = sum(slot.state in ("starting", "running") for slot in self.slots)
            self.send(Note(f"{placed} of {len(self.slots)} workers placed, {waiting} wait for room on the cluster."))

    def ask(self) -> None:
        """Begin an exchange with every worker that has none under way."""
        weights, orders = self.weights, self.orders  # another thread replaces them
        if weights is None or orders is None:
            return
        if self.held is None or self.held[0] != weights.number:
            self.held = weights.number, ray.put(weights)
            self.phase = weights.phase
        ready = [slot for slot in self.slots if slot.state == "running"]
        share = max(orders.wanted - self.delivered, 0) // max(len(ready), 1)
        if share == 0 and orders.wanted > self.delivered:
            share = 1
        for slot in ready:
            idle = time.monotonic() - slot.since
            if slot.ref is None and (share or self.begin.real_time or idle >= IDLE_SECONDS):
                task = Task(self.phase, orders.random, share)
                newer = slot.holds != self.held[0]
                slot.holds = self.held[0]
                slot.call("exchange", slot.actor.exchange.remote(self.held[1] if newer else None, task), None)

    def listen(self, seconds: float) -> bool:
        """Take in what workers answer; return whether any did."""
        pending = {slot.ref: slot for slot in self.slots if slot.ref is not None}
        if not pending:
            self.news.wait(seconds)
            self.news.clear()
            return False
        done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0)
        if not done:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=seconds)
        for ref in done:
            slot = pending[ref]
            try:
                answer = ray.get(ref)
            except RayError as error:
                self.bury(slot, *said(error))
            else:
                self.hear(slot, answer)
        return bool(done)

    def hear(self, slot: Slot, answer: Any) -> None:
        """Go on with a worker that has answered."""
        kind = slot.answered()
        if kind == "greet":
            slot.host, slot.pid = answer["host"], answer["pid"]
            if other := mismatch(self.begin.versions, answer["versions"]):
                self.bury(slot, f"{slot.host} has {other}", False)
                return
            setup = slot.setup(self.begin.setup)
            slot.call("begin", slot.actor.begin.remote(setup), self.begin.limits.start)
        elif kind == "begin":
            slot.state = "running"
        else:
            reply: Reply = answer
            steps = slot.heard(reply)
            self.delivered += steps
            self.send(Blocks(slot.number, reply.phase, reply.blocks, reply.returns, reply.counters))
            for note in reply.notes:
                self.send(Note(f"worker {slot.number} on {slot.host}: {note}"))

    def check_deadlines(self) -> None:
        """End workers that hang."""
        for slot in self.slots:
            if slot.ref is not None and (late := slot.overdue(self.begin.limits.hang)):
                if ray.wait([slot.ref], timeout=0)[0]:
                    continue  # it has answered: it was us who stood still, because the learner did and took nothing
                if slot.kind == "greet" and self.begin.cluster is not None:
                    self.withdraw(slot, late)
                else:
                    self.bury(slot, f"no answer for {late:.0f} s", False)

    def withdraw(self, slot: Slot, waited: float) -> None:
        """Let a worker wait for room again that the cluster has not started: others were quicker."""
        with suppress(Exception):
            ray.kill(slot.actor, no_restart=True)
        slot.wait_again()
        self.looked = NEVER
        self.send(Note(f"worker {slot.number}: the cluster has not started it for {waited:.0f} s, it waits for room."))

    def bury(self, slot: Slot, why: str, final: bool) -> None:
        """End a worker that failed, and let another take its place after a while."""
        with suppress(Exception):
            ray.kill(slot.actor, no_restart=True)
        self.send(Note(slot.died(why, final)))
        self.last_error = slot.error
        self.looked = NEVER  # it may have been a whole machine

    def status(self) -> Status:
        """Return how the workers are."""
        return Status([slot.row() for slot in self.slots], processes.descendants())

    def collect_rest(self) -> None:
        """Let the workers hand over what they have, within the time that they are given after each answer.

        The learner may need a while for one: that time is not theirs.
        """
        until = time.monotonic() + self.begin.limits.finish
        asked: set[int] = set()
        while time.monotonic() < until:
            for slot in self.slots:
                if slot.state == "running" and slot.ref is None and slot.number not in asked and self.phase:
                    asked.add(slot.number)
                    task = Task(self.phase, self.orders is not None and self.orders.random, 0, last=True)
                    slot.call("exchange", slot.actor.exchange.remote(None, task), None)
            if not any(slot.ref is not None and slot.state == "running" for slot in self.slots):
                return
            if self.listen(LOOP_SECONDS):
                until = time.monotonic() + self.begin.limits.finish


@contextmanager
def one_line(what: str, remedy: Callable[[str], str] | None = None) -> Iterator[None]:
    """Turn whatever Ray raises into one line."""
    try:
        yield
    except Exception as error:
        text = " ".join(" ".join(map(str, causes(error))).split())
        raise RuntimeError(f"{what}: {text[:300] if remedy is None else remedy(text)}") from error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it: Ray says only there what is wrong."""
    while error is not None:
        yield error
        error = error.__cause__


def join_remedy(address: str, text: str) -> str:
    """Return what to do where a cluster cannot be joined, by what Ray says."""
    lower = text.lower()
    if "authentication token" in lower:
        return (
            "there is no token here, or another one than its own, or no Ray answers there: compare the address with "
            "what `ray start --head` printed, copy ~/.ray/auth_token from its first machine, and set "
            "RAY_AUTH_MODE=token"
        )
    if "version mismatch" in lower:
        return f"{text[lower.index('version mismatch') :][:200]}. Install the cluster's versions of Ray and Python here"
    if "no node info" in lower:
        return f"this machine is no node of it: run `ray start --address {address}` here first"
    return (
        "no Ray of this version answers there, or its token is another one: compare the address with what `ray start "
        f"--head` printed, and ~/.ray/auth_token with the file on its first machine. Ray says: {text[:200]}"
    )


def said(error: RayError) -> tuple[str, bool]:
    """Return in one line what ended a worker, and whether it would end the next one as well."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, UserError):
        return str(cause), True
    text = " ".join(str(cause).split())
    if not isinstance(error, RayTaskError):
        text = "its process died" if "died" in text or "exit" in text else text
    return text[:500], False


def main() -> None:
    """Be the pool of the learner at the other end of a socket."""
    sock, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    processes.keep_orphans()
    pool = Pool(sock, folder)
    try:
        pool.run()
    except Exception as error:
        pool.send(Failed(" ".join(str(error).split()), final=pool.refused()))
        raise
    finally:
        if pool.begin.cluster is not None:
            with suppress(Exception):
                ray.shutdown()
        pool.end()


if __name__ == "__main__":
    main()
