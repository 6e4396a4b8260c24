"""Testing a run: one of its checkpoints on the grid of contexts, and the files that holds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparc.acting.evaluate import Evaluation, evaluate
from sparc.contexts import ContextSpace, Finite
from sparc.envs.contextual import ProgressCall
from sparc.envs.registry import get_env
from sparc.errors import SparcError, UserError
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.seals import changed_files, is_intact

MAX_ROWS = 1_000_000  # episodes of one evaluation, which run side by side


def read_evaluation(stem: Path) -> Evaluation:
    """Read an evaluation's rows and hold them against its summary."""
    written = read_written(stem)
    try:
        evaluation = Evaluation.read_csv(stem.with_suffix(".csv"))
        if written["summary"] != evaluation.summary() or changed_files(written, stem.parent):
            raise ValueError("rows and summary do not fit together")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(stem, error) from error
    return evaluation


def read_summary(stem: Path) -> dict[str, dict[str, Any]]:
    """Read an evaluation's summary alone, which is written last: where it is, the rows are there as well."""
    summary: dict[str, dict[str, Any]] = read_written(stem)["summary"]
    return summary


def read_written(stem: Path) -> dict[str, Any]:
    """Read an evaluation's JSON: its summary, the checksum of its rows, and what was tested how."""
    try:
        written: dict[str, Any] = json.loads(stem.with_suffix(".json").read_text())
        if not isinstance(written["summary"], dict):
            raise ValueError("it has no summary")
        if not is_intact(written):
            raise ValueError("its summary is not what was written")
        return written
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise damaged(stem, error) from error


def damaged(stem: Path, error: Exception) -> UserError:
    """Return what is wrong with an evaluation."""
    return UserError(f"The evaluation {stem} is damaged ({error}): delete it and evaluate again.")


def stem_of(
    run: Run,
    number: int,
    grid: int,
    episodes: int,
    variant: str | None = None,
    part: Part | None = None,
    expert: bool = False,
) -> Path:
    """Name the files of an evaluation, of the policy or its expert, by the variant and the part of the contexts."""
    contexts = (part.word if part else f"grid{grid}") + (f"x{episodes}" if episodes > 1 else "")
    parts = (str(number), "expert" * expert, contexts, variant_of(run, variant))
    return run.evaluations / "-".join(filter(None, parts))


def has_expert(run: Run, number: int) -> bool:
    """Return whether a checkpoint has an expert beside its policy; a damaged one, or one of format 1, does not say."""
    try:
        meta = checkpoint.load_meta(run.checkpoints / str(number))
    except SparcError:
        return False
    return meta.get("spec", {}).get("psi") is not None


def variant_of(run: Run, asked: str | None = None) -> str:
    """Name the variant that a run is tested in, the one asked for or that of training; nothing for the usual one."""
    return get_env(run.config.env).variant_of(tested_with(run, asked))


def tested_with(run: Run, variant: str | None = None) -> dict[str, Any]:
    """Return the options that a run is tested with: those of training, and of a variant where one is asked for.

    That takes the place of the variant that the run was trained in, if any.
    """
    entry, trained = get_env(run.config.env), run.config.env_options
    if variant is None:
        return entry.resolve_test_options(trained)
    return entry.resolve_test_options(entry.without_variant(trained), entry.variant_options(variant))


class Part(NamedTuple):
    """Some of the test contexts, and the word that names the files of a test in them."""

    contexts: np.ndarray  # (n, C)
    word: str


def make_part(contexts: Sequence[np.ndarray] | np.ndarray, names: Sequence[str] = ()) -> Part:
    """Return some test contexts, by names or chosen by their number."""
    word = f"part{len(contexts)}"
    if names:  # any number of them fits into a file's name
        word += f"-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
    return Part(np.array(contexts), word)


