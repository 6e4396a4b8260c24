"""The real command line: what each command does, and that each mistake is one line with a remedy."""

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparc
from sparc import cli
from sparc.cli import bench, commands
from sparc.cli.display import READS
from sparc.config import PRESETS, make_config
from sparc.methods import all_methods
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.loop import Trainer
from sparc.watch import laps as race_replay

Cli = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = (
    "demo", "train", "resume", "evaluate", "play", "suite", "suite list", "suite run", "suite status", "suite report",
    "report", "envs", "methods", "bench",
)  # fmt: skip
BOAT = "DriftingBoat-v0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    """A run of 20 updates with the checkpoints 10 and 20; copy it before changing it."""
    fields = {**tiny_fields, "evaluate_every": 10, "updates": 20}
    return sparc.train("only-obs", BOAT, run_dir=tmp_path_factory.mktemp("finished") / "run", **fields)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The same, to break: `run` in the directory where commands run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check the form of an error and give its line."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("sparc: ") and "Traceback" not in lines[0]
    return lines[0].removeprefix("sparc: ")


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "sparc: " not in done.stderr
    return done.stdout


# Help and lists


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(sparc_cli: Cli, command: str) -> None:
    out = succeed(sparc_cli(*command.split(), "--help"))
    assert out.startswith(f"usage: sparc {command}")
    examples = out.split("examples:\n")[1].splitlines()
    assert examples and all(line.startswith(f"  sparc {command}") for line in examples)


def test_examples_are_real_commands(capsys: pytest.CaptureFixture[str]) -> None:
    parser, _ = cli.make_parser()
    for text in cli.EXAMPLES.values():
        for line in text.splitlines():
            words = line.split("  (")[0].split()
            parser.parse_args(words[1:])


def test_play_tells_how_to_ask_for_a_car(sparc_cli: Cli) -> None:
    examples = succeed(sparc_cli("play", "--help")).split("examples:\n")[1]
    assert "--car rally-07 --tyre racing-soft" in examples and "--context power=1.5,mass=0.5" in examples


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_alone_it_shows_all_commands(sparc_cli: Cli, arguments: tuple[str, ...]) -> None:
    out = succeed(sparc_cli(*arguments))
    assert out.startswith("usage: sparc")
    assert all(re.search(rf"^    {command} ", out, re.MULTILINE) for command in COMMANDS if " " not in command)


def test_train_help_has_every_field(sparc_cli: Cli) -> None:
    out = succeed(sparc_cli("train", "--help"))
    for name in cli.FIELDS:
        if name not in ("method", "env"):
            assert f"--{name.replace('_', '-')}" in out


def test_envs(sparc_cli: Cli) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in succeed(sparc_cli("envs")).splitlines()]
    told: dict[str, list[str]] = {}
    for id, text in (row for row in rows if len(row) == 2):
        told[id or [*told][-1]] = [*told.get(id or [*told][-1], []), text]
    robots = [f"Wind{robot}-v5" for robot in ("HalfCheetah", "Hopper", "Walker2d", "Ant")]
    assert [id for id in told if not id.startswith("Race")] == [BOAT, *robots]
    assert told["RaceCars-forza-v0"][-1] == "20 features: 3,708 contexts, tested 515"
    assert "power [×]: 0.75 … 1.25, tested 0.5 … 1.5" in told["RacePowerMass-spring-v0"]
    assert told["WindHalfCheetah-v5"][-2:] == ["x [N]: -2.5 … 2.5, tested -5 … 5", "z [N]: -5 … 5, tested -10 … 10"]
    assert told[BOAT][0] == "hold a boat at a buoy in an unknown current"  # readable also in 80 columns


def test_methods(sparc_cli: Cli) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in succeed(sparc_cli("methods")).splitlines()]
    found = {row[0]: row[1] for row in rows if row and row[0]}
    assert found == {name: READS[entry.reads] for name, entry in all_methods().items()}


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["envs"], ["methods"], ["train", "x", "y"]])
def test_help_and_lists_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import contextlib, io, sys\n"
        "from sparc.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        f"    main({arguments})\n"
        "print([name for name in ('jax', 'mujoco', 'matplotlib', 'equinox', 'tensorboardX') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_leaves_is_no_error(sparc_start: Callable[..., subprocess.Popen[str]]) -> None:
    process = sparc_start("envs")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None and process.stderr.read() == ""


# Train → evaluate → resume


def test_a_run_from_beginning_to_end(sparc_cli: Cli, tiny_yaml: Path, tmp_path: Path) -> None:
    options = ("--updates", 20, "--evaluate_every", 10, "--seed", 3)
    out = succeed(sparc_cli("train", "sparc", BOAT, "--config", tiny_yaml, *options))
    (run,) = tmp_path.glob(f"runs/{BOAT}/sparc/seed3-*")
    shown = run.relative_to(tmp_path)
    assert out.splitlines()[0] == f"run: {shown}"
    assert re.search(r"^done: best checkpoint (10|20), mean return [\d.,]+ over the IND settings", out, re.MULTILINE)
    assert out.splitlines()[-1] == f"next: sparc evaluate {shown}"
    for name in (
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "tensorboard",
        "replay",
        "checkpoints",
        "evaluations",
    ):
        assert (run / name).exists(), name
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["method"], manifest["env"], manifest["seed"]) == ("sparc", BOAT, 3)
    kinds = [json.loads(line)["kind"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert kinds.count("evaluation") == 2 and "train" in kinds

    out = succeed(sparc_cli("evaluate", run))
    best = re.search(r"checkpoint (\d+)", out)
    assert best and "over 121 IND and 320 OOD contexts" in out and "picture: " in out
    stem = run / "evaluations" / f"{best[1]}-grid21"
    with stem.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["x", "y", "region", "episode", "return", "steps", "terminated"]
    assert len(rows) == 441 == len({(row["x"], row["y"]) for row in rows})
    regions = [row["region"] for row in rows]
    assert (regions.count("ind"), regions.count("ood")) == (121, 320)
    assert {(row["steps"], row["terminated"], row["episode"]) for row in rows} == {("100", "0", "0")}
    about = json.loads(stem.with_suffix(".json").read_text())
    returns = [float(row["return"]) for row in rows if row["region"] == "ood"]
    assert about["summary"]["ood"]["mean"] == pytest.approx(sum(returns) / 320)
    assert (about["method"], about["env"], about["updates"], about["grid"]) == ("sparc", BOAT, int(best[1]), 21)
    assert (run / "evaluations" / "heatmap.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    before = (run / "metrics.jsonl").read_text()
    assert "already at 20 updates" in succeed(sparc_cli("resume", run))  # finished: nothing left to do
    assert (run / "metrics.jsonl").read_text() == before

    assert "30/30 updates" in sparc_cli("resume", run, "--updates", "3e1").stderr
    assert "updates: 30" in (run / "config.yaml").read_text()
    assert 30 in checkpoint.numbers(run / "checkpoints")


def test_a_finished_run_whose_rates_fell_is_not_said_to_go_further(sparc_cli: Cli, copy: Path) -> None:
    config = (copy / "config.yaml").read_text()
    assert "go further with: sparc resume run --updates N" in succeed(sparc_cli("resume", "run"))
    (copy / "config.yaml").write_text(config.replace("final_rate: 1.0", "final_rate: 0.0"))
    out = succeed(sparc_cli("resume", "run"))
    assert "already at 20 updates; it is finished, its learning rates have fallen" in out and "--updates" not in out


def test_an_untrained_checkpoint_is_tested_with_a_warning(
    tmp_path: Path, tiny: dict[str, Any], finished: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    warning = "warning: only the untrained checkpoint 0 is there yet; the next comes at update {}\n"
    monkeypatch.setattr(race_replay, "replay_run", lambda *_: (tmp_path / "page.html", [], ""))
    for method, updates, after in (("only-obs", 3000, 100), ("only-obs", 60, 60), ("rma", 80, 60)):
        run = Run.create(
            make_config({"method": method, "env": BOAT, **tiny, "updates": updates}), tmp_path / f"{after}"
        )
        Trainer(run, lambda record: None).venv.close()
        run.close()
        for words in (["evaluate", str(run.path), "--grid", "2"], ["replay", str(run.path)]):
            assert cli.main(words) == 0
            assert capsys.readouterr().err == warning.format(after)
        shutil.rmtree(run.path)
    assert cli.main(["replay", str(finished)]) == 0
    assert capsys.readouterr().err == ""


def test_a_grid_where_tests_have_their_own_contexts_is_warned_of(
    tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config({"method": "sparc", "env": "RaceCars-forza-v0", **tiny})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.to_dict()))
    for words in (["--grid", "11"], []):
        assert cli.main(["evaluate", str(tmp_path), *words]) == 2  # it has no checkpoint
        warned = "RaceCars-forza-v0 is tested in 515 contexts of its own, not on a grid" in capsys.readouterr().err
        assert warned == bool(words)


@pytest.mark.parametrize(("which", "number"), [("last", 20), ("10", 10), ("best", None)])
def test_evaluate_a_chosen_checkpoint(sparc_cli: Cli, copy: Path, which: str, number: int | None) -> None:
    succeed(sparc_cli("evaluate", "run", "--checkpoint", which, "--grid", 3, "--episodes", 2))
    (rows,) = (copy / "evaluations").glob("*.csv")
    assert number is None or rows.name == f"{number}-grid3x2.csv"
    assert len(rows.read_text().splitlines()) == 1 + 9 * 2


def test_options_of_the_environment_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    parser, _ = cli.make_parser()
    words = ["train", "sparc", BOAT, "--env-options", "a=1", "b=[2]", "--env-options", "c=x"]
    parsed = parser.parse_args(words)
    assert dict(map(commands.pair, parsed.env_options)) == {"a": 1, "b": [2], "c": "x"}


# Mistakes: exit code 2

MISTAKES: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "command": (("tran",), ("'tran'", "Did you mean 'train'?", "`sparc --help`")),
    "option before a command": (("--bug",), ("'--bug'", "`sparc --help`")),
    "no arguments": (("train",), ("method, env", "`sparc train --help`")),
    "method": (("train", "spark", BOAT), ("'spark'", "Did you mean 'sparc'?")),
    "environment": (("train", "sparc", "WindHalfCheeta-v5"), ("Did you mean 'WindHalfCheetah-v5'?",)),
    "module": (("train", "sparc", "nowhere:My-v0"), ("nowhere.py",)),
    "option": (("train", "sparc", BOAT, "--batch-siz", 3), ("'--batch-siz'", "Did you mean '--batch-size'?")),
    "abbreviation": (("train", "sparc", BOAT, "--batch", 3), ("'--batch'", "Did you mean '--batch-size'?")),
    "one word too many": (("envs", "all"), ("does not take 'all'", "`sparc envs --help`")),
    "option without a value": (("train", "sparc", BOAT, "--seed"), ("--seed", "`sparc train --help`")),
    "value too low": (("train", "sparc", BOAT, "--batch-size", 0), ("batch_size must be at least 1, not 0",)),
    "value negative": (("train", "sparc", BOAT, "--learning-rate", "-1"), ("learning_rate must be above 0",)),
    "value too high": (("train", "sparc", BOAT, "--discount", 1.5), ("discount must be at most 1, not 1.5",)),
    "wrong type": (("train", "sparc", BOAT, "--width", "wide"), ("width must be a whole number, not 'wide'",)),
    "no whole number": (("train", "sparc", BOAT, "--width", 1.5), ("width", "1.5")),
    "no choice": (("train", "sparc", BOAT, "--rollout-policy", "export"), ("Did you mean 'expert'?",)),
    "no multiple": (("train", "sparc", BOAT, "--updates", 130), ("multiple of chunk (50): take 100 or 150",)),
    "preset": (("train", "sparc", BOAT, "--preset", "ligt"), ("mujoco", "Did you mean 'light'?")),
    "no such file": (("train", "sparc", BOAT, "--config", "no.yaml"), ("Cannot read", "no.yaml")),
    "unknown environment option": (
        ("train", "sparc", BOAT, "--env-options", "change_probabilty=0.1"),
        ("no option 'change_probabilty'", "Did you mean 'change_probability'?"),
    ),
    "environment option of a robot": (
        ("train", "sparc", "WindHopper-v5", "--env-options", "change_probabilty=0.1"),
        ("no option 'change_probabilty'", "Did you mean 'change_probability'?"),
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
    "suite's action": (("suite", "rum"), ("Did you mean 'run'?", "`sparc suite --help`")),
    "suite's name": (("suite", "run", "mujocco"), ("no suite 'mujocco'", "Did you mean 'mujoco'?")),
    "suite's file": (("suite", "run", "no.yaml"), ("Cannot read", "no.yaml")),
    "suite's method": (("suite", "run", "smoke", "--methods", "spark"), ("Did you mean 'sparc'?",)),
    "suite's environment": (("suite", "run", "smoke", "--envs", "DriftingBoat-v1"), ("DriftingBoat-v0",)),
    "suite's seed": (("suite", "run", "smoke", "--seeds", 0, "x"), ("--seeds must be a whole number, not 'x'",)),
    "suite's updates": (("suite", "run", "smoke", "--updates", 130), ("multiple of chunk (50)",)),
    "suite's jobs": (("suite", "run", "smoke", "--jobs", 0), ("--jobs must be at least 1, not 0",)),
    "suite's option": (("suite", "run", "smoke", "--seed", 1), ("sparc suite run has no option", "'--seeds'")),
    "nothing to show": (("suite", "status", "smoke"), ("runs/smoke", "`sparc suite run smoke`")),
    "nothing to report": (("suite", "report", "smoke"), ("runs/smoke", "`sparc suite run smoke`")),
    "no results": (("report", "nowhere"), ("nowhere holds no results", "sparc suite report")),
    "bench": (("bench", "lerner"), ("Did you mean 'learner'?", "`sparc bench --help`")),
    "bench's environment": (("bench", "replay", "--env", "Boat"), ("Boat",)),
    "bench's preset": (("bench", "replay", "--preset", "raceing"), ("Did you mean 'racing'?",)),
    "bench's method": (("bench", "replay", "--method", "orakel"), ("Did you mean 'oracle'?",)),
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
        ("batch_sise: 3\n", ("'batch_sise'", "Did you mean 'batch_size'?")),
        ("1: 2\n", ("no config field '1'",)),
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
    monkeypatch.setattr(commands, "work", lambda run, updates: made.append(run.config) or 0)
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text("batch_size: 17\nwidth: 9\nmethod: rma\nenv_options: {change_probability: 0.5}\n")
    words = ["train", "sparc", BOAT, "--preset", "light", "--config", "my.yaml", "--width", "11", "--tune-temperature"]
    assert cli.main(words) == 0
    (config,) = made
    assert (config.method, config.batch_size, config.width, config.history_length) == ("sparc", 17, 11, 10)
    assert config.tune_temperature and config.env_options == {"change_probability": 0.5}


def test_an_environment_may_have_a_preset_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("sparc.runs.run.Run.create", lambda config, path: config)
    monkeypatch.setattr(commands, "work", lambda config, updates: made.append(config.updates) or 0)
    race, wind, boat = "RaceCars-forza-v0", "WindHopper-v5", "DriftingBoat-v0"
    for words in ([race], [race, "--preset", "mujoco"], [wind], [boat]):
        assert cli.main(["train", "sparc", *words]) == 0
    assert made == [PRESETS["racing"]["updates"], 3_000_000, PRESETS["fast"]["updates"], 3_000_000]


def test_an_existing_run_is_not_overwritten(sparc_cli: Cli, copy: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*"))
    line = complaint(sparc_cli("train", "sparc", BOAT, "--run-dir", "run"), 2)
    assert "run exists: go on with `sparc resume run`, or choose another --run-dir" in line
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
    ("error", "line"),
    [
        (KeyboardInterrupt(), "sparc: interrupted."),
        (OSError(20, "Not a directory", "runs/x"), "sparc: runs/x: Not a directory."),
        (RuntimeError("two\nlines"), "sparc: RuntimeError: two lines (run again with --debug to see where)"),
    ],
)
def test_whatever_happens_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, line: str
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "dispatch", fail)
    assert cli.main(["envs"]) == 1
    assert capsys.readouterr().err == line + "\n"


# Benches: that they run and what they tell, never how fast


def test_bench_replay(sparc_cli: Cli) -> None:
    found = json.loads(succeed(sparc_cli("bench", "replay", "--method", "only-obs")))
    assert (found["bench"], found["env"]) == ("replay", "WindHalfCheetah-v5")
    assert 0 < found["bytes_per_step"] <= 200
    assert found["machine"]["cores"] >= 1
    assert found["sample_ms_per_update"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "keys"),
    [
        ("learner", {"updates_per_s", "gflops", "fraction_of_peak", "fraction_of_cold_peak", "mflop_per_update"}),
        ("train", {"updates_per_s", "sgemm_gflops", "fraction_of_peak", "cold_sgemm_gflops", "env_steps_per_s"}),
        ("rollout", {"num_envs", "env_steps_per_s", "env_steps_per_s_with_policy"}),
        ("policy", {"microseconds_per_action"}),
        ("evaluate", {"seconds", "cells", "env_steps"}),
    ],
)
def test_benches_print_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, keys: set[str]
) -> None:
    def once(call: Callable[[], Any], seconds: float = 0.0) -> float:
        call()
        return 100.0

    monkeypatch.setattr(bench, "rate", once)
    monkeypatch.setenv(bench.ALONE, "1")  # measure here, not in a process of its own
    assert cli.main(["bench", what, "--env", BOAT, "--method", "only-obs", "--preset", "light"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not err
    assert found.keys() >= keys | {"bench", "env", "machine"}
    assert all(found[key] > 0 for key in keys)
    if what == "rollout":  # 100 chunks a second: 50 updates of 10 steps each
        assert found["env_steps_per_s_with_policy"] == 100 * 50 * 10


def test_a_bench_that_fails_says_so_in_one_line(sparc_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sparc\n"
        "def apply(env, context): raise ZeroDivisionError('no such pendulum')\n"
        "space = sparc.ContextSpace.box(m=('kg', (1, 2), (1, 3)))\n"
        "sparc.register_env('Mine-v0', make='Pendulum-v1', apply=apply, context_space=space)\n"
    )
    assert "no such pendulum" in complaint(sparc_cli("bench", "replay", "--env", "mine:Mine-v0"), 1)
