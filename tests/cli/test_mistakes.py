"""The real command line: each mistake and each failure is one line with a remedy."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answers import complaint, succeed

from sparc import cli
from sparc.cli import train
from sparc.config import PRESETS
from sparc.runs import checkpoint

Cli = Callable[..., subprocess.CompletedProcess[str]]
BOAT = "DriftingBoat-v0"

# Mistakes: exit code 2

MISTAKES: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "command": (("tran",), ("'tran'", "did you mean 'train'?", "`sparc --help`")),
    "option before a command": (("--bug",), ("'--bug'", "`sparc --help`")),
    "no arguments": (("train",), ("METHOD, ENV", "`sparc train --help`")),
    "method": (("train", "spark", BOAT), ("'spark'", "did you mean 'sparc'?")),
    "environment": (("train", "sparc", "WindHalfCheeta-v5"), ("did you mean 'WindHalfCheetah-v5'?",)),
    "module": (("train", "sparc", "nowhere:My-v0"), ("nowhere.py",)),
    "option": (("train", "sparc", BOAT, "--batch-siz", 3), ("'--batch-siz'", "did you mean '--batch-size'?")),
    "abbreviation": (("train", "sparc", BOAT, "--batch", 3), ("'--batch'", "did you mean '--batch-size'?")),
    "one word too many": (("envs", "all"), ("does not take 'all'", "`sparc envs --help`")),
    "option without a value": (("train", "sparc", BOAT, "--seed"), ("--seed", "`sparc train --help`")),
    "value too low": (("train", "sparc", BOAT, "--batch-size", 0), ("batch_size must be at least 1, not 0",)),
    "value negative": (("train", "sparc", BOAT, "--learning-rate", "-1"), ("learning_rate must be above 0",)),
    "value too high": (("train", "sparc", BOAT, "--discount", 1.5), ("discount must be at most 1, not 1.5",)),
    "wrong type": (("train", "sparc", BOAT, "--width", "wide"), ("width must be a whole number, not 'wide'",)),
    "no whole number": (("train", "sparc", BOAT, "--width", 1.5), ("width", "1.5")),
    "no choice": (("train", "sparc", BOAT, "--rollout-policy", "export"), ("did you mean 'expert'?",)),
    "no multiple": (("train", "sparc", BOAT, "--updates", 130), ("multiple of chunk (50): take 100 or 150",)),
    "preset": (("train", "sparc", BOAT, "--preset", "ligt"), ("unknown preset 'ligt': did you mean 'light'?",)),
    "no such file": (("train", "sparc", BOAT, "--config", "no.yaml"), ("Cannot read", "no.yaml")),
    "unknown environment option": (
        ("train", "sparc", BOAT, "--env-options", "change_probabilty=0.1"),
        ("unknown option 'change_probabilty'", "did you mean 'change_probability'?"),
    ),
    "environment option of a robot": (
        ("train", "sparc", "WindHopper-v5", "--env-options", "change_probabilty=0.1"),
        ("unknown option 'change_probabilty'", "did you mean 'change_probability'?"),
    ),
    "no name=value": (("train", "sparc", BOAT, "--env-options", "change"), ("name=value", "'change'")),
    "no name": (("train", "sparc", BOAT, "--env-options", "=1"), ("name=value",)),
    "value that is no YAML": (("train", "sparc", BOAT, "--env-options", "a=["), ("name=value", "'a=['")),
    "probability": (
        ("train", "sparc", BOAT, "--env-options", "change_probability=2"),
        ("change_probability must be between 0 and 1", "2"),
    ),
    "probability as text": (
        ("train", "sparc", BOAT, "--env-options", "change_probability=often"),
        ("change_probability must be between 0 and 1", "often"),
    ),
    "demo's seed": (("demo", "--seed", "x"), ("--seed must be a whole number, not 'x'",)),
    "suite's action": (("suite", "rum"), ("did you mean 'run'?", "`sparc suite --help`")),
    "suite's name": (("suite", "run", "mujocco"), ("unknown suite 'mujocco'", "did you mean 'mujoco'?")),
    "suite's file": (("suite", "run", "no.yaml"), ("Cannot read", "no.yaml")),
    "suite's method": (("suite", "run", "smoke", "--methods", "spark"), ("did you mean 'sparc'?",)),
    "suite's environment": (("suite", "run", "smoke", "--envs", "DriftingBoat-v1"), ("DriftingBoat-v0",)),
    "suite's seed": (("suite", "run", "smoke", "--seeds", 0, "x"), ("--seeds must be a whole number, not 'x'",)),
    "suite's updates": (("suite", "run", "smoke", "--updates", 130), ("multiple of chunk (50)",)),
    "suite's jobs": (("suite", "run", "smoke", "--jobs", 0), ("--jobs must be at least 1, not 0",)),
    "suite's option": (("suite", "run", "smoke", "--seed", 1), ("of `sparc suite run`", "'--seeds'")),
    "nothing to show": (("suite", "status", "smoke"), ("runs/smoke", "`sparc suite run smoke`")),
    "nothing to report": (("suite", "report", "smoke"), ("runs/smoke", "`sparc suite run smoke`")),
    "no results": (("report", "nowhere"), ("nowhere holds no results", "sparc suite report")),
    "bench": (("bench", "lerner"), ("did you mean 'learner'?", "`sparc bench --help`")),
    "bench's environment": (("bench", "replay", "--env", "Boat"), ("Boat",)),
    "bench's preset": (("bench", "replay", "--preset", "raceing"), ("did you mean 'racing'?",)),
    "bench's method": (("bench", "replay", "--method", "orakel"), ("did you mean 'oracle'?",)),
    "grid": (("evaluate", "run", "--grid", 1), ("--grid must be at least 2, not 1",)),
    "episodes": (("evaluate", "run", "--episodes", 0), ("--episodes must be at least 1, not 0",)),
    "grid as text": (("evaluate", "run", "--grid", "inf"), ("--grid must be a whole number, not 'inf'",)),
    "no run": (("evaluate", "nowhere"), ("nowhere is not a run directory",)),
    "nothing to resume": (("resume", "nowhere"), ("nowhere is not a run directory",)),
}


@pytest.mark.parametrize(("arguments", "parts"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(sparc_cli: Cli, tmp_path: Path, arguments: tuple[Any, ...], parts: tuple[str, ...]) -> None:
    line = complaint(sparc_cli(*arguments), 2)
    assert [part for part in parts if part not in line] == [], line
    assert not list(tmp_path.iterdir())  # nothing was created


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("batch_sise: 3\n", ("'batch_sise'", "did you mean 'batch_size'?")),
        ("1: 2\n", ("unknown config field '1'",)),
        ("batch_size: many\n", ("batch_size must be a whole number, not 'many'",)),
        ("tune_temperature: 3\n", ("tune_temperature must be of type bool, not 3",)),
        ("env_options: 3\n", ("env_options", "3")),
        ("batch_size: [1\n", ("Cannot read", "my.yaml")),
        ("- batch_size\n", ("my.yaml", "`field: value`")),
        ("", ("my.yaml", "`field: value`")),
        ("\x00", ("Cannot read", "my.yaml")),
    ],
)
def test_mistakes_in_a_config_file(sparc_cli: Cli, tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    (tmp_path / "my.yaml").write_text(text)
    line = complaint(sparc_cli("train", "sparc", BOAT, "--config", "my.yaml"), 2)
    assert [part for part in parts if part not in line] == [], line
    assert [file.name for file in tmp_path.iterdir()] == ["my.yaml"]


def test_options_win_over_the_file_and_the_file_over_the_preset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    monkeypatch.setattr(train, "train_run", lambda run, **how: made.append(run.config) or 0)
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text("batch_size: 17\nwidth: 9\nmethod: rma\nenv_options: {change_probability: 0.5}\n")
    words = ["train", "sparc", BOAT, "--preset", "light", "--config", "my.yaml", "--width", "11", "--tune-temperature"]
    assert cli.main(words) == 0
    (config,) = made
    assert (config.method, config.batch_size, config.width, config.history_length) == ("sparc", 17, 11, 10)
    assert config.tune_temperature and config.env_options == {"change_probability": 0.5}


def test_an_environment_may_have_a_preset_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("sparc.runs.run.Run.create", lambda config, path, lineage: config)
    monkeypatch.setattr(train, "train_run", lambda config, **how: made.append(config.updates) or 0)
    race, wind, boat = "RaceCars-forza-v0", "WindHopper-v5", "DriftingBoat-v0"
    for words in ([race], [race, "--preset", "mujoco"], [wind], [boat]):
        assert cli.main(["train", "sparc", *words]) == 0
    assert made == [PRESETS["racing"]["updates"], 3_000_000, PRESETS["fast"]["updates"], 3_000_000]


def test_an_existing_run_is_not_overwritten(sparc_cli: Cli, copy: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*"))
    line = complaint(sparc_cli("train", "sparc", BOAT, "--run-dir", "run"), 2)
    assert "run exists: continue it with `sparc resume run`, or choose another --run-dir" in line
    assert sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*")) == before


def test_a_run_can_only_be_extended(sparc_cli: Cli, copy: Path) -> None:
    line = complaint(sparc_cli("resume", "run", "--updates", 10), 2)
    assert "--updates 10 is less than the run's own 20" in line
    assert "updates: 20" in (copy / "config.yaml").read_text()


def test_a_folder_that_is_no_run_offers_the_run_below_it(sparc_cli: Cli, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    copy.rename(tmp_path / "runs" / "mine")
    assert "Did you mean runs/mine?" in complaint(sparc_cli("evaluate", "runs"), 2)


@pytest.mark.parametrize(("which", "part"), [("7", "it has 10, 20"), ("newest", "best, last or a number of updates")])
def test_a_checkpoint_that_is_not_there(sparc_cli: Cli, copy: Path, which: str, part: str) -> None:
    assert part in complaint(sparc_cli("evaluate", "run", "--checkpoint", which), 2)


def test_a_run_without_a_checkpoint(sparc_cli: Cli, copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    assert "run has no checkpoint yet: train it first, `sparc resume run`" in complaint(sparc_cli("evaluate", "run"), 2)


def test_a_run_with_a_broken_config(sparc_cli: Cli, copy: Path) -> None:
    (copy / "config.yaml").write_text("method: [")
    assert "run/config.yaml" in complaint(sparc_cli("evaluate", "run"), 2)


def test_a_run_is_no_folder_of_results(sparc_cli: Cli, copy: Path) -> None:
    assert "run is a run, not the results of a suite: `sparc evaluate run`" in complaint(sparc_cli("report", "run"), 2)


def test_a_suite_without_its_simulator_says_so_once_and_leaves_no_folder(sparc_cli: Cli, tmp_path: Path) -> None:
    no_dpkg = {"PATH": str(tmp_path / "nothing")}
    assert "racing needs TORCS" in complaint(sparc_cli("suite", "run", "race-cars", env=no_dpkg), 2)
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_of_a_newer_sparc(sparc_cli: Cli, copy: Path) -> None:
    for number in (10, 20):
        file = copy / "checkpoints" / str(number) / checkpoint.META
        meta = json.loads(file.read_text())["checkpoint"] | {"format": checkpoint.FORMAT + 1}
        digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
        file.write_text(json.dumps({"sha256": digest, "checkpoint": meta}))
    assert "upgrade sparc-rl" in complaint(sparc_cli("evaluate", "run"), 2)


# Failures: exit code 1


@pytest.mark.parametrize("name", [checkpoint.POLICY, checkpoint.META])
def test_a_damaged_checkpoint(sparc_cli: Cli, copy: Path, name: str) -> None:
    file = copy / "checkpoints" / "20" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    line = complaint(sparc_cli("evaluate", "run", "--checkpoint", "last", "--grid", 2), 1)
    assert "checkpoints/20 is damaged" in line
    succeed(sparc_cli("evaluate", "run", "--checkpoint", 10, "--grid", 2))  # the others can still be used


def test_an_environment_that_raises(sparc_cli: Cli, tiny_yaml: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sparc\n"
        "def apply(env, context): raise ZeroDivisionError('no such pendulum')\n"
        "space = sparc.ContextSpace.box(m=('kg', (1, 2), (1, 3)))\n"
        "sparc.register_env('Mine-v0', make='Pendulum-v1', apply=apply, context_space=space)\n"
    )
    done = sparc_cli("train", "only-obs", "mine:Mine-v0", "--config", tiny_yaml, "--updates", 10)
    assert "no such pendulum" in complaint(done, 1)


@pytest.mark.parametrize(("words", "code"), [(("train", "spark", BOAT), 2), (("evaluate", "nowhere"), 2)])
def test_debug_shows_the_traceback_and_the_same_code(sparc_cli: Cli, words: tuple[str, ...], code: int) -> None:
    plain = complaint(sparc_cli(*words), code)
    for arguments in (("--debug", *words), (*words, "--debug")):
        done = sparc_cli(*arguments)
        assert done.returncode == code
        assert done.stderr.startswith("Traceback (most recent call last):")
        assert "sparc.errors.UserError" in done.stderr
        assert done.stderr.splitlines()[-1] == f"sparc: {plain}"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "sparc: interrupted."),
        (OSError(20, "Not a directory", "runs/x"), 1, "sparc: runs/x: Not a directory."),
        (RuntimeError("two\nlines"), 1, "sparc: RuntimeError: two lines (run again with --debug to see where)"),
    ],
)
def test_whatever_happens_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "dispatch", fail)
    assert cli.main(["envs"]) == code
    assert capsys.readouterr().err == line + "\n"


def test_xla_is_quiet_unless_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = cli.QUIET_XLA
    monkeypatch.delenv(name, raising=False)
    for words, expected in ((["envs", "--debug"], None), (["envs"], value)):
        assert cli.main(words) == 0
        assert os.environ.get(name) == expected
    monkeypatch.setenv(name, "0")  # the user's own choice
    assert cli.main(["envs"]) == 0 and os.environ[name] == "0"
