"""What each command does, once the command line is parsed."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparc.config import FIELDS, make_config, read_config
from sparc.errors import RunFailure, UserError
from sparc.machine import adopt_thread_flags, keep_compiled_programs
from sparc.methods import find_method, phase_span
from sparc.methods.registry import registered

if TYPE_CHECKING:  # takes a while
    from sparc.runs.run import Run

GRID = "21"  # contexts per feature of a test, unless told otherwise


def train(parsed: argparse.Namespace) -> int:
    """`sparc train`."""
    from sparc.envs.registry import get_env
    from sparc.runs.run import Run

    find_method(parsed.method)
    fields = {*FIELDS, *(name for entry in registered().values() for name in entry.options)}
    values = read_config(parsed.config) if parsed.config else {}
    values |= {name: value for name, value in vars(parsed).items() if name in fields}
    if isinstance(options := values.get("env_options"), list):
        values["env_options"] = dict(pair(option) for option in options)
    preset = parsed.preset or get_env(parsed.env).preset
    return work(Run.create(make_config(values, preset), parsed.run_dir), None)


def resume(parsed: argparse.Namespace) -> int:
    """`sparc resume`."""
    from sparc.runs.run import Run

    updates = whole("--updates", parsed.updates) if parsed.updates is not None else None
    return work(Run.open(parsed.run), updates, dict(pair(text, "--set") for text in parsed.set))


def work(run: Any, updates: int | None, changes: dict[str, Any] | None = None) -> int:
    """Train with a live progress bar and say what to do next."""
    from sparc.cli.display import TrainingBar
    from sparc.runs import checkpoint, select
    from sparc.text import outcome

    print(f"run: {run.path}")
    run.verify_config(but=changes or ())
    if updates is None and not changes and checkpoint.is_sound(run.checkpoints / str(run.config.updates)):
        further = f"go further with: sparc resume {run.path} --updates N"
        if not run.config.extendable:
            further = "it is finished, its learning rates have fallen to their end: train a longer run anew"
        print(f"already at {run.config.updates:,} updates; {further}")
        return 0
    for session in run.manifest()["sessions"][-1:]:
        adopt_thread_flags(session.get("flags", {}))  # before JAX is loaded
    with TrainingBar(run) as bar:
        from sparc.training.loop import proceed

        keep_compiled_programs()
        proceed(run, bar.report, updates, changes)
    last = checkpoint.numbers(run.checkpoints)[-1]
    if last < run.config.updates:
        print(f"stopped at {last:,} of {run.config.updates:,} updates; go on with: sparc resume {run.path}")
        return 0
    scores = checkpoint.load_scores(checkpoint.load_meta(run.checkpoints / str(last)))
    best = run.choose("best")
    how = ""
    if (found := run.evaluation(best)) is not None:
        how = f", {'' if 'clean' in found else 'mean return '}{outcome(found)} over the IND settings that select it"
    front = len(select.pareto_front(scores))
    print(f"done: best checkpoint {best}{how} ({front} on the Pareto front)\nnext: sparc evaluate {run.path}")
    return 0


def evaluate(parsed: argparse.Namespace) -> int:
    """`sparc evaluate`."""
    grid = whole("--grid", parsed.grid, low=2)
    episodes = whole("--episodes", parsed.episodes)

    from sparc.runs.run import Run

    run = Run.open(parsed.run)
    if parsed.grid != GRID:
        warn_of_no_grid(run.config.env)
    warn_untrained(run)

    from sparc.cli.display import step_bar, summary_table
    from sparc.envs.registry import get_env
    from sparc.machine import while_wanted
    from sparc.report.figures.maps import heatmap
    from sparc.runs.adaptations import adapt_run
    from sparc.runs.tests import evaluate_run, other_physics, picture_of, tested_with

    keep_compiled_programs()
    run.lock(run.evaluating)
    try:
        with step_bar(f"{run.config.method} on {run.config.env}", "episodes") as progress:
            which = parsed.checkpoint, while_wanted(progress), parsed.physics
            evaluation, stem = evaluate_run(run, grid, episodes, *which)
        number, note = int(stem.name.split("-")[0]), ""
        if parsed.adaptation:
            with step_bar("switching contexts in mid-episode") as progress:
                note = adapt_run(run, number, grid, while_wanted(progress))
    finally:
        run.close()
    if note:
        print(f"note: no trace of a switch: {note}", file=sys.stderr)
    where = f", {other} physics" if (other := other_physics(run, parsed.physics)) else ""
    title = f"{run.config.method}, {run.config.env}{where}, {number:,} updates"
    heatmap({title: evaluation}, get_env(run.config.env).context_space, picture_of(run, parsed.physics))
    summary_table({run.config.method: evaluation}, f"{run.config.env}{where}, checkpoint {number}")
    for remark in get_env(run.config.env).remark(evaluation.cells()[0], tested_with(run, parsed.physics)):
        print(remark)
    print(f"rows: {stem}.csv\nsummary: {stem}.json\npicture: {picture_of(run, parsed.physics)}")
    return 0


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

    if checkpoint.numbers(run.checkpoints) == [0]:
        _, first_end = phase_span(run.config, next(iter(find_method(run.config.method).phases)))
        after = min(run.config.evaluate_every, first_end)
        what = f"only the untrained checkpoint 0 is there yet; the next comes at update {after:,}"
        print(f"warning: {what}", file=sys.stderr)


def references(parsed: argparse.Namespace) -> int:
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
        raise UserError(f"{entry.id} is no race: there is no AI's lap to compare with. Races are {', '.join(RACES)}.")
    (track, task), space = RACES[entry.id], entry.context_space
    if isinstance(space.test, Finite):
        contexts = space.test.values
    else:  # tests, and evaluations during training
        contexts = np.concatenate([space.grid(whole("--grid", parsed.grid, low=2)), space.evaluated])
    cars = [task.describe(context, parsed.physics) for context in contexts]
    print(f"{len(cars):,} laps, {count_kept(track, cars):,} of them kept from before", flush=True)
    try:
        with step_bar(f"the built-in AI on {track.name}", "laps") as progress:
            laps = find_references(track, cars, while_wanted(progress))
    except KeyboardInterrupt:
        raise RunFailure("interrupted; the laps so far are kept: run it again to go on.") from None
    times = np.array([lap.time for lap in laps])
    done = np.isfinite(times)
    low, middle, high = np.percentile(times[done], [0, 50, 100]) if done.any() else (np.nan, np.nan, np.nan)
    print(f"{done.sum():,} of {len(laps):,} laps on {track.name}: {low:.1f} to {high:.1f} s, median {middle:.1f} s")
    for context in contexts[~done]:
        print(f"no lap: {task.label(context)}")
    weak = weak_laps(task, contexts, laps)
    for name, lap in weak[:SHOWN_WEAK]:
        faults = {"off course": (lap.off, "s"), "at a wall": (lap.wall, "s"), "damage": (lap.damage, "points")}
        told = ", ".join(f"{fault} {value:.3g} {unit}" for fault, (value, unit) in faults.items() if value)
        print(f"weak lap: {name}: {lap.time:.1f} s, {told}")
    if weak:
        print(f"{len(weak):,} weak laps (off course, at a wall or damaged): a policy looks faster beside them")
    print(f"kept in: {store_path()}")
    return 0


def replay(parsed: argparse.Namespace) -> int:
    """`sparc replay`."""
    count = whole("--count", parsed.count)

    from sparc.cli.display import step_bar
    from sparc.machine import while_wanted
    from sparc.runs.run import Run

    run = Run.open(parsed.run)
    warn_untrained(run)
    run.lock(run.evaluating)  # two pages at once would be written over each other
    try:
        with step_bar(f"replay of {parsed.run.name}", "laps") as progress:
            from sparc.watch.laps import replay_run

            how = parsed.checkpoint, count, parsed.cars, parsed.physics, parsed.out, while_wanted(progress)
            page, pictures, without = replay_run(run, *how)
    finally:
        run.close()
    print(f"page: {page}")
    if pictures:
        print(f"racing lines: {pictures[0].parent}")
    if without:
        print(f"laps without a racing line: {without}")
    return 0


def play(parsed: argparse.Namespace) -> int:
    """`sparc play`."""
    seed = whole("--seed", parsed.seed, low=0)
    steps, fps, width = (
        whole(f"--{name}", text) if (text := getattr(parsed, name)) is not None else None
        for name in ("steps", "fps", "width")
    )

    from sparc.cli.display import step_bar

    with step_bar(f"playing {parsed.run.name}") as progress:
        from sparc.watch.play import play, report

        runs = parsed.run, parsed.context, parsed.video, parsed.compare, parsed.checkpoint
        played = play(*runs, seed, steps, fps, width, progress, parsed.car, parsed.tyre)
    print(report(played))
    return 0


def suite_list(parsed: argparse.Namespace) -> int:
    """`sparc suite list`."""
    from sparc.cli.display import suite_table
    from sparc.suites.suite import provided

    suite_table(provided())
    return 0


def suite_run(parsed: argparse.Namespace) -> int:
    """`sparc suite run`."""
    from sparc.suites.plan import enrol, folder_of, planned

    jobs = whole("--jobs", parsed.jobs) if parsed.jobs is not None else None
    folder = folder_of(parsed.suite, parsed.run_dir)
    suite = enrol(
        parsed.suite,
        folder,
        updates=whole("--updates", parsed.updates) if parsed.updates is not None else None,
        seeds=[whole("--seeds", seed, low=0) for seed in parsed.seeds] if parsed.seeds else None,
        envs=parsed.envs,
        methods=parsed.methods,
    )

    from sparc.suites.runner import Runner

    runner = Runner(suite, folder, jobs)
    count, whole_plan = len(runner.members), len(planned(parsed.suite, folder).members())
    others = f" (of {whole_plan} in the folder's plan)" if whole_plan > count else ""
    print(f"{suite.name}: {count} run{'s' * (count > 1)}{others} in {folder}, {runner.jobs} at a time", flush=True)
    done = runner.run()
    print(runner.conclusion())
    where = f" --run-dir {parsed.run_dir}" if parsed.run_dir else ""
    if done:
        print(f"next: sparc suite report {parsed.suite}{where}")
        return 0
    if any(standing.state == "waiting" for standing in runner.standings.values()):
        given = {name: getattr(parsed, name) for name in ("updates", "seeds", "envs", "methods", "jobs", "run_dir")}
        words = ["sparc", "suite", "run", parsed.suite]
        for name, value in given.items():
            if value:
                words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
        print(f"go on with: {shlex.join(words)}")
    return 1 if any(standing.state in ("failed", "other config") for standing in runner.standings.values()) else 0


def suite_status(parsed: argparse.Namespace) -> int:
    """`sparc suite status`."""
    from sparc.suites.plan import folder_of, planned
    from sparc.suites.runner import Runner

    folder = folder_of(parsed.suite, parsed.run_dir)
    runner = Runner(planned(parsed.suite, folder), folder)
    runner.print_all()
    return 0


def suite_report(parsed: argparse.Namespace) -> int:
    """`sparc suite report`."""
    from sparc.cli.display import step_bar
    from sparc.suites import tables as results
    from sparc.suites.gather import gather
    from sparc.suites.plan import folder_of, planned

    folder = folder_of(parsed.suite, parsed.run_dir)
    out = parsed.out or folder / "report"
    with step_bar("reading", "runs") as progress:
        found = gather(planned(parsed.suite, folder), folder, progress)
    results.write(found, out)
    return draw(out)


def report(parsed: argparse.Namespace) -> int:
    """`sparc report`."""
    return draw(parsed.folder, parsed.accept_edits)


def draw(folder: Path, accept_edits: bool = False) -> int:
    """Draw the figures and the page from a folder's tables."""
    from sparc.cli.display import step_bar
    from sparc.report.figures.suite import write_all
    from sparc.report.page import write_report
    from sparc.suites import tables as results

    found = results.read(folder, accept_edits)
    if edited := found.manifest.get("edited"):
        print(f"note: changed by hand since `sparc suite report` wrote them: {', '.join(edited)}", file=sys.stderr)
    page = folder / "report.html"
    with step_bar("drawing", "figures") as progress:
        figures = write_all(found, folder / "figures", progress)
    write_report(found, page, figures)
    gaps = [member for member in found.manifest["members"] if member["state"] != "done"]
    if gaps:
        print(f"{len(gaps)} of {len(found.manifest['members'])} runs have no results yet; the page marks them")
    print(f"tables:  {folder}\nfigures: {folder / 'figures'}\npage:    {page}")
    return 0


