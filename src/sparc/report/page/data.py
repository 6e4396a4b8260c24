"""The results of a suite with what several sections of the page need of them, each computed once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.measures import RETURN, Measure
from sparc.report import stats
from sparc.report.races import races
from sparc.suites.results import EnvResults, Results, env_of, label

REGIONS = {"ood": "out of distribution", "ind": "in distribution"}


@dataclass(frozen=True)
class Source:
    """The runs that a number comes from, for a link to them."""

    row: int  # of the first of them in the table of runs
    env: str  # empty: of all environments
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    """A comparison that the suite named before its runs were made."""

    test: str
    first: str  # label
    second: str
    measure: str
    comparison: stats.Comparison | None  # None: no results yet
    p: float  # Welch's, corrected; NaN where it is not known
    pooled_p: float  # with pooled variance, corrected likewise


@dataclass(frozen=True)
class ReportData:
    """A suite's results and what is computed from them."""

    results: Results

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the suite's manifest."""
        return self.results.manifest

    @property
    def members(self) -> list[dict[str, Any]]:
        """Return all runs, done or not."""
        members: list[dict[str, Any]] = self.manifest["members"]
        return members

    @cached_property
    def parts(self) -> dict[str, EnvResults]:
        """Return the results of every test: in each environment, and in variants of it; draws are one test."""
        return self.results.tests

    @cached_property
    def races(self) -> list[str]:
        """Return the tests that are judged as races."""
        return races(self.results)

    @cached_property
    def own_measured(self) -> list[str]:
        """Return the tests, but races, that are judged by measures."""
        return [test for test in self.parts if test not in self.races and self.judged_by(test) != (RETURN,)]

    @cached_property
    def returns_judge(self) -> bool:
        """Return whether any environment is judged by its return."""
        return any(RETURN in self.judged_by(env) for env in self.results.envs)

    @cached_property
    def mapped(self) -> list[str]:
        """Return the tests that the page has maps of: all but races of cars, which have a table."""
        return [test for test, part in self.parts.items() if test not in self.races or part.space.size <= 2]

    @cached_property
    def methods(self) -> dict[str, tuple[str, str]]:
        """Return method and variation of each label."""
        return self.results.methods

    @property
    def stages(self) -> list[str]:
        """Return the stages of a suite that has any."""
        return list(self.manifest.get("stages") or {})

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the displayed name of each label."""
        return self.results.names

    @cached_property
    def digits(self) -> dict[str, int]:
        """Return the decimals of each environment's returns."""
        published = (self.manifest["reference"] or {}).get("ood", {})
        means = {env: [mean for mean, _ in values.values()] for env, values in published.items()}
        return {env: decimals_for(part, means.get(env, ())) for env, part in self.results.envs.items()}

    @cached_property
    def summaries(self) -> dict[tuple[str, str, str], stats.Summary]:
        """Return the summary of the returns of each environment, label and region that has results."""
        return {
            (env, key, region): stats.summarise(part.matrix(key, region))
            for env, part in self.results.envs.items()
            for key in part.returns
            for region in part.regions
        }

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of labels to compare, the most important first."""
        return self.results.pairs

    def judged_by(self, test: str) -> tuple[str, ...]:
        """Return the measures that verdicts on a test rest on."""
        return self.parts[test].judged_by

    def measure(self, test: str, name: str) -> Measure:
        """Return how a measure of a test, or its return, is displayed."""
        return self.parts[test].criteria[name] if name != RETURN else Measure(RETURN, digits=self.digits[env_of(test)])

    def values(self, test: str, key: str, region: str, name: str) -> Array:
        """Return a measure, or the return, of a label's seeds in a region, scaled for display, (seeds, cells)."""
        return self.measure(test, name).scale * self.parts[test].matrix(key, region, name)

    def all_or_nothing(self, tests: Iterable[str], name: str) -> bool:
        """Return whether a measure is 0 or 1 in every cell: most cells of two methods are then equal."""
        parts = [self.parts[test] for test in tests]
        return all(np.isin(part.matrix(key, None, name), (0.0, 1.0)).all() for part in parts for key in part.returns)

    @cached_property
    def comparisons(self) -> dict[tuple[str, str, str, str, str], stats.Comparison]:
        """Return the comparison of each pair by test, region and measure, where both labels have results."""
        return {
            (test, a, b, region, name): stats.compare(
                self.values(test, a, region, name),
                self.values(test, b, region, name),
                better=self.measure(test, name).better,
            )
            for test, part in self.parts.items()
            for a, b in self.pairs
            for region in part.regions
            for name in dict.fromkeys((*self.judged_by(test), RETURN))
            if a in part.returns and b in part.returns
        }

    @cached_property
    def endpoints(self) -> list[Endpoint]:
        """Return the primary endpoints: the suite's pairs, out of distribution, by what each test is judged by.

        Their p-values are corrected for the number of all of them, with results or without.
        """
        keys = [
            (test, a, b, name)
            for a, b in self.manifest.get("primary", [])
            for test, part in self.parts.items()
            if "ood" in part.regions or not part.regions
            for name in self.judged_by(test)
        ]
        found = [self.comparisons.get((test, a, b, "ood", name)) for test, a, b, name in keys]
        welch = stats.holm([comparison.p if comparison else math.nan for comparison in found])
        pooled = stats.holm([comparison.pooled_p if comparison else math.nan for comparison in found])
        return [
            Endpoint(*key, value, p, pooled_p)
            for key, value, p, pooled_p in zip(keys, found, welch, pooled, strict=True)
        ]

    @cached_property
    def normalizer(self) -> str:
        """Return the label whose mean returns others are divided by: the first reference, or else the first label."""
        return next((key for key in self.methods if self.is_reference(key)), next(iter(self.methods)))

    @cached_property
    def aggregated_envs(self) -> list[str]:
        """Return the environments that aggregates are over: all labels have results, and the divisor is positive."""
        parts = self.results.envs
        keys = {key for part in parts.values() for key in part.returns} | {self.normalizer}
        complete = [env for env, part in parts.items() if keys <= set(part.returns) and "ood" in part.regions]
        return [env for env in complete if self.summaries[env, self.normalizer, "ood"].mean > 0]

    @cached_property
    def aggregates(self) -> dict[str, stats.Estimate]:
        """Return each label's OOD return over these environments, divided by the normalizer's."""
        units = {env: self.summaries[env, self.normalizer, "ood"].mean for env in self.aggregated_envs}
        found = {
            key: [self.results.envs[env].matrix(key, "ood").mean(axis=1) / unit for env, unit in units.items()]
            for key in self.methods
            if units and all(key in self.results.envs[env].returns for env in units)
        }
        return {key: stats.aggregate(scores) for key, scores in found.items()}

    def runs_of(self, key: str) -> list[dict[str, Any]]:
        """Return all runs of a label."""
        return [member for member in self.members if label_of(member) == key]

    def is_reference(self, key: str) -> bool:
        """Return whether a label is no contender: it observes the context, which the others must estimate."""
        return self.results.entry(key).privileged

    def pair_name(self, a: str, b: str, link: str = "against") -> str:
        """Return the name of a comparison."""
        return f"{self.names[a]} {link} {self.names[b]}{' (a reference)' if self.is_reference(b) else ''}"

    def cells(self, test: str, region: str) -> int:
        """Return the number of contexts in a region."""
        ind = self.parts[test].ind
        return int((ind if region == "ind" else ~ind).sum())

    def seeds(self, test: str, key: str) -> tuple[int, int]:
        """Return the number of seeds with results, and of those planned."""
        return len(self.parts[test].returns.get(key, ())), len(self.results.members(test, key))

    def warning(self, test: str, key: str) -> str:
        """Return a note if an average is over fewer seeds than planned, else an empty text."""
        done, planned = self.seeds(test, key)
        return f"{done} of {planned} seeds ⚠" if done < planned else ""

    def gap(self, test: str, key: str) -> str:
        """Return why a label has no results."""
        notes = dict.fromkeys(member["note"] or member["state"] for member in self.results.members(test, key))
        return f"– no results: {'; '.join(notes) or 'not part of the suite'}"

    def source(self, test: str, *labels: str) -> Source:
        """Return the runs that a number comes from; without a test, those of all environments."""
        env = env_of(test)
        rows = (i for i, m in enumerate(self.members) if env in ("", m["env"]) and label_of(m) in labels)
        return Source(next(rows, 0), env, labels)


def label_of(member: dict[str, Any]) -> str:
    """Return the label of a run."""
    return label(member["method"], member["variation"])


def decimals_for(part: EnvResults, published: Iterable[float] = ()) -> int:
    """Return the decimals that an environment's returns, and published means of it, need."""
    values = [np.array(list(published)), *(value for seeds in part.returns.values() for value in seeds.values())]
    size = float(np.abs(np.concatenate(values)).max(initial=0.0))
    return 0 if size >= 1000 else 1 if size >= 10 else 3
