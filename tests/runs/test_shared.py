"""Runs that others may read, or only read: files obey the umask, and commands that only read write elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import skip_or_fail

import sparc
from sparc import cli
from sparc.files import Lock, is_held
from sparc.suites.plan import add_to_plan

SUITE = {"methods": ["sparc"], "envs": ["DriftingBoat-v0"], "seeds": [0], "updates": 20, "grid": 2}


@pytest.fixture
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask for the time of the test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def make_suite(folder: Path, tiny: dict[str, Any]) -> Path:
    """Train, test and report a suite of one run."""
    (folder / "own.yaml").write_text(yaml.safe_dump({**SUITE, "config": {**tiny, "evaluate_every": 10}}))
    (member,) = add_to_plan(str(folder / "own.yaml"), folder / "suite").members()
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    run = sparc.train("sparc", member.config.env, run_dir=folder / "suite" / member.path, **fields)
    assert cli.main(["evaluate", str(run), "--grid", "2", "--adaptation"]) == 0
    words = ["suite", "report", str(folder / "own.yaml"), "--run-dir", str(folder / "suite")]
    assert cli.main(words) == 0
    return run


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0o027, 0o077, 0o002], indirect=True, ids="{:03o}".format)
def test_all_files_obey_the_umask(mask: int, tmp_path: Path, tiny: dict[str, Any]) -> None:
    make_suite(tmp_path, tiny)
    paths = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in paths}
    expected = {
        str(path.relative_to(tmp_path)): (0o777 if path.is_dir() else 0o666) & ~mask for path in paths
    }  # fmt: skip
    assert {name: oct(mode) for name, mode in modes.items() if mode != expected[name]} == {}
    names = {Path(name).name for name in modes}
    assert {"arrays.safetensors", "rows.npy", ".lock", "metrics.jsonl", "report.html", "manifest.json"} <= names


def test_a_lock_is_seen_without_the_right_to_write(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    assert not is_held(file)
    lock = Lock(file, "the run")
    file.chmod(0o444)
    assert is_held(file)
    lock.release()
    assert not is_held(file)


# `sparc` several times, in a process that sees a folder as read-only.
READ_ONLY = """
import json, subprocess, sys
folder = sys.argv[1]
subprocess.run(["mount", "--bind", folder, folder], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
try:
    open(f"{folder}/new", "w")
    sys.exit("the folder can be written to")
except OSError:
    pass
from sparc.cli import main
codes = []
for words in json.loads(sys.argv[2]):
    print("$", *words, file=sys.stderr, flush=True)
    codes.append(main(words))
print(codes)
"""


def test_a_read_only_run_is_tested_shown_and_reported(
    tmp_path: Path, tiny: dict[str, Any], sparc_cli: Callable[..., Any], read_only: tuple[str, ...]
) -> None:
    run = make_suite(tmp_path, tiny)
    suite, out = tmp_path / "suite", tmp_path / "out"
    plan = [str(tmp_path / "own.yaml"), "--run-dir", str(suite)]
    commands = [
        ["evaluate", str(run), "--grid", "2", "--adaptation", "--out", str(out)],
        ["play", str(run), "--steps", "3", "--out", str(out)],
        ["suite", "status", *plan],
        ["suite", "report", *plan, "--out", str(out / "report")],
        ["report", str(suite / "report"), "--out", str(out / "again")],
    ]
    command = (*read_only, sys.executable, "-c", READ_ONLY, str(suite), json.dumps(commands))
    result = sparc_cli(command=command)
    assert result.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0]", result
    there = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    videos = [name for name in there if name.endswith(".mp4")]
    assert {"20-grid2.csv", "20-trace.csv", "report/report.html", "again/report.html"} <= there and len(videos) == 1
    assert not (out / "again" / "manifest.json").exists()  # the tables stay where they are
    refused = sparc_cli(command=(*command[:-1], json.dumps([["evaluate", str(run), "--grid", "2"]])))
    said = [line for line in refused.stderr.splitlines() if line.startswith("sparc: ")]
    assert len(said) == 1 and "choose another folder" in said[0] and "--out" in said[0], refused


@pytest.fixture(scope="module")
def read_only() -> tuple[str, ...]:
    """What begins a command with a mount of its own, or why there can be none."""
    words = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        skip_or_fail("no file system can be mounted here")
    return words
