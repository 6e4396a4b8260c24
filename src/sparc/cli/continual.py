"""`sparc continue`: a child run in a world that has changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparc.cli.parser import Commands, add_checkpoint, parse_float, parse_int, parse_option, parse_region
from sparc.cli.workers import add_options
from sparc.runs.stages import KEEP

EXAMPLES = """\
sparc continue RUN --train-region x=-5:5,z=-10:10
sparc continue RUN --train-region x=0.5:1 --keep 0.5 --updates 2000 --guard
sparc continue RUN --train-cars kart-03 rally-07       (racing: RaceCars)
sparc continue RUN --physics updated                   (racing)
sparc continue RUN --only-adapter                      (RMA: φ alone)
sparc continue RUN --no-context                        (SPARC, experimental)"""


def add(commands: Commands) -> None:
    """Add the command."""
    help = "go on learning in other contexts or a changed environment, as a new run that leaves the old one as it is"
    command = commands.add("continue", start, help, EXAMPLES)
    command.add_argument("run", type=Path, metavar="RUN", help="the run directory to begin from")
    command.add_argument(
        "--train-region", type=parse_region, default={}, metavar="F=LOW:HIGH,...",
        help="new ranges of context features to train on; the others stay as they were",
    )  # fmt: skip
    command.add_argument(
        "--train-cars", nargs="+", default=[], metavar="NAME",
        help="races of car models: train on these; ood are all that are held out, ind:0:300 the first 300 others",
    )  # fmt: skip
    command.add_argument(
        "--variant", "--physics", metavar="NAME",
        help="a variant of the environment to train in, default for none; racing: a physics, e.g. updated",
    )  # fmt: skip
    command.add_argument(
        "--env-options", nargs="+", action="extend", type=parse_option, default=[], metavar="K=V",
        help="options of the environment that have changed",
    )  # fmt: skip
    command.add_argument(
        "--keep", type=parse_float, default=KEEP, metavar="SHARE",
        help=f"share of each minibatch that is drawn from what the stages before have seen (default {KEEP})",
    )  # fmt: skip
    command.add_argument(
        "--updates", type=parse_int(), metavar="N", help="updates of this stage (default a tenth of the run's)"
    )
    command.add_argument(
        "--guard", action="store_true", help="never select a policy that is worse than RUN's in any stage's settings"
    )
    command.add_argument("--only-adapter", action="store_true", help="RMA: leave the expert as it is and train φ alone")
    command.add_argument(
        "--no-context", action="store_true",
        help="SPARC, experimental: do without the true contexts, and take what RUN's φ reads from the history for them",
    )  # fmt: skip
    add_checkpoint(command)
    command.add_argument(
        "--set", nargs="+", action="extend", type=parse_option, default=[], metavar="K=V",
        help="change config fields, e.g. learning_rate=1e-4",
    )  # fmt: skip
    command.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="a new directory (default runs/<env>/<method>/seed<k>-<utc>-stage<n>)",
    )
    add_options(command, "default: in this process, in step with learning")


def start(parsed: argparse.Namespace) -> int:
    """`sparc continue`."""
    from sparc.cli.train import train_run
    from sparc.machine import adopt_thread_flags
    from sparc.runs.run import Run
    from sparc.runs.stages import Stage
    from sparc.training.workers.options import resolve

    workers = resolve(parsed.workers, parsed.cluster)
    parent = Run.open(parsed.run)
    for session in parent.manifest()["sessions"][-1:]:
        adopt_thread_flags(session.get("flags", {}))  # before JAX is loaded

    from sparc.training.continual import make_child

    changed = (parsed.train_region, parsed.train_cars, parsed.env_options, parsed.variant, parsed.no_context,
               parsed.only_adapter, parsed.set)  # fmt: skip
    if not any(changed):
        print("note: nothing changes for the child, it trains in the contexts of its parent: see --train-region")
    child = make_child(
        parent,
        Stage(parsed.train_region, tuple(parsed.train_cars), dict(parsed.env_options)),
        variant=parsed.variant,
        keep=parsed.keep,
        updates=parsed.updates,
        guard=parsed.guard,
        only_adapter=parsed.only_adapter,
        no_context=parsed.no_context,
        which=parsed.checkpoint or "best",
        path=parsed.run_dir,
        changes=dict(parsed.set),
    )
    return train_run(child, workers=lambda: workers)
