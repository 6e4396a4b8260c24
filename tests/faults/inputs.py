"""Hostile inputs: whatever stands in a config or suite file or on the command line, the answer is one line."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from sparc import cli
from sparc.config import FIELDS
from sparc.suites.suite import FIELDS as SUITE_FIELDS

from .tally import Tally

NUMBERS = st.one_of(st.integers(-(10**30), 10**30), st.floats(), st.sampled_from([0, 1, -1, 1e8, 1e300]))
VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
OPTIONS = [name for name in FIELDS if name not in ("method", "env", "env_options")]
# A field whose value is always refused, so that nothing of what hypothesis makes up is ever trained.
NEVER = {"evaluate_every": -1}


def configs() -> Any:
    """Config files: fields with any value, and text that may be no YAML."""
    fields = st.dictionaries(st.one_of(st.sampled_from(OPTIONS), st.text(max_size=10)), VALUES, max_size=6)
    return st.one_of(fields.map(lambda values: yaml.safe_dump({**values, **NEVER}).encode()), st.binary(max_size=200))


def suites() -> Any:
    """Suite files."""
    fields = st.dictionaries(st.one_of(st.sampled_from(list(SUITE_FIELDS)), st.text(max_size=10)), VALUES, max_size=9)
    return fields.map(lambda values: yaml.safe_dump({**values, "updates": -1}).encode())


def words() -> Any:
    """Options of `sparc train`."""
    pairs = st.tuples(st.sampled_from(OPTIONS).map(lambda name: f"--{name.replace('_', '-')}"), VALUES.map(str))
    return st.lists(pairs, max_size=4).map(lambda pairs: [f"{name}={value}" for name, value in pairs])


def answer(arguments: list[str]) -> tuple[str, str]:
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


def work(tally: Tally, count: int, folder: Path) -> None:
    """Make a third of the tries with each kind of input; none may leave a directory behind."""
    os.chdir(folder)
    train = ["train", "sparc", "DriftingBoat-v0"]
    file = Path("input.yaml")

    def config(content: bytes) -> list[str]:
        file.write_bytes(content)
        return [*train, f"--config={file}", "--evaluate-every=-1"]

    def suite(content: bytes) -> list[str]:
        file.write_bytes(content)
        return ["suite", "run", str(file)]

    kinds: dict[str, tuple[Any, Any]] = {
        "config files made up": (configs(), config),
        "suite files made up": (suites(), suite),
        "options made up": (words(), lambda options: [*train, *options, "--evaluate-every=-1"]),
    }
    for number, (kind, (strategy, arguments)) in enumerate(kinds.items()):
        missing = -(-count // len(kinds)) - tally.tries(kind)
        if missing <= 0:
            continue
        found: list[tuple[str, str]] = []

        @seed(1000 * tally.seed + number + tally.tries(kind))
        @settings(max_examples=missing, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def each(value: Any) -> None:
            found.append(answer(arguments(value)))  # noqa: B023 (called at once)

        each()
        left = [path.name for path in Path().iterdir() if path != file]
        if left:
            found[-1] = "silent", f"left behind: {left}"
        begun = tally.tries(kind)
        tally.work(kind, begun + len(found), lambda n, begun=begun, found=found: found[n - begun])  # type: ignore[misc]
