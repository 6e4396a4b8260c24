"""The real command line, stopped, killed and starved of disk space: in the end the result is the same, to the bit."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import sparc
from sparc.runs import checkpoint
from sparc.runs.run import Run

BOAT, TOTAL = "DriftingBoat-v0", 2_000
Start, Compare = Callable[..., "subprocess.Popen[str]"], Callable[[Path, Path], None]
# A killed process must not leave half a compiled program in the cache that all tests share: it only reads there.
READ_ONLY_CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "3600"}


@pytest.fixture(scope="module")
def fields(tiny_fields: dict[str, Any]) -> dict[str, Any]:
    return {**tiny_fields, "updates": TOTAL}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> Path:
    """The run that nothing interrupts."""
    return sparc.train("sparc", BOAT, run_dir=tmp_path_factory.mktemp("straight") / "run", **fields)


@pytest.fixture
def config(tmp_path: Path, fields: dict[str, Any]) -> Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(fields))
    return tmp_path / "config.yaml"


def updates_logged(run: Path) -> int:
    """The number of updates in the last line of metrics."""
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return -1
    found = re.search(r'"kind": "(train|evaluation)", "updates": (\d+)', lines[-1]) if lines else None
    return int(found[2]) if found else -1


def wait(process: "subprocess.Popen[str]", condition: Callable[[], Any]) -> None:
    """Look as often as possible until a condition holds; the process must not have ended before."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened in two minutes"
        time.sleep(0.0002)


def test_killed_at_any_moment(
    straight: Path, config: Path, tmp_path: Path, sparc_start: Start, assert_same_run: Compare
) -> None:
    run, rng = tmp_path / "run", np.random.default_rng(7)
    checkpoints = run / "checkpoints"
    begun, left_over = 0, set[str]()

    def writing() -> bool:
        return any(name.endswith(".new") for name in set(os.listdir(checkpoints)) - left_over)

    moments: dict[str, tuple[Callable[[], Any], float]] = {  # what to wait for, and how many seconds from then on
        "starting up": (run.exists, rng.uniform(0.0, 0.5)),
        "taking random actions": ((checkpoints / "0").exists, rng.uniform(0.0, 0.01)),
        "updating": (lambda: updates_logged(run) >= begun + 300, rng.uniform(0.0, 0.2)),
        "evaluating": (lambda: updates_logged(run) > begun and updates_logged(run) % 100 == 0, rng.uniform(0.0, 0.01)),
        "writing a checkpoint": (writing, 0.0),
    }
    for moment, (condition, seconds) in moments.items():
        resumable = (run / "config.yaml").exists()
        if resumable:
            begun, left_over = max(checkpoint.numbers(checkpoints), default=0), set(os.listdir(checkpoints))
        command = ("resume", run) if resumable else ("train", "sparc", BOAT, "--config", config, "--run-dir", run)
        process = sparc_start(*command, env=READ_ONLY_CACHE)
        wait(process, condition)
        time.sleep(seconds)
        process.kill()
        assert process.wait() == -signal.SIGKILL, f"{moment}: too late, the run was over"
    assert TOTAL > updates_logged(run) >= 300, "the kills were not spread over the run"
    sparc.resume(run)
    assert_same_run(run, straight)


# `sparc` that kills itself just before it does something to a path for the n-th time.
KILLER = """
import os, signal, sys
what, path, left = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))

def watch(event, arguments):
    global left
    if event == what and any(str(word).endswith(path) for word in arguments[:2]):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from sparc.cli import main
sys.exit(main())
"""


