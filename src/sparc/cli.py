"""The command line: parses, calls, prints. Exit codes: 0, 2 for a user's mistake, 1 for a failure."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from sparc.bench import BENCHES
from sparc.config import FIELDS, PRESETS, make_config, read_config
from sparc.errors import SparcError, UserError, nearest

DESCRIPTION = "Train, resume and evaluate policies that must work under dynamics they have never seen."
EXAMPLES = {
    "sparc": "  sparc demo\n  sparc train sparc WindHalfCheetah-v5\n  sparc evaluate RUN",
    "demo": "  sparc demo\n  sparc demo --seed 1 --run-dir runs/my-demo",
    "train": "  sparc train sparc WindHalfCheetah-v5\n"
    "  sparc train rma WindHopper-v5 --updates 300000 --seed 1\n"
    "  sparc train sparc DriftingBoat-v0 --preset light\n"
    "  sparc train oracle WindWalker2d-v5 --config my.yaml --env-options change_probability=0.01\n"
    "  sparc train sparc my_file:MyEnv-v0          (an environment registered in ./my_file.py)",
    "resume": "  sparc resume runs/WindHalfCheetah-v5/sparc/seed0-…\n  sparc resume RUN --updates 500000",
    "evaluate": "  sparc evaluate RUN\n  sparc evaluate RUN --grid 11 --episodes 3 --checkpoint last",
    "envs": "  sparc envs",
    "methods": "  sparc methods",
    "bench": "  sparc bench learner --env WindHalfCheetah-v5\n  sparc bench train --env WindHopper-v5",
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
    parser = Parser(
        "sparc", description=DESCRIPTION, parents=[common], epilog=f"examples:\n{EXAMPLES['sparc']}", **shape
    )
    parser.add_argument("--version", action="version", version=f"sparc-rl {metadata.version('sparc-rl')}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, help: str) -> Parser:
        return commands.add_parser(
            name, help=help, description=help[0].upper() + help[1:] + ".", parents=[common],
            epilog=f"examples:\n{EXAMPLES[name]}", **shape,
        )  # fmt: skip

    demo = command("demo", "train, compare and picture all methods on the light example, about two minutes")
    demo.add_argument("--seed", default="0", help="seed of all runs (default 0)")
    demo.add_argument("--run-dir", type=Path, help="where to put the runs and pictures (default runs/demo-<utc>)")

    train = command("train", "train a method on an environment")
    train.add_argument("method", help="sparc, rma, only-obs, history-input or oracle; see `sparc methods`")
    train.add_argument("env", help="an environment id, or module:id; see `sparc envs`")
    train.add_argument("--run-dir", type=Path, help="a new directory (default runs/<env>/<method>/seed<k>-<utc>)")
    train.add_argument("--config", type=Path, metavar="F.yaml", help="a file with config fields; options win over it")
    train.add_argument("--preset", default="mujoco", help=f"what to start from: {', '.join(PRESETS)} (default mujoco)")
    fields = train.add_argument_group("config fields, with the defaults of the preset mujoco")
    for name, field in FIELDS.items():
        if name not in ("method", "env"):
            add_field(fields, name, field)

    resume = command("resume", "go on with a run from its newest checkpoint")
    resume.add_argument("run", type=Path, help="a run directory")
    resume.add_argument("--updates", help="go on to this number of updates instead of the run's own")

    evaluate = command("evaluate", "test a run on the grid of contexts, in and out of distribution")
    evaluate.add_argument("run", type=Path, help="a run directory")
    evaluate.add_argument("--grid", default="21", help="contexts per feature (default 21: 441 cells for two features)")
    evaluate.add_argument("--episodes", default="1", help="episodes per context (default 1)")
    evaluate.add_argument("--checkpoint", default="best", help="best, last or a number of updates (default best)")

    command("envs", "list the environments with their context features and ranges")
    command("methods", "list the methods and what they read")

    bench = command("bench", "measure speed; prints one JSON object")
    bench.add_argument(
        "what", nargs="?", default="learner", choices=BENCHES, help=f"{', '.join(BENCHES)} (default learner)"
    )
    bench.add_argument("--env", default="WindHalfCheetah-v5", help="an environment id (default WindHalfCheetah-v5)")
    bench.add_argument("--method", default="sparc", help="a method (default sparc)")
    return parser, {name: sub for name, sub in commands.choices.items() if isinstance(sub, Parser)}


def add_field(group: Any, name: str, field: dataclasses.Field[Any]) -> None:
    """Make a config field an option; its value is checked by the config itself."""
    option, help = f"--{name.replace('_', '-')}", field.metadata["help"]
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
    try:
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
            code, message = 1, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}."
        else:
            code, message = 1, f"{type(error).__name__}: {error} (run again with --debug to see where)"
    print(f"sparc: {' '.join(message.split())}", file=sys.stderr)
    return code


def dispatch(arguments: list[str]) -> int:
    """Parse and call."""
    parser, commands = make_parser()
    dashed = [dashes(argument) for argument in arguments]
    parsed, unknown = parser.parse_known_args(dashed)
    if parsed.command is None:
        if unknown:
            raise UserError(
                f"There is no command or option '{unknown[0]}'.{nearest(unknown[0], commands)} See `sparc --help`."
            )
        parser.print_help()
        return 0
    if unknown:
        options = [name for action in commands[parsed.command]._actions for name in action.option_strings]
        what = "has no option" if unknown[0].startswith("-") else "does not take"
        raise UserError(
            f"sparc {parsed.command} {what} '{unknown[0]}'.{nearest(unknown[0], options)} "
            f"See `sparc {parsed.command} --help`."
        )
    run = {
        "demo": demo,
        "train": train,
        "resume": resume,
        "evaluate": evaluate,
        "envs": envs,
        "methods": methods,
        "bench": bench,
    }
    return run[parsed.command](parsed)


def dashes(argument: str) -> str:
    """Accept --batch_size for --batch-size."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


