"""Testing a run: one of its checkpoints on the grid of contexts, and the files that holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparc.acting.evaluate import Evaluation, evaluate
from sparc.contexts import Finite
from sparc.envs.contextual import ProgressCall
from sparc.envs.racing.tasks import PHYSICS
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.runs.run import Run
from sparc.seals import SEALS, changed_files, checksum

MAX_ROWS = 1_000_000  # episodes of one evaluation, which run side by side


def read_evaluation(stem: Path) -> Evaluation:
    """Read an evaluation's rows and hold them against its summary."""
    try:
        evaluation = Evaluation.read_csv(stem.with_suffix(".csv"))
        written = json.loads(stem.with_suffix(".json").read_text())
        if written["summary"] != evaluation.summary() or changed_files(written, stem.parent):
            raise ValueError("rows and summary do not fit together")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"The evaluation {stem} is damaged ({error}): delete it and evaluate again.") from error
    return evaluation


def other_physics(run: Run, asked: str | None = None) -> str:
    """Name the physics that a run is tested in, the one asked for or that of training; nothing if it is the usual."""
    physics = asked or run.config.env_options.get("physics", PHYSICS[0])
    return "" if physics == PHYSICS[0] else str(physics)


def stem_of(run: Run, number: int, grid: int, episodes: int, physics: str | None = None) -> Path:
    """Name the files of an evaluation, by the physics that it is in."""
    parts = (f"{number}-grid{grid}" + (f"x{episodes}" if episodes > 1 else ""), other_physics(run, physics))
    return run.evaluations / "-".join(filter(None, parts))


def picture_of(run: Run, physics: str | None = None) -> Path:
    """Name the picture of a run's last evaluation in a physics."""
    return run.evaluations / f"{'-'.join(filter(None, ('heatmap', other_physics(run, physics))))}.png"


def tested_with(run: Run, physics: str | None = None) -> dict[str, Any]:
    """Return the options that a run is tested with, in another physics where one is asked for."""
    asked = {} if physics is None else {"physics": physics}
    return get_env(run.config.env).options_of_test(run.config.env_options, asked)


def evaluate_run(
    run: Run, grid: int, episodes: int, which: str, progress: ProgressCall | None, physics: str | None = None
) -> tuple[Evaluation, Path]:
    """Evaluate a run's checkpoint on the grid; write rows and summary; give the files' common stem.

    physics is for environments that have more than one; without it, tests are in that of training.
    """
    from sparc.runs.load import load

    number = run.choose(which)
    env, space = run.config.env, get_env(run.config.env).context_space
    count = len(space.test.values) if isinstance(space.test, Finite) else grid**space.size
    if count * episodes > MAX_ROWS:
        raise UserError(f"{count * episodes:,} episodes are more than {MAX_ROWS:,}: lower --grid or --episodes.")
    policy = load(run.path, number)
    options = tested_with(run, physics)
    evaluation = evaluate(policy, env, space.grid(grid), episodes, progress=progress, **options)
    stem = stem_of(run, number, grid, episodes, physics)
    run.evaluations.mkdir(exist_ok=True)
    about = {"method": run.config.method, "env": env, "seed": run.config.seed, "updates": number, "checkpoint": which,
             "grid": grid, "episodes": episodes, "reads": policy.reads, "options": options}  # fmt: skip
    evaluation.write_csv(stem.with_suffix(".csv"))
    about |= {SEALS: {f"{stem.name}.csv": checksum(stem.with_suffix(".csv"))}}
    evaluation.write_json(stem.with_suffix(".json"), **about)  # last: where it is, the rest is whole
    return evaluation, stem
