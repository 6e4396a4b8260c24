"""Evaluations during training: the same settings and starts every time, in environments that are made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from sparc.acting.evaluate import Evaluation, StepCall, evaluate
from sparc.acting.policy import Policy
from sparc.config import Config
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.measures import RETURN
from sparc.envs.registry import get_env, make_vector_env
from sparc.runs.run import Run

EVALUATION_SEED = 1_000_000  # of the first setting
VARIANT_SETTINGS = 25  # at most, that variants of the policy are evaluated in: long episodes take their time


def stage_evaluators(run: Run) -> list[Evaluator]:
    """Return an evaluator for each stage of a run, its own last: the settings of a stage, with its options."""
    env, lineage = run.config.env, run.lineage
    spaces = lineage.spaces(get_env(env))
    return [Evaluator(env, stage.env_options, space) for stage, space in zip(lineage.stages, spaces, strict=True)]


class Evaluator:
    """Evaluates the policies of one run.

    Its environments stay open from the first evaluation on. Every evaluation resets them with the same seeds, so
    nothing is carried over, and a resumed run continues bit for bit.
    """

    def __init__(self, env: str, env_options: Mapping[str, Any], space: ContextSpace | None = None) -> None:
        """Prepare what evaluations need, so that what is missing shows before the first update.

        The settings are those of `space`, by default the environment's.
        """
        self.env, entry = env, get_env(env)
        self.criteria = entry.criteria
        self.space, self.options = space or entry.context_space, entry.resolve_test_options(env_options)
        self.venvs: dict[int, ContextualVectorEnv] = {}  # by their number of rows
        entry.prepare_tests(self.space.evaluated, self.options)

    def run(self, policy: Policy, rows: np.ndarray, on_step: StepCall | None = None) -> Evaluation:
        """Evaluate a policy in some of the settings; each has the same start, whichever others there are."""
        if len(rows) not in self.venvs:
            self.venvs[len(rows)] = make_vector_env(self.env, len(rows), threads=1, **self.options)
        venv, seeds = self.venvs[len(rows)], (EVALUATION_SEED + rows).tolist()
        evaluation = evaluate(policy, venv, self.space.evaluated[rows], seed=seeds, on_step=on_step)
        self.criteria.check_values(self.env, evaluation.measures)
        return evaluation

    def run_all(self, policy: Policy, on_step: StepCall | None = None) -> Evaluation:
        """Evaluate a policy in the predetermined and the choice settings, side by side."""
        return self.run(policy, np.arange(len(self.space.evaluated)), on_step)

    def value(self, evaluation: Evaluation) -> float:
        """Return what the best checkpoint is chosen by, from an evaluation in all settings."""
        chosen = self.space.choice_rows
        return get_env(self.env).choice(evaluation.returns[chosen], evaluation.part(chosen))

    def scores(self, evaluation: Evaluation) -> list[float]:
        """Return what the Pareto front is made of, from an evaluation in all settings."""
        settings = slice(len(self.space.settings))
        return get_env(self.env).scores(evaluation.returns[settings], evaluation.part(settings))

    def means(self, evaluation: Evaluation) -> dict[str, float]:
        """Return the mean return over the choice settings, and the mean of every measure that some episode has."""
        chosen = self.space.choice_rows
        means = {RETURN: float(evaluation.returns[chosen].mean())}
        for name, values in evaluation.part(chosen).items():
            if (there := np.isfinite(values)).any():
                means[name] = float(values[there].mean())
        return means

    def compare(self, shipped: Evaluation, variants: Mapping[str, Policy]) -> dict[str, float]:
        """Evaluate variants of the policy in the choice settings: their return and their measures.

        Where there are many settings, in some of them: then it is the policy's mean over all plus the mean difference
        in those.
        """
        chosen = self.space.choice_rows
        some = chosen[:: -(-len(chosen) // VARIANT_SETTINGS)]
        found = {}
        for name, policy in variants.items():
            own = self.run(policy, some)
            pairs = {"return": (own.returns, shipped.returns)}
            pairs |= {measure: (own.measures[measure], values) for measure, values in shipped.measures.items()}
            for what, (ours, values) in pairs.items():
                differences = ours - values[some]
                if np.isfinite(differences).any():  # some measures are not of every episode
                    found[f"{name}_{what}"] = float(np.nanmean(values[chosen]) + np.nanmean(differences))
        return found

    def close(self) -> None:
        """Close the environments."""
        while self.venvs:
            self.venvs.popitem()[1].close()


def mean_over(stages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every number over the stages that have it; all stages count the same."""
    names = dict.fromkeys(name for means in stages for name in means)
    return {name: float(np.mean([means[name] for means in stages if name in means])) for name in names}


def evaluation_points(config: Config, begin: int, end: int) -> set[int]:
    """Return the updates after which a phase is evaluated, its end included.

    A second phase has as many evaluations as the first, also in its last third, where the best checkpoint is chosen;
    more if they would be further apart than evaluate_every, which the replay's margin is made for.
    """
    every, chunk, length = config.evaluate_every, config.chunk, end - begin
    if not begin:
        return {*range(every, end, every), end}
    count = max(-(-begin // every), -(-length // every))
    # to whole chunks, away from the two thirds: rounding must not take a point into the last third or out of it
    chunks = [length * number / (count * chunk) for number in range(1, count + 1)]
    return {begin + chunk * (ceil(x) if 3 * chunk * x > 2 * length else floor(x)) for x in chunks} - {begin}


def by_stage(stages: Sequence[Mapping[str, float]], judged_by: Sequence[str]) -> dict[str, float]:
    """Return the return in each stage, and what judges it there, as they are logged: stage_1_return, …."""
    names = dict.fromkeys((RETURN, *judged_by))
    return {
        f"stage_{number}_{name}": means[name]
        for number, means in enumerate(stages, 1)
        for name in names
        if name in means
    }
