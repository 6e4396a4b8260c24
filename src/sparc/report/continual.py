"""What continual learning gains and loses, from the results of a suite of stages.

R[j, i] is the mean return over the cells of the i-th stage's region after the j-th stage, for each seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.arrays import Array, Flags
from sparc.contexts import read_region
from sparc.suites.results import Curve, EnvResults, Results, label

REACHED = 0.02  # of the return that training anew ends with: a curve that is so close to it has reached it


@dataclass(frozen=True)
class Chain:
    """A stage that continues others, of one method."""

    method: str
    stages: tuple[str, ...]  # the first one first
    anew: str | None = None  # the stage that trains the last region without a parent

    @property
    def labels(self) -> list[str]:
        """Return the labels of its stages."""
        return [label(self.method, stage) for stage in self.stages]

    @property
    def last(self) -> str:
        """Return the label of its last stage."""
        return self.labels[-1]


@dataclass(frozen=True)
class Measures:
    """What the last stage of a chain changed, a value per seed (n,); NaN where there is none."""

    seeds: list[int]
    zero_shot: Array  # return in the new region before the stage
    learned: Array  # and after it
    before: Array  # mean return in the regions of the stages before, before the stage
    after: Array  # and after it
    average: Array  # mean return over the regions of all stages
    forgetting: Array  # the best return of any stage before, minus what is left of it; mean over the regions before
    backward: Array  # backward transfer: what is left, minus the return right after each stage
    forward: Array  # forward transfer: how far the learning curve is above that of training anew, 1 at most
    updates: Array  # of the stage, until its return in the new region is what training anew ends with
    updates_anew: Array  # and of training anew
    dormant: Array  # share of the actor's units that are dormant at the stage's last evaluation
    dormant_first: Array  # and at its first that has a replay: the same units on other contexts are another share


def chains(results: Results, env: str) -> list[Chain]:
    """Return every continued stage of every method that an environment has."""
    stages: dict[str, Any] = results.manifest.get("stages", {})
    found = []
    for method, name in results.methods.values():
        if name not in stages or not stages[name]["after"] or not results.members(env, label(method, name)):
            continue
        path = [name]
        while stages[path[0]]["after"]:
            path.insert(0, stages[path[0]]["after"])
        anew = [
            other
            for other in stages
            if not stages[other]["after"]
            and world(results, env, other) == world(results, env, name)
            and results.members(env, label(method, other))
        ]
        found.append(Chain(method, tuple(path), anew[0] if anew else None))
    return found


def variant_of(results: Results, env: str, stage: str) -> str:
    """Return the variant of an environment that a stage trains in; nothing for the default."""
    found: str = results.manifest["stages"][stage].get("variants", {}).get(env, "")  # not in older results
    return found


def world(results: Results, env: str, stage: str) -> tuple[Any, str]:
    """Return what a stage trains in: a region of contexts, in a variant of the environment."""
    return results.manifest["stages"][stage]["regions"][env], variant_of(results, env, stage)


def tests_in(results: Results, env: str, stage: str) -> EnvResults:
    """Return the tests of all runs in the variant that a stage trains in."""
    variant = variant_of(results, env, stage)
    return results.envs[env].variants[variant] if variant else results.envs[env]


def region_mask(results: Results, env: str, stage: str) -> Flags:
    """Return which cells of the test lie in the region of a stage, (M,)."""
    return read_region(results.manifest["stages"][stage]["regions"][env]).contains(results.envs[env].contexts)


def return_matrix(results: Results, env: str, chain: Chain) -> tuple[list[int], Array]:
    """Return the seeds that all stages of a chain have, and R, (seeds, stages, regions); NaN: no cells there.

    Returns in a region are those in the variant of the environment that its stage trains in.
    """
    masks = [region_mask(results, env, stage) for stage in chain.stages]
    parts = [tests_in(results, env, stage) for stage in chain.stages]
    seeds = sorted(set.intersection(*(set(part.returns.get(name, {})) for part in parts for name in chain.labels)))

    def mean(part: EnvResults, name: str, seed: int, mask: Flags) -> float:
        return float(part.returns[name][seed][mask].mean()) if mask.any() else float("nan")

    values = [
        [[mean(part, name, seed, mask) for part, mask in zip(parts, masks, strict=True)] for name in chain.labels]
        for seed in seeds
    ]
    return seeds, np.array(values, float).reshape(len(seeds), len(chain.stages), len(masks))


def measure(results: Results, env: str, chain: Chain) -> Measures:
    """Measure a chain."""
    part = results.envs[env]
    seeds, r = return_matrix(results, env, chain)
    count = r.shape[1]
    own = np.arange(count - 1)
    last, old = r[:, -1], r[:, -1, :-1]
    single = len(results.entry(chain.last).phases) == 1  # the expert's evaluations, before an adapter's, are privileged
    curves = [part.curves.get(chain.last, {}).get(seed) for seed in seeds]
    anew = [part.curves.get(label(chain.method, chain.anew or ""), {}).get(seed) for seed in seeds]
    pairs = list(zip(curves, anew, strict=True)) if single else [(None, None)] * len(seeds)
    column, new = f"stage_{count}_return", region_mask(results, env, chain.stages[-1])
    there = tests_in(results, env, chain.stages[-1])
    best = max((float(there.matrix(key)[:, new].mean()) for key in there.returns), default=np.nan)
    reached = [time_to(mine, other, column) for mine, other in pairs]
    return Measures(
        seeds,
        zero_shot=r[:, -2, -1],
        learned=last[:, -1],
        before=r[:, -2, :-1].mean(axis=1),
        after=old.mean(axis=1),
        average=last.mean(axis=1),
        forgetting=(r[:, :-1, :-1].max(axis=1) - old).mean(axis=1),
        backward=(old - r[:, own, own]).mean(axis=1),
        forward=np.array([forward_transfer(mine, other, column, best) for mine, other in pairs], float),
        updates=np.array([mine for mine, _ in reached], float),
        updates_anew=np.array([other for _, other in reached], float),
        dormant=np.array([dormant_units(curve, -1) for curve in curves], float),
        dormant_first=np.array([dormant_units(curve, 0) for curve in curves], float),
    )


def forward_transfer(mine: Curve | None, anew: Curve | None, column: str, best: float) -> float:
    """Return (area − area anew) / (best − area anew), areas being mean returns over the updates of the stage.

    Before its first evaluation, training anew counts as its first evaluation: nothing is gained by not knowing it.
    """
    if mine is None or anew is None or column not in mine.measures:
        return float("nan")
    grid = np.linspace(0.0, float(mine.updates[-1]), 201)
    areas = [np.interp(grid, curve.updates, values).mean()
             for curve, values in ((mine, mine.measures[column]), (anew, anew.returns))]  # fmt: skip
    return float((areas[0] - areas[1]) / (best - areas[1])) if best > areas[1] else float("nan")


def time_to(mine: Curve | None, anew: Curve | None, column: str) -> tuple[float, float]:
    """Return after how many updates each reaches, but for REACHED, what training anew ends with; NaN: not at all."""
    if mine is None or anew is None or column not in mine.measures:
        return float("nan"), float("nan")
    goal = anew.returns[-1] - REACHED * abs(anew.returns[-1])

    def first(curve: Curve, values: Array) -> float:
        times = curve.updates[values >= goal]
        return float(times[0]) if len(times) else float("nan")

    return first(mine, mine.measures[column]), first(anew, anew.returns)


def dormant_units(curve: Curve | None, which: int) -> float:
    """Return the share of dormant units at the first (0) or last (-1) evaluation that has one."""
    values = curve.measures.get("dormant_actor", np.zeros(0)) if curve is not None else np.zeros(0)
    there = values[np.isfinite(values)]
    return float(there[which]) if len(there) else float("nan")


def has_stages(results: Results, env: str) -> bool:
    """Return whether a continued stage has results."""
    return any(return_matrix(results, env, chain)[0] for chain in chains(results, env))
