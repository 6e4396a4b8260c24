"""`sparc live`: its parser and its handler."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparc.cli.commands import whole
from sparc.errors import UserError

EXAMPLES = (
    "  sparc live RUN\n  sparc live RUN_SPARC RUN_ONLY_OBS           (side by side, from the same state)\n"
    "  sparc live RUN --port 8000 --no-browser"
)
MOST_RUNS = 4
LAST_PORT = 65535


def add(command: Callable[..., Any]) -> None:
    """Add the command."""
    live = command("live", "open a page where you move the context while policies drive")
    live.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory; several stand side by side")
    live.add_argument("--checkpoint", default="best", help="best, last or a number of updates (default best)")
    live.add_argument("--seed", default="0", help="which start state (default 0)")
    live.add_argument("--port", default="0", help="of the page on this machine (default a free one)")
    live.add_argument("--no-browser", action="store_true", help="only print the address")


def live(parsed: argparse.Namespace) -> int:
    """`sparc live`."""
    port = whole("--port", parsed.port, low=0)
    if port > LAST_PORT:
        raise UserError(f"--port must be at most {LAST_PORT}, not {port}.")
    seed = whole("--seed", parsed.seed, low=0)
    if len(parsed.runs) > MOST_RUNS:
        raise UserError(f"sparc live shows at most {MOST_RUNS} runs, not {len(parsed.runs)}.")
    from sparc.watch.live.server import serve
    from sparc.watch.live.stage import casts

    serve(casts(parsed.runs, parsed.checkpoint), port, seed, not parsed.no_browser)
    return 0
