"""A suite's results in memory: what figures, tables and the report are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparc.acting.adaptation import Latents, Trace
from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.envs.declared import group_draws
from sparc.envs.measures import RETURN, Criteria
from sparc.methods.registry import MethodEntry, described_method

Value = TypeVar("Value")
ByMember = dict[str, dict[int, Value]]  # label → seed → what that run gave

PROTAGONIST, RIVAL = 2, 1  # the prominence of methods that comparisons are about, and of those they meet first
APART = ", "  # between an environment and the variant of it that was tested
VARIANTS = {"expert": "the expert, told the context", "newest": "the newest weights"}  # beside what is shipped
EXPERT = "expert_return"  # of a test, beside the policy's; of an evaluation during training likewise
# What explains a run, at every evaluation during training.
EXPLAINED = (
    EXPERT, "newest_return", "adapter_error_0", "adapter_error_10", "adapter_error_50", "q_bias",
    "discounted_return", "dormant_actor", "dormant_critic", "entropy", "temperature", "critic_gradient_norm",
    "critic_clipped",
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Evaluations during training."""

    updates: Array  # (T,)
    returns: Array  # (T,) mean over the IND settings that checkpoints are chosen by
    phase: NDArray[np.str_]  # (T,) "train"; of RMA "expert", then "adapter"
    measures: dict[str, Array] = field(default_factory=dict)  # by name, (T,) each, over the same settings; NaN: none

    def values(self, name: str) -> Array:
        """Return the return or a measure, (T,); NaN where there is none."""
        return self.returns if name == RETURN else self.measures.get(name, np.full(len(self.updates), np.nan))


@dataclass(frozen=True)
class EnvResults:
    """All members of one environment."""

    space: ContextSpace
    contexts: Array  # (M, C)
    ind: NDArray[np.bool_]  # (M,)
    returns: ByMember[Array] = field(default_factory=dict)  # (M,) each
    measures: ByMember[dict[str, Array]] = field(default_factory=dict)  # by name, (M,) each; NaN: none
    curves: ByMember[Curve] = field(default_factory=dict)
    traces: ByMember[Trace] = field(default_factory=dict)
    latents: ByMember[Latents] = field(default_factory=dict)
    context_labels: list[str] = field(default_factory=list)  # (M,) what the contexts are called, where they have names
    variants: dict[str, EnvResults] = field(default_factory=dict)  # the same runs and contexts in variants of it
    criteria: Criteria = field(default_factory=Criteria)  # how the measures are read, and which of them judge
    idle: Array | None = None  # (M,) the return of doing nothing; None: not measured

    @property
    def regions(self) -> list[str]:
        """Return the regions that have cells."""
        return [name for name, cells in (("ood", ~self.ind), ("ind", self.ind)) if cells.any()]

    @property
    def draws(self) -> dict[str, list[str]]:
        """Return the variants that are draws of one change, by the test that they are together: draws of draw-1, …"""
        return group_draws(self.variants)

    @property
    def measure_names(self) -> list[str]:
        """Return the names of the measures, in the environment's order."""
        return list(dict.fromkeys(name for seeds in self.measures.values() for of in seeds.values() for name in of))

    @property
    def judged_by(self) -> tuple[str, ...]:
        """Return what the environment is judged by: measures that all runs have, or the return."""
        found = [set(of) for seeds in self.measures.values() for of in seeds.values()]
        return self.criteria.judged(set.intersection(*found)) if found else self.criteria.judged_by

    def available(self, kind: str, label: str) -> dict[int, Any]:
        """Return what the seeds of a label have of a kind of result, but for those whose table would have no row."""
        found: dict[int, Any] = getattr(self, kind).get(label, {})
        return {seed: value for seed, value in found.items() if rows_of(value)}

    def other_given(self, measures: Mapping[str, Array]) -> str:
        """Return in which given, such as a reference time, a test differs from those before it; empty: in none."""
        for given in (name for name in self.criteria.givens if name in measures):
            own, measure = measures[given], self.criteria[given]
            for key, seeds in self.measures.items():
                for seed, values in seeds.items():
                    if not np.allclose(own, values.get(given, own), rtol=0.0, atol=10.0**-measure.digits):
                        return f"another {measure.title} than {key}, seed {seed}"
        return ""

    def matrix(self, label: str, region: str | None = None, measure: str | None = None) -> Array:
        """Return the returns, or a measure, of a label's seeds, (seeds, cells), of all, the IND or the OOD cells."""
        own = measure in (None, RETURN)
        values = self.returns[label].values() if own else (of[str(measure)] for of in self.measures[label].values())
        rows = np.stack(list(values))
        return rows if region is None else rows[:, self.ind if region == "ind" else ~self.ind]


