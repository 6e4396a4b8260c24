"""What became of the tries: a small file per kind, so that a long suite can be stopped, continued and shared out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTCOMES = ("named", "harmless", "silent", "hang", "crash")
GOOD = ("named", "harmless")

Outcome = tuple[str, str]  # one of OUTCOMES, and details


@dataclass
class Tally:
    """Counts by kind of try and outcome, and the tries that went wrong; `folder` has a JSON file per kind.

    Several processes may work on different kinds in one folder.
    """

    seed: int = 0
    folder: Path | None = None
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, seed: int) -> Tally:
        """Go on with the counts of a folder, as far as they are of the same seed."""
        folder.mkdir(parents=True, exist_ok=True)
        found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        return cls(seed, folder, {kept["kind"]: kept for kept in found if kept["seed"] == seed})

    def tries(self, kind: str) -> int:
        """Return how many tries of a kind there were."""
        return sum(self.kinds[kind]["counts"].values()) if kind in self.kinds else 0

    def work(self, kind: str, until: int, attempt: Callable[[int], Outcome], each: int = 1) -> None:
        """Make the attempts of a kind that are missing, of so many tries each.

        An attempt gets its number and returns the outcome of its tries, and details.
        """
        for number in range(self.tries(kind) // each, -(-until // each)):
            self.add(kind, *attempt(number), each)

    def add(self, kind: str, outcome: str, details: str = "", tries: int = 1) -> None:
        """Count tries of one outcome, and keep the count."""
        fresh = {"seed": self.seed, "kind": kind, "counts": dict.fromkeys(OUTCOMES, 0), "failures": []}
        kept = self.kinds.setdefault(kind, fresh)
        if outcome not in GOOD:
            kept["failures"].append(f"try {self.tries(kind)}: {outcome}: {details}")
        kept["counts"][outcome] += tries
        if self.folder is not None:
            file = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', kind.lower())}.json"
            (new := file.with_suffix(".new")).write_text(json.dumps(kept, indent=1) + "\n")
            new.replace(file)

    def failures(self) -> Iterator[str]:
        """Yield the tries that went wrong."""
        for kind, kept in sorted(self.kinds.items()):
            yield from (f"{kind}, {failure}" for failure in kept["failures"])

    def table(self) -> str:
        """Return the counts as Markdown."""
        lines = [f"| what | tries | {' | '.join(OUTCOMES)} |", f"|---|{'---:|' * (len(OUTCOMES) + 1)}"]
        total = [0] * (len(OUTCOMES) + 1)
        for kind in sorted(self.kinds):
            cells = [self.tries(kind), *(self.kinds[kind]["counts"][outcome] for outcome in OUTCOMES)]
            lines.append(f"| {kind} | {' | '.join(f'{cell:,}' for cell in cells)} |")
            total = [a + b for a, b in zip(total, cells, strict=True)]
        return "\n".join([*lines, f"| **all** | {' | '.join(f'{cell:,}' for cell in total)} |"])
