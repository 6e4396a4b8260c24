"""What became of the tries, as counts that are kept in a file, so that a long run can be stopped and continued."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

OUTCOMES = ("named", "harmless", "silent", "hang", "crash")
GOOD = ("named", "harmless")


@dataclass
class Tally:
    """Counts by kind of try and outcome, and the first tries that went wrong."""

    seed: int = 0
    file: Path | None = None
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, file: Path, seed: int) -> Tally:
        """Go on with the counts of a file, if they are of the same seed."""
        tally = cls(seed, file)
        if file.exists() and (kept := json.loads(file.read_text()))["seed"] == seed:
            tally.counts, tally.failures = kept["counts"], kept["failures"]
        return tally

    def tries(self, kind: str) -> int:
        """Return how many tries of a kind there were."""
        return sum(self.counts.get(kind, {}).values())

    def work(self, kind: str, until: int, attempt: Callable[[int], tuple[str, str]]) -> None:
        """Make the tries of a kind that are missing; an attempt gets its number and returns outcome and details."""
        for number in range(self.tries(kind), until):
            outcome, details = attempt(number)
            counts = self.counts.setdefault(kind, dict.fromkeys(OUTCOMES, 0))
            counts[outcome] += 1
            if outcome not in GOOD:
                self.failures.append(f"{kind}, try {number}: {outcome}: {details}")
            if self.file is not None:
                kept = {"seed": self.seed, "counts": self.counts, "failures": self.failures}
                (new := self.file.with_suffix(".new")).write_text(json.dumps(kept, indent=1))
                new.replace(self.file)

    def table(self) -> str:
        """Return the counts as Markdown."""
        lines = [f"| what | tries | {' | '.join(OUTCOMES)} |", f"|---|{'---:|' * (len(OUTCOMES) + 1)}"]
        for kind in sorted(self.counts):
            cells = [self.tries(kind), *(self.counts[kind][outcome] for outcome in OUTCOMES)]
            lines.append(f"| {kind} | {' | '.join(f'{cell:,}' for cell in cells)} |")
        total = [sum(map(self.tries, self.counts))]
        total += [sum(counts[outcome] for counts in self.counts.values()) for outcome in OUTCOMES]
        return "\n".join([*lines, f"| **all** | {' | '.join(f'{cell:,}' for cell in total)} |"])
