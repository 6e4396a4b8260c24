"""benchmarks/rivals.py: which model is tested, and that runs and rivals end up in one table and one figure."""

import csv
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparc.config import make_config
from sparc.methods import find_method
from sparc.runs.metrics import encode
from sparc.runs.run import Run

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "rivals.py"


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])  # it adds the folder of the sources
    spec = importlib.util.spec_from_file_location("rivals", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rivals", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("returns", "chosen"),
    [
        ([9.0, 1.0, 1.0, 3.0, 2.75, 2.5], 50),  # the best of the last third, which begins after 40 s
        ([9.0, 1.0, 1.0, 3.0, 2.0, 2.0], 60),  # of equals, the latest
        ([1.0, 9.0, 1.0], 20),  # not yet in the last third
    ],
)
def test_the_best_model_is_chosen_as_sparc_chooses_checkpoints(rivals: Any, returns: list[float], chosen: int) -> None:
    rows = [{"processor_s": 10.0 * at, "return": value} for at, value in enumerate(returns, 1)]
    assert rivals.best(rows, 60.0)["processor_s"] == chosen


def test_the_clock_leaves_evaluations_out(rivals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 130.0, 137.0, 150.0])
    monkeypatch.setattr(rivals.time, "process_time", lambda: next(now))
    clock = rivals.Clock()
    with clock.evaluating():
        pass
    assert (clock.processor_s, clock.evaluation_s) == (43.0, 7.0)


def test_a_recurrent_policy_gets_its_own_state_back(rivals: Any) -> None:
    class Counting:
        def predict(self, obs: np.ndarray, state: Any, episode_start: np.ndarray, deterministic: bool) -> Any:
            assert deterministic
            steps = np.where(episode_start, 0, 0 if state is None else state) + 1
            return steps[:, None] + obs, steps

    playing = rivals.Playing(Counting(), None, 1)
    obs = np.zeros((2, 1))
    assert [playing.act(obs).tolist() for _ in range(2)] == [[[1.0], [1.0]], [[2.0], [2.0]]]
    playing.reset()
    assert playing.act(obs).tolist() == [[1.0], [1.0]]


def test_runs_and_rivals_are_drawn_together(rivals: Any, tmp_path: Path) -> None:
    run = Run.create(make_config({"method": "sparc", "env": "DriftingBoat-v0", "seed": 3}), tmp_path / "run")
    run.lock()
    run.begin(0)
    run.close()
    phase = find_method("sparc").last_phase
    lines = [
        {"kind": "train", "updates": 50, "updates_per_s": 1.0, "env_steps": 700},
        {"kind": "evaluation", "updates": 50, "mean_return": 12.346, "phase": phase, "processor_s": 90.04},
    ]
    run.metrics.write_bytes(b"".join(map(encode, lines)))
    found = {"method": "tqc", "env": "DriftingBoat-v0", "seed": 0, "processor_s": 60.0, "steps": 1000, "return": 1.5}
    folder = tmp_path / "rivals"
    folder.mkdir()
    rivals.save_rows(folder / "tqc-DriftingBoat-v0-seed0.csv", [found | {"evaluation_s": 2.5}])
    (folder / "tqc-DriftingBoat-v0-seed0.json").write_text(json.dumps({"seed": 0}))
    out = tmp_path / "out"
    words = ["figure", "--runs", str(run.path), "--folder", str(folder), "--out", str(out)]
    rivals.figure(rivals.parse(words))
    with (out / "rivals.csv").open() as file:
        rows = [
            (row["method"], row["seed"], row["processor_s"], row["steps"], row["return"])
            for row in csv.DictReader(file)
        ]
    assert rows == [("sparc", "3", "90.0", "700", "12.35"), ("tqc", "0", "60.0", "1000", "1.5")]
    assert [about["seed"] for about in json.loads((out / "rivals.json").read_text())] == [3, 0]
    assert (out / "rivals.png").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "dreamer", "WindHopper-v5"], "invalid choice: 'dreamer'"),
        (["train", "tqc", "WindHoper-v5"], "did you mean 'WindHopper-v5'"),
        (["train", "tqc", "WindHopper-v5", "--minutes", "0"], "--minutes must be above 0"),
    ],
)
def test_mistakes(rivals: Any, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        rivals.parse(words)
    assert complaint in capsys.readouterr().err
