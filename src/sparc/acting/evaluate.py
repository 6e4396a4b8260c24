"""Evaluation: a policy over many contexts at once, one tidy row per context and episode."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparc import seals
from sparc.acting.episodes import Acting, Episodes, Step
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualVectorEnv, ProgressCall, check_count
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import UserError
from sparc.files import read_table, replace, write_table
from sparc.machine import usable_cores

FIXED = ("region", "episode", "return", "steps", "terminated")  # the columns between contexts and measures


StepCall = Callable[[Step], None]


@dataclass(frozen=True)
class Evaluation:
    """Rows of results, as columns."""

    names: tuple[str, ...]
    contexts: np.ndarray  # (R, C)
    ind: np.ndarray  # (R,) bool: inside the training region
    episode: np.ndarray  # (R,) int
    returns: np.ndarray  # (R,)
    lengths: np.ndarray  # (R,) int
    terminated: np.ndarray  # (R,) bool: ended before its time
    measures: dict[str, np.ndarray] = field(default_factory=dict)  # (R,) each; NaN: none
    labels: tuple[str, ...] = ()  # of the rows, where the environment names its contexts
    counters: dict[str, int] = field(default_factory=dict)  # as of training: crashes that were survived

    def cells(self, values: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Average over episodes: the distinct contexts (M, C), whether each is IND, their mean returns or values (M,).

        Episodes without a value count for nothing; a context of nothing else has none.
        """
        values = self.returns if values is None else values
        _, first, inverse = np.unique(self.contexts, axis=0, return_index=True, return_inverse=True)
        there = np.isfinite(values)
        counts = np.bincount(inverse, weights=there)
        with np.errstate(invalid="ignore"):
            means = np.bincount(inverse, weights=np.where(there, values, 0.0)) / counts
        order = np.argsort(first)
        return self.contexts[first[order]], self.ind[first[order]], means[order]

    def part(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        """Return the measures of some rows."""
        return {name: values[rows] for name, values in self.measures.items()}

    def summary(self) -> dict[str, dict[str, float | int]]:
        """Return cells, mean, standard deviation, smallest and largest return over the contexts, IND and OOD apart.

        Of every measure the mean over the rows that have one.
        """
        _, ind, returns = self.cells()
        parts = {"ind": (returns[ind], self.ind), "ood": (returns[~ind], ~self.ind)}
        return {
            name: {
                "contexts": len(part),
                "mean": float(part.mean()),
                "std": float(part.std(ddof=1)) if len(part) > 1 else 0.0,
                "min": float(part.min()),
                "max": float(part.max()),
            }
            | {
                measure: float(np.nanmean(values[rows]))
                for measure, values in self.measures.items()
                if np.isfinite(values[rows]).any()
            }
            for name, (part, rows) in parts.items()
            if len(part)
        }

    def write_csv(self, path: Path) -> None:
        """Write one row per context and episode."""
        columns = [
            *([self.labels] if self.labels else []),
            *self.contexts.T.tolist(),
            np.where(self.ind, "ind", "ood").tolist(),
            self.episode.tolist(),
            self.returns.tolist(),
            self.lengths.tolist(),
            self.terminated.astype(int).tolist(),
            *(values.tolist() for values in self.measures.values()),
        ]
        header = [*(["label"] if self.labels else []), *self.names, *FIXED, *self.measures]
        write_table(path, header, zip(*columns, strict=True), line_end="\r\n")

    @classmethod
    def read_csv(cls, path: Path) -> Evaluation:
        """Read what write_csv wrote; Damaged if it is not whole."""
        table = read_table(path)
        header = list(table.columns)
        table.text("region")  # Damaged without it
        first, fixed = int(header[0] == "label"), header.index("region")
        names, measures = header[first:fixed], header[fixed + len(FIXED) :]
        return cls(
            tuple(names),
            np.stack([table.numbers(name) for name in names], axis=1),
            table.text("region") == "ind",
            table.numbers("episode").astype(int),
            table.numbers("return"),
            table.numbers("steps").astype(int),
            table.text("terminated") == "1",
            {name: table.numbers(name) for name in measures},
            tuple(table.text("label").tolist()) if first else (),
        )

    def write_json(self, path: Path, files: Iterable[Path] = (), **about: Any) -> None:
        """Write the summary with what it was made from, sealed together with files such as its rows."""
        written = seals.seal(about | self.counters | {"summary": self.summary()}, files)
        replace(path, json.dumps(written, indent=1) + "\n")


def evaluate(
    policy: Acting,
    env: str | ContextualVectorEnv,
    contexts: np.ndarray,
    episodes: int = 1,
    seed: int | Sequence[int] = 0,
    *,
    threads: int | None = None,
    progress: ProgressCall | None = None,
    on_step: StepCall | None = None,
    **env_options: Any,
) -> Evaluation:
    """Run a policy without noise in every context, all of them side by side.

    Args:
        policy: what `sparc.load` returned.
        env: an environment's id, or a vector environment with a row for each context and episode.
        contexts: the contexts (M, C), inside the test region; `context_space.grid(21)`, for example.
        episodes: how many episodes in each context.
        seed: the seed of the first row, from which the others count up, or one for each row.
        threads: how many threads the simulation may use; by default all cores.
        progress: called with the episodes that are over and their number.
        on_step: called with a `Step` after each step of the environments.
        **env_options: options of the environment, on top of its test options.

    Returns:
        An `Evaluation` with one row per context and episode: `returns`, `lengths`, `terminated`, `ind`, `measures`;
        `summary()` averages them in and out of distribution, `write_csv(path)` writes them.

    Raises:
        UserError: a context lies outside the test region, or there is no such environment or option.
        RunFailure: the environment raised an error, or returned NaN or infinity.

    Example:
        >>> space = sparc.make_env("DriftingBoat-v0").get_wrapper_attr("context_space")
        >>> sparc.evaluate(policy, "DriftingBoat-v0", space.grid(21)).summary()
    """
    rows = contexts_of(env).check(contexts).repeat(check_count("episodes", episodes), axis=0)
    if not isinstance(env, str):
        if env_options:
            raise UserError(f"{', '.join(env_options)}: options go with the id of an environment, this one is made.")
        return evaluate_in(env, policy, rows, episodes, seed, np.inf, progress, on_step)
    entry = get_env(env)
    options = entry.resolve_test_options({}, env_options)
    entry.prepare_tests(rows, options, progress)
    limit = options.get("max_episode_steps", entry.max_episode_steps)
    venv = make_vector_env(env, len(rows), threads=threads or usable_cores(), **options)
    try:
        evaluation = evaluate_in(venv, policy, rows, episodes, seed, limit, progress, on_step)
    finally:
        venv.close()
    entry.criteria.check_values(env, evaluation.measures)
    return evaluation


def evaluate_in(
    venv: ContextualVectorEnv,
    policy: Acting,
    rows: np.ndarray,
    episodes: int,
    seed: int | Sequence[int],
    limit: float,
    progress: ProgressCall | None,
    on_step: StepCall | None,
) -> Evaluation:
    """Run an episode per row; `limit` is the most steps that one can have."""
    if venv.num_envs != len(rows):
        raise UserError(f"{len(rows)} contexts × episodes need as many environments, not {venv.num_envs}.")
    counted = venv.counters()
    returns, lengths = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
    terminated = np.zeros(len(rows), bool)
    try:
        under_way = Episodes(policy, venv, rows, seed)
        for step in under_way:
            if on_step:
                on_step(step)
            returns[step.running] += step.reward[step.running]
            lengths[step.running] += 1
            terminated |= step.running & step.terminated
            if progress:  # episodes over, and the parts of those that still run
                left = under_way.running.sum() * max(0.0, 1.0 - under_way.steps / limit)
                progress(int(len(rows) - left), len(rows))
        measures, labels = venv.measures(), tuple(venv.labels())
        counters = {name: count - counted[name] for name, count in venv.counters().items()}
        for note in venv.take_notes():
            warnings.warn(note, stacklevel=3)
    finally:
        policy.reset()
    episode = np.tile(np.arange(episodes), len(rows) // episodes)
    space = venv.context_space
    found = (space.names, rows, space.is_train(rows), episode, returns, lengths, terminated)
    return Evaluation(*found, measures, labels, counters)


def contexts_of(env: str | ContextualVectorEnv) -> ContextSpace:
    """Find the context space of an environment or of its id."""
    return get_env(env).context_space if isinstance(env, str) else env.context_space
