"""`sparc demo`: all five methods side by side on the light example, then the table and the pictures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from sparc.config import make_config
from sparc.display import step_bar, summary_table
from sparc.envs import get_env, make_vector_env
from sparc.errors import RunFailure, UserError
from sparc.evaluation import Evaluation, evaluate_run
from sparc.figures import heatmap
from sparc.methods import METHODS
from sparc.runs import Run, usable_cores

ENV, PRESET, GRID = "DriftingBoat-v0", "light", 21
LONGEST_FIRST = ("history-input", "sparc", "rma", "oracle", "only-obs")  # so that no core waits at the end


def run_demo(seed: int, folder: Path | None) -> int:
    """Train, compare, picture."""
    make_config({"method": "sparc", "env": ENV, "seed": seed}, PRESET)  # refuses a seed before anything is created
    folder = folder or Path("runs") / f"demo-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder} exists: choose another --run-dir.") from None
    space = get_env(ENV).context_space
    ranges = ", ".join(f"{n} ±{t:g} (tested to ±{h:g}) {u}" for n, u, t, h in zip(
        space.names, space.units, space.train.high, space.test.high, strict=True))  # fmt: skip
    print(f"{ENV}: hold a boat at a buoy in a current that it cannot see: {ranges}.")
    began = time.perf_counter()
    train_all(folder, seed)
    evaluations = {}
    for name in METHODS:
        with step_bar(f"evaluating {name}") as progress:
            evaluations[name], _ = evaluate_run(Run.open(folder / name), GRID, 1, "best", progress)
    random = random_return(GRID, seed)
    scores = {name: score(evaluation, evaluations["oracle"], random) for name, evaluation in evaluations.items()}
    picture, table = folder / "heatmaps.png", folder / "summary.json"
    heatmap(evaluations, space, picture)
    rows = {name: evaluation.summary() | {"ood_score": scores[name]} for name, evaluation in evaluations.items()}
    table.write_text(json.dumps({"env": ENV, "seed": seed, "random_ood": random, "methods": rows}, indent=1) + "\n")
    summary_table(evaluations, f"{ENV}, seed {seed}", {name: f"{value:.0%}" for name, value in scores.items()})
    print(f"OOD score: a random policy is 0 %, the Oracle 100 %. {time.perf_counter() - began:.0f} s in all.")
    print(f"pictures: {picture}\nnumbers:  {table}\nnext:     sparc train sparc WindHalfCheetah-v5")
    return 0


def score(evaluation: Evaluation, oracle: Evaluation, random: float) -> float:
    """Put a mean OOD return on the scale where a random policy is 0 and the Oracle 1."""
    mean, top = evaluation.summary()["ood"]["mean"], oracle.summary()["ood"]["mean"]
    return (mean - random) / (top - random)


def random_return(grid: int, seed: int) -> float:
    """Give the mean OOD return of uniformly random actions."""
    space = get_env(ENV).context_space
    contexts = space.grid(grid)
    venv = make_vector_env(ENV, len(contexts))
    venv.reset(seed=seed, options={"context": contexts})
    rng, returns = np.random.default_rng(seed), np.zeros(len(contexts))
    for _ in range(get_env(ENV).max_episode_steps):
        returns += venv.step(rng.uniform(-1, 1, venv.action_space.shape).astype(np.float32))[1]
    return float(returns[~space.is_train(contexts)].mean())


def train_all(folder: Path, seed: int) -> None:
    """Run `sparc train` for each method, as many at a time as there are cores, and show how far they are."""
    waiting, running = list(LONGEST_FIRST), dict[str, subprocess.Popen[bytes]]()
    failed = dict[str, str]()
    console = Console(stderr=True)
    try:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while waiting or running:
                while waiting and len(running) < usable_cores():
                    name = waiting.pop(0)
                    running[name] = start(folder, name, seed)
                time.sleep(0.2)
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        if process.returncode:
                            failed[name] = last_line(folder / f"{name}.log") or f"exit code {process.returncode}"
                live.update(progress_table(folder, running))
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    if failed:
        raise RunFailure("; ".join(f"{name} failed: {line}" for name, line in failed.items()))


def start(folder: Path, name: str, seed: int) -> subprocess.Popen[bytes]:
    """Start one method in a process of its own."""
    command = [sys.executable, "-m", "sparc", "train", name, ENV, "--preset", PRESET, "--seed", str(seed)]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--run-dir", str(folder / name)], stdout=log, stderr=log, start_new_session=True
        )


def last_line(log: Path) -> str:
    """Give the last line of a log, an error without the name in front of it; empty if nothing was written."""
    return (log.read_text().strip().splitlines() or [""])[-1].removeprefix("sparc: ")


def progress_table(folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> Table:
    """Show for each method the last line of its metrics."""
    table = Table(box=None)
    for column in ("method", "progress", "updates", "updates/s", "IND return"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name in METHODS:
        if not (folder / name / "config.yaml").exists():
            table.add_row(name, "starting" if name in running else "waiting", "", "", "")
            continue
        run = Run.open(folder / name)
        records = run.records()
        train = next((r for r in reversed(records) if r["kind"] == "train"), {"updates": 0, "updates_per_s": 0.0})
        evaluation = next((r for r in reversed(records) if r["kind"] == "evaluation"), None)
        done = train["updates"]
        shown = f"{evaluation['mean_return']:.1f}" if evaluation else ""
        speed = f"{train['updates_per_s']:.0f}" if done else "compiling"
        table.add_row(name, ProgressBar(run.config.updates, done, width=24), f"{done:,}", speed, shown)
    return table
