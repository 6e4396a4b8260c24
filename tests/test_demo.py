"""`sparc demo` without its two minutes of training."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import sparc
from sparc import demo
from sparc.config import make_config
from sparc.envs import get_env
from sparc.evaluation import Evaluation
from sparc.methods import METHODS
from sparc.runs import Run

SPACE = get_env(demo.ENV).context_space


def results(ood: float, ind: float = 80.0) -> Evaluation:
    contexts = SPACE.grid(5)
    inside = SPACE.is_train(contexts)
    returns = np.where(inside, ind, ood)
    zeros = np.zeros(len(contexts), int)
    return Evaluation(SPACE.names, contexts, inside, zeros, returns, zeros + 100, zeros > 0)


# The scale


@pytest.mark.parametrize(("ood", "expected"), [(4.0, 0.0), (44.0, 1.0), (24.0, 0.5), (54.0, 1.25), (0.0, -0.1)])
def test_a_random_policy_is_0_and_the_oracle_1(ood: float, expected: float) -> None:
    assert demo.score(results(ood), oracle=results(44.0), random=4.0) == pytest.approx(expected)


def test_random_return_equals_a_loop_over_single_environments() -> None:
    contexts, seed = SPACE.grid(3), 5
    rng = np.random.default_rng(seed)
    actions = np.stack([rng.uniform(-1, 1, (len(contexts), 2)) for _ in range(100)]).astype(np.float32)
    returns = []
    for row, context in enumerate(contexts):
        env = sparc.make_env(demo.ENV)
        env.reset(seed=seed + row, options={"context": context})
        returns.append(sum(env.step(action[row])[1] for action in actions))
    ood = ~SPACE.is_train(contexts)
    assert demo.random_return(3, seed) == pytest.approx(np.mean(np.array(returns)[ood]), rel=1e-12)


# Training side by side


def processes(monkeypatch: pytest.MonkeyPatch, scripts: dict[str, str]) -> list[str]:
    """Let each method run a line of Python instead; give the list of what was started."""
    started: list[str] = []

    def start(folder: Path, name: str, seed: int) -> subprocess.Popen[bytes]:
        started.append(name)
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([sys.executable, "-S", "-c", scripts.get(name, "")], stdout=log, stderr=log)

    monkeypatch.setattr(demo, "start", start)
    return started


def test_every_method_is_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = processes(monkeypatch, {})
    demo.train_all(tmp_path, 0)
    assert sorted(started) == sorted(METHODS)


def test_a_method_that_fails_is_reported_with_its_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fails = "import sys; print('run: x'); print('sparc: No space left on device.', file=sys.stderr); sys.exit(1)"
    started = processes(monkeypatch, {"rma": fails, "oracle": "import os; os.kill(os.getpid(), 9)"})
    with pytest.raises(sparc.RunFailure) as caught:
        demo.train_all(tmp_path, 0)
    assert "rma failed: No space left on device." in str(caught.value)
    assert "oracle failed: exit code -9" in str(caught.value)  # which had no time to say anything
    assert "sparc failed" not in str(caught.value)
    assert len(started) == len(METHODS)  # the others were not given up


def test_what_runs_is_stopped_when_the_demo_is_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, name: str, seed: int) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]))
        return made[-1]

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "start", start)
    monkeypatch.setattr(demo, "progress_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        demo.train_all(tmp_path, 0)
    assert made and all(process.wait(timeout=10) for process in made)


def test_the_command_that_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(demo.subprocess, "Popen", lambda command, **_: commands.append(command))
    demo.start(tmp_path, "rma", 3)
    words = " ".join(commands[0][1:])
    assert words == f"-m sparc train rma DriftingBoat-v0 --preset light --seed 3 --run-dir {tmp_path}/rma"


def test_the_table_shows_how_far_each_method_is(tmp_path: Path, tiny: dict[str, Any]) -> None:
    for name in ("sparc", "oracle"):
        Run.create(make_config({**tiny, "method": name, "env": demo.ENV, "updates": 1000}), tmp_path / name)
    records = [
        {"kind": "train", "updates": 500, "updates_per_s": 321.4},
        {"kind": "evaluation", "updates": 500, "mean_return": 66.66},
    ]
    (tmp_path / "sparc" / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    console = Console(file=io.StringIO(), width=80)
    console.print(demo.progress_table(tmp_path, {"rma": None}))  # type: ignore[dict-item]
    lines = {line.split()[0]: line.split()[1:] for line in console.file.getvalue().splitlines()}  # type: ignore[attr-defined]
    assert lines["sparc"][-3:] == ["500", "321", "66.7"]
    assert lines["oracle"][-2:] == ["0", "compiling"]
    assert lines["rma"] == ["starting"]
    assert lines["only-obs"] == ["waiting"]


# All together


def test_the_demo_compares_and_pictures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny: dict[str, Any]
) -> None:
    means = {"sparc": 60.0, "rma": 40.0, "only-obs": 20.0, "history-input": 50.0, "oracle": 70.0}

    def train_all(folder: Path, seed: int) -> None:
        for name in METHODS:
            Run.create(make_config({**tiny, "method": name, "env": demo.ENV, "seed": seed}), folder / name)

    def evaluate_run(run: Run, grid: int, episodes: int, which: str, progress: Any) -> tuple[Evaluation, Path]:
        assert (grid, episodes, which) == (21, 1, "best")
        return results(means[run.config.method]), run.path

    monkeypatch.setattr(demo, "train_all", train_all)
    monkeypatch.setattr(demo, "evaluate_run", evaluate_run)
    monkeypatch.setattr(demo, "random_return", lambda grid, seed: 10.0)
    assert demo.run_demo(7, tmp_path / "demo") == 0
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert (summary["env"], summary["seed"], summary["random_ood"]) == (demo.ENV, 7, 10.0)
    scores = {name: part["ood_score"] for name, part in summary["methods"].items()}
    assert scores == pytest.approx({name: (mean - 10) / 60 for name, mean in means.items()})
    assert summary["methods"]["sparc"]["ind"]["mean"] == pytest.approx(80.0)
    assert (tmp_path / "demo" / "heatmaps.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert all(name in out for name in METHODS)
    assert "83%" in out and "100%" in out and "17%" in out
    assert max(map(len, out.splitlines()[1:])) <= max(80, len(str(tmp_path)) + 40)


@pytest.mark.parametrize("kind", ["full", "file", "below a file"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("mine")
    folder = {"full": tmp_path, "file": tmp_path / "file", "below a file": tmp_path / "file" / "demo"}[kind]
    with pytest.raises(sparc.UserError, match="choose another --run-dir"):
        demo.run_demo(0, folder)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
