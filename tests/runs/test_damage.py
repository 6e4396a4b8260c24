"""Damage to a run is named by every command that would be misled by it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparc
from sparc import cli
from sparc.errors import RunFailure
from sparc.runs import checkpoint
from sparc.runs.run import Run

pytestmark = pytest.mark.slow
TINY_WINDOW = 80  # rows that may be sampled of each of the five environments
BOAT = "DriftingBoat-v0"
Answer = tuple[int, str, str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    """A run with checkpoints 100, 200 and 300, perhaps without the first."""
    folder = tmp_path_factory.mktemp("trained")
    return sparc.train("only-obs", BOAT, run_dir=folder / "run", updates=300, **tiny_fields)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call the command line in this process: exit code, output, errors."""

    def call(*arguments: object) -> Answer:
        code = cli.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


def newest(run: Path) -> Path:
    return run / "checkpoints" / str(checkpoint.numbers(run / "checkpoints")[-1])


# Which checkpoint is tested


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"sha256": "0", "checkpoint": {}}'])
def test_a_damaged_newest_checkpoint_is_never_passed_over(
    run: Path, damage: bytes, answer: Callable[..., Answer]
) -> None:
    (newest(run) / checkpoint.META).write_bytes(damage)
    code, _, said = answer("evaluate", run, "--grid", 2)
    assert code == 1 and f"{newest(run)} is damaged" in said and f"sparc resume {run}" in said, said
    assert "--checkpoint 200" in said and not list((run / "evaluations").iterdir())
    for load in (lambda: sparc.load(run), lambda: sparc.load(run, "last")):
        with pytest.raises(RunFailure, match="is damaged"):
            load()
    assert answer("resume", run)[0] == 0
    assert answer("evaluate", run, "--grid", 2)[0] == 0


def test_the_result_names_the_checkpoint_and_how_it_was_chosen(run: Path, answer: Callable[..., Answer]) -> None:
    code, _, said = answer("evaluate", run, "--grid", 2, "--checkpoint", "last")
    assert code == 0, said
    written = json.loads((run / "evaluations" / "300-grid2.json").read_text())
    assert (written["updates"], written["checkpoint"]) == (300, "last")


# Where it goes on


def test_other_flags_of_threads_are_named(
    run: Path, answer: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_other")  # JAX has read its own long ago
    code, _, said = answer("resume", run, "--updates", 400)
    assert code == 0 and "XLA_FLAGS is --xla_other and was" in said and "not bit for bit" in said
    assert Run.open(run).manifest()["sessions"][-1]["flags"]["XLA_FLAGS"] == "--xla_other"


# The replay


def test_a_flipped_bit_in_any_live_row_is_noticed(run: Path, answer: Callable[..., Answer]) -> None:
    rows = run / "replay" / "rows.npy"
    sound, rng = rows.read_bytes(), np.random.default_rng(0)
    file = np.load(rows, mmap_mode="r")
    arrays = checkpoint.load(newest(run))[0]
    head, lane = arrays["replay.head"], int(rng.integers(file.shape[0]))
    row = int(rng.integers(max(0, head[lane] - TINY_WINDOW), head[lane])) % file.shape[1]
    at = len(sound) - file.nbytes + (lane * file.shape[1] + row) * file.itemsize + int(rng.integers(file.itemsize))
    damaged = bytearray(sound)
    damaged[at] ^= 1 << int(rng.integers(8))
    rows.write_bytes(damaged)
    code, _, said = answer("resume", run, "--updates", 400)
    assert code == 1 and f"{rows} is damaged, rows of environment {lane} are not what they were" in said, said
    assert "No checkpoint" in said
    rows.write_bytes(sound)
    assert answer("resume", run, "--updates", 400)[0] == 0
