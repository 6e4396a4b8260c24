"""Run the members of a suite: as many at a time as there are cores, one thread each, longest first.

A member is created here and then worked on by ordinary commands in processes of their own: `sparc resume`, then
`sparc evaluate`. All that is known of it is in its directory, so the runner can be stopped or killed at any moment.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparc.envs.registry import get_env
from sparc.errors import SparcError, explain_os_error
from sparc.machine import PARENT, Stop, usable_cores
from sparc.methods import find_method
from sparc.methods.phases import phase_options
from sparc.runs.run import Run
from sparc.runs.stages import Stage, first_stage
from sparc.suites.plan import cost, seed_by_seed
from sparc.suites.published import Published
from sparc.suites.status import (
    STATES,
    State,
    Status,
    lacks_expert_alone,
    last_error,
    log_of,
    newest,
    next_test,
    status_of,
    summary_of,
)
from sparc.suites.suite import Member, Suite
from sparc.text import duration

POLL_SECONDS = 0.5
STARTABLE: tuple[State, ...] = ("stopped", "waiting")  # members that no process works on yet
STOPPED = 128 + signal.SIGTERM  # exit code of a member that saved and ended after a signal
LITTLE_ROOM = 1 << 16  # bytes: a disk with less is full
GRACE_SECONDS = 60  # that members have after Ctrl-C to save: a chunk or an evaluation may have to end first
# One thread each: more gain nothing at these sizes, and the results then do not depend on the number of cores.
ONE_THREAD = {"NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OPENBLAS_NUM_THREADS": "1"}
SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # or the first member would take all of its memory


class Runner:
    """The members that wait, and the processes of those that run."""

    def __init__(self, suite: Suite, folder: Path, jobs: int | None = None, published: Published | None = None) -> None:
        self.suite, self.folder, self.jobs = suite, folder, jobs or usable_cores()
        self.members = suite.members()
        self.statuses = {member: status_of(suite, member, folder) for member in seed_by_seed(self.members)}
        for member in (published := published or Published()).standing(self.members, folder):
            if self.statuses[member].state != "done":
                self.statuses[member] = published.status(member)
        self.processes: dict[Member, subprocess.Popen[bytes]] = {}
        self.begun: dict[Member, tuple[float, int]] = {}  # when its process began, and from how many updates
        self.without_expert: set[Member] = set()  # whose expert could not be tested
        self.tests: dict[Member, list[str]] = {}  # which test its process makes, where it evaluates
        self.besides: dict[State, list[float]] = {}  # seconds that finished stages took besides their updates
        self.exit_code: int | None = None  # of a process that ends because of a signal, once there was one
        self.console = Console(stderr=True)

    def run(self) -> bool:
        """Work until every member is done or failed, or until a signal; return whether all are done."""
        self.statuses = {member: self.fully_tested(member, status) for member, status in self.statuses.items()}
        for member, status in self.statuses.items():
            if status.state in ("failed", "other config"):
                self.tell(member, f"{status.state}: {status.note}")
        live = Live(console=self.console, refresh_per_second=2, transient=True)
        with Stop() as stop, live if self.console.is_terminal else nullcontext():
            try:
                while not stop.asked and self.step():
                    if self.console.is_terminal:
                        live.update(self.picture())
                    time.sleep(POLL_SECONDS)
            finally:
                self.end()
        self.exit_code = stop.exit_code
        return all(status.state in ("published", "done") for status in self.statuses.values())

    def fully_tested(self, member: Member, status: Status) -> Status:
        """Return a member's status; one that is done waits if its expert is not tested yet, or a test is damaged.

        The status reads no rows, and a report needs no expert.
        """
        if status.state != "done" or member in self.without_expert:
            return status
        if not next_test(self.suite, run := Run.open(self.folder / member.path)):
            return status
        return replace(status, state="in use" if run.is_locked() else "waiting", note="a test is missing or damaged")

    def step(self) -> bool:
        """Look after the processes, start new ones; False when there is nothing left to wait for."""
        for member in self.statuses:
            self.attempt(self.look_after, member)
        waiting = [member for member, status in self.statuses.items() if status.state in STARTABLE]
        waiting = [member for member in waiting if self.is_ready(member)]
        # what is trained is tested before anything else is trained: results come early
        for member in sorted(waiting, key=lambda member: self.statuses[member].updates < member.config.updates):
            if len(self.processes) < self.jobs:
                self.attempt(self.start, member)
        return any(
            status.state in (*STARTABLE, "training", "evaluating", "in use") for status in self.statuses.values()
        )

    def is_ready(self, member: Member) -> bool:
        """Return whether a member can begin: one that continues another waits for it, and fails with it."""
        if member.parent is None or (self.folder / member.path / "config.yaml").exists():
            return True
        before = self.statuses[member.parent]
        if before.state in ("failed", "other config"):
            self.fail(member, f"it continues {member.parent.path}, which is {before.state}.")
        trained = before.updates >= member.parent.config.updates
        return trained and before.state in (*STARTABLE, "evaluating", "in use", "done")

    def attempt(self, what: Callable[[Member], None], member: Member) -> None:
        """Do something with a member, whose failure must not stop the others."""
        try:
            what(member)
        except (SparcError, OSError) as error:
            self.fail(member, explain_os_error(error) if isinstance(error, OSError) else str(error))

    def look_after(self, member: Member) -> None:
        """Read how far a member is, or take note of its end."""
        process, state = self.processes.get(member), self.statuses[member].state
        if process is not None and process.poll() is None:
            # the directory of a child is there once it has all that it takes from its parent
            if member.parent is None or (self.folder / member.path / "config.yaml").exists():
                self.statuses[member] = Status(state, *newest(Run.open(self.folder / member.path)))
        elif process is not None:
            del self.processes[member]
            self.conclude(member, process.returncode)
        elif state == "in use":
            self.statuses[member] = self.fully_tested(member, status_of(self.suite, member, self.folder))

    def fail(self, member: Member, note: str) -> None:
        """Mark a member as failed and print why; one whose expert alone could not be tested is done."""
        if member in self.processes:
            self.processes.pop(member).kill()
        with suppress(SparcError, OSError):  # whatever failed may fail again here
            status = status_of(self.suite, member, self.folder)
            if status.state == "done" and lacks_expert_alone(self.suite, Run.open(self.folder / member.path)):
                self.without_expert.add(member)
                self.statuses[member] = status
                self.tell(member, f"done; its expert could not be tested: {note}")
                return
        self.statuses[member] = Status("failed", self.statuses[member].updates, note=note)
        self.tell(member, f"failed: {note}")

    def start(self, member: Member) -> None:
        """Start the process that brings a member one stage further."""
        path = self.folder / member.path
        begun = (path / "config.yaml").exists()
        if not begun and member.parent is None:
            stage = member.stage.stage if member.stage else Stage()
            Run.create(member.config, path, first_stage(member.config, stage.ranges, stage.names))
        run = Run.open(path) if begun or member.parent is None else Run(path, member.config)
        state: State = "training" if run.updates() < member.config.updates else "evaluating"
        if state == "training" and not begun and member.parent is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            command = continuation(member, self.folder)
        elif state == "training":
            command = ["resume", str(path), "--updates", str(member.config.updates)]
        if state == "training":
            command += ["--workers", str(self.suite.workers)]  # also 0: whatever a session in between had
        else:
            self.tests[member] = next_test(self.suite, run)
            options = {"--grid": self.suite.grid, "--episodes": self.suite.episodes}
            command = ["evaluate", str(path), *(str(word) for pair in options.items() for word in pair)]
            command += self.tests[member]
        if ":" in run.config.env + run.config.method:  # whoever started the suite has allowed it
            command.append("--allow-import")
        flags = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD['XLA_FLAGS']}".strip()}
        own = {**SHARED_GPU, **os.environ, **ONE_THREAD, **flags, PARENT: str(os.getpid())}
        self.begun[member] = time.monotonic(), run.updates()
        with log_of(path).open("ab") as log:
            self.processes[member] = subprocess.Popen(
                [sys.executable, "-m", "sparc", *command], stdout=log, stderr=log, env=own, start_new_session=True
            )
        self.statuses[member] = Status(state, *newest(run))
        self.tell(member, f"{state} from {run.updates():,} updates" if state == "training" else state)

    def conclude(self, member: Member, code: int) -> None:
        """Take note of how a member's process ended."""
        path = self.folder / member.path
        if code < 0:
            with log_of(path).open("a") as log:
                log.write(
                    f"sparc: killed by {signal.Signals(-code).name}{' (out of memory?)' if code == -9 else ''}.\n"
                )
        failed = code not in (0, STOPPED)  # someone may stop a member alone: it is started again
        before = self.statuses[member].state
        status = self.fully_tested(member, status_of(self.suite, member, self.folder))
        self.statuses[member] = status
        if code == 0 and member in self.begun:
            self.measure(before, status, *self.begun[member])
        if status.state == "done":  # whatever the process said: another one may have been quicker
            summary = summary_of(self.suite, Run.open(path))
            outcome = get_env(member.config.env).criteria.outcome
            self.tell(member, "done: " + "; ".join(f"{r.upper()} {outcome(part)}" for r, part in summary.items()))
        elif status.state in STARTABLE and (failed or (before == "evaluating" and not self.advanced(member))):
            self.fail(member, last_error(path) or self.silent_end(path, code) or status.note or f"exit code {code}")
        elif status.state in ("failed", "other config"):
            self.tell(member, f"{status.state}: {status.note}")

    def silent_end(self, path: Path, code: int) -> str:
        """Return why a member ended without a word, where that is a disk too full for its log; else nothing."""
        if code < 0 or shutil.disk_usage(self.folder).free >= LITTLE_ROOM:
            return ""
        return explain_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(log_of(path))))

    def advanced(self, member: Member) -> bool:
        """Return whether the test that a member's last process had to make is there, so that the next one can begin."""
        return next_test(self.suite, Run.open(self.folder / member.path)) != self.tests.get(member)

    def measure(self, stage: State, status: Status, began: float, updates: int) -> None:
        """Note what a stage took besides its updates: training its start-up, evaluation all of it."""
        trained = (status.updates - updates) / status.speed if status.speed else 0.0
        self.besides.setdefault(stage, []).append(max(time.monotonic() - began - trained, 0.0))

    def end(self) -> None:
        """Let running members save what they have and wait for them, but not for ever."""
        if self.processes:
            self.console.print(f"stopping {len(self.processes)} runs: they save first", highlight=False)
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            for process in self.processes.values():
                process.terminate()
            for member, process in self.processes.items():
                try:
                    process.wait(max(deadline - time.monotonic(), 0.0))
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.tell(member, f"killed, it did not stop within {GRACE_SECONDS} s; its last checkpoint is kept")
                    process.wait()
                self.statuses[member] = self.fully_tested(member, status_of(self.suite, member, self.folder))
        except KeyboardInterrupt:
            for process in self.processes.values():
                process.kill()
            raise

    def tell(self, member: Member, what: str) -> None:
        """Print a line that stays."""
        self.console.print(f"{member.path}: {what}", markup=False, highlight=False, soft_wrap=True)

    def picture(self) -> Group:
        """Show what runs, what failed and what comes next, as much as fits."""
        room = max(self.console.height - 6, 3)
        return Group(self.conclusion(), status_table(self.rows()[:room]))  # the end is cut where it does not fit

    def rows(self) -> list[tuple[Member, Status]]:
        """Return the members, what runs first, what is done last."""
        return sorted(self.statuses.items(), key=lambda item: STATES.index(item[1].state))

    def conclusion(self) -> str:
        """Return how many members are where, and how long the whole will take."""
        counts = Counter(status.state for status in self.statuses.values())
        parts = [f"{counts[state]} {state}" for state in reversed(STATES) if counts[state]]
        besides = {stage: sum(seconds) / len(seconds) for stage, seconds in self.besides.items()}
        left = remaining_seconds(self.statuses.items(), self.jobs, besides)
        return " · ".join([*parts, *([f"about {duration(left)} left"] if left else [])])

    def print_all(self) -> None:
        """Print where every member is, in the suite's order."""
        Console().print(status_table((member, self.statuses[member]) for member in self.members))
        print(self.conclusion())


