"""The simulation behind the live page: a thread that steps all policies, obeys commands and publishes frames."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.contexts import ContextSpace, Finite
from sparc.envs.racing import label_of
from sparc.envs.registry import get_env
from sparc.errors import SparcError
from sparc.watch.live.simulation import Contender, Simulation
from sparc.watch.play import middle

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times real time
FRAMES = 60.0  # per second at most
REST = 1.5  # s between the end of an episode and the next one
KEPT = 1200  # samples of the traces: what a new tab gets to see, and the most that one message holds
COMMANDS = 64  # waiting ones; the context has a place of its own, where the newest counts
MEASURED = 1.0  # s over which the real number of steps per second is taken


@dataclass(frozen=True)
class Frame:
    """What all tabs are shown: state as JSON, and the number of the newest sample."""

    number: int
    state: str


class Session(threading.Thread):
    """Simulates while somebody watches. `hello` and `frame` are read by other threads, `tell` is called by them."""

    def __init__(
        self, contenders: Sequence[Contender], seed: int, notify: Callable[[], None], debug: bool = False
    ) -> None:
        super().__init__(name="sparc live", daemon=True)
        self.contenders, self.seed, self.notify, self.debug = contenders, seed, notify, debug
        self.env = contenders[0].source.env
        self.spaces: list[ContextSpace] = [contender.source.space() for contender in contenders]
        self.space = self.spaces[0]  # where it begins; what is tested is the same for all
        self.choices = self.space.grid(1) if isinstance(self.space.test, Finite) else None
        self.context: Array = middle(self.space) if self.choices is None else self._usual_choice()
        self.hello: str | None = None  # once the simulations are set up
        self.frame: Frame | None = None
        self.samples: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self.error = ""
        self.paused, self.speed = False, 1.0
        self.watchers = 0
        self._wake = threading.Condition()
        self._commands: deque[str] = deque(maxlen=COMMANDS)
        self._asked: Array | None = None
        self._stopped = False
        self._simulations: list[Simulation] = []
        self._restarts: list[float] = []  # when the episode of each policy begins anew
        self._resets, self._tick, self._mark = 0, 0, ""
        self._times: deque[float] = deque(maxlen=256)

    # What other threads call

    def tell(self, message: Any) -> None:
        """Take a command of the page; what makes no sense is ignored, for it can only come from a changed page."""
        if not isinstance(message, dict):
            return
        with self._wake:
            context = self._read_context(message)
            if context is not None:
                self._asked = context
            elif message.get("speed") in SPEEDS:
                self.speed = float(message["speed"])
            elif isinstance(message.get("paused"), bool):
                self.paused = message["paused"]
            elif message.get("do") in ("reset", "push", "restart"):
                self._commands.append(message["do"])
            self._wake.notify()

    def _read_context(self, message: dict[str, Any]) -> Array | None:
        try:
            if self.choices is not None:
                index = message.get("choice")
                return self.choices[index] if type(index) is int and 0 <= index < len(self.choices) else None
            context = np.array(message["context"], np.float64)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if context.shape != self.context.shape or not np.isfinite(context).all():
            return None
        return np.clip(context, self.space.test.low, self.space.test.high)

    def _usual_choice(self) -> Array:
        """Return the choice nearest to the middle of the training region, of those that are in it if any is."""
        assert self.choices is not None
        distance = np.abs((self.choices - middle(self.space)) / self.space.half_range).sum(axis=1)
        seen = self.space.is_train(self.choices)
        return np.asarray(self.choices[np.where(seen | ~seen.any(), distance, np.inf).argmin()])

    def watched(self, change: int) -> None:
        """Count tabs: nothing is simulated while there is none."""
        with self._wake:
            self.watchers += change
            self._wake.notify()

    def stop(self) -> None:
        """End the thread, after its present step."""
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def since(self, number: int) -> list[str]:
        """Return the samples after this number as JSON."""
        with self._wake:
            return [sample for at, sample in self.samples if at > number]

    # The thread

    def run(self) -> None:
        """Simulate until stopped; a failure is shown, and waits for the command to restart."""
        while not self._stopped:
            try:
                self._set_up()
                self._simulate()
            except Exception as error:  # the environment is somebody's own code: show whatever it raises
                if self.debug:
                    traceback.print_exc()
                known = isinstance(error, SparcError)
                self.error = str(error) if known else f"{self.env} raised {type(error).__name__}: {error}"
                print(f"sparc: {self.error}", file=sys.stderr, flush=True)
                self._publish(state=False)
                self._wait(lambda: "restart" in self._commands)
                self.error = ""
            finally:
                self._tear_down()

    def _set_up(self) -> None:
        with self._wake:
            self._commands.clear()
            if self._asked is not None:  # perhaps to leave a context that it cannot bear
                self.context, self._asked = self._asked, None
        for contender in self.contenders:
            self._simulations.append(Simulation(contender))
        self._begin()
        self.hello = json.dumps(self.describe())

    def _tear_down(self) -> None:
        simulations, self._simulations = self._simulations, []
        for simulation in simulations:
            try:
                simulation.close()
            except Exception:  # it has failed already, and is thrown away
                continue

    def _begin(self) -> None:
        """Start all policies from the same state."""
        for simulation in self._simulations:
            simulation.begin(self.seed + self._resets, self.context)
        self._restarts = [np.inf] * len(self._simulations)
        self._resets += 1
        self._mark = "reset"

    def _simulate(self) -> None:
        due = shown = time.monotonic()
        while not self._stopped:
            self._obey()
            if self.watchers == 0 or self.paused:
                self._publish()
                self._wait(self._has_work)
                due = time.monotonic()
                continue
            self._step()
            now = time.monotonic()
            if now - shown >= 1 / FRAMES:
                self._publish()
                shown = now
            due = max(due + 1 / (self._simulations[0].rate * self.speed), now - 0.1)  # what is late is not caught up
            with self._wake:
                if not self._stopped and due > now:
                    self._wake.wait_for(lambda: self._stopped or bool(self._commands), due - now)

    def _has_work(self) -> bool:
        asked = bool(self._commands) or self._asked is not None
        return self.watchers > 0 and (asked or not self.paused)

    def _wait(self, ready: Callable[[], bool]) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._stopped or ready())

    def _obey(self) -> None:
        with self._wake:
            context, self._asked = self._asked, None
            commands = list(self._commands)
            self._commands.clear()
        if context is not None and not np.array_equal(context, self.context):
            self.context, self._mark = context, "context"
            if self._can_switch():
                for simulation in self._simulations:
                    simulation.switch(context)
            else:
                self._begin()
        for name in commands:
            if name in ("reset", "restart"):
                self._begin()
            elif name == "push" and self._can_push():
                for simulation in self._simulations:  # the same for all
                    simulation.push(np.random.default_rng(self._tick))
                self._mark = "push"

    def _can_push(self) -> bool:
        return all(simulation.can_push for simulation in self._simulations)

    def _can_switch(self) -> bool:
        return all(simulation.can_switch for simulation in self._simulations)

    def _step(self) -> None:
        now = time.monotonic()
        self._tick += 1
        values: list[dict[str, Any] | None] = []
        for index, simulation in enumerate(self._simulations):
            if now >= self._restarts[index]:
                self._resets += 1
                simulation.begin(self.seed + self._resets, self.context)
                self._restarts[index] = np.inf
            values.append(None if simulation.over else simulation.advance())
            if simulation.over:
                self._restarts[index] = min(self._restarts[index], now + REST)
        sample = {"t": self._tick, "mark": self._mark, "context": self.context.tolist(), "policies": values}
        self._mark = ""
        self._times.append(now)
        with self._wake:
            self.samples.append((self._tick, json.dumps(sample)))

    def _publish(self, state: bool = True) -> None:
        recent = [at for at in self._times if at > time.monotonic() - MEASURED]
        pace = (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 else 0.0
        shared = {
            "paused": self.paused,
            "speed": self.speed,
            "pace": round(pace, 1),
            "context": self.context.tolist(),
            "choice": self._chosen(),
            "ind": self._trained_on(self.context[None])[0],
            "error": self.error,
            "policies": [simulation.state() for simulation in self._simulations] if state else [],
        }
        self.frame = Frame(self._tick, json.dumps(shared))
        self.notify()

    def _chosen(self) -> int:
        """Return which of the choices is in force; -1 if none is, or there are none."""
        if self.choices is None:
            return -1
        same = np.flatnonzero((self.choices == self.context).all(axis=1))
        return int(same[0]) if same.size else -1

    def _trained_on(self, contexts: Array) -> list[list[bool]]:
        """Return for each context which policies were trained in a region that it is in."""
        inside: list[list[bool]] = np.stack([space.is_train(contexts) for space in self.spaces], axis=1).tolist()
        return inside

    def describe(self) -> dict[str, Any]:
        """Return what a page needs to know once."""
        entry, space = get_env(self.env), self.space
        choices = None
        if self.choices is not None:
            train = self._trained_on(self.choices)
            labels = [label_of(self.env, row) or ", ".join(f"{value:g}" for value in row) for row in self.choices]
            choices = [{"label": label, "ind": ind} for label, ind in zip(labels, train, strict=True)]
        return {
            "env": entry.id,
            "summary": entry.summary,
            "names": space.names,
            "units": space.units,
            "train": {"low": space.train.low.tolist(), "high": space.train.high.tolist()},
            "test": {"low": space.test.low.tolist(), "high": space.test.high.tolist()},
            "choices": choices,
            "rate": self._simulations[0].rate,
            "speeds": SPEEDS,
            "can_push": self._can_push(),
            "restarts": not self._can_switch(),
            "policies": [simulation.describe() for simulation in self._simulations],
        }
