"""What a person sees: fits into 80 columns, and into a log file."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparc.cli import display
from sparc.cli.display import TrainingBar
from sparc.config import make_config
from sparc.runs.run import Run

RECORD = {
    "updates": 2_999_950,
    "total": 3_000_000,
    "phase": "adapter",
    "env_steps": 3_004_950,
    "episodes": 3_000,
    "episode_return": -12_345.67,
    "evaluation": {"updates": 2_999_950, "mean_return": -12_345.67},
    "updates_per_s": 1234.5,
    "critic_loss": 0.000123456,
    "actor_loss": -123.456,
    "adapter_loss": 0.0123456,
}


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    text = io.StringIO()
    monkeypatch.setattr(display, "Console", lambda **_: Console(file=text, width=80, force_terminal=True))
    return text


def make_bar(**fields: Any) -> TrainingBar:
    config = make_config({"method": "rma", "env": "WindHalfCheetah-v5", **fields})
    return TrainingBar(Run(Path("nowhere"), config))


def shown(bar: TrainingBar) -> list[str]:
    """The lines of the bar as it stands."""
    console = Console(file=io.StringIO(), width=80)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(bar.bar)]


def test_the_longest_numbers_fit_into_80_columns(screen: io.StringIO) -> None:
    with make_bar() as bar:
        assert "loading JAX" in "\n".join(shown(bar))
        bar.report(RECORD)
        lines = shown(bar)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "…" not in text
    for part in ("rma (adapter) · WindHalfCheetah-v5", "2999950/3000000", "3,004,950 env steps", "return -12,345.7",
                 "IND eval -12,345.7", "critic 0.000123", "actor -123", "adapter 0.0123"):  # fmt: skip
        assert part in text


def test_before_the_first_update_it_says_what_takes_so_long(screen: io.StringIO) -> None:
    first = {**RECORD, "updates": 0, "episode_return": None, "evaluation": None, "updates_per_s": 0.0}
    with make_bar(random_steps=5_000) as bar:
        bar.report({**first, "env_steps": 4_990})
        assert "random actions" in "\n".join(shown(bar))
        bar.report({**first, "env_steps": 5_000})
        assert "compiling" in "\n".join(shown(bar))


def test_elsewhere_each_stage_and_evaluation_has_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(display, "monotonic", lambda: now[0])
    first = {"updates": 0, "episode_return": None, "evaluation": None, "updates_per_s": 0.0}
    losses = ("critic_loss", "actor_loss", "adapter_loss")
    random = {key: value for key, value in {**RECORD, **first}.items() if key not in losses}
    with make_bar(random_steps=5_000) as bar:
        for steps in (500, 1_000, 5_000):
            bar.report({**random, "env_steps": steps})
        for updates, evaluated in [(50, None), (100, 100), (150, 100), (200, 200), (250, 200), (300, None)]:
            evaluation = {"updates": evaluated, "mean_return": 2.0} if evaluated else None
            bar.report({**RECORD, "updates": updates, "evaluation": evaluation})
        for updates in (350, 400, 450):
            now[0] += display.SECONDS_BETWEEN_LINES * 0.6
            bar.report({**RECORD, "updates": updates, "evaluation": None})
    out, err = capsys.readouterr()
    assert not out
    lines = err.splitlines()
    assert lines[:3] == [
        "rma on WindHalfCheetah-v5: loading JAX, making environments",
        "0/3000000 updates, 500 env steps · random actions",
        "0/3000000 updates, 5,000 env steps · compiling",
    ]
    # the second evaluation has its line too, though its number is the first one's; then one after half a minute
    assert [line.split("/")[0] for line in lines[3:]] == ["100", "200", "400"]
    assert "IND eval 2.0 · critic" in lines[3]


def test_an_evaluation_is_told_by_what_judges_the_environment(screen: io.StringIO) -> None:
    race = {"updates": 100, "mean_return": 98.7, "clean": 0.9583, "ratio": 1.0338}
    with make_bar(env="RaceCars-forza-v0") as bar:
        bar.report({**RECORD, "evaluation": race})
        lines = shown(bar)
    assert "IND eval clean 95.8 %, ratio 1.0338" in "\n".join(lines) and max(map(len, lines)) <= 80


def test_a_note_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    note = "Checkpoint " + "some/long/folder/" * 8 + "[m/s] is damaged."
    with make_bar() as bar:
        bar.report({"note": note})
    assert capsys.readouterr().err.splitlines()[1:] == [note]


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 10.0, 31.0, 31.0, 40.0, 70.0, 70.0])
    monkeypatch.setattr(display, "monotonic", lambda: next(clock))
    with display.step_bar("the built-in AI on forza", "laps") as progress:
        for done, most in ((10, 4_635), (1_200, 4_635), (1_300, 4_635), (1_400, 0)):
            progress(done, most)
    assert capsys.readouterr().err.splitlines() == [
        "the built-in AI on forza: 1,200 of 4,635 laps",
        "the built-in AI on forza: 1,400 laps",
    ]
