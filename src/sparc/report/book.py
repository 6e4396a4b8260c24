"""The results with what several parts of the page ask of them, each computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from sparc import stats
from sparc.report.text import REGIONS, attributes, digits, display_name
from sparc.results import Results, label

PROTAGONIST, RIVAL, REFERENCE = "sparc", "rma", "oracle"


@dataclass(frozen=True)
class Book:
    """A suite's results, summed up."""

    results: Results

    @property
    def manifest(self) -> dict[str, Any]:
        """Give the suite's manifest."""
        return self.results.manifest

    @property
    def members(self) -> list[dict[str, Any]]:
        """Give all runs, done or not."""
        members: list[dict[str, Any]] = self.manifest["members"]
        return members

    @cached_property
    def methods(self) -> dict[str, tuple[str, str]]:
        """Give method and variation of each label."""
        return {label_of(member): (member["method"], member["variation"]) for member in self.members}

    @cached_property
    def names(self) -> dict[str, str]:
        """Give what the reader calls each label."""
        return {key: display_name(*both) for key, both in self.methods.items()}

    @cached_property
    def digits(self) -> dict[str, int]:
        """Give the decimals of each environment's returns."""
        return {env: digits(part) for env, part in self.results.envs.items()}

    @cached_property
    def summaries(self) -> dict[tuple[str, str, str], stats.Summary]:
        """Sum up each environment, label and region that has results."""
        return {
            (env, key, region): stats.summarise(part.matrix(key, region))
            for env, part in self.results.envs.items()
            for key in part.returns
            for region in self.regions(env)
        }

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Give the comparisons of the answer, the most wanted first: SPARC, or each variation of it, with the rest."""
        ours = [key for key, (method, _) in self.methods.items() if method == PROTAGONIST] or list(self.methods)[:1]
        others = sorted(self.methods, key=lambda key: (self.methods[key][0] != RIVAL, self.is_reference(key)))
        pairs = [(a, b) for a in ours for b in others if a != b and not (b in ours and ours.index(b) < ours.index(a))]
        return sorted(pairs, key=lambda pair: self.methods[pair[0]][1] != self.methods[pair[1]][1])

    @cached_property
    def comparisons(self) -> dict[tuple[str, str, str, str], stats.Comparison]:
        """Compare these pairs in each environment and region that has results of both."""
        return {
            (env, a, b, region): stats.compare(part.matrix(a, region), part.matrix(b, region))
            for env, part in self.results.envs.items()
            for a, b in self.pairs
            for region in self.regions(env)
            if a in part.returns and b in part.returns
        }

    def of(self, key: str) -> list[dict[str, Any]]:
        """Give all runs of a label."""
        return [member for member in self.members if label_of(member) == key]

    def is_reference(self, key: str) -> bool:
        """Say whether a label is no contender: it is told what the others must find out."""
        return self.methods[key][0] == REFERENCE

    def cells(self, env: str, region: str) -> int:
        """Count the contexts of a region."""
        ind = self.results.envs[env].ind
        return int((ind if region == "ind" else ~ind).sum())

    def regions(self, env: str) -> list[str]:
        """Give the regions that the test grid has cells in."""
        return [region for region in REGIONS if self.cells(env, region)]

    def seeds(self, env: str, key: str) -> tuple[int, int]:
        """Count the seeds with results, and those that were planned."""
        return len(self.results.envs[env].returns.get(key, ())), len(self.results.members(env, key))

    def warning(self, env: str, key: str) -> str:
        """Say that an average is over fewer seeds than planned, else nothing."""
        done, planned = self.seeds(env, key)
        return f"{done} of {planned} seeds ⚠" if done < planned else ""

    def gap(self, env: str, key: str) -> str:
        """Say why there are no results."""
        notes = dict.fromkeys(member["note"] or member["state"] for member in self.results.members(env, key))
        return f"– no results: {'; '.join(notes) or 'not part of the suite'}"

    def source(self, text: str, env: str, *labels: str) -> str:
        """Link a number to the runs it comes from; without an environment, to those of all."""
        rows = (i for i, m in enumerate(self.members) if env in ("", m["env"]) and label_of(m) in labels)
        target = {"href": f"#run-{next(rows, 0)}", "data_from": {"env": env, "labels": list(labels)}}
        return f"<a{attributes(**target)}>{escape(text)}</a>"


def label_of(member: dict[str, Any]) -> str:
    """Give the label of a run."""
    return label(member["method"], member["variation"])
