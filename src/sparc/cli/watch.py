"""`sparc play`: an episode as a video."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparc.cli.parser import Commands, add_checkpoint, parse_int, wrap

EXAMPLES = """\
sparc play sparc://DriftingBoat-v0 --context x=0.9,y=-0.9
sparc play RUN --context x=2.5,z=-5
sparc play RUN --context x=-4,z=5 --video out.mp4 out.gif
sparc play RUN --compare RUN2 RUN3 --context x=4 --video side-by-side.mp4
sparc play RUN --car rally-07 --tyre racing-soft    (racing: RaceCars)
sparc play RUN --context power=1.5,mass=0.5         (racing: RacePowerMass)"""


def add(commands: Commands) -> None:
    """Add the command."""
    play = commands.add("play", show, "show an episode in a context of your choice, as a video", EXAMPLES)
    play.add_argument("run", metavar="RUN", help="a run directory, an export, or a policy of `sparc policies`")
    play.add_argument(
        "--context", metavar="x=2.5,z=-5", help="by default, and for features left out, the training region's middle"
    )
    play.add_argument("--car", metavar="NAME", help="in races of car models: a car of the catalogue, e.g. rally-07")
    play.add_argument("--tyre", metavar="NAME", help="its compound, e.g. racing-soft (default the one it is tested on)")
    files = play.add_mutually_exclusive_group()
    files.add_argument("--out", type=Path, metavar="DIR", help="a folder for the video (default RUN/videos)")
    files.add_argument(
        "--video", nargs="+", action="extend", type=Path, default=[], metavar="PATH",
        help=wrap("names that end in .mp4 or .gif instead of <checkpoint>-<context>.mp4 in that folder"),
    )  # fmt: skip
    play.add_argument(
        "--compare", nargs="+", action="extend", default=[], metavar="RUN", help="more runs, side by side"
    )
    add_checkpoint(play)
    play.add_argument("--seed", type=parse_int(0), default=0, metavar="K", help="which start state (default 0)")
    play.add_argument("--steps", type=parse_int(), metavar="N", help="at most N steps (default the whole episode)")
    play.add_argument(
        "--fps", type=parse_int(), metavar="N", help="frames per second at most, in real time (default 50, of a GIF 15)"
    )
    play.add_argument(
        "--width", type=parse_int(), metavar="N",
        help="of one panel, in pixels (default 640, 480 for two, 400 for three, GIFs less)",
    )  # fmt: skip


def show(parsed: argparse.Namespace) -> int:
    """`sparc play`."""
    from sparc.cli.display import step_bar

    with step_bar(f"playing {Path(parsed.run).name}") as progress:
        from sparc.watch.play import play, report

        runs = parsed.run, parsed.context, parsed.video, parsed.compare, parsed.checkpoint
        how = parsed.seed, parsed.steps, parsed.fps, parsed.width
        played = play(*runs, *how, progress, parsed.car, parsed.tyre, parsed.out)
    print(report(played))
    return 0
