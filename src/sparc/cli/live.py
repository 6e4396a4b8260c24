"""`sparc live`: a page where one moves the context while policies drive."""

from __future__ import annotations

import argparse

from sparc.cli.parser import Commands, add_checkpoint, parse_int
from sparc.errors import UserError

EXAMPLES = """\
sparc live sparc://WindHalfCheetah-v5
sparc live RUN_SPARC RUN_ONLY_OBS         (side by side, from the same state)
sparc live RUN --port 8000 --no-browser"""
MOST_RUNS = 4
LAST_PORT = 65535


def add(commands: Commands) -> None:
    """Add the command."""
    live = commands.add("live", show, "open a page where you move the context while policies drive", EXAMPLES)
    live.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run directory, an export, or a policy of `sparc policies`"
    )
    add_checkpoint(live)
    live.add_argument("--seed", type=parse_int(0), default=0, metavar="K", help="which start state (default 0)")
    live.add_argument(
        "--port", type=parse_int(0), default=0, metavar="N", help="of the page on this machine (default a free one)"
    )
    live.add_argument("--no-browser", action="store_true", help="only print the address")


def show(parsed: argparse.Namespace) -> int:
    """`sparc live`."""
    if parsed.port > LAST_PORT:
        raise UserError(f"--port must be at most {LAST_PORT}, not {parsed.port}.")
    if len(parsed.runs) > MOST_RUNS:
        raise UserError(f"sparc live shows at most {MOST_RUNS} runs, not {len(parsed.runs)}.")
    from sparc.watch.live.server import serve
    from sparc.watch.live.simulation import open_contenders

    contenders = open_contenders(parsed.runs, parsed.checkpoint)
    serve(contenders, parsed.port, parsed.seed, not parsed.no_browser, getattr(parsed, "debug", False))
    return 0
