"""`sparc export` and `sparc policies`: a policy as a folder for a robot, and those that come with sparc."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from sparc.cli.parser import Commands, add_checkpoint
from sparc.errors import RunFailure, UserError

EXPORT_EXAMPLES = """\
sparc export RUN
sparc export RUN --c --js --to robot/policy
sparc export sparc://DriftingBoat-v0 --to boat
sparc export --check robot/policy"""
RUN_OPTIONS = ("--checkpoint", "--no-check", "--with-context")  # of a run, not of an export
WRITE_OPTIONS = ("--to", "--c", "--js", "--no-onnx")
TOLERANCE = 1e-5  # of unit actions: rounding in another order of sums


def add(commands: Commands) -> None:
    """Add the commands."""
    help = "write a policy as a folder that acts without JAX: NumPy, ONNX, C, JavaScript, and its contract"
    parser = commands.add("export", export, help, EXPORT_EXAMPLES)
    parser.add_argument(
        "source", nargs="?", metavar="RUN", help="a run directory, an export, or a policy of `sparc policies`"
    )
    add_checkpoint(parser)
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to (default RUN/export/<checkpoint>)")
    parser.add_argument(
        "--c", action="store_true", help="also C99 without malloc: policy.c, policy.h, policy_weights.h"
    )
    parser.add_argument("--js", action="store_true", help="also JavaScript: policy.mjs")
    parser.add_argument("--no-onnx", action="store_true", help="without policy.onnx")
    parser.add_argument("--no-check", action="store_true", help="without the check that is recorded in the environment")
    parser.add_argument(
        "--with-context", action="store_true",
        help="also a policy that reads the true context (oracle, RMA's expert): it needs it as an input on the robot",
    )  # fmt: skip
    parser.add_argument(
        "--check", type=Path, metavar="DIR",
        help="instead of exporting: run the code in an export on its recorded check, in every runtime that is there",
    )  # fmt: skip
    commands.add("policies", list_policies, "list the trained policies that come with sparc", "sparc policies")


def export(parsed: argparse.Namespace) -> int:
    """`sparc export`."""
    if parsed.check is not None:
        if parsed.source is not None:
            raise UserError("--check takes the folder of an export and no run: leave one of them out.")
        refuse_given(parsed, (*RUN_OPTIONS, *WRITE_OPTIONS), "--check writes nothing")
        return check(parsed.check)
    if parsed.source is None:
        raise UserError("sparc export needs a run, or --check DIR. See `sparc export --help`.")

    from sparc.deploy.export import from_folder, from_run, write
    from sparc.deploy.library import policy_folder
    from sparc.runs.run import Run

    folder = policy_folder(parsed.source)
    if folder is not None:
        if parsed.to is None:
            raise UserError(f"{parsed.source} is an export already: say where to write another one, --to DIR.")
        refuse_given(parsed, RUN_OPTIONS, f"{parsed.source} is an export already, made from one checkpoint of a run")
        exported, target = from_folder(folder), parsed.to
    else:
        run = Run.open(parsed.source)
        exported = from_run(run, parsed.checkpoint or "best", parsed.with_context, not parsed.no_check)
        target = parsed.to or run.path / "export" / str(exported.contract["checkpoint"])
    written = write(exported, target, not parsed.no_onnx, parsed.c, parsed.js)
    for file in written.files:
        print(file)
    if written.removed:
        print(f"removed, of the earlier export there: {', '.join(written.removed)}", file=sys.stderr)
    if exported.check is not None:
        print(f"next: sparc export --check {target}")
    return 0


def refuse_given(parsed: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """Refuse options that would change nothing."""
    given = [option for option in options if getattr(parsed, option.removeprefix("--").replace("-", "_"))]
    if given:
        raise UserError(f"{why}: leave out {', '.join(given)}.")


def check(folder: Path) -> int:
    """`sparc export --check`."""
    from sparc.deploy.runners import check_export

    found = check_export(folder)
    for one in found:
        what = one.missing or f"largest difference {one.difference:.1e}, {one.microseconds:.0f} µs per step"
        print(f"{one.runtime:12} {what}")
    wrong = [one.runtime for one in found if not one.missing and not one.difference <= TOLERANCE]
    if wrong:
        raise RunFailure(f"{', '.join(wrong)}: other actions than the trained policy's; export the policy again.")
    return 0


def list_policies(parsed: argparse.Namespace) -> int:
    """`sparc policies`."""
    from sparc.cli.display import policy_table
    from sparc.deploy.library import policies

    policy_table(policies())
    return 0
