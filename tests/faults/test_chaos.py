"""benchmarks/chaos.py: who is killed when depends on the seed alone, and everybody's turn comes."""

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "chaos.py"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])  # it adds the folders of the repository
    spec = importlib.util.spec_from_file_location("chaos", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everybodys_turn_comes_and_the_seed_says_when(chaos: Any) -> None:
    def first(seed: int) -> list[tuple[float, str]]:
        return list(itertools.islice(chaos.turns(seed), 20))

    assert first(0) == first(0) != first(1)
    for begin in range(0, 20, 5):
        assert {kind for _, kind in first(0)[begin : begin + 5]} == set(chaos.KINDS)
    assert all(chaos.GAPS[0] <= gap <= chaos.GAPS[1] for gap, _ in first(0))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["everything", "--seconds", "60"], "--seconds must be more than"),
        (["everything", "--env", "RaceCars-forza-v0"], "has no real-time twin"),
        (["workers", "--env", "Boot-v0"], "unknown environment 'Boot-v0'"),
        (["workers", "--seeds", "0"], "--seeds must be at least 1"),
        (["workers", "--synchronous", "nowhere"], "nowhere"),
        (["raylet"], "invalid choice: 'raylet'"),
    ],
)
def test_mistakes(chaos: Any, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        chaos.parse(words)
    assert complaint in capsys.readouterr().err