def test_killed_at_each_step_of_writing(
    config: Path, tmp_path: Path, fields: dict[str, Any], sparc_start: Start, assert_same_run: Compare
) -> None:
    run = tmp_path / "run"
    points = [
        ("os.mkdir", "run/replay", 1),  # half of the run directory is there
        ("os.link", "run/config.yaml", 1),  # all of it but the config, which makes it a run
        ("open", ".0.new/checkpoint.json", 1),  # the first checkpoint has its arrays alone
        ("os.rename", ".metrics.jsonl.new", 1),  # the metrics are about to be replaced
        ("open", ".100.new/arrays.safetensors", 2),  # a checkpoint is whole, but perhaps not on the disk
        ("os.rename", ".100.new", 1),  # it is about to get its name
        ("shutil.rmtree", ".0.old", 2),  # an old one has lost its name, but not its files
    ]
    few = {**fields, "updates": 300}
    config.write_text(yaml.safe_dump(few))
    for what, path, count in points:
        resumable = (run / "config.yaml").exists()
        process = sparc_start(
            *(what, path, count),
            *(("resume", run) if resumable else ("train", "oracle", BOAT, "--config", config, "--run-dir", run)),
            command=(sys.executable, "-c", KILLER),
            env=READ_ONLY_CACHE,
        )
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, f"no {what} {path}: {errors}"
    sparc.resume(run)
    assert not list((run / "checkpoints").glob(".*")), "something half done is left"
    assert_same_run(run, sparc.train("oracle", BOAT, run_dir=tmp_path / "straight", **few))


def test_a_polite_stop_saves_everything(
    straight: Path, config: Path, tmp_path: Path, sparc_start: Start, assert_same_run: Compare
) -> None:
    run, begun = tmp_path / "run", 0
    command: tuple[Any, ...] = ("train", "sparc", BOAT, "--config", config, "--run-dir", run)
    for number in (signal.SIGTERM, signal.SIGINT):
        process = sparc_start(*command)
        wait(process, lambda: updates_logged(run) >= begun + 140)  # noqa: B023 (called at once)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number, errors  # so that `sparc train … && sparc evaluate …` ends
        stopped = checkpoint.numbers(run / "checkpoints")[-1]
        assert begun + 140 <= stopped < TOTAL
        assert f"stopped at {stopped:,} of {TOTAL:,} updates; continue with: sparc resume {run}" in out
        assert "Traceback" not in out + errors and (out + errors).count("stopping: the run is saved after this") == 1
        command, begun = ("resume", run), stopped
    sparc.resume(run)
    assert [session["from_updates"] for session in Run.open(run).manifest()["sessions"]][-1] == begun
    assert_same_run(run, straight)


