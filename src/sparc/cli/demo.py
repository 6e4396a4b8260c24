"""`sparc demo`: the suite `smoke`, five methods side by side on the light example, then table and pictures."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from sparc.cli.parser import Commands, parse_int
from sparc.errors import RunFailure, UserError
from sparc.methods.spec import Reads

if TYPE_CHECKING:  # these take a while
    from sparc.acting.evaluate import Evaluation

SUITE = "smoke"
ENV, GRID = "DriftingBoat-v0", 21
EXAMPLES = """\
sparc demo
sparc demo --seed 1 --run-dir runs/my-demo"""


def add(commands: Commands) -> None:
    """Add the command."""
    help = "train and compare all methods on the light example, in about two minutes"
    demo = commands.add("demo", lambda parsed: run_demo(parsed.seed, parsed.run_dir), help, EXAMPLES)
    demo.add_argument("--seed", type=parse_int(0), default=0, metavar="K", help="seed of all runs (default 0)")
    demo.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where to put runs and pictures (default runs/demo-<utc>)"
    )


def run_demo(seed: int, folder: Path | None) -> int:
    """Train, compare, picture."""
    from sparc.cli.display import summary_table
    from sparc.envs.registry import get_env
    from sparc.report.figures.maps import heatmap
    from sparc.runs.run import Run
    from sparc.suites.plan import planned
    from sparc.suites.runner import Runner
    from sparc.suites.status import finished
    from sparc.suites.suite import PLAN, find_suite

    suite = find_suite(SUITE).scaled(seeds=[seed])  # refuses a seed before anything is created
    folder = folder or Path("runs") / f"demo-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mine = (folder / PLAN).is_file() and planned(SUITE, folder) == suite  # an interrupted demo
        if any(folder.iterdir()) and not mine:
            raise FileExistsError
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder} exists: choose another --run-dir.") from None
    suite.write(folder)
    space = get_env(ENV).context_space
    ranges = ", ".join(f"{n} ±{t:g} (tested to ±{h:g}) {u}" for n, u, t, h in zip(
        space.names, space.units, space.train.high, space.test.high, strict=True))  # fmt: skip
    print(f"{ENV}: hold a boat at a buoy in a current that it cannot see: {ranges}.")
    began = time.perf_counter()
    runner = Runner(suite, folder)
    if not runner.run():
        failed = [f"{m.config.method}: {s.note}" for m, s in runner.statuses.items() if s.state == "failed"]
        again = f"sparc demo --seed {seed} --run-dir {folder}"
        if failed:
            raise RunFailure(f"{'; '.join(failed)} Continue with `{again}`.")
        print(f"stopped; continue with: {again}")
        return runner.exit_code or 1
    evaluations = {m.config.method: finished(suite, Run.open(folder / m.path)).evaluation for m in suite.members()}
    random = random_return(GRID, seed)
    scores = {name: score(evaluation, evaluations["oracle"], random) for name, evaluation in evaluations.items()}
    picture, table = folder / "heatmaps.png", folder / "summary.json"
    heatmap(evaluations, space, picture)
    rows = {name: evaluation.summary() | {"ood_score": scores[name]} for name, evaluation in evaluations.items()}
    table.write_text(json.dumps({"env": ENV, "seed": seed, "random_ood": random, "methods": rows}, indent=1) + "\n")
    summary_table(evaluations, f"{ENV}, seed {seed}", {name: f"{value:.0%}" for name, value in scores.items()})
    print(f"OOD score: a random policy is 0 %, the Oracle 100 %. {time.perf_counter() - began:.0f} s in all.")
    print(f"pictures: {picture}\nnumbers:  {table}")
    print(f"next:     sparc suite report {SUITE} --run-dir {folder}\n          sparc train sparc WindHalfCheetah-v5")
    return 0


def score(evaluation: Evaluation, oracle: Evaluation, random: float) -> float:
    """Put a mean OOD return on the scale where a random policy is 0 and the Oracle 1."""
    mean, top = evaluation.summary()["ood"]["mean"], oracle.summary()["ood"]["mean"]
    return (mean - random) / (top - random)


class RandomPolicy:
    """Acts uniformly at random."""

    reads: Reads = "nothing"

    def __init__(self, actions: gym.spaces.Box, seed: int) -> None:
        self.actions, self.rng = actions, np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: it remembers no episode."""

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Draw actions for observations (R, O)."""
        shape = (len(obs), *self.actions.shape)
        return self.rng.uniform(self.actions.low, self.actions.high, shape).astype(np.float32)


def random_return(grid: int, seed: int) -> float:
    """Return the mean OOD return of uniformly random actions."""
    from sparc.acting.evaluate import evaluate
    from sparc.envs.registry import get_env, make_vector_env

    contexts = get_env(ENV).context_space.grid(grid)
    venv = make_vector_env(ENV, len(contexts))
    assert isinstance(venv.single_action_space, gym.spaces.Box)
    evaluation = evaluate(RandomPolicy(venv.single_action_space, seed), venv, contexts, seed=seed)
    return float(evaluation.returns[~evaluation.ind].mean())
