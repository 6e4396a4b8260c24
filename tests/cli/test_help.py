"""What commands say of themselves: help that fits the terminal, lists, and how little they load for it."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from sparc import cli
from sparc.cli.display import READS
from sparc.cli.parser import Parser
from sparc.config import FIELDS
from sparc.methods import all_methods

Cli = Callable[..., subprocess.CompletedProcess[str]]
BOAT = "DriftingBoat-v0"
with mock.patch.dict(os.environ, COLUMNS="80"):
    COMMANDS = list(cli.make_commands().walk())


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda parser: parser.prog)
def test_help_fits_80_columns_and_has_examples(command: Parser) -> None:
    lines = command.format_help().splitlines()
    assert lines[0].startswith(f"usage: {command.prog} ")
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if re.search(r"\w-$", line)], "a word is broken"
    examples = lines[lines.index("examples:") + 1 :]
    assert examples and all(line.startswith(f"  {command.prog}") for line in examples)


def test_the_real_command_line_shows_the_same_help(sparc_cli: Cli) -> None:
    done = sparc_cli("suite", "run", "--help", env={"COLUMNS": "80"})
    assert done.returncode == 0 and not done.stderr
    (command,) = (parser for parser in COMMANDS if parser.prog == "sparc suite run")
    assert done.stdout == command.format_help()


def test_a_wide_terminal_gets_longer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    widths = [max(map(len, parser.format_help().splitlines())) for parser in cli.make_commands().walk()]
    assert 80 < max(widths) <= 100


def test_examples_are_real_commands() -> None:
    parser = cli.make_commands().parser
    for command in COMMANDS:
        for line in command.format_help().split("examples:\n")[1].splitlines():
            words = line.split("  (")[0].split()
            assert parser.parse_args(words[1:]).command.prog.startswith(command.prog)


def test_play_tells_how_to_ask_for_a_car(sparc_cli: Cli) -> None:
    examples = sparc_cli("play", "--help").stdout.split("examples:\n")[1]
    assert "--car rally-07 --tyre racing-soft" in examples and "--context power=1.5,mass=0.5" in examples


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_alone_it_shows_all_commands(sparc_cli: Cli, arguments: tuple[str, ...]) -> None:
    out = sparc_cli(*arguments).stdout
    assert out.startswith("usage: sparc")
    names = [parser.prog.split()[1] for parser in COMMANDS if parser.prog.count(" ") == 1]
    assert all(re.search(rf"^    {name}\b", out, re.MULTILINE) for name in names)


@pytest.mark.parametrize("group", ["suite", "racing"])
def test_a_group_alone_shows_its_commands(capsys: pytest.CaptureFixture[str], group: str) -> None:
    assert cli.main([group]) == 0
    assert capsys.readouterr().out.startswith(f"usage: sparc {group} ")


def test_train_help_has_every_field_and_its_default() -> None:
    (train,) = (parser for parser in COMMANDS if parser.prog == "sparc train")
    out = " ".join(train.format_help().split("examples:")[0].split())
    for name, field in FIELDS.items():
        if name in ("method", "env"):
            continue
        _, _, after = out.partition(f" --{name.replace('_', '-')}")
        own = " ".join(after.split(" --")[:2])  # up to the next option, or the one after the --no-… of a boolean
        default = field.default
        if isinstance(default, bool):
            default = "on" if default else "off"
        assert after and (default is dataclasses.MISSING or f"(default {default})" in own), name


def test_envs(sparc_cli: Cli) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed(sparc_cli("envs")).splitlines()]
    told: dict[str, list[str]] = {}
    for id, text in (row for row in rows if len(row) == 2):
        told[id or [*told][-1]] = [*told.get(id or [*told][-1], []), text]
    robots = [f"Wind{robot}-v5" for robot in ("HalfCheetah", "Hopper", "Walker2d", "Ant")]
    robots += ["MotorHalfCheetah-v5", "MotorWalker2d-v5"]
    assert [id for id in told if not id.startswith("Race")] == [BOAT, *robots]
    assert " ".join(told["RaceCars-forza-v0"]).endswith(
        "20 features: 3,708 contexts, tested 515 judged by clean laps and ratio "
        "test variants: standard, updated, stiffer, softer, draw-1 … draw-8"
    )
    assert "power [×]: 0.75 … 1.25, tested 0.5 … 1.5" in told["RacePowerMass-spring-v0"]
    assert told["WindHalfCheetah-v5"][-2:] == ["x [N]: -2.5 … 2.5, tested -5 … 5", "z [N]: -5 … 5, tested -10 … 10"]
    assert told[BOAT][0] == "hold a boat at a buoy in an unknown current"  # readable also in 80 columns


def test_methods(sparc_cli: Cli) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed(sparc_cli("methods")).splitlines()]
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