LOOP = """
import sparc
for seed in range(3):
    sparc.train("only-obs", "DriftingBoat-v0", run_dir=f"seed{seed}", seed=seed, preset="light")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_loop_in_python_after_saving(
    tmp_path: Path, sparc_start: Start, number: signal.Signals, code: int
) -> None:
    process = sparc_start(command=(sys.executable, "-c", LOOP))
    wait(process, lambda: updates_logged(tmp_path / "seed0") >= 500)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert checkpoint.numbers(tmp_path / "seed0" / "checkpoints")[-1] >= 500  # the first evaluation is at 1,000
    assert not (tmp_path / "seed1").exists()


def test_the_next_command_of_a_line_is_not_run_after_a_signal(tmp_path: Path, sparc_start: Start) -> None:
    train = f"{sys.executable} -m sparc train only-obs {BOAT} --preset light --run-dir run"
    shell = sparc_start(command=("sh", "-c", f"{train} && echo next; echo $?"), start_new_session=True)
    wait(shell, lambda: updates_logged(tmp_path / "run") >= 500)
    owner = int((tmp_path / "run" / ".lock").read_text())
    os.kill(owner, signal.SIGTERM)
    out, errors = shell.communicate(timeout=60)
    assert out.splitlines()[-1] == "143" and "next" not in out.splitlines(), errors


# A full disk

# `sparc` that cannot write a file beyond so many bytes.
LIMITED = """
import resource, sys
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
from sparc.cli import main
sys.exit(main())
"""

# `sparc` on a disk of its own, with a copy of a run and no room for more than so many bytes; seen by nobody else.
CROWDED = """
import shutil, subprocess, sys
from pathlib import Path
size, run, disk = int(sys.argv.pop(1)), Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
shutil.copytree(run, disk / "run")
(disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - size))
from sparc.cli import main
code = main()
shutil.rmtree(run)
shutil.copytree(disk / "run", run)
sys.exit(code)
"""
UNSHARE = ("unshare", "--map-root-user", "--mount")
MOUNT = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/tmp"]
CAN_MOUNT = shutil.which("unshare") is not None and subprocess.run(MOUNT, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def short_runs(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> tuple[Path, Path]:
    """A run of 100 updates, and what becomes of it after 200."""
    folder = tmp_path_factory.mktemp("short")
    runs = [sparc.train("sparc", BOAT, run_dir=folder / str(n), **{**fields, "updates": n}) for n in (100, 200)]
    return runs[0], runs[1]


@pytest.mark.parametrize("kind", ["file size", "file system"] if CAN_MOUNT else ["file size"])
def test_no_room_for_a_checkpoint(
    kind: str,
    short_runs: tuple[Path, Path],
    tmp_path: Path,
    sparc_cli: Callable[..., Any],
    assert_same_run: Compare,
) -> None:
    run = shutil.copytree(short_runs[0], tmp_path / "run")
    size = (run / "checkpoints" / "100" / checkpoint.ARRAYS).stat().st_size - 1
    assert size > (run / "replay" / "rows.npy").stat().st_size, "only the checkpoint must be too large"
    (disk := tmp_path / "disk").mkdir()
    if kind == "file size":
        command, where = (sys.executable, "-c", LIMITED, str(size)), run
    else:
        command, where = (*UNSHARE, sys.executable, "-c", CROWDED, str(size), str(run), str(disk)), disk / "run"
    result = sparc_cli("resume", where, "--updates", 200, command=command, env=READ_ONLY_CACHE)
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if not re.search(r"^\d+/\d+ updates|: loading JAX", line)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith(f"sparc: Cannot write {where}/checkpoints/200: ")
    assert ("make room" if kind == "file system" else "ulimit -f") in lines[0] and "sparc resume" in lines[0]
    assert not list((run / "checkpoints").glob(".*")), "half a checkpoint is left on a full disk"
    for file in (short_runs[0] / "checkpoints" / "100").iterdir():
        assert (run / "checkpoints" / "100" / file.name).read_bytes() == file.read_bytes(), "an older one was touched"
    sparc.resume(run)
    assert_same_run(run, short_runs[1])


# `sparc` on such a disk, which fills up completely as soon as a line of metrics is written.
FILLING = """
import shutil, subprocess, sys
from pathlib import Path
run, disk = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", "/dev/shm"], check=True)
Path("/dev/shm/filler").write_bytes(bytes(4096))
shutil.copytree(run, disk / "run")

def fill(event, arguments):
    if event == "open" and str(arguments[0]).endswith("metrics.jsonl") and "a" in str(arguments[1]):
        with open(disk / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass

from sparc.cli import main
sys.addaudithook(fill)
code = main()
(disk / "filler").unlink()
shutil.rmtree(run)
shutil.copytree(disk / "run", run)
sys.exit(code)
"""


@pytest.mark.skipif(not CAN_MOUNT, reason="needs a file system of its own")
def test_a_disk_that_fills_up_ends_the_run_with_one_line(
    short_runs: tuple[Path, Path],
    tmp_path: Path,
    sparc_cli: Callable[..., Any],
    assert_same_run: Compare,
) -> None:
    run = shutil.copytree(short_runs[0], tmp_path / "run")
    (disk := tmp_path / "disk").mkdir()
    command = (*UNSHARE, sys.executable, "-c", FILLING, str(run), str(disk))
    result = sparc_cli("resume", disk / "run", "--updates", 200, command=command, env=READ_ONLY_CACHE, timeout=60)
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if line.startswith("sparc: ")]
    assert len(lines) == 1, result.stderr
    assert re.match(rf"sparc: Cannot write {disk}/run/\S+: the disk is full, \S+ \w+ needed and \S+ \w+ free", lines[0])
    assert f"`sparc resume {disk}/run`" in lines[0]
    sparc.resume(run)
    assert_same_run(run, short_runs[1])
