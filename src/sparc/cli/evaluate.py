"""`sparc evaluate`: a run in and out of distribution."""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparc.cli.parser import Commands, add_checkpoint, parse_int
from sparc.errors import RunFailure, UserError, describe_os_error
from sparc.machine import keep_compiled_programs
from sparc.methods import find_method, phase_span

if TYPE_CHECKING:  # takes a while
    from sparc.acting.evaluate import Evaluation
    from sparc.runs.run import Run
    from sparc.runs.tests import Part

GRID = 21  # contexts per feature of a test
EXAMPLES = """\
sparc evaluate RUN
sparc evaluate RUN --grid 11 --episodes 3 --checkpoint last
sparc evaluate RUN --expert                  (SPARC, RMA: told the context)
sparc evaluate RUN --out results             (the run may be read-only)
sparc evaluate RUN --variant updated         (racing)
sparc evaluate RUN --cars rally-07 kart-03   (racing: RaceCars)"""


def add(commands: Commands) -> None:
    """Add the command."""
    help = "test a run on the grid of contexts, in and out of distribution"
    evaluate = commands.add("evaluate", run_evaluation, help, EXAMPLES)
    evaluate.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    evaluate.add_argument(
        "--grid", type=parse_int(2), metavar="N",
        help=f"contexts per feature (default {GRID}: {GRID**2} cells for two features)",
    )  # fmt: skip
    evaluate.add_argument(
        "--episodes", type=parse_int(), default=1, metavar="N", help="episodes per context (default 1)"
    )
    add_checkpoint(evaluate)
    evaluate.add_argument(
        "--variant", "--physics", metavar="NAME",
        help="a variant of the environment to test in, default for none; racing: a physics, e.g. updated or stiffer "
        "(without it: as trained)",
    )  # fmt: skip
    some = evaluate.add_mutually_exclusive_group()
    some.add_argument("--cars", nargs="+", metavar="NAME", help="races of car models: only these cars")
    some.add_argument("--count", type=parse_int(), metavar="N", help="races of car models: only N of the test cars")
    evaluate.add_argument("--out", type=Path, metavar="DIR", help="a folder to write into (default RUN/evaluations)")
    evaluate.add_argument(
        "--expert", action="store_true",
        help="test the expert beside the policy, which observes the context, in the same contexts from the same starts",
    )  # fmt: skip
    evaluate.add_argument(
        "--adaptation", action="store_true", help="also switch the context in mid-episode and map ψ(c) and φ(h)"
    )