@dataclass(frozen=True)
class Results:
    """A suite's results; `manifest` is what manifest.json holds."""

    manifest: dict[str, Any]
    envs: dict[str, EnvResults]

    @property
    def parts(self) -> dict[str, EnvResults]:
        """Return the results of every test: in each environment, and in variants of it."""
        found = {}
        for env, part in self.envs.items():
            found[env] = part
            found |= {f"{env}{APART}{name}": other for name, other in part.variants.items()}
        return found

    @property
    def tests(self) -> dict[str, EnvResults]:
        """Return the results of every test, as `parts`, but with draws of one change as one test: their mean."""
        found = {}
        for env, part in self.envs.items():
            together = {name: group for group, names in part.draws.items() for name in names}
            found[env] = part
            for name, other in part.variants.items():
                group = together.get(name)
                test = f"{env}{APART}{group or name}"
                if test not in found:
                    drawn = [part.variants[one] for one in part.draws[group]] if group else []
                    found[test] = mean_of_draws(drawn) if drawn else other
        return found

    @property
    def labels(self) -> list[str]:
        """What is compared, in the suite's order, whether there are results of it or not."""
        return list(self.methods)

    @property
    def methods(self) -> dict[str, tuple[str, str]]:
        """Return method and variation of each label."""
        return {label(m["method"], m["variation"]): (m["method"], m["variation"]) for m in self.manifest["members"]}

    @property
    def entries(self) -> dict[str, MethodEntry]:
        """Return what is known of each method, by name: as registered here, else as the results describe it."""
        described = self.manifest.get("methods", {})
        return {name: described_method(name, described.get(name, {})) for name, _ in self.methods.values()}

    @property
    def names(self) -> dict[str, str]:
        """Return what the reader calls each label."""
        entries = self.entries
        return {key: f"{entries[name].title} {variation}".strip() for key, (name, variation) in self.methods.items()}

    def entry(self, label_: str) -> MethodEntry:
        """Return what is known of a label's method."""
        name = self.methods[label_][0]
        return described_method(name, self.manifest.get("methods", {}).get(name, {}))

    @property
    def main_labels(self) -> list[str]:
        """Return the labels that the suite is about: SPARC, or each variation of it; without one, the first label."""
        return [key for key in self.labels if self.entry(key).prominence >= PROTAGONIST] or self.labels[:1]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return what is compared: the suite's primary pairs, then ours with the rest, and with each other."""
        methods, ours = self.methods, self.main_labels
        others = sorted(methods, key=lambda key: (self.entry(key).prominence != RIVAL, self.entry(key).privileged))
        pairs = [(a, b) for a in ours for b in others if a != b and not (b in ours and ours.index(b) < ours.index(a))]
        pairs.sort(key=lambda pair: methods[pair[0]][1] != methods[pair[1]][1])
        primary = [(a, b) for a, b in self.manifest.get("primary", []) if a in methods and b in methods]
        return [*primary, *((a, b) for a, b in pairs if (a, b) not in primary and (b, a) not in primary)]

    @property
    def privileged_labels(self) -> list[str]:
        """Return the labels with evaluations, in a phase before the last, of an expert that observes the context."""
        curves = [
            (key, curve) for part in self.envs.values() for key in part.curves for curve in part.curves[key].values()
        ]
        return list(dict.fromkeys(key for key, curve in curves if self.observes_context(key, curve).any()))

    def observes_context(self, label_: str, curve: Curve) -> NDArray[np.bool_]:
        """Return which evaluations (T,) are of an expert that observes the context, before a method's last phase."""
        return np.isin(curve.phase, list(self.entry(label_).phases)[:-1])

    @property
    def privileged_note(self) -> str:
        """Return a sentence on these evaluations, for legends and captions."""
        titles = dict.fromkeys(f"{self.entry(key).title}'s" for key in self.privileged_labels)
        return f"{' and '.join(titles)} first phase observes the context"

    @property
    def policy_variants(self) -> list[str]:
        """Return the variants of policies that were evaluated in training."""
        curves = [curve for part in self.envs.values() for seeds in part.curves.values() for curve in seeds.values()]
        columns = {column for curve in curves for column in curve.measures}
        return [name for name in VARIANTS if any(column.startswith(f"{name}_") for column in columns)]

    def members(self, test: str, label_: str) -> list[dict[str, Any]]:
        """Return the manifest's entries of one environment, in whatever variant, and label."""
        found = (m for m in self.manifest["members"] if m["env"] == env_of(test))
        return [m for m in found if label(m["method"], m["variation"]) == label_]


def mean_of_draws(parts: Sequence[EnvResults]) -> EnvResults:
    """Return the mean over draws of the returns and measures of the runs that have them all; NaNs are ignored."""

    def mean(values: Sequence[Array]) -> Array:
        there = np.isfinite(values)
        return np.where(there, values, 0.0).sum(axis=0) / np.where(there.any(axis=0), there.sum(axis=0), np.nan)

    first = parts[0]
    whole = {
        key: [seed for seed in seeds if all(seed in part.returns.get(key, {}) for part in parts)]
        for key, seeds in first.returns.items()
    }
    runs = {key: seeds for key, seeds in whole.items() if seeds}
    returns = {key: {s: mean([part.returns[key][s] for part in parts]) for s in seeds} for key, seeds in runs.items()}
    measures = {
        key: {
            s: {
                name: mean([part.measures[key][s][name] for part in parts])
                for name in first.measures[key][s]
                if all(name in part.measures[key][s] for part in parts)
            }
            for s in seeds
        }
        for key, seeds in runs.items()
    }
    return replace(first, returns=returns, measures=measures)


def env_of(test: str) -> str:
    """Return the environment of a test."""
    return test.split(APART)[0]


def label(method: str, variation: str) -> str:
    """Name what is compared: a method, with its variation where a suite has some."""
    return f"{method} {variation}" if variation else method


def rows_of(value: Any) -> int:
    """Count the rows of a run's result in its table."""
    return len(value if isinstance(value, np.ndarray) else next(iter(vars(value).values())))