# Commands


def train(parsed: argparse.Namespace) -> int:
    """`sparc train`."""
    from sparc.runs import Run

    values = read_config(parsed.config) if parsed.config else {}
    values |= {name: value for name, value in vars(parsed).items() if name in FIELDS}
    if isinstance(options := values.get("env_options"), list):
        values["env_options"] = dict(pair(option) for option in options)
    return work(Run.create(make_config(values, parsed.preset), parsed.run_dir), None)


def resume(parsed: argparse.Namespace) -> int:
    """`sparc resume`."""
    from sparc.runs import Run

    updates = whole("--updates", parsed.updates) if parsed.updates is not None else None
    return work(Run.open(parsed.run), updates)


def work(run: Any, updates: int | None) -> int:
    """Train with a live progress bar and say what to do next."""
    from sparc import checkpoint, select
    from sparc.display import TrainingBar

    print(f"run: {run.path}")
    if updates is None and checkpoint.is_sound(run.checkpoints / str(run.config.updates)):
        print(f"already at {run.config.updates:,} updates; go further with: sparc resume {run.path} --updates N")
        return 0
    with TrainingBar(run) as bar:
        from sparc.loading import choose
        from sparc.training import proceed

        proceed(run, bar.report, updates)
    last = checkpoint.numbers(run.checkpoints)[-1]
    if last < run.config.updates:
        print(f"stopped at {last:,} of {run.config.updates:,} updates; go on with: sparc resume {run.path}")
        return 0
    scores = checkpoint.load_scores(checkpoint.load_meta(run.checkpoints / str(last)))
    best = choose(run, "best")
    mean = f", mean return {sum(scores[best]) / len(scores[best]):,.1f} in the IND settings" if best in scores else ""
    front = len(select.pareto_front(scores))
    print(f"done: best checkpoint {best}{mean} ({front} on the Pareto front)\nnext: sparc evaluate {run.path}")
    return 0


def evaluate(parsed: argparse.Namespace) -> int:
    """`sparc evaluate`."""
    grid, episodes = whole("--grid", parsed.grid, low=2), whole("--episodes", parsed.episodes)

    from sparc.runs import Run

    run = Run.open(parsed.run)

    from sparc.display import step_bar, summary_table
    from sparc.evaluation import evaluate_run

    with step_bar(f"{run.config.method} on {run.config.env}") as progress:
        evaluation, stem = evaluate_run(run, grid, episodes, parsed.checkpoint, progress)
    summary_table({run.config.method: evaluation}, f"{run.config.env}, checkpoint {stem.name.split('-')[0]}")
    print(f"rows: {stem}.csv\nsummary: {stem}.json\npicture: {stem.parent / 'heatmap.png'}")
    return 0


def demo(parsed: argparse.Namespace) -> int:
    """`sparc demo`."""
    from sparc.demo import run_demo

    return run_demo(whole("--seed", parsed.seed, low=0), parsed.run_dir)


def envs(parsed: argparse.Namespace) -> int:
    """`sparc envs`."""
    from sparc.display import environment_table
    from sparc.envs import all_envs

    environment_table(all_envs())
    return 0


def methods(parsed: argparse.Namespace) -> int:
    """`sparc methods`."""
    from sparc.display import method_table

    method_table()
    return 0


def bench(parsed: argparse.Namespace) -> int:
    """`sparc bench`."""
    from sparc.envs import get_env
    from sparc.methods import check_method

    get_env(parsed.env), check_method(parsed.method)

    from sparc import bench as benches

    print(benches.run(parsed.what, parsed.env, parsed.method))
    return 0


def whole(name: str, text: str, low: int = 1) -> int:
    """Read a whole number of an option."""
    try:
        value = int(number := float(text))  # 1e6 as in `sparc train`
        if value != number:
            raise ValueError
    except (ValueError, OverflowError):
        raise UserError(f"{name} must be a whole number, not '{text}'.") from None
    if value < low:
        raise UserError(f"{name} must be at least {low}, not {value}.")
    return value


def pair(text: str) -> tuple[str, Any]:
    """Read name=value, the value as YAML would."""
    import yaml

    name, equals, value = text.partition("=")
    try:
        if not name or not equals:
            raise ValueError
        return name, yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        raise UserError(f"--env-options takes name=value, not '{text}'.") from None