def demo(parsed: argparse.Namespace) -> int:
    """`sparc demo`."""
    from sparc.cli.demo import run_demo

    return run_demo(whole("--seed", parsed.seed, low=0), parsed.run_dir)


def envs(parsed: argparse.Namespace) -> int:
    """`sparc envs`."""
    from sparc.cli.display import environment_table
    from sparc.envs.registry import all_envs

    environment_table(all_envs())
    return 0


def methods(parsed: argparse.Namespace) -> int:
    """`sparc methods`."""
    from sparc.cli.display import method_table

    method_table()
    return 0


def bench(parsed: argparse.Namespace) -> int:
    """`sparc bench`."""
    from sparc.cli import bench as benches
    from sparc.envs.registry import get_env

    given = {name: value for name in ("env", "method", "preset") if (value := getattr(parsed, name)) is not None}
    takes_runs = ("evaluate", benches.TIME_TO_RETURN)
    if parsed.runs and parsed.what not in takes_runs:
        names = " and ".join(f"`sparc bench {name}`" for name in takes_runs)
        raise UserError(f"only {names} take a run, not `{parsed.what}`: use --env, --method, --preset")
    if parsed.what == "evaluate" and len(parsed.runs) > 1:
        raise UserError(f"`sparc bench evaluate` takes one run, not {len(parsed.runs)}")
    if given and (parsed.runs or parsed.what == benches.TIME_TO_RETURN):
        raise UserError(f"--{next(iter(given))} does not go with a run, which has its own: leave one of them out")
    if parsed.steps and parsed.what != "rollout":
        raise UserError(f"--steps is for `sparc bench rollout`, not for `{parsed.what}`")
    if parsed.value is not None and parsed.what != benches.TIME_TO_RETURN:
        raise UserError(f"--return is for `sparc bench {benches.TIME_TO_RETURN}`, not for `{parsed.what}`")
    if parsed.what == benches.TIME_TO_RETURN:
        return time_to_return(parsed.runs, parsed.value)

    from sparc.runs.run import Run

    run = parsed.runs[0] if parsed.runs else None
    steps = whole("--steps", parsed.steps) if parsed.steps is not None else 0
    asked = benches.Asked(**given, steps=steps, run=run)
    if run:
        Run.open(run)
    else:
        asked = asked._replace(preset=parsed.preset or get_env(asked.env).preset)
        find_method(asked.method)
        make_config({"method": asked.method, "env": asked.env}, asked.preset)
    print(benches.run(parsed.what, asked))
    return 0


def time_to_return(runs: list[Path], text: str | None) -> int:
    """`sparc bench time-to-return`: a table to read, and one JSON object on the standard output."""
    import json

    from sparc.cli.bench import TIME_TO_RETURN
    from sparc.runs.time_to_return import table, times_to_return

    if not runs or text is None:
        example = f"`sparc bench {TIME_TO_RETURN} RUN --return 8000`"
        raise UserError(f"{TIME_TO_RETURN} needs {'--return' if runs else 'a run'}, for example {example}")
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"--return must be a number, not '{text}'.") from None
    found = times_to_return(runs, value)
    print(table(found), file=sys.stderr)
    print(json.dumps({"bench": TIME_TO_RETURN, **found}, indent=1))
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


def pair(text: str, option: str = "--env-options") -> tuple[str, Any]:
    """Read name=value, the value as YAML would."""
    import yaml

    name, equals, value = text.partition("=")
    try:
        if not name or not equals:
            raise ValueError
        return name, yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        raise UserError(f"{option} takes name=value, not '{text}'.") from None
