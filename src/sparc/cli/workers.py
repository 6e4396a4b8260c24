"""`sparc workers`: who delivers how much; and the options by which other commands get workers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sparc.cli.parser import Commands, Parser, parse_int

EXAMPLES = """\
sparc workers RUN
sparc workers RUN --watch"""
WATCH_SECONDS = 1.0
STALE_SECONDS = 10.0  # the table is replaced every 2 s, but not during an evaluation


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add("workers", show, "show what the workers of a run deliver", EXAMPLES)
    command.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    command.add_argument("--watch", action="store_true", help="go on showing it, until Ctrl-C")


def add_options(parser: Parser, default: str) -> None:
    """Add --workers and --cluster; the default is what happens without them."""
    parser.add_argument(
        "--workers", type=parse_int(0), metavar="N",
        help=f"collect experience in N worker processes, asynchronously ({default}); needs sparc-rl[distributed]",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="HOST:PORT",
        help="where the workers run: an existing Ray cluster, or local (default local; resumed: as before)",
    )  # fmt: skip


def show(parsed: argparse.Namespace) -> int:
    """`sparc workers`."""
    from rich.console import Console
    from rich.live import Live

    from sparc.runs.run import Run

    run, console = Run.open(parsed.run), Console()
    if not parsed.watch:
        console.print(picture(run))
        return 0
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(picture(run), refresh=True)
            time.sleep(WATCH_SECONDS)


def picture(run: Any) -> Any:
    """Lay out the table of a run's workers, with what they reach together."""
    from rich.console import Group
    from rich.table import Table

    from sparc.text import MISSING, duration
    from sparc.training.workers.table import read_table

    found, trained = read_table(run.path), run.is_locked()
    present = trained and bool(run.manifest()["sessions"][-1].get("workers", 0))
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("worker", "host", "state"):
        table.add_column(title)
    for title in ("steps", "steps/s", "episodes", "weights' age, updates", "restarts", "env restarts", "late"):
        table.add_column(title, justify="right")
    for row in found["rows"]:
        state = row["state"] if present else "ended"
        age = f"{found['updates'] - row['version']:,}" if row["version"] >= 0 else "random"
        cells = (row["delivered"], round(row["steps_per_s"]), row["episodes"])
        counts = (row["restarts"], row["env_restarts"], row["late"])
        table.add_row(
            str(row["worker"]), row["host"] or MISSING, state, *(f"{cell:,}" for cell in cells),
            age if row["delivered"] else MISSING, *(f"{count:,}" for count in counts),
        )  # fmt: skip
    running = sum(row["state"] == "running" for row in found["rows"]) if present else 0
    ratio = found.get("achieved_steps_per_update")
    parts = [
        f"{running} of {found['wanted']} workers running on {found['cluster'] or 'this machine'}",
        f"{found['workers_steps_per_s'] if present else 0:,.0f} steps/s",
        f"{found['steps']:,} steps in all, {found['updates']:,} updates",
    ]
    if ratio is not None:
        parts.append(f"{ratio:.3g} steps per update ({found['asked_steps_per_update']} asked)")
    if waiting := found.get("workers_blocks_waiting"):
        parts.append(f"{waiting:,.0f} blocks wait for the learner")
    if found["pools"] > 1:
        times = found["pools"] - 1
        parts.append(f"the pool was replaced {'once' if times == 1 else f'{times} times'}")
    lines = [" · ".join(parts)]
    lines += [row["error"] for row in found["rows"] if row["error"]]
    age = time.time() - found["time"]
    if not trained:
        lines.append(f"the run is not being trained; its last workers ended {duration(age)} ago")
    elif not present:
        lines.append(f"the run is being trained without workers; its last ones ended {duration(age)} ago")
    elif not found["rows"]:
        lines.append("the workers are being started")
    elif age > STALE_SECONDS:
        lines.append(f"as of {duration(age)} ago")
    return Group(table, *lines)
