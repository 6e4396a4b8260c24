"""Evaluation: a policy over many contexts at once, one tidy row per context and episode."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualVectorEnv, ProgressCall, check_count
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, SparcError, UserError
from sparc.files import replace, shield, unshield
from sparc.machine import usable_cores

if TYPE_CHECKING:  # brings JAX
    from sparc.acting.policy import Policy

FIXED = ("region", "episode", "return", "steps", "terminated")  # the columns between contexts and measures


class Step(NamedTuple):
    """A step of all rows of an evaluation; what belongs to rows whose episode was over means nothing."""

    venv: ContextualVectorEnv  # after the step
    alive: np.ndarray  # (R,) bool: the rows that took it
    obs: np.ndarray  # (R, O) before it
    action: np.ndarray  # (R, A) in the environment's own range
    contexts: np.ndarray  # (R, C) in force in it
    reward: np.ndarray  # (R,)
    terminated: np.ndarray  # (R,) bool


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
        beside = path.with_name(f".{path.name}")
        with beside.open("w", newline="") as file:
            writer = csv.writer(file)
            named = ["label"] if self.labels else []
            writer.writerow([*named, *self.names, *FIXED, *self.measures])
            for row in range(len(self.returns)):
                region = "ind" if self.ind[row] else "ood"
                context = [float(value) for value in self.contexts[row]]
                numbers = [
                    int(self.episode[row]),
                    float(self.returns[row]),
                    int(self.lengths[row]),
                    int(self.terminated[row]),
                ]
                measured = [float(values[row]) for values in self.measures.values()]
                writer.writerow([*map(shield, self.labels[row : row + 1]), *context, region, *numbers, *measured])
        beside.replace(path)

    @classmethod
    def read_csv(cls, path: Path) -> Evaluation:
        """Read what write_csv wrote; a ValueError tells what is wrong with it."""
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        if "region" not in header or not rows or {len(row) for row in rows} != {len(header)}:
            raise ValueError("a line is cut short")
        columns = np.array(rows).T
        first, fixed = int(header[0] == "label"), header.index("region")
        after = fixed + len(FIXED)
        region, episode, returns, lengths, terminated = columns[fixed:after]
        return cls(
            tuple(header[first:fixed]),
            columns[first:fixed].T.astype(float),
            region == "ind",
            episode.astype(int),
            returns.astype(float),
            lengths.astype(int),
            terminated == "1",
            {name: values.astype(float) for name, values in zip(header[after:], columns[after:], strict=True)},
            tuple(map(unshield, columns[0].tolist())) if first else (),
        )

    def write_json(self, path: Path, **about: Any) -> None:
        """Write the summary with what it was made from."""
        replace(path, json.dumps(about | self.counters | {"summary": self.summary()}, indent=1) + "\n")


def evaluate(
    policy: Policy,
    env: str | ContextualVectorEnv,
    contexts: np.ndarray,
    episodes: int = 1,
    seed: int | Sequence[int] = 0,
    threads: int | None = None,
    progress: ProgressCall | None = None,
    on_step: StepCall | None = None,
    **env_options: Any,
) -> Evaluation:
    """Run the policy without noise in every context, all of them side by side, on all cores unless told otherwise.

    `seed` is that of the first row, from which the others count up, or one for each row.
    """
    rows = contexts_of(env).check(contexts).repeat(check_count("episodes", episodes), axis=0)
    if isinstance(env, str):
        entry = get_env(env)
        options = entry.options_of_test({}, env_options)
        entry.ready(rows, options, progress)
        limit = options.get("max_episode_steps", entry.max_episode_steps)
        venv = make_vector_env(env, len(rows), threads=threads or usable_cores(), **options)
    else:
        venv, limit = env, np.inf
    if venv.num_envs != len(rows):
        raise UserError(f"{len(rows)} contexts × episodes need as many environments, not {venv.num_envs}.")
    counted = venv.counters()
    try:
        obs, _ = venv.reset(seed=seed, options={"context": rows})
        policy.reset()
        returns, lengths = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
        died, alive = np.zeros(len(rows), bool), np.ones(len(rows), bool)
        while alive.any():
            # rows whose episode is over are stepped on unseen, until the last one ends
            action = policy.act(
                np.where(alive[:, None], obs, 0.0), venv.contexts if policy.reads == "context" else None
            )
            before = obs, action, venv.contexts.copy()
            try:
                obs, reward, terminated, truncated, _ = venv.step(action)
            except SparcError:
                raise
            except Exception as error:
                at = f"step {int(lengths.max())}"
                raise RunFailure(f"{env} raised {type(error).__name__} at {at} of an evaluation: {error}") from error
            bad = alive & ~(np.isfinite(reward) & np.isfinite(obs).all(axis=1))
            if bad.any():
                where = dict(zip(venv.context_space.names, rows[bad][0].tolist(), strict=True))
                raise RunFailure(
                    f"{env} returned NaN or infinity at step {int(lengths.max())} with the context {where}."
                )
            if on_step:
                on_step(Step(venv, alive, *before, reward, terminated))
            returns[alive] += reward[alive]
            lengths[alive] += 1
            died |= alive & terminated
            alive &= ~(terminated | truncated)
            if progress:  # episodes over, and the parts of those that still run
                progress(int(len(rows) - alive.sum() * max(0.0, 1.0 - lengths.max() / limit)), len(rows))
        measures, labels = venv.measures(), tuple(venv.labels())
        counters = {name: count - counted[name] for name, count in venv.counters().items()}
        for note in venv.take_notes():
            warnings.warn(note, stacklevel=2)
    finally:
        policy.reset()
        if isinstance(env, str):
            venv.close()
    episode = np.tile(np.arange(episodes), len(rows) // episodes)
    space = venv.context_space
    found = (space.names, rows, space.is_train(rows), episode, returns, lengths, died)
    return Evaluation(*found, measures, labels, counters)


def contexts_of(env: str | ContextualVectorEnv) -> ContextSpace:
    """Find the context space of an environment or of its id."""
    return get_env(env).context_space if isinstance(env, str) else env.context_space
