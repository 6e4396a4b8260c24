"""Hostile inputs: whatever stands in a config or suite file or on the command line, the answer is one line."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from sparc import cli
from sparc.config import FIELDS
from sparc.suites.suite import FIELDS as SUITE_FIELDS

from .tally import Outcome, Tally

NUMBERS = st.one_of(st.integers(-(10**30), 10**30), st.floats(), st.sampled_from([0, 1, -1, 1e8, 1e300]))
VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
KINDS = CONFIGS, SUITES, OPTIONS = "config files made up", "suite files made up", "options made up"
BATCH = 250  # tries between two savings of the counts
TRAIN = ["train", "sparc", "DriftingBoat-v0"]
OPTION_NAMES = [name for name in FIELDS if name not in ("method", "env", "env_options")]
# A field whose value is always refused, so that nothing of what hypothesis makes up is ever trained.
NEVER = {"evaluate_every": -1}


def configs() -> Any:
    """Config files: fields with any value, and text that may be no YAML."""
    fields = st.dictionaries(st.one_of(st.sampled_from(OPTION_NAMES), st.text(max_size=10)), VALUES, max_size=6)
    return st.one_of(fields.map(lambda values: yaml.safe_dump({**values, **NEVER}).encode()), st.binary(max_size=200))


def suites() -> Any:
    """Suite files."""
    fields = st.dictionaries(st.one_of(st.sampled_from(list(SUITE_FIELDS)), st.text(max_size=10)), VALUES, max_size=9)
    return fields.map(lambda values: yaml.safe_dump({**values, "updates": -1}).encode())


def words() -> Any:
    """Options of `sparc train`."""
    pairs = st.tuples(st.sampled_from(OPTION_NAMES).map(lambda name: f"--{name.replace('_', '-')}"), VALUES.map(str))
    return st.lists(pairs, max_size=4).map(lambda pairs: [f"{name}={value}" for name, value in pairs])


def answer(arguments: list[str]) -> Outcome:
    """Call the command line in this process; return the outcome and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = cli.main(arguments)
        except BaseException:
            return "crash", f"{arguments}: {traceback.format_exc()}"
    text = said.getvalue()
    if "(run again with --debug" in text or "Traceback" in text:
        return "crash", f"{arguments}: {text}"
    one_line = text.startswith("sparc: ") and text.count("\n") == 1
    return ("named" if code and one_line else "silent"), f"{arguments}: {text}"


def work(tally: Tally, count: int, folder: Path, kinds: Sequence[str] = KINDS) -> None:
    """Make a third of the tries with each kind of input; none may leave a directory behind."""
    os.chdir(folder)
    file = Path("input.yaml")

    def config(content: bytes) -> list[str]:
        file.write_bytes(content)
        return [*TRAIN, f"--config={file}", "--evaluate-every=-1"]

    def suite(content: bytes) -> list[str]:
        file.write_bytes(content)
        return ["suite", "run", str(file)]

    made: dict[str, tuple[Any, Any]] = {
        CONFIGS: (configs(), config),
        SUITES: (suites(), suite),
        OPTIONS: (words(), lambda options: [*TRAIN, *options, "--evaluate-every=-1"]),
    }
    for kind in kinds:
        strategy, arguments = made[kind]
        while (missing := -(-count // len(KINDS)) - tally.tries(kind)) > 0:
            found: list[Outcome] = []

            @seed(1_000_003 * tally.seed + 100_003 * KINDS.index(kind) + tally.tries(kind))
            @settings(
                max_examples=min(missing, BATCH), database=None, deadline=None, suppress_health_check=list(HealthCheck)
            )
            @given(strategy)
            def each(value: Any) -> None:
                found.append(answer(arguments(value)))  # noqa: B023 (called at once)

            each()
            if left := [path.name for path in Path().iterdir() if path != file]:
                found[-1] = "silent", f"left behind: {left}"
            for outcome, details in found[:missing]:
                tally.add(kind, outcome, details)
