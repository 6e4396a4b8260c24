"""The command line: parses, calls, prints. Exit codes: 0, 2 for a user's mistake, 1 for a failure."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from sparc.cli import commands
from sparc.cli.bench import BENCHES, TIME_TO_RETURN
from sparc.config import FIELDS, PRESETS
from sparc.errors import SparcError, UserError, describe_os_error, nearest
from sparc.methods.registry import all_methods, registered
from sparc.plugins import import_named, only_imports

MODULE_NAME = re.compile(r"([A-Za-z_][\w.]*):[\w.-]+")
DESCRIPTION = "Train, resume and evaluate policies that must work under dynamics they have never seen."
EXAMPLES = {
    "sparc": "  sparc demo\n  sparc train sparc WindHalfCheetah-v5\n  sparc evaluate RUN",
    "demo": "  sparc demo\n  sparc demo --seed 1 --run-dir runs/my-demo",
    "train": "  sparc train sparc WindHalfCheetah-v5\n"
    "  sparc train rma WindHopper-v5 --updates 300000 --seed 1\n"
    "  sparc train sparc DriftingBoat-v0 --preset light\n"
    "  sparc train oracle WindWalker2d-v5 --config my.yaml --env-options change_probability=0.01\n"
    "  sparc train sparc my_file:MyEnv-v0          (an environment registered in ./my_file.py)",
    "resume": "  sparc resume runs/WindHalfCheetah-v5/sparc/seed0-…\n  sparc resume RUN --updates 500000\n"
    "  sparc resume RUN --set learning_rate=1e-4",
    "evaluate": "  sparc evaluate RUN\n  sparc evaluate RUN --grid 11 --episodes 3 --checkpoint last\n"
    "  sparc evaluate RUN --physics updated         (racing)",
    "replay": "  sparc replay RUN\n  sparc replay RUN --cars rally-07 kart-03 --out laps.html",
    "references": "  sparc references RaceCars-forza-v0\n  sparc references RacePowerMass-forza-v0 --physics updated",
    "play": "  sparc play RUN --context x=2.5,z=-5\n"
    "  sparc play RUN --context x=-4,z=5 --video out.mp4 out.gif\n"
    "  sparc play RUN --compare RUN2 RUN3 --context x=4 --steps 200 --video side-by-side.mp4\n"
    "  sparc play RUN --car rally-07 --tyre racing-soft     (racing: RaceCars)\n"
    "  sparc play RUN --context power=1.5,mass=0.5          (racing: RacePowerMass)",
    "suite": "  sparc suite list\n  sparc suite run smoke\n  sparc suite report smoke",
    "suite list": "  sparc suite list",
    "suite run": "  sparc suite run smoke\n"
    "  sparc suite run mujoco --updates 300000 --seeds 0 1\n"
    "  sparc suite run mujoco --envs WindHopper-v5 --methods sparc rma --jobs 4\n"
    "  sparc suite run my.yaml",
    "suite status": "  sparc suite status mujoco",
    "suite report": "  sparc suite report mujoco\n  sparc suite report mujoco --out results/mujoco",
    "report": "  sparc report results/mujoco",
    "envs": "  sparc envs",
    "methods": "  sparc methods",
    "bench": "  sparc bench learner --env WindHalfCheetah-v5\n  sparc bench train --env WindHopper-v5\n"
    "  sparc bench rollout --env RaceCars-forza-v0 --steps 1e6\n"
    "  sparc bench evaluate RUN\n  sparc bench time-to-return RUN RUN2 --return 8000",
}


class Parser(argparse.ArgumentParser):
    """A parser that raises a one-line UserError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Name the command whose help has the answer."""
        raise UserError(f"{message}. See `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise UserError(
                f"'{value}' is none of {', '.join(choices)}.{nearest(value, choices)} See `{self.prog} --help`."
            )


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """Build the parser and those of its commands."""
    shape: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    common = Parser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    common.add_argument(
        "--allow-import", action="store_true", default=argparse.SUPPRESS,
        help="import the module of a `module:name` that stands in a run or suite, not on the command line",
    )  # fmt: skip
    parser = Parser(
        "sparc", description=DESCRIPTION, parents=[common], epilog=f"examples:\n{EXAMPLES['sparc']}", **shape
    )
    parser.add_argument("--version", action="version", version=f"sparc-rl {metadata.version('sparc-rl')}")
    group = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)

    parsers = dict[str, Parser]()

    def command(name: str, help: str, group: Any = group) -> Parser:
        parsers[name] = group.add_parser(
            name.split()[-1], help=help, description=help[0].upper() + help[1:] + ".", parents=[common],
            epilog=f"examples:\n{EXAMPLES[name]}", **shape,
        )  # fmt: skip
        return parsers[name]

    demo = command("demo", "train, compare and picture all methods on the light example, about two minutes")
    demo.add_argument("--seed", default="0", help="seed of all runs (default 0)")
    demo.add_argument("--run-dir", type=Path, help="where to put the runs and pictures (default runs/demo-<utc>)")

    train = command("train", "train a method on an environment")
    methods = registered()
    train.add_argument("method", help=f"{', '.join(methods)}, or module:name; see `sparc methods`")
    train.add_argument("env", help="an environment id, or module:id; see `sparc envs`")
    train.add_argument("--run-dir", type=Path, help="a new directory (default runs/<env>/<method>/seed<k>-<utc>)")
    train.add_argument("--config", type=Path, metavar="F.yaml", help="a file with config fields; options win over it")
    preset = f"what to start from: {', '.join(PRESETS)} (default fast in the wind, racing in races, else mujoco)"
    train.add_argument("--preset", help=preset)
    defaults = "config fields, with the defaults of the preset mujoco (docs/learner.md: what the others change)"
    fields = train.add_argument_group(defaults)
    for name, field in FIELDS.items():
        if name not in ("method", "env"):
            add_field(fields, name, field)
    for name in dict.fromkeys(name for entry in methods.values() for name in entry.options):
        own = [entry for entry in methods.values() if name in entry.options]
        add_field(fields, name, own[0].options[name], f"{' and '.join(entry.name for entry in own)} only: ")

    resume = command("resume", "go on with a run from its newest checkpoint")
    resume.add_argument("run", type=Path, help="a run directory")
    resume.add_argument("--updates", help="go on to this number of updates instead of the run's own")
    resume.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="FIELD=VALUE",
        help="change config fields from here on, e.g. learning_rate=1e-4; the manifest keeps what they were",
    )  # fmt: skip

    evaluate = command("evaluate", "test a run on the grid of contexts, in and out of distribution")
    evaluate.add_argument("run", type=Path, help="a run directory")
    evaluate.add_argument(
        "--grid", default=commands.GRID, help="contexts per feature (default 21: 441 cells for two features)"
    )
    evaluate.add_argument("--episodes", default="1", help="episodes per context (default 1)")
    evaluate.add_argument("--checkpoint", default="best", help="best, last or a number of updates (default best)")
    evaluate.add_argument("--physics", help="racing: standard or updated (default that of training)")
    evaluate.add_argument(
        "--adaptation", action="store_true", help="also switch the context in mid-episode and map ψ(c) and φ(h)"
    )

    references = command("references", "racing: let the built-in AI drive the laps that policies are compared with")
    references.add_argument("env", help="a race, see `sparc envs`")
    references.add_argument("--grid", default="21", help="power & mass: settings per feature (default 21)")
    references.add_argument("--physics", default="standard", help="standard or updated (default standard)")

    replay = command("replay", "racing: a page to watch a run's laps beside the built-in AI's")
    replay.add_argument("run", type=Path, help="a run directory of a race")
    replay.add_argument(
        "--cars", nargs="+", default=[], metavar="NAME", help="cars of the catalogue (default a choice)"
    )
    replay.add_argument("--count", default="24", help="how many cars, where none are named (default 24)")
    replay.add_argument("--checkpoint", default="best", help="best, last or a number of updates (default best)")
    replay.add_argument("--physics", help="standard or updated (default that of training)")
    replay.add_argument("--out", type=Path, metavar="PAGE.html", help="(default RUN/replays/<checkpoint>.html)")

    play = command("play", "show an episode in a context of your choice, as a video")
    play.add_argument("run", type=Path, help="a run directory")
    play.add_argument(
        "--context", metavar="x=2.5,z=-5", help="features that are not named are those of the training region's middle"
    )
    play.add_argument("--car", metavar="NAME", help="in races of car models: a car of the catalogue, e.g. rally-07")
    play.add_argument("--tyre", metavar="NAME", help="its compound, e.g. racing-soft (default the one it is tested on)")
    play.add_argument(
        "--video", nargs="+", action="extend", type=Path, default=[], metavar="PATH",
        help="names that end in .mp4 or .gif (default RUN/videos/<checkpoint>-<context>.mp4)",
    )  # fmt: skip
    play.add_argument(
        "--compare", nargs="+", action="extend", type=Path, default=[], metavar="RUN", help="more runs, side by side"
    )
    play.add_argument("--checkpoint", default="best", help="best, last or a number of updates (default best)")
    play.add_argument("--seed", default="0", help="which start state (default 0)")
    play.add_argument("--steps", help="only so many steps (default the whole episode)")
    play.add_argument("--fps", help="pictures per second at most, in real time (default 50, of a GIF 15)")
    play.add_argument("--width", help="of one panel, in pixels (default 640, 480 for two, 400 for three, GIFs less)")

    add_suite(command)
    report = command("report", "draw figures and page anew from the tables of a suite's results")
    report.add_argument("folder", type=Path, help="a folder that `sparc suite report` has written")
    report.add_argument("--accept-edits", action="store_true", help="use tables that were changed by hand, and say so")

    command("envs", "list the environments with their context features and ranges")
    command("methods", "list the methods and what they read")

    bench = command("bench", "measure speed; prints one JSON object")
    benches = (*BENCHES, TIME_TO_RETURN)
    bench.add_argument(
        "what", nargs="?", default="learner", choices=benches, help=f"{', '.join(benches)} (default learner)"
    )
    bench.add_argument(
        "runs", nargs="*", type=Path, metavar="run",
        help=f"evaluate: a run directory (default an untrained policy); {TIME_TO_RETURN}: one or more",
    )  # fmt: skip
    bench.add_argument("--env", help="an environment id (default WindHalfCheetah-v5)")
    bench.add_argument("--method", help="a method (default sparc)")
    bench.add_argument("--preset", help=preset)
    bench.add_argument(
        "--return", dest="value", metavar="RETURN", help=f"{TIME_TO_RETURN}: the mean return of a training evaluation"
    )
    bench.add_argument("--steps", help="rollout: at least so many steps, to see whether memory stays flat, e.g. 1e6")
    return parser, parsers


def add_suite(command: Callable[..., Parser]) -> None:
    """Add `sparc suite` and its four actions."""
    suite = command("suite", "run the experiments of a suite and report on them")
    actions = suite.add_subparsers(title="actions", dest="action", metavar="ACTION", parser_class=Parser)
    command("suite list", "list the suites that come with sparc", actions)
    run = command("suite run", "run a suite, or go on with it: stop or kill it whenever you like", actions)
    run.add_argument("--updates", help="updates of reinforcement learning of each run, instead of the suite's")
    run.add_argument("--seeds", nargs="+", metavar="K", help="seeds instead of the suite's")
    run.add_argument("--envs", nargs="+", metavar="ENV", help="environments instead of the suite's")
    run.add_argument("--methods", nargs="+", metavar="METHOD", help="methods instead of the suite's")
    run.add_argument("--jobs", help="runs at a time (default: as many as there are cores)")
    status = command("suite status", "show where the runs of a suite are", actions)
    report = command("suite report", "write tables, figures and one HTML page of what a suite has so far", actions)
    report.add_argument("--out", type=Path, help="a folder to write into (default report/ in the suite's folder)")
    for parser in (run, status, report):
        parser.add_argument("suite", help="a suite's name, see `sparc suite list`, or a YAML file")
        parser.add_argument("--run-dir", type=Path, help="the suite's folder (default runs/<suite>)")


def add_field(group: Any, name: str, field: dataclasses.Field[Any], before: str = "") -> None:
    """Make a config field an option, with a word before its help text; its value is checked by the config itself."""
    option, help = f"--{name.replace('_', '-')}", (before + field.metadata["help"]).replace("%", "%%")
    if str(field.type).startswith("dict"):
        group.add_argument(
            option, dest=name, nargs="+", action="extend", metavar="K=V", default=argparse.SUPPRESS, help=help
        )
    elif field.type == "bool":
        group.add_argument(
            option, dest=name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=help
        )
    else:
        choices = field.metadata.get("choices")
        metavar = "|".join(choices) if choices else str(field.type).upper()
        text = f"{help} (default {field.default})"
        group.add_argument(option, dest=name, metavar=metavar, default=argparse.SUPPRESS, help=text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    named = [found[1] for argument in arguments if (found := MODULE_NAME.fullmatch(argument))]
    try:
        with only_imports(None if "--allow-import" in arguments else named):
            return dispatch(arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail too
        return 1
    except KeyboardInterrupt:
        code, message = 1, "interrupted."
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, SparcError):
            code, message = error.exit_code, str(error)
        elif isinstance(error, OSError):
            path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
            code, message = 1, f"{f'{path}: ' if path else ''}{describe_os_error(error, path)}."
        elif isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            code, message = 1, "the memory is used up: end other programs, or choose smaller networks or minibatches."
        else:
            code, message = 1, f"{type(error).__name__}: {error} (run again with --debug to see where)"
    print(f"sparc: {' '.join(message.split())}", file=sys.stderr)
    return code


def load_methods(arguments: list[str]) -> None:
    """Load plug-ins and the modules of `module:name` arguments: the methods in them have options of their own."""
    all_methods()
    for argument in arguments:
        if MODULE_NAME.fullmatch(argument):
            with suppress(UserError):  # said again where the argument is used, with what it should be
                import_named(argument, "module")


def dispatch(arguments: list[str]) -> int:
    """Parse and call."""
    if "train" in arguments:
        load_methods(arguments)
    parser, parsers = make_parser()
    parsed, unknown = parser.parse_known_args([dashes(argument) for argument in arguments])
    name = " ".join(filter(None, (parsed.command, getattr(parsed, "action", None))))
    if name not in RUN:  # sparc alone, or sparc suite alone
        if unknown:
            names = [other.removeprefix(f"{name} ") for other in parsers if other != name]
            raise UserError(
                f"There is no command or option '{unknown[0]}'.{nearest(unknown[0], names)} "
                f"See `{' '.join(['sparc', name]).strip()} --help`."
            )
        parsers.get(name, parser).print_help()
        return 0
    if unknown:
        options = [option for action in parsers[name]._actions for option in action.option_strings]
        what = "has no option" if unknown[0].startswith("-") else "does not take"
        raise UserError(f"sparc {name} {what} '{unknown[0]}'.{nearest(unknown[0], options)} See `sparc {name} --help`.")
    return RUN[name](parsed)


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": commands.demo,
    "train": commands.train,
    "resume": commands.resume,
    "evaluate": commands.evaluate,
    "replay": commands.replay,
    "references": commands.references,
    "play": commands.play,
    "suite list": commands.suite_list,
    "suite run": commands.suite_run,
    "suite status": commands.suite_status,
    "suite report": commands.suite_report,
    "report": commands.report,
    "envs": commands.envs,
    "methods": commands.methods,
    "bench": commands.bench,
}


def dashes(argument: str) -> str:
    """Accept --batch_size for --batch-size."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument
