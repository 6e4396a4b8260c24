"""What continual learning gains and loses, from the results of a suite of stages.

R[j, i] is the mean over the cells of the i-th stage's region, in the variant of the environment that the i-th stage
trains in, after the j-th stage, for each seed: of the return, or of a measure that the environment is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparc.arrays import Array, Flags
from sparc.contexts import read_region
from sparc.envs.measures import RETURN, Measure
from sparc.suites.results import Curve, EnvResults, Results, label

REACHED = 0.02  # of the value that training anew ends with: a curve that is so close to it has reached it


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
    """What the last stage of a chain changed, a value per seed (n,); NaN where there is none.

    Forgetting is a loss and transfer a gain, whether more or less of the measure is better.
    """

    seeds: list[int]
    zero_shot: Array  # value in the new region before the stage
    learned: Array  # and after it
    before: Array  # mean value in the regions of the stages before, before the stage
    after: Array  # and after it
    average: Array  # mean value over the regions of all stages
    forgetting: Array  # how much worse than the best of any stage before; mean over the regions before
    backward: Array  # backward transfer: how much better than right after each stage
    forward: Array  # forward transfer: how far the learning curve is above that of training anew, 1 at most
    updates: Array  # of the stage, until its value in the new region is what training anew ends with
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


def judged_by(results: Results, env: str) -> dict[str, Measure]:
    """Return what stages are measured by, with how it is read: what the environment is judged by."""
    part = results.envs[env]
    tests = (part, *part.variants.values())
    names = part.judged_by if all(test.judged_by == part.judged_by for test in tests) else (RETURN,)
    return {name: part.criteria[name] for name in names}


def value_matrix(results: Results, env: str, chain: Chain, name: str = RETURN) -> tuple[list[int], Array]:
    """Return the seeds that all stages of a chain have, and R, (seeds, stages, regions); NaN: no cells there.

    Values in a region are those in the variant of the environment that its stage trains in.
    """
    tests = [(tests_in(results, env, stage), region_mask(results, env, stage)) for stage in chain.stages]
    seeds = sorted(set.intersection(*(set(part.returns.get(key, {})) for part, _ in tests for key in chain.labels)))

    def mean(part: EnvResults, key: str, seed: int, mask: Flags) -> float:
        return float(values_of(part, key, seed, name)[mask].mean()) if mask.any() else float("nan")

    values = [[[mean(part, key, seed, mask) for part, mask in tests] for key in chain.labels] for seed in seeds]
    return seeds, np.array(values, float).reshape(len(seeds), len(tests), len(tests))


def values_of(part: EnvResults, key: str, seed: int, name: str) -> Array:
    """Return the return or a measure of a run in every cell, (M,)."""
    return part.returns[key][seed] if name == RETURN else part.measures[key][seed][name]


def measure(results: Results, env: str, chain: Chain, name: str = RETURN) -> Measures:
    """Measure a chain by the return, or by a measure of which more or less may be better."""
    part, better = results.envs[env], results.envs[env].criteria[name].better
    seeds, r = value_matrix(results, env, chain, name)
    count = r.shape[1]
    own = np.arange(count - 1)
    good, last, old = better * r, r[:, -1], r[:, -1, :-1]
    single = len(results.entry(chain.last).phases) == 1  # the expert's evaluations, before an adapter's, are privileged
    curves = [part.curves.get(chain.last, {}).get(seed) for seed in seeds]
    anew = [part.curves.get(label(chain.method, chain.anew or ""), {}).get(seed) for seed in seeds]
    column, new = f"stage_{count}_{name}", region_mask(results, env, chain.stages[-1])
    pairs = [progress(*both, column, name, better) if single else None for both in zip(curves, anew, strict=True)]
    there = tests_in(results, env, chain.stages[-1])
    best = max((better * float(there.matrix(key, None, name)[:, new].mean()) for key in there.returns), default=np.nan)
    reached = [time_to(pair) for pair in pairs]
    return Measures(
        seeds,
        zero_shot=r[:, -2, -1],
        learned=last[:, -1],
        before=r[:, -2, :-1].mean(axis=1),
        after=old.mean(axis=1),
        average=last.mean(axis=1),
        forgetting=(good[:, :-1, :-1].max(axis=1) - better * old).mean(axis=1),
        backward=(better * old - good[:, own, own]).mean(axis=1),
        forward=np.array([forward_transfer(pair, best) for pair in pairs], float),
        updates=np.array([mine for mine, _ in reached], float),
        updates_anew=np.array([other for _, other in reached], float),
        dormant=np.array([dormant_units(curve, -1) for curve in curves], float),
        dormant_first=np.array([dormant_units(curve, 0) for curve in curves], float),
    )


class Progress(NamedTuple):
    """A stage and training anew, evaluated in the new region during training; of the values, more is better."""

    updates: Array  # (T,)
    values: Array  # (T,)
    updates_anew: Array  # (S,)
    values_anew: Array  # (S,)


def progress(mine: Curve | None, anew: Curve | None, column: str, name: str, better: int) -> Progress | None:
    """Return both curves; None where one is missing, or has no such values."""
    if mine is None or anew is None or column not in mine.measures or not np.isfinite(anew.values(name)).all():
        return None
    return Progress(mine.updates, better * mine.measures[column], anew.updates, better * anew.values(name))


def forward_transfer(pair: Progress | None, best: float) -> float:
    """Return (area − area anew) / (best − area anew), areas being mean values over the updates of the stage.

    Before its first evaluation, training anew counts as its first evaluation: nothing is gained by not knowing it.
    """
    if pair is None:
        return float("nan")
    grid = np.linspace(0.0, float(pair.updates[-1]), 201)
    area = np.interp(grid, pair.updates, pair.values).mean()
    area_anew = np.interp(grid, pair.updates_anew, pair.values_anew).mean()
    return float((area - area_anew) / (best - area_anew)) if best > area_anew else float("nan")


def time_to(pair: Progress | None) -> tuple[float, float]:
    """Return after how many updates each reaches, but for REACHED, what training anew ends with; NaN: not at all."""
    if pair is None:
        return float("nan"), float("nan")
    goal = pair.values_anew[-1] - REACHED * abs(pair.values_anew[-1])

    def first(updates: Array, values: Array) -> float:
        times = updates[values >= goal]
        return float(times[0]) if len(times) else float("nan")

    return first(pair.updates, pair.values), first(pair.updates_anew, pair.values_anew)


def dormant_units(curve: Curve | None, which: int) -> float:
    """Return the share of dormant units at the first (0) or last (-1) evaluation that has one."""
    values = curve.measures.get("dormant_actor", np.zeros(0)) if curve is not None else np.zeros(0)
    there = values[np.isfinite(values)]
    return float(there[which]) if len(there) else float("nan")


def has_stages(results: Results, env: str) -> bool:
    """Return whether a continued stage has results."""
    return any(value_matrix(results, env, chain)[0] for chain in chains(results, env))
