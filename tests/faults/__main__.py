"""python -m tests.faults: kills, damaged files, full disks and hostile inputs; prints the table of docs/reliability.md.

The counts are kept in the folder --out after every try; the same command goes on with them. Several processes may share
the work: give each its own --only. Exit code 1 if anything was silent, hung or crashed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from sparc.suites.runner import ONE_THREAD

from .tally import GOOD, Tally

DEFAULTS = {"kills": 1_000, "damages": 10_000, "disks": 100, "inputs": 10_000, "seed": 0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path("faults"), help="the folder of the counts (default faults)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only kinds of tries whose name contains a word")
    parsed = parser.parse_args()
    out = parsed.out.resolve()
    tally = Tally.open(out, parsed.seed)
    os.environ.update(ONE_THREAD)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), "sparc-faults-jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    with tempfile.TemporaryDirectory(prefix="sparc-faults-") as name:
        work(tally, parsed, Path(name))
    tally = Tally.open(out, parsed.seed)  # with what others have added
    print(tally.table())
    print("\n".join(list(tally.failures())[:20]), file=sys.stderr)
    return int(any(count for kept in tally.kinds.values() for end, count in kept["counts"].items() if end not in GOOD))


def work(tally: Tally, parsed: argparse.Namespace, folder: Path) -> None:
    """Make the tries that are missing."""
    from . import disks, inputs, kills  # after what JAX reads when it is loaded
    from .damages import FILES, Damages

    def chosen(kind: str) -> bool:
        return not parsed.only or any(word in kind for word in parsed.only)

    each = -(-parsed.damages // len(FILES))
    if missing := [kind for kind in FILES if chosen(kind) and tally.tries(kind) < each]:
        damages = Damages(folder, parsed.seed)
        for kind in missing:
            tally.work(kind, each, lambda number, kind=kind: damages.attempt(kind, number))  # type: ignore[misc]
    if wanted := [kind for kind in inputs.KINDS if chosen(kind)]:
        (own := folder / "inputs").mkdir()
        inputs.work(tally, parsed.inputs, own, wanted)
        os.chdir("/")
    for makers, count in ((kills.KINDS, parsed.kills), (disks.KINDS, parsed.disks)):
        shares = sum(make.share for make in makers)
        for make in makers:
            until = -(-count * make.share // shares)
            if not chosen(make.kind) or tally.tries(make.kind) >= until:
                continue
            if reason := make.why_not():
                print(f"skipped: {make.kind}: {reason}", file=sys.stderr)
            else:
                tally.work(make.kind, until, make(folder, parsed.seed).attempt, make.each)


if __name__ == "__main__":
    sys.exit(main())
