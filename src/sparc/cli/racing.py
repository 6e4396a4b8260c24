"""`sparc references`, `sparc replay` and `sparc racing`: what only races have."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparc.cli.evaluate import warn_untrained
from sparc.cli.parser import Commands, add_checkpoint, parse_int
from sparc.errors import UserError
from sparc.machine import INTERRUPTED

REFERENCES_EXAMPLES = """\
sparc references RaceCars-forza-v0
sparc references RacePowerMass-forza-v0 --physics updated"""
REPLAY_EXAMPLES = """\
sparc replay RUN
sparc replay RUN --cars rally-07 kart-03 --out laps.html"""


def add(commands: Commands) -> None:
    """Add the commands."""
    help = "racing: a page to watch a run's laps beside the built-in AI's"
    replay = commands.add("replay", write_page, help, REPLAY_EXAMPLES)
    replay.add_argument("run", type=Path, metavar="RUN", help="a run directory of a race")
    replay.add_argument(
        "--cars", nargs="+", default=[], metavar="NAME", help="cars of the catalogue (default a choice)"
    )
    replay.add_argument(
        "--count", type=parse_int(), default=24, metavar="N", help="how many cars, where none are named (default 24)"
    )
    add_checkpoint(replay)
    replay.add_argument("--physics", metavar="NAME", help="e.g. updated or stiffer (default that of training)")
    replay.add_argument(
        "--out", type=Path, metavar="PAGE.html", help="the page (default RUN/replays/<checkpoint>.html)"
    )

    help = "racing: let the built-in AI drive the laps that policies are compared with"
    references = commands.add("references", drive_references, help, REFERENCES_EXAMPLES)
    references.add_argument("env", metavar="ENV", help="a race, see `sparc envs`")
    references.add_argument(
        "--grid", type=parse_int(2), default=21, metavar="N", help="power & mass: settings per feature (default 21)"
    )
    references.add_argument(
        "--physics", default="standard", metavar="NAME", help="e.g. updated or stiffer (default standard)"
    )

    actions = commands.add_group("racing", "set up the racing simulator", "sparc racing install", "actions")
    help = "install TORCS with apt and build its worker (once, as root; 500 MB)"
    actions.add("install", install_simulator, help, "sparc racing install")


def drive_references(parsed: argparse.Namespace) -> int:
    """`sparc references`."""
    import numpy as np

    from sparc.cli.display import step_bar
    from sparc.contexts import Finite
    from sparc.envs.racing import RACES, SHOWN_WEAK
    from sparc.envs.racing.env import weak_laps
    from sparc.envs.racing.reference import count_kept, find_references, store_path
    from sparc.envs.registry import get_env
    from sparc.machine import while_wanted

    entry = get_env(parsed.env)
    if entry.id not in RACES:
        raise UserError(
            f"{entry.id} is not a racing environment, so it has no reference laps. Races: {', '.join(RACES)}."
        )
    (track, task), space = RACES[entry.id], entry.context_space
    if isinstance(space.test, Finite):
        contexts = space.test.values
    else:  # tests, and evaluations during training
        contexts = np.concatenate([space.grid(parsed.grid), space.evaluated])
    cars = [task.describe(context, parsed.physics) for context in contexts]
    print(f"{len(cars):,} laps, {count_kept(track, cars):,} of them kept from before", flush=True)
    try:
        with step_bar(f"the built-in AI on {track.name}", "laps") as progress:
            laps = find_references(track, cars, while_wanted(progress))
    except KeyboardInterrupt:
        print("stopped; the laps so far are kept: run the same command again to continue")
        return INTERRUPTED
    times = np.array([lap.time for lap in laps])
    done = np.isfinite(times)
    low, middle, high = np.percentile(times[done], [0, 50, 100]) if done.any() else (np.nan, np.nan, np.nan)
    print(f"{done.sum():,} of {len(laps):,} laps on {track.name}: {low:.1f} to {high:.1f} s, median {middle:.1f} s")
    for context in contexts[~done]:
        print(f"no lap: {task.label(context)}")
    weak = weak_laps(task, contexts, laps)
    for name, lap in weak[:SHOWN_WEAK]:
        faults = {"off course": (lap.off, "s"), "at a wall": (lap.wall, "s"), "damage": (lap.damage, "points")}
        described = ", ".join(f"{fault} {value:.3g} {unit}" for fault, (value, unit) in faults.items() if value)
        print(f"weak lap: {name}: {lap.time:.1f} s, {described}")
    if weak:
        print(f"{len(weak):,} weak laps (off course, at a wall or damaged): a policy looks faster beside them")
    print(f"kept in: {store_path()}")
    return 0


def write_page(parsed: argparse.Namespace) -> int:
    """`sparc replay`."""
    from sparc.cli.display import step_bar
    from sparc.machine import while_wanted
    from sparc.runs.run import Run

    run = Run.open(parsed.run)
    warn_untrained(run)
    run.lock(run.evaluating)  # two pages at once would be written over each other
    try:
        with step_bar(f"replay of {parsed.run.name}", "laps") as progress:
            from sparc.watch.laps import replay_run

            how = (
                parsed.checkpoint or "best",
                parsed.count,
                parsed.cars,
                parsed.physics,
                parsed.out,
                while_wanted(progress),
            )
            page, pictures, without = replay_run(run, *how)
    finally:
        run.close()
    print(f"page: {page}")
    if pictures:
        print(f"racing lines: {pictures[0].parent}")
    if without:
        print(f"laps without a racing line: {without}")
    return 0


def install_simulator(parsed: argparse.Namespace) -> int:
    """`sparc racing install`."""
    from sparc.cli.display import step_bar
    from sparc.envs.racing.torcs.install import install

    print(install(step_bar))
    return 0
