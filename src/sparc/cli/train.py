"""`sparc train` and `sparc resume`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparc.cli.parser import Commands, parse_int, parse_option, parse_region, wrap
from sparc.cli.workers import add_options
from sparc.config import FIELDS, PRESETS, checked, make_config, read_config
from sparc.errors import UserError
from sparc.machine import INTERRUPTED, adopt_thread_flags, keep_compiled_programs
from sparc.methods import find_method
from sparc.methods.registry import all_methods, registered
from sparc.plugins import import_named, named_module

if TYPE_CHECKING:  # takes a while
    from sparc.runs.run import Run
    from sparc.training.workers.options import WorkerOptions

PRESET_HELP = f"what to start from: {', '.join(PRESETS)} (default fast in the wind, racing in races, else mujoco)"
TRAIN_EXAMPLES = """\
sparc train sparc WindHalfCheetah-v5
sparc train rma WindHopper-v5 --updates 300000 --seed 1
sparc train sparc DriftingBoat-v0 --preset light
sparc train oracle WindWalker2d-v5 --env-options change_probability=0.01
sparc train sparc my_file:MyEnv-v0    (registered in ./my_file.py)
sparc train sparc WindHalfCheetah-v5 --workers 4"""
RESUME_EXAMPLES = """\
sparc resume runs/WindHalfCheetah-v5/sparc/seed0-…
sparc resume RUN --updates 500000
sparc resume RUN --set learning_rate=1e-4
sparc resume RUN --workers 12"""


def add(commands: Commands) -> None:
    """Add the commands."""
    train = commands.add(
        "train", start, "train a method on an environment", TRAIN_EXAMPLES, usage="sparc train METHOD ENV [OPTION ...]"
    )
    methods = registered()
    train.add_argument("method", metavar="METHOD", help=f"{', '.join(methods)}, or module:name; see `sparc methods`")
    train.add_argument("env", metavar="ENV", help="an environment id, or module:id; see `sparc envs`")
    train.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="a new directory (default runs/<env>/<method>/seed<k>-<utc>)"
    )
    train.add_argument("--config", type=Path, metavar="F.yaml", help="a file with config fields; options win over it")
    train.add_argument("--preset", metavar="NAME", help=PRESET_HELP)
    train.add_argument(
        "--train-region", type=parse_region, default={}, metavar="F=LOW:HIGH,...",
        help="ranges of context features to train on, where they are not the environment's own",
    )  # fmt: skip
    add_options(train, "default: in this process, in step with learning")
    fields = train.add_argument_group(
        "config fields", wrap("with the defaults of the preset mujoco (docs/learner.md: what the others change)", 2)
    )
    for name, field in FIELDS.items():
        if name not in ("method", "env"):
            add_field(fields.add_argument, name, field)
    for name in dict.fromkeys(name for entry in methods.values() for name in entry.options):
        own = [entry for entry in methods.values() if name in entry.options]
        only = f"{' and '.join(entry.name for entry in own)} only: "
        add_field(fields.add_argument, name, own[0].options[name], only)

    resume = commands.add("resume", go_on, "continue a run from its newest checkpoint", RESUME_EXAMPLES)
    resume.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    resume.add_argument("--updates", type=parse_int(), metavar="N", help="extend the run to this number of updates")
    resume.add_argument(
        "--set", nargs="+", action="extend", type=parse_option, default=[], metavar="K=V",
        help="change config fields from here on, e.g. learning_rate=1e-4; the manifest keeps what they were",
    )  # fmt: skip
    add_options(resume, "default: as the session before; 0: in this process")


def add_field(add_argument: Callable[..., Any], name: str, field: dataclasses.Field[Any], before: str = "") -> None:
    """Make a config field an option, with a word before its help text."""
    help, default = before + field.metadata["help"], field.default
    how: dict[str, Any] = {"type": partial(checked, field), "metavar": type(default).__name__.upper()}
    if default is dataclasses.MISSING:  # of the dictionary env_options
        how = {"type": parse_option, "nargs": "+", "action": "extend", "metavar": "K=V"}
    elif isinstance(default, bool):
        how = {"action": argparse.BooleanOptionalAction}
        help += f" (default {'on' if default else 'off'})"
    else:
        if choices := field.metadata.get("choices"):
            how["metavar"] = "|".join(choices)
        help += f" (default {default})"
    option = f"--{name.replace('_', '-')}"
    add_argument(option, dest=name, default=argparse.SUPPRESS, help=wrap(help).replace("%", "%%"), **how)


def load_methods(words: list[str]) -> None:
    """Load plug-ins and the modules of `module:name` arguments: the methods in them have options of their own."""
    all_methods()
    for word in words:
        if named_module(word):
            with suppress(UserError):  # raised again where the argument is used, with what it should be
                import_named(word, "module")


def start(parsed: argparse.Namespace) -> int:
    """`sparc train`."""
    from sparc.envs.registry import get_env
    from sparc.runs.run import Run
    from sparc.runs.stages import first_stage
    from sparc.training.workers.options import resolve

    find_method(parsed.method)
    fields = {*FIELDS, *(name for entry in registered().values() for name in entry.options)}
    values = read_config(parsed.config) if parsed.config else {}
    values |= {name: value for name, value in vars(parsed).items() if name in fields}
    if "env_options" in vars(parsed):
        values["env_options"] = dict(parsed.env_options)
    preset = parsed.preset or get_env(parsed.env).preset
    config = make_config(values, preset)
    stage = first_stage(config, parsed.train_region)
    workers = resolve(parsed.workers, parsed.cluster)
    return train_run(Run.create(config, parsed.run_dir, stage), workers=lambda: workers)


def go_on(parsed: argparse.Namespace) -> int:
    """`sparc resume`."""
    from sparc.runs.run import Run
    from sparc.training.workers.options import resolve_again

    run = Run.open(parsed.run)
    workers = partial(resolve_again, run, parsed.workers, parsed.cluster)
    return train_run(run, parsed.updates, dict(parsed.set), workers)


def train_run(
    run: Run, updates: int | None = None, changes: Mapping[str, Any] | None = None,
    workers: Callable[[], WorkerOptions] | None = None,
) -> int:  # fmt: skip
    """Train with a live progress bar and print what to do next; `workers` is asked where there is something to do."""
    from sparc.cli.display import TrainingBar
    from sparc.envs.measures import RETURN
    from sparc.envs.registry import get_env
    from sparc.runs import checkpoint, select

    print(f"run: {run.path}", flush=True)
    run.verify_config(but=changes or ())
    if updates is None and not changes and checkpoint.is_sound(run.checkpoints / str(run.config.updates)):
        further = f"extend it with: {run.resume_command} --updates N"
        if not run.config.extendable:
            further = "its learning rates have decayed to their end, so train a longer run anew"
        print(f"already at {run.config.updates:,} updates; {further}")
        return 0
    options = workers() if workers is not None else None
    for session in run.manifest()["sessions"][-1:]:
        adopt_thread_flags(session.get("flags", {}))  # before JAX is loaded
    try:
        with TrainingBar(run) as bar:
            from sparc.training.loop import run_training

            keep_compiled_programs()
            run_training(run, bar.report, updates, changes, options)
    except (KeyboardInterrupt, SystemExit) as stopped:
        there = checkpoint.numbers(run.checkpoints)
        where = f"at {there[-1]:,} of {run.config.updates:,} updates" if there else "before the first checkpoint"
        print(f"stopped {where}; continue with: {run.resume_command}")
        return stopped.code if isinstance(stopped, SystemExit) and isinstance(stopped.code, int) else INTERRUPTED
    last = checkpoint.numbers(run.checkpoints)[-1]
    scores = checkpoint.load_scores(checkpoint.load_meta(run.checkpoints / str(last)))
    best = run.choose("best")
    how = ""
    if (found := run.evaluation(best)) is not None:
        criteria = get_env(run.config.env).criteria
        what = "mean return " * (criteria.judged(found) == (RETURN,)) + criteria.outcome(found)
        how = f", {what} over the IND settings that select it"
    front = len(select.pareto_front(scores))
    print(
        f"done: best checkpoint {best}{how} ({front} on the Pareto front)\nnext: sparc evaluate {run.path}{run.allow}"
    )
    return 0