def choose_contexts(space: ContextSpace, count: int) -> np.ndarray:
    """Choose test contexts spread over the whole test set, OOD ones first."""
    contexts = space.grid(21)
    ind = space.is_train(contexts)
    inside, outside = contexts[ind], contexts[~ind]
    first = min(len(outside), max(-(-count // 2), count - len(inside)))  # half of them, more where IND ones run out
    parts = ((outside, first), (inside, min(len(inside), count - first)))
    return np.concatenate([part[np.linspace(0, len(part) - 1, number).round().astype(int)] for part, number in parts])


def evaluate_run(
    run: Run,
    grid: int,
    episodes: int,
    which: str,
    progress: ProgressCall | None,
    variant: str | None = None,
    part: Part | None = None,
    out: Path | None = None,
    draw: Callable[[Evaluation, Path], object] | None = None,
    expert: bool = False,
) -> tuple[Evaluation, Path]:
    """Evaluate a run's checkpoint on the grid; write rows and summary; return the files' common stem.

    variant is one of the environment's, or "default" for none; without it, tests are as in training. A test in a part
    of the contexts has files of its own, which suites do not read. With out, nothing is written into the run. draw may
    write a picture, at the stem with another suffix. expert: instead of the policy the expert beside it, which observes
    the context, in the same contexts from the same starts; it has files of its own as well.
    """
    from sparc.acting.probe import make_probe
    from sparc.runs.load import load_expert, load_with_psi

    number = run.choose(which)
    env, space = run.config.env, run.space
    count = len(space.test.values) if isinstance(space.test, Finite) else grid**space.size
    if part:
        count = len(part.contexts)
    if count * episodes > MAX_ROWS:
        raise UserError(f"{count * episodes:,} episodes are more than {MAX_ROWS:,}: lower --grid or --episodes.")
    policy, psi = (load_expert(run, number), None) if expert else load_with_psi(run, number)
    if policy is None:
        raise UserError(f"Checkpoint {number} of {run.path} has no expert beside its policy: leave out --expert.")
    probe = make_probe(policy, psi, space, get_env(env).probes)
    options = tested_with(run, variant)
    contexts = part.contexts if part else space.grid(grid)
    watch = probe.watch if probe else None
    evaluation = evaluate(policy, env, contexts, episodes, progress=progress, on_step=watch, **options)
    readings = probe.columns(evaluation.contexts) if probe else {}
    ind = space.is_train(evaluation.contexts)  # in any stage of the run
    evaluation = dataclasses.replace(evaluation, ind=ind, measures=evaluation.measures | readings)
    stages = stage_means(run, evaluation)
    stem = stem_of(run, number, grid, episodes, variant, part, expert)
    if out is not None:
        stem = out / stem.name
    stem.parent.mkdir(parents=True, exist_ok=True)
    about = {"method": run.config.method, "env": env, "seed": run.config.seed, "updates": number, "checkpoint": which,
             "grid": grid, "episodes": episodes, "reads": policy.reads, "options": options,
             **({"expert": True} if expert else {}),
             **({"stages": [of and of["mean"] for of in stages]} if stages else {})}  # fmt: skip
    if part:
        del about["grid"]
        about["part"] = list(dict.fromkeys(evaluation.labels)) or part.contexts.tolist()
    rows = stem.with_suffix(".csv")
    evaluation.write_csv(rows)
    if draw:
        draw(evaluation, stem)
    evaluation.write_json(stem.with_suffix(".json"), [rows], **about)  # last: where it is, the rest is whole
    return evaluation, stem


def stage_means(run: Run, evaluation: Evaluation) -> list[dict[str, float] | None]:
    """Return the means in the region of each stage of a child, of the return and every measure; None: it has no cell.

    Regions may overlap; a context counts in all that it is in. A run without a parent has none.
    """
    if run.lineage.number == 1:
        return []
    cells, _, returns = evaluation.cells()
    values = {"mean": returns} | {name: evaluation.cells(of)[2] for name, of in evaluation.measures.items()}
    inside = [region.contains(cells) for region in (*run.space.earlier, run.space.train)]

    def means(there: np.ndarray) -> dict[str, float]:
        found = {name: of[there][np.isfinite(of[there])] for name, of in values.items()}
        return {name: float(of.mean()) for name, of in found.items() if len(of)}

    return [means(there) if there.any() else None for there in inside]
