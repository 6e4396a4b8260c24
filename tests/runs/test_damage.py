"""Damage to a run is named by every command that would be misled by it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import sparc
from sparc import cli
from sparc.errors import RunFailure, UserError
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.runs.tests import read_summary

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


def test_a_damaged_manifest_is_kept_before_a_new_one_is_written(run: Path, answer: Callable[..., Answer]) -> None:
    file = run / "manifest.json"
    damaged = file.read_bytes().replace(b'"seed": 0', b'"seed": 9')
    file.write_bytes(damaged)
    code, _, said = answer("resume", run, "--updates", 400)
    assert code == 0 and f"{file} is damaged" in said and "kept as manifest.damaged-1.json" in said, said
    assert (run / "manifest.damaged-1.json").read_bytes() == damaged
    assert not (run / "manifest.damaged-2.json").exists()
    assert [session["from_updates"] for session in Run.open(run).manifest()["sessions"]] == [300]


def test_a_changed_summary_of_an_evaluation_is_noticed(run: Path, answer: Callable[..., Answer]) -> None:
    assert answer("evaluate", run, "--grid", 2, "--checkpoint", "last")[0] == 0
    stem = run / "evaluations" / "300-grid2"
    sound = stem.with_suffix(".json").read_text()
    read_summary(stem)
    for old in ('"updates": 300', '"episodes": 1', '"seed": 0'):
        assert sound.count(old) == 1
        stem.with_suffix(".json").write_text(sound.replace(old, f"{old[:-1]}7"))
        with pytest.raises(UserError, match=r"is damaged \(its summary is not what was written"):
            read_summary(stem)


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
    assert said.count(f"{rows} is damaged") == 1 and f"`sparc continue {run} --keep 0` goes on from the best" in said
    rows.write_bytes(sound)
    assert answer("resume", run, "--updates", 400)[0] == 0


# config.yaml


def edited(run: Path, **values: Any) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    for name, value in values.items():
        config[name] = value
        if value is None:
            del config[name]
    (run / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.1}, {"seed": 7}, {"discount": 0.5}, {"env_options": {"max_episode_steps": 7}},
        {"width": None}, {"chunk": 20, "updates": 400}, {"updates": 200}, {"width": 32},
    ],
)  # fmt: skip
def test_a_config_that_was_edited_is_refused(run: Path, changes: dict[str, Any], answer: Callable[..., Answer]) -> None:
    edited(run, **changes)
    name = next(iter(changes))
    for command in (("resume", run), ("evaluate", run, "--grid", 2)):
        code, _, said = answer(*command)
        assert code == 2 and f"config.yaml has {name}: " in said and "put that back" in said, (command, said)


def test_a_field_can_be_changed_openly(
    run: Path, answer: Callable[..., Answer], tmp_path: Path, assert_same_run: Callable[..., None]
) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    code, _, said = answer("resume", run, "--updates", 400, "--set", "learning_rate=1e-4", "critic_clip=5")
    assert code == 0, said
    opened = Run.open(run)
    assert opened.config.learning_rate == 1e-4 and opened.config.critic_clip == 5.0
    (change,) = opened.manifest()["changes"]
    assert change == {"from_updates": 300, "fields": {"learning_rate": [3e-4, 1e-4], "critic_clip": [10.0, 5.0]}}
    assert answer("evaluate", run, "--grid", 2, "--checkpoint", 300)[0] == 0
    sparc.resume(other, updates=500, learning_rate=1e-4, critic_clip=5)
    sparc.resume(run, updates=500)
    assert_same_run(run, other)
    assert "width cannot be changed" in answer("resume", run, "--updates", 600, "--set", "width=9")[2]
