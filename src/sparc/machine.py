"""What the machine is and what of it may be used."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from sparc.errors import RunFailure

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT = 1 << 30  # bytes
COMPILED_LIMIT = 1 << 29  # bytes of compiled programs on the disk
COMPILED_SECONDS = 0.1  # programs that compile faster are not kept: reading them back takes as long


def usable_cores() -> int:
    """Count the cores that this process may use; NPROC, which XLA heeds as well, can limit them."""
    if (limit := os.environ.get("NPROC", "")).isdecimal() and int(limit) > 0:
        return int(limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


THREAD_FLAGS = ("NPROC", "XLA_FLAGS")  # by which XLA divides its work, which shows in the last bits


def thread_flags() -> dict[str, str]:
    """Return the variables that this process's bits depend on; their words in order, for XLA reads them in any."""
    return {name: " ".join(sorted(set(os.environ.get(name, "").split()))) for name in THREAD_FLAGS}


def adopt_thread_flags(flags: Mapping[str, str]) -> None:
    """Set the variables that a run began with, where the user has not set them, as long as JAX has not read them."""
    if "jax" not in sys.modules:
        for name in THREAD_FLAGS:
            if flags.get(name) and not os.environ.get(name):
                os.environ[name] = flags[name]


def keep_freed_memory() -> None:
    """Let glibc keep what is freed instead of giving it back to the system at once.

    A chunk's histories are tens of megabytes, which come and go hundreds of times a minute. Mapped anew each time,
    every page of them costs a fault, in all up to a third of the training's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, KEPT)
        mallopt(TRIM_THRESHOLD, KEPT)


def cache_folder() -> Path:
    """Return the folder of what can be made anew."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparc-rl"


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs on the disk, so that the next process with the same ones starts in a second.

    A folder set by JAX_COMPILATION_CACHE_DIR is used instead; JAX_ENABLE_COMPILATION_CACHE=false switches the cache
    off. Where the folder cannot be written, everything is compiled, as without a cache.
    """
    import jax

    config: Any = jax.config
    if not config.jax_enable_compilation_cache or config.jax_compilation_cache_dir:
        return
    try:
        folder = cache_folder() / "jax" / compiled_for()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        prune(folder.parent, COMPILED_LIMIT)
    except (OSError, RuntimeError):  # the latter without a home
        return
    # a full disk, or a file that another process is just writing: JAX compiles
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        config.update("jax_persistent_cache_min_compile_time_secs", COMPILED_SECONDS)


def compiled_for() -> str:
    """Return a name for all that XLA's machine code depends on, beyond what JAX looks at: instruction set and cores.

    XLA divides its work by the cores, which shows in the last bits; another processor may lack the instructions.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = ""
    known = f"{platform.machine()} {processor()} {features} {usable_cores()}"
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def prune(folder: Path, limit: int) -> None:
    """Remove the oldest files below a folder until the others fit into so many bytes."""
    found = []
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                found.append((file.stat().st_mtime, file.stat().st_size, file))
        except OSError:
            continue  # another process was faster
    size = sum(bytes for _, bytes, _ in found)
    for _, bytes, file in sorted(found):
        if size <= limit:
            break
        file.unlink(missing_ok=True)
        size -= bytes


def children() -> list[str]:
    """Return the ids of the live processes that this one has started; Linux tells, others do not."""
    return [pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it started, live or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for pid in children():
        with suppress(OSError):  # it has just ended
            # after the name in brackets, from the third field on: utime, stime, cutime and cstime are 14 to 17
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


def processor() -> str:
    """Name the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def code_commit() -> str | None:
    """Return the git commit of this package, with "+changes" where files differ from it; None outside of a clone."""
    package = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), "--no-optional-locks", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # installed into a folder of another clone, it is not
        return git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes").strip()
    except (OSError, subprocess.CalledProcessError):
        return None


INTERRUPTED = 128 + signal.SIGINT  # exit code after Ctrl-C, as a shell has it
PARENT = "SPARC_PARENT"  # environment variable: the process that this one must not outlive


class Stop:
    """Turns Ctrl-C and SIGTERM into a request to save and end; a second signal interrupts at once.

    `with Stop() as stop:` work until `stop.asked`; behind the block, `stop.raise_signal()` ends the program as the
    signal would have.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self._signal: int | None = None
        self.tell = tell  # called at the signal

    @property
    def asked(self) -> bool:
        """Whether it is time to save and end."""
        if self._signal is None and orphaned():
            self._signal = signal.SIGTERM
        return self._signal is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that ended because of the signal; None without one."""
        return None if self._signal is None else 128 + self._signal

    def raise_signal(self) -> None:
        """Raise KeyboardInterrupt after SIGINT and SystemExit(143) after SIGTERM, so that the caller stops too."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal is not None:
            raise SystemExit(self.exit_code)

    def __enter__(self) -> Stop:
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.ask)
        return self

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note the request."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number
        self.tell()

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def orphaned() -> bool:
    """Return whether the process that this one must not outlive is gone."""
    return PARENT in os.environ and str(os.getppid()) != os.environ[PARENT]


def while_wanted(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Report progress as before, and end where nobody waits for the result any more."""

    def report(done: int, total: int) -> None:
        if orphaned():
            raise RunFailure("ended: the process that started this one is gone.")
        progress(done, total)

    return report
