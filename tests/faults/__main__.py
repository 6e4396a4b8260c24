"""python -m tests.faults --kills 1000 --damages 10000 --inputs 10000 --seed 0: prints the table of docs/reliability.md.

The counts are kept in --out after every try; the same command goes on with them. Exit code 1 if anything was silent,
hung or crashed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from .tally import GOOD, OUTCOMES, Tally

KINDS = ("train", "rma", "evaluate", "suite")  # of processes that are killed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    for name, default in (("kills", 1_000), ("damages", 10_000), ("inputs", 10_000), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path("faults.json"), help="where the counts are kept")
    parsed = parser.parse_args()
    tally = Tally.open(parsed.out.resolve(), parsed.seed)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), "sparc-faults-jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    from . import inputs  # after what JAX reads when it is loaded
    from .damages import FILES, Damages
    from .kills import Kills

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if parsed.damages:
            damages = Damages(folder, parsed.seed)
            for kind in FILES:
                each = -(-parsed.damages // len(FILES))
                tally.work(kind, each, lambda number, kind=kind: damages.attempt(kind, number))  # type: ignore[misc]
        for kind in KINDS if parsed.kills else ():
            if tally.tries(f"kill -9, {kind}") < (each := -(-parsed.kills // len(KINDS))):
                tally.work(f"kill -9, {kind}", each, Kills(kind, folder, parsed.seed).attempt)
        if parsed.inputs:
            (own := folder / "inputs").mkdir()
            inputs.work(tally, parsed.inputs, own)
            os.chdir("/")
    print(tally.table())
    print("\n".join(tally.failures[:20]), file=sys.stderr)
    bad = [outcome for outcome in OUTCOMES if outcome not in GOOD]
    return 1 if any(counts[outcome] for counts in tally.counts.values() for outcome in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
