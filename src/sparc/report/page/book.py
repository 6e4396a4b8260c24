"""The results with what several parts of the page ask of them, each computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from sparc.arrays import Array
from sparc.envs.measures import Measure
from sparc.envs.racing.measures import JUDGED, MEASURES
from sparc.report import stats
from sparc.report.laps import races
from sparc.report.page.text import attributes, digits
from sparc.suites.tables import EnvResults, Results, env_of, label

RETURN = "return"  # beside the measures of laps


@dataclass(frozen=True)
class Book:
    """A suite's results, summed up."""

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
        """Return the results of every test: of each environment and, of races, of another physics."""
        return self.results.parts

    @cached_property
    def races(self) -> list[str]:
        """Return the tests that are judged by laps."""
        return races(self.results)

    @cached_property
    def mapped(self) -> list[str]:
        """Return the tests that the page has maps of: all but races of cars, which have a table."""
        return [test for test, part in self.parts.items() if test not in self.races or part.space.size <= 2]

    @cached_property
    def methods(self) -> dict[str, tuple[str, str]]:
        """Return method and variation of each label."""
        return self.results.methods

    @cached_property
    def names(self) -> dict[str, str]:
        """Return what the reader calls each label."""
        return self.results.names

    @cached_property
    def digits(self) -> dict[str, int]:
        """Return the decimals of each environment's returns."""
        published = (self.manifest["reference"] or {}).get("ood", {})
        means = {env: [mean for mean, _ in values.values()] for env, values in published.items()}
        return {env: digits(part, means.get(env, ())) for env, part in self.results.envs.items()}

    @cached_property
    def summaries(self) -> dict[tuple[str, str, str], stats.Summary]:
        """Sum up each environment, label and region that has results."""
        return {
            (env, key, region): stats.summarise(part.matrix(key, region))
            for env, part in self.results.envs.items()
            for key in part.returns
            for region in part.regions
        }

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the comparisons of the answer, the most wanted first."""
        return self.results.pairs

    def judged(self, test: str) -> tuple[str, ...]:
        """Return what verdicts on a test rest on."""
        return JUDGED if test in self.races else (RETURN,)

    def measure(self, test: str, name: str) -> Measure:
        """Return how a measure of a test, or its return, is read."""
        return MEASURES[name] if name != RETURN else Measure(RETURN, digits=self.digits[env_of(test)])

    def values(self, test: str, key: str, region: str, name: str) -> Array:
        """Return a measure, or the return, of a label's seeds in a region as it is shown, (seeds, cells)."""
        measure = None if name == RETURN else name
        return self.measure(test, name).scale * self.parts[test].matrix(key, region, measure)

    @cached_property
    def comparisons(self) -> dict[tuple[str, str, str, str, str], stats.Comparison]:
        """Compare these pairs in each test and region that has results of both, by what judges it and by return."""
        return {
            (test, a, b, region, name): stats.compare(
                self.values(test, a, region, name),
                self.values(test, b, region, name),
                better=self.measure(test, name).better,
            )
            for test, part in self.parts.items()
            for a, b in self.pairs
            for region in part.regions
            for name in dict.fromkeys((*self.judged(test), RETURN))
            if a in part.returns and b in part.returns
        }

    @cached_property
    def yardstick(self) -> str:
        """Return the label whose mean returns others are divided by: the reference, or the first of the suite."""
        return next((key for key in self.methods if self.is_reference(key)), next(iter(self.methods)))

    @cached_property
    def common(self) -> list[str]:
        """Return the environments over which all labels that have results can be aggregated."""
        parts = self.results.envs
        keys = {key for part in parts.values() for key in part.returns} | {self.yardstick}
        whole = [env for env, part in parts.items() if keys <= set(part.returns) and "ood" in part.regions]
        return [env for env in whole if self.summaries[env, self.yardstick, "ood"].mean > 0]

    @cached_property
    def aggregates(self) -> dict[str, stats.Estimate]:
        """Aggregate the OOD returns of each label over these environments, in units of the yardstick's."""
        units = {env: self.summaries[env, self.yardstick, "ood"].mean for env in self.common}
        found = {
            key: [self.results.envs[env].matrix(key, "ood").mean(axis=1) / unit for env, unit in units.items()]
            for key in self.methods
            if units and all(key in self.results.envs[env].returns for env in units)
        }
        return {key: stats.aggregate(scores) for key, scores in found.items()}

    def of(self, key: str) -> list[dict[str, Any]]:
        """Return all runs of a label."""
        return [member for member in self.members if label_of(member) == key]

    def is_reference(self, key: str) -> bool:
        """Return whether a label is no contender: it observes the context, which the others must estimate."""
        return self.results.entry(key).privileged

    def cells(self, test: str, region: str) -> int:
        """Count the contexts of a region."""
        ind = self.parts[test].ind
        return int((ind if region == "ind" else ~ind).sum())

    def seeds(self, test: str, key: str) -> tuple[int, int]:
        """Count the seeds with results, and those that were planned."""
        return len(self.parts[test].returns.get(key, ())), len(self.results.members(test, key))

    def warning(self, test: str, key: str) -> str:
        """Return a note if an average is over fewer seeds than planned, else nothing."""
        done, planned = self.seeds(test, key)
        return f"{done} of {planned} seeds ⚠" if done < planned else ""

    def gap(self, test: str, key: str) -> str:
        """Return why there are no results."""
        notes = dict.fromkeys(member["note"] or member["state"] for member in self.results.members(test, key))
        return f"– no results: {'; '.join(notes) or 'not part of the suite'}"

    def source(self, text: str, test: str, *labels: str) -> str:
        """Link a number to the runs it comes from; without a test, to those of all."""
        env = env_of(test)
        rows = (i for i, m in enumerate(self.members) if env in ("", m["env"]) and label_of(m) in labels)
        target = {"href": f"#run-{next(rows, 0)}", "data_from": {"env": env, "labels": list(labels)}}
        return f"<a{attributes(**target)}>{escape(text)}</a>"


def label_of(member: dict[str, Any]) -> str:
    """Return the label of a run."""
    return label(member["method"], member["variation"])