def run_evaluation(parsed: argparse.Namespace) -> int:
    """`sparc evaluate`."""
    from sparc.deploy.library import is_export
    from sparc.runs.run import Run

    if is_export(parsed.run):
        raise UserError(f"{parsed.run} is an exported policy; only runs are evaluated. Its contract.json has results.")
    run = Run.open(parsed.run)
    if parsed.grid is not None:
        warn_of_no_grid(run.config.env)
    warn_untrained(run)
    part = choose_part(run.config.env, parsed.cars, parsed.count)
    if part and parsed.adaptation:
        raise UserError("--adaptation covers all test contexts: leave out --cars and --count.")
    if parsed.expert and parsed.adaptation:
        raise UserError("--adaptation is about the policy, an expert need not adapt: leave out one of them.")

    from sparc.cli.display import step_bar, summary_table
    from sparc.envs.measures import RETURN
    from sparc.envs.registry import get_env
    from sparc.machine import while_wanted
    from sparc.report.figures.maps import heatmap
    from sparc.runs.adaptations import adapt_run
    from sparc.runs.tests import evaluate_run, stage_means, tested_with, variant_of

    keep_compiled_programs()
    entry, grid = get_env(run.config.env), parsed.grid or GRID
    space = run.space
    contexts = part.contexts if part else space.grid(grid)
    options = tested_with(run, parsed.variant)
    who = f"{run.config.method}{' expert' * parsed.expert}"
    where = f", {variant}" if (variant := variant_of(run, parsed.variant)) else ""

    def draw(evaluation: Evaluation, stem: Path) -> None:
        title = f"{who}, {run.config.env}{where}, {number_of(stem):,} updates"
        heatmap({title: evaluation}, space, stem.with_suffix(".png"), entry.criteria)

    if parsed.out is None:
        lock_for_test(run)
    try:
        if entry.prepare:
            with step_bar(entry.preparing, entry.prepared) as progress:
                entry.prepare_tests(contexts, options, while_wanted(progress))
        with step_bar(f"{who} on {run.config.env}", "episodes") as progress:
            which = parsed.checkpoint or "best", while_wanted(progress), parsed.variant
            evaluation, stem = evaluate_run(run, grid, parsed.episodes, *which, part, parsed.out, draw, parsed.expert)
        number, note = number_of(stem), ""
        if parsed.adaptation:
            with step_bar("switching contexts in mid-episode") as progress:
                note = adapt_run(run, number, grid, while_wanted(progress), parsed.out)
    finally:
        run.close()
    if note:
        print(f"note: no trace of a switch: {note}", file=sys.stderr)
    heading = f"{run.config.env}{where}, checkpoint {number}"
    summary_table({who: evaluation}, heading, criteria=entry.criteria)
    if stages := stage_means(run, evaluation):
        print(f"mean {'return ' * (entry.criteria.judged_by == (RETURN,))}in the region of each stage")
        for number, (of, own) in enumerate(zip(stages, run.lineage.spaces(entry), strict=True), start=1):
            print(f"  {number} ({own.describe_region()}): {entry.criteria.outcome(of) if of else 'no cell'}")
    if part:
        print(f"a part of the test: {len(part.contexts)} of {len(space.grid(grid))} contexts")
    for remark in entry.notes(evaluation.cells()[0], options):
        print(remark)
    print(f"rows: {stem}.csv\nsummary: {stem}.json\npicture: {stem}.png")
    return 0


def number_of(stem: Path) -> int:
    """Return the checkpoint that an evaluation's files are of."""
    return int(stem.name.split("-")[0])


def lock_for_test(run: Run) -> None:
    """Take the run, so that nobody else tests it; one that cannot be written to needs --out."""
    try:
        run.lock(run.evaluating)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise RunFailure(f"Cannot write into {run.path}: {describe_os_error(error)}, --out DIR.") from error


def choose_part(env: str, cars: list[str] | None, count: int | None) -> Part | None:
    """Return the test contexts that --cars or --count choose; None for all."""
    if not cars and count is None:
        return None

    from sparc.contexts import Finite
    from sparc.envs.racing import context_of
    from sparc.envs.registry import get_env
    from sparc.runs.tests import choose_contexts, make_part

    entry = get_env(env)
    if cars:
        return make_part([context_of(entry.id, car) for car in cars], cars)
    if not isinstance(entry.context_space.as_tested().test, Finite):
        raise UserError(f"--count chooses among car models, and {entry.id} is tested on a grid: use --grid.")
    assert count is not None
    return make_part(choose_contexts(entry.context_space, count))


def warn_of_no_grid(env: str) -> None:
    """Warn where the tests have a set of contexts of their own."""
    from sparc.contexts import Finite
    from sparc.envs.registry import get_env

    region = get_env(env).context_space.as_tested().test
    if isinstance(region, Finite):
        what = f"{env} is tested in {len(region.values):,} contexts of its own, not on a grid: --grid changes nothing"
        print(f"warning: {what}", file=sys.stderr)


def warn_untrained(run: Run) -> None:
    """Warn if a run has no checkpoint but its first."""
    from sparc.runs import checkpoint

    if checkpoint.numbers(run.checkpoints) == [0] and run.lineage.parent is None:
        _, first_end = phase_span(run.config, next(iter(find_method(run.config.method).phases)))
        after = min(run.config.evaluate_every, first_end)
        what = f"there is only the untrained checkpoint 0 yet; the next comes at update {after:,}"
        print(f"warning: {what}", file=sys.stderr)
