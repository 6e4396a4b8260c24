"""The learner's end of the pool: it starts the process, and two threads read and write. Nothing here ever blocks."""

from __future__ import annotations

import fcntl
import os
import queue
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import sparc
from sparc.errors import RunFailure
from sparc.files import is_held
from sparc.machine import PARENT
from sparc.training.workers import processes, wire
from sparc.training.workers.messages import Begin, Blocks, Status

PREFIX, RANDOM_CHARACTERS = "sparc-", 8  # of the name of a pool's folder, as `mkdtemp` makes it
LOCK = "sparc-pool.lock"  # in it
LONGEST_FOLDER = 40  # characters: Ray's sockets lie up to 65 deeper, and a socket's path has at most 107
NICE = 5  # of simulators: the learner comes first, yet on a busy machine they must not starve, as with Ray's 15
END_SECONDS = 8.0  # that a pool has to end by itself
MOST_WAITING = 250  # blocks that wait for the learner, 64 kB each at most as a rule: more would only be older
REAL_TIME_GATHER_SECONDS = 0.5
ROOM_SECONDS = 0.1  # between two looks for room


class Link:
    """One pool process."""

    module = "sparc.training.workers.pool"  # that the process runs

    def __init__(self, begin: Begin):
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.arrived = self.taken = 0  # blocks; counted by the thread that reads and by the learner
        self.status: Status | None = None
        self.started = self.heard = time.monotonic()
        self.gone = False
        self.words = ""  # the last ones of a pool that is gone
        self._cleaning = threading.Lock()
        self._slots: dict[str, Any] = {}  # the newest message of each kind, to be sent
        self._filled = threading.Condition()
        self.post(begin)
        with ExitStack() as undo:  # where the disk is full, or there are too many files or processes
            self.folder = private_folder()
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.lock = undo.enter_context(hold(self.folder))
            self.sock, theirs = socket.socketpair()
            undo.enter_context(self.sock)
            # a run's first steps are waited for, and simulators bring them in no time
            wire.gather(self.sock, REAL_TIME_GATHER_SECONDS if begin.real_time else wire.GATHER_SECONDS)
            with theirs:
                self.process = self._start(theirs.fileno(), begin)
            undo.callback(self.process.wait)
            undo.callback(self.process.kill)
            for work in (self._read, self._write):
                threading.Thread(target=work, daemon=True).start()
            undo.pop_all()

    def _start(self, theirs: int, begin: Begin) -> subprocess.Popen[bytes]:
        own = pool_environment(self.folder, begin.cluster is None, begin.real_time)
        with (self.folder / "pool.log").open("wb") as log:
            return subprocess.Popen(
                # -P: a file ray.py beside the user must not take Ray's place
                [sys.executable, "-P", "-m", self.module, str(theirs), str(self.folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs, self.lock.fileno()], env=own,
                start_new_session=True,  # Ctrl-C is for the learner, which lets the workers hand over what they have
            )  # fmt: skip

    def post(self, message: Any) -> None:
        """Send a message as soon as the pool takes it; a newer one of its kind replaces it."""
        with self._filled:
            self._slots[type(message).__name__] = message
            self._filled.notify()

    def take(self, wait: float = 0.0) -> Any:
        """Return the next message, after a moment if there is none; raise queue.Empty if there is none then."""
        message = self.inbox.get(timeout=wait) if wait else self.inbox.get_nowait()
        if isinstance(message, Blocks):
            self.taken += len(message.blocks)
        return message

    @property
    def waiting(self) -> int:
        """Return the number of blocks that have arrived and were not taken yet."""
        return self.arrived - self.taken

    def silent_seconds(self) -> float:
        """Return for how long nothing was heard of the pool."""
        return time.monotonic() - self.heard

    def last_words(self) -> str:
        """Return the last line that the pool's process printed."""
        if self.words:
            return self.words
        try:
            lines = (self.folder / "pool.log").read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def close(self, wait: bool) -> None:
        """End the pool and what it has started; where it does not do so itself, by force."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # also wakes our own threads
        with self._filled:
            self.gone = True
            self._filled.notify()
        if wait:
            self._clean_up()
        else:
            threading.Thread(target=self._clean_up, daemon=True).start()

    def _clean_up(self) -> None:
        with self._cleaning:
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            if self.status is not None:
                processes.kill(self.status.processes)
            processes.kill(processes.working_in(self.folder))  # what was started since: it would make its folders anew
            self.sock.close()
            processes.remove_folder(self.folder)
            self.lock.close()

    def _read(self) -> None:
        with suppress(EOFError):
            while True:
                for message in wire.receive_all(self.sock):
                    if isinstance(message, Status):
                        self.status = message
                    else:
                        self.arrived += len(message.blocks) if isinstance(message, Blocks) else 0
                        self.inbox.put(message)
                    self.heard = time.monotonic()
                self._wait_for_room()
        self.words = self.last_words()
        self.gone = True
        self.inbox.put(None)
        self._clean_up()  # at once: the learner may be compiling, and killed before it looks here again

    def _wait_for_room(self) -> None:
        """Read no more while the learner has enough: the pool waits then, and what workers do stays with them.

        What a pool that is gone has left in the socket is little, and its end must not wait.
        """
        while self.waiting >= MOST_WAITING and not self.gone and self.process.poll() is None:
            time.sleep(ROOM_SECONDS)
            self.heard = time.monotonic()  # it is not silent: nobody listens

    def _write(self) -> None:
        with suppress(OSError):
            while True:
                with self._filled:
                    while not self._slots and not self.gone:
                        self._filled.wait()
                    if self.gone:
                        return
                    message = self._slots.pop(next(iter(self._slots)))
                wire.send(self.sock, message)


def pool_environment(folder: Path, local: bool, real_time: bool) -> dict[str, str]:
    """Return the variables of the pool's process, which Ray reads as soon as it is imported.

    A Ray of our own has a token that only we can read. On a cluster, token and niceness are the user's business.
    """
    source = str(Path(sparc.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    found = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    found.pop(PARENT, None)
    found.setdefault("RAY_AUTH_MODE", "token")
    if local:
        with open(os.open(folder / "token", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        for name in ("RAY_AUTH_TOKEN", "RAY_ADDRESS"):
            found.pop(name, None)
        found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        found.setdefault("RAY_worker_niceness", "0" if real_time else str(NICE))
    return found


def private_folder() -> Path:
    """Make a folder that only we can read, with a name short enough for the sockets in it."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if len(parent) + len("/sparc-12345678") <= LONGEST_FOLDER and os.access(parent, os.W_OK):
            sweep(Path(parent))
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    raise RunFailure("no temporary folder with a short name can be written: set TMPDIR to one, such as /tmp.")


def hold(folder: Path) -> IO[bytes]:
    """Lock a folder, and return the open file that holds the lock, for this process and for its pool."""
    new = folder / f"{LOCK}.new"
    file = new.open("xb")
    with suppress(OSError):  # a file system without locks: nobody may conclude then that it is free
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(boot())
        file.flush()
    new.rename(folder / LOCK)  # held as soon as it has its name: see `sweep`
    return file


def boot() -> bytes:
    """Return what tells this machine from others, since its last start; nothing where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return b""


def sweep(parent: Path) -> None:
    """Remove what a learner and a pool that were killed at once have left: Ray's daemons and their folder.

    Only what was made on this machine, since its last start: others may share the parent, and locks may not reach them.
    """
    for folder in parent.glob(f"{PREFIX}{'?' * RANDOM_CHARACTERS}"):
        with suppress(OSError):  # another process may be removing it
            status = folder.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if ours and (folder / LOCK).read_bytes() == boot() != b"" and not is_held(folder / LOCK):
                processes.kill(processes.working_in(folder))
                processes.remove_folder(folder)
