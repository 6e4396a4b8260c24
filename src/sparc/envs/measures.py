"""What an environment is judged by: its measures, how each is read, and which of them rank policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparc.errors import UserError, unknown

RETURN = "return"  # what every environment has
# Columns of tables and fields of the training log that are not measures.
RESERVED = (
    "method", "variation", "seed", "label", "region", "episode", "return", "steps", "terminated", "contexts", "mean",
    "std", "min", "max", "kind", "updates", "phase", "mean_return", "processor_s", "adapter_error_0",
    "adapter_error_10", "adapter_error_50", "q_bias", "discounted_return", "entropy", "temperature",
    "critic_gradient_norm", "critic_clipped", "accepted",
)  # fmt: skip
RESERVED_BEGINNINGS = ("return_", "expert_", "newest_", "stage_", "dormant_")


class Measure(NamedTuple):
    """How a measure of an episode is read.

    Args:
        title: what readers call it, "goals reached".
        better: 1 if more is better, −1 if less is, 0 if it is a given of the context, the same for every policy.
        unit: of the numbers that are shown, "%"; empty for none.
        digits: decimals that are shown.
        scale: what is shown is `scale` times the value; 100 for a share in percent.
    """

    title: str
    better: int = 1
    unit: str = ""
    digits: int = 1
    scale: float = 1.0

    @property
    def heading(self) -> str:
        """The title with the unit, for the head of a column."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    @property
    def axis(self) -> str:
        """The heading, and which way is better where that is not up, for the axis of a figure."""
        return f"{self.heading} (less is better)" if self.better < 0 else self.heading

    def number(self, value: float) -> str:
        """Write a value without its unit."""
        return f"{self.scale * value:,.{self.digits}f}"

    def text(self, value: float) -> str:
        """Write a value with its unit."""
        return f"{self.number(value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Criteria:
    """An environment's measures by name, and the names of those that it is judged by: measures, or the return."""

    measures: Mapping[str, Measure] = field(default_factory=dict)
    judged_by: tuple[str, ...] = (RETURN,)

    def __getitem__(self, name: str) -> Measure:
        """Return how a measure is read; one that is not declared goes by its name."""
        return self.measures.get(name) or Measure(name.replace("_", " "))

    @property
    def givens(self) -> list[str]:
        """Return the measures that belong to the context: every policy must have been tested with the same."""
        return [name for name, measure in self.measures.items() if not measure.better]

    def judged(self, available: Iterable[str]) -> tuple[str, ...]:
        """Return what judges episodes that have these measures: the return where one of those declared is missing."""
        return self.judged_by if {*self.judged_by} <= {*available, RETURN} else (RETURN,)

    def scores(self, returns: NDArray[np.float64], measures: Mapping[str, NDArray[np.float64]]) -> list[float]:
        """Return one number for each thing that judges episodes, of which more is better."""
        rows = {**measures, RETURN: returns}
        return [self[name].better * float(rows[name].mean()) for name in self.judged(measures)]

    def check_values(self, id: str, measures: Mapping[str, NDArray[np.float64]]) -> None:
        """Raise a UserError unless every episode has what it is judged by."""
        for name in self.judged(measures):
            missing = 0 if name == RETURN else int((~np.isfinite(measures[name])).sum())
            if missing:
                raise UserError(
                    f"{id} is judged by '{name}', which {missing} of {len(measures[name])} episodes have no value of: "
                    "report one at the last step of every episode, or leave it out of judged_by=."
                )

    def outcome(self, values: Mapping[str, Any]) -> str:
        """Write the result of an evaluation, or of a region of it, in few words: what judges it, or the bare return."""
        judged = self.judged(values)
        means = {**values, RETURN: values["mean_return"] if "mean_return" in values else values["mean"]}
        texts = [f"{name.replace('_', ' ')} {self[name].text(means[name])}" for name in judged]
        return ", ".join(texts) if judged != (RETURN,) else self[RETURN].text(means[RETURN])

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "measures": {name: measure._asdict() for name, measure in self.measures.items()},
            "judged_by": list(self.judged_by),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Criteria:
        """Return what to_dict wrote."""
        measures = {name: Measure(**measure) for name, measure in values["measures"].items()}
        return cls(measures, tuple(values["judged_by"]))


def make_criteria(id: str, measures: Mapping[str, Measure] | None, judged_by: Iterable[str] | None) -> Criteria:
    """Check what an environment declares."""
    found = dict(measures or {})
    for name, measure in found.items():
        if not isinstance(measure, Measure):
            raise UserError(f"{id}: the measure '{name}' must be a sparc.Measure, got {measure!r}")
        if measure.better not in (-1, 0, 1):
            raise UserError(f"{id}: better of the measure '{name}' must be 1, −1 or 0, got {measure.better!r}")
        if not name.isidentifier() or name in RESERVED or name.startswith(RESERVED_BEGINNINGS):
            raise UserError(f"{id}: a measure cannot be called '{name}', a column of the tables is: rename it")
    names = (RETURN,) if judged_by is None else (judged_by,) if isinstance(judged_by, str) else tuple(judged_by)
    if not names or len(set(names)) < len(names):
        raise UserError(f"{id}: judged_by must name one measure or several different ones, got {judged_by!r}")
    for name in names:
        if name != RETURN and name not in found:
            raise unknown("measure", name, found, of=f"{id} in judged_by=")
        if name in found and not found[name].better:
            raise UserError(f"{id}: judged_by names '{name}', a given (better=0) that no policy can improve")
    return Criteria(found, names)
