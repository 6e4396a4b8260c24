"""Testing a run: one of its checkpoints on the grid of contexts, and the files that holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparc.acting.evaluate import Evaluation, evaluate
from sparc.envs.contextual import ProgressCall
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.runs.run import Run


def read_evaluation(stem: Path) -> Evaluation:
    """Read an evaluation's rows and hold them against its summary."""
    try:
        evaluation = Evaluation.read_csv(stem.with_suffix(".csv"))
        if json.loads(stem.with_suffix(".json").read_text())["summary"] != evaluation.summary():
            raise ValueError("rows and summary do not fit together")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"The evaluation {stem} is damaged ({error}): delete it and evaluate again.") from error
    return evaluation


def stem_of(run: Run, number: int, grid: int, episodes: int, variant: str | None = None) -> Path:
    """Name the files of an evaluation, by the variant that it is of."""
    parts = (f"{number}-grid{grid}" + (f"x{episodes}" if episodes > 1 else ""), variant_of(run, variant))
    return run.evaluations / "-".join(filter(None, parts))


def picture_of(run: Run, variant: str | None = None) -> Path:
    """Name the picture of a run's last evaluation in a variant."""
    return run.evaluations / f"{'-'.join(filter(None, ('heatmap', variant_of(run, variant))))}.png"


def variant_of(run: Run, asked: str | None = None) -> str:
    """Name the variant that a run is tested in, the one asked for or that of training; nothing for the usual one."""
    return get_env(run.config.env).variant_of(tested_with(run, asked))


def tested_with(run: Run, variant: str | None = None) -> dict[str, Any]:
    """Return the options that a run is tested with: those of training, and of a variant where one is asked for."""
    entry = get_env(run.config.env)
    return entry.options_of_test(run.config.env_options, entry.variant_options(variant) if variant else {})


def evaluate_run(
    run: Run, grid: int, episodes: int, which: str, progress: ProgressCall | None, variant: str | None = None
) -> tuple[Evaluation, Path]:
    """Evaluate a run's checkpoint on the grid; write rows and summary; give the files' common stem.

    variant is one of the environment's named tests; without it, tests are as in training.
    """
    from sparc.runs.load import load

    number = run.choose(which)
    env, space = run.config.env, get_env(run.config.env).context_space
    policy = load(run.path, number)
    options = tested_with(run, variant)
    evaluation = evaluate(policy, env, space.grid(grid), episodes, progress=progress, **options)
    stem = stem_of(run, number, grid, episodes, variant)
    run.evaluations.mkdir(exist_ok=True)
    about = {"method": run.config.method, "env": env, "seed": run.config.seed, "updates": number,
             "grid": grid, "episodes": episodes, "reads": policy.reads, "options": options}  # fmt: skip
    evaluation.write_csv(stem.with_suffix(".csv"))
    evaluation.write_json(stem.with_suffix(".json"), **about)  # last: where it is, the rest is whole
    return evaluation, stem
