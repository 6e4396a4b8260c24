"""`sparc suite` and `sparc report`: many runs, and what they show."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparc.cli.parser import Commands, Parser, parse_int
from sparc.plugins import named_module

if TYPE_CHECKING:
    from sparc.suites.suite import Suite

GROUP_EXAMPLES = """\
sparc suite list
sparc suite run smoke
sparc suite report smoke"""
RUN_EXAMPLES = """\
sparc suite run smoke
sparc suite run mujoco --seeds 0 1
sparc suite run mujoco --envs WindHopper-v5 --methods sparc rma --jobs 4
sparc suite run my.yaml"""
REPORT_EXAMPLES = """\
sparc suite report mujoco
sparc suite report mujoco --out results/mujoco
sparc suite report mujoco --published results/mujoco --out results/mujoco"""


def add(commands: Commands) -> None:
    """Add the commands."""
    help = "run the experiments of a suite and report on them"
    actions = commands.add_group("suite", help, GROUP_EXAMPLES, "actions")
    actions.add("list", list_suites, "list the suites that come with sparc", "sparc suite list")

    run = actions.add(
        "run", run_suite, "run a suite or continue it; it may be stopped or killed at any time", RUN_EXAMPLES
    )
    add_suite(run)
    run.add_argument(
        "--updates", type=parse_int(), metavar="N",
        help="updates of reinforcement learning of each run, instead of the suite's",
    )  # fmt: skip
    run.add_argument("--seeds", nargs="+", type=parse_int(0), metavar="K", help="seeds instead of the suite's")
    run.add_argument("--envs", nargs="+", metavar="ENV", help="environments instead of the suite's")
    run.add_argument("--methods", nargs="+", metavar="METHOD", help="methods instead of the suite's")
    run.add_argument("--jobs", type=parse_int(), metavar="N", help="runs at a time (default: the number of cores)")

    add_suite(actions.add("status", show_status, "show the state of each run of a suite", "sparc suite status mujoco"))

    help = "write tables, figures and one HTML page of the results so far"
    report = actions.add("report", report_suite, help, REPORT_EXAMPLES)
    add_suite(report)
    report.add_argument(
        "--out", type=Path, metavar="DIR", help="a folder to write into (default report/ in the suite's folder)"
    )

    help = "draw the figures and the page again from the tables of a suite's results"
    again = commands.add("report", redraw, help, "sparc report results/mujoco-paper")
    again.add_argument("folder", type=Path, metavar="DIR", help="a folder that `sparc suite report` has written")
    again.add_argument("--out", type=Path, metavar="OUT", help="a folder for figures and page (default DIR itself)")
    again.add_argument("--accept-edits", action="store_true", help="use tables that were changed by hand, and say so")


def add_suite(parser: Parser) -> None:
    """Add the arguments that name a suite and its folder."""
    parser.add_argument("suite", metavar="SUITE", help="a suite's name, see `sparc suite list`, or a YAML file")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="the suite's folder (default runs/<suite>)")
    parser.add_argument(
        "--published", nargs="+", type=Path, default=[], metavar="DIR",
        help="folders that `sparc suite report` has written: what is done there need not be run",
    )  # fmt: skip


def list_suites(parsed: argparse.Namespace) -> int:
    """`sparc suite list`."""
    from sparc.cli.display import suite_table
    from sparc.suites.suite import provided

    suite_table(provided())
    return 0


def run_suite(parsed: argparse.Namespace) -> int:
    """`sparc suite run`."""
    from sparc.suites.plan import add_to_plan, folder_of, planned
    from sparc.suites.published import Published

    folder, published = folder_of(parsed.suite, parsed.run_dir), Published(parsed.published)
    suite = add_to_plan(
        parsed.suite,
        folder,
        published,
        updates=parsed.updates,
        seeds=parsed.seeds,
        envs=parsed.envs,
        methods=parsed.methods,
    )

    from sparc.suites.runner import Runner
    from sparc.training.workers.options import WorkerOptions

    WorkerOptions(suite.workers).check()  # once, instead of in each run
    runner = Runner(suite, folder, parsed.jobs, published)
    plan = planned(parsed.suite, folder)
    count, all_planned = len(runner.members), len(plan.members())
    others = f" (of {all_planned} in the folder's plan)" if all_planned > count else ""
    print(f"{suite.name}: {count} run{'s' * (count > 1)}{others} in {folder}, {runner.jobs} at a time", flush=True)
    done = runner.run()
    print(runner.conclusion())
    if done:
        print(f"next: {command_of(parsed, plan, 'report', ('run_dir', 'published'))}")
        return 0
    states = {status.state for status in runner.statuses.values()}
    if states & {"waiting", "stopped"}:
        options = ("updates", "seeds", "envs", "methods", "jobs", "run_dir", "published")
        print(f"continue with: {command_of(parsed, plan, 'run', options)}")
    return runner.exit_code or int(bool(states & {"failed", "other config"}))


def command_of(parsed: argparse.Namespace, plan: Suite, action: str, options: Sequence[str]) -> str:
    """Return the command line of an action on the suite with the same options.

    What the folder's plan names is in a file, whoever named it first, so that its modules need --allow-import.
    """
    words = ["sparc", "suite", action, parsed.suite]
    for name in options:
        if value := getattr(parsed, name):
            words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    if getattr(parsed, "allow_import", False) or any(map(named_module, [*plan.envs, *plan.methods])):
        words.append("--allow-import")
    return shlex.join(words)


def show_status(parsed: argparse.Namespace) -> int:
    """`sparc suite status`."""
    from sparc.suites.plan import folder_of, planned
    from sparc.suites.published import Published
    from sparc.suites.runner import Runner

    folder, published = folder_of(parsed.suite, parsed.run_dir), Published(parsed.published)
    published.check(suite := planned(parsed.suite, folder))
    Runner(suite, folder, published=published).print_all()
    return 0


def report_suite(parsed: argparse.Namespace) -> int:
    """`sparc suite report`."""
    from sparc.cli.display import step_bar
    from sparc.suites.gather import gather
    from sparc.suites.plan import folder_of, planned
    from sparc.suites.published import Published
    from sparc.suites.tables import write

    folder = folder_of(parsed.suite, parsed.run_dir)
    out = parsed.out or folder / "report"
    suite, published = planned(parsed.suite, folder), Published(parsed.published)
    with step_bar("reading", "runs") as progress:
        found = gather(suite, folder, progress, published)
    write(found, out)
    return draw(out)


def redraw(parsed: argparse.Namespace) -> int:
    """`sparc report`."""
    return draw(parsed.folder, parsed.out, parsed.accept_edits)


def draw(folder: Path, out: Path | None = None, accept_edits: bool = False) -> int:
    """Draw the figures and the page from a folder's tables, into another folder where one is given."""
    from sparc.cli.display import step_bar
    from sparc.report.figures.registry import write_all
    from sparc.report.page import write_report
    from sparc.suites.tables import read

    found = read(folder, accept_edits)
    if edited := found.manifest.get("edited"):
        print(f"note: changed by hand since `sparc suite report` wrote them: {', '.join(edited)}", file=sys.stderr)
    out = out or folder
    page = out / "report.html"
    with step_bar("drawing", "figures") as progress:
        figures = write_all(found, out / "figures", progress)
    write_report(found, page, figures)
    gaps = [member for member in found.manifest["members"] if member["state"] != "done"]
    if gaps:
        print(f"{len(gaps)} of {len(found.manifest['members'])} runs have no results yet; the page marks them")
    print(f"tables:  {folder}\nfigures: {out / 'figures'}\npage:    {page}")
    return 0