def continuation(member: Member, folder: Path) -> list[str]:
    """Return the command that continues the run of another member."""
    assert member.parent is not None and member.stage is not None
    config, stage = member.config, member.stage
    early = sum(config.options[name] for name in phase_options(find_method(config.method).phases))
    updates = config.updates - (early if stage.only_adapter else 0)
    places = [str(folder / member.parent.path), "--run-dir", str(folder / member.path)]
    return ["continue", *places, "--updates", str(updates), *stage.options()]


def status_table(rows: Iterable[tuple[Member, Status]]) -> Group:
    """Lay out members and where they are, narrow enough for 80 columns; below them what is wrong with some."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("member", overflow="fold")  # on a second line where a race's score leaves too little room
    for column in ("progress", "updates", "per s", "score"):
        table.add_column(column, justify="left" if column == "progress" else "right", no_wrap=True)
    notes = []
    for member, status in rows:
        bar = ProgressBar(member.config.updates, status.updates, width=10)
        running = status.state == "training"
        table.add_row(
            str(member.path),
            bar if running else status.state,
            f"{status.updates:,}",
            f"{status.speed:.0f}" if running and status.speed else "",
            status.score,
        )
        if status.note:
            notes.append(Text(f"{member.path}: {status.note}", style="red"))
    return Group(table, *notes)


def remaining_seconds(
    statuses: Iterable[tuple[Member, Status]], jobs: int, besides: Mapping[State, float] | None = None
) -> float | None:
    """Estimate how long the rest takes, from the speed of the members that have one; None if none has.

    `besides` are the seconds of a start-up ("training") and of an evaluation, as far as they were measured.
    """
    start_up, evaluation = ((besides or {}).get(stage, 0.0) for stage in ("training", "evaluating"))
    rates, left = list[float](), list[tuple[float, float]]()
    for member, status in statuses:
        config = member.config
        whole = cost(config)
        if status.speed:
            rates.append(config.updates / status.speed / whole)  # seconds per unit of cost
        if status.state in (*STARTABLE, "training", "in use", "evaluating"):
            rest = 1 - min(status.updates / config.updates, 1)
            begins = start_up if status.state in STARTABLE and rest else 0.0
            left.append((whole * rest, begins + evaluation))
    if not rates:
        return None
    rate = sum(rates) / len(rates)
    seconds = [rate * rest + fixed for rest, fixed in left]
    return max(sum(seconds) / jobs, max(seconds, default=0.0))
