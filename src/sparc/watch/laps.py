"""`sparc replay`: flying laps of a run beside those of the built-in AI in the same cars, as a page and as pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.acting.episodes import Step
from sparc.acting.evaluate import evaluate
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ProgressCall
from sparc.envs.racing import RACES, car_models
from sparc.envs.racing.course import Course as Road
from sparc.envs.racing.env import RaceVectorEnv
from sparc.envs.racing.reference import race_safely
from sparc.envs.racing.tasks import PHYSICS, CarModels
from sparc.envs.racing.torcs.columns import COLUMN, TRACE, TRACK_COLUMNS
from sparc.envs.racing.torcs.installation import find_torcs
from sparc.envs.racing.torcs.simulator import Laps
from sparc.envs.racing.tracks import Track
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import UserError
from sparc.machine import usable_cores
from sparc.report.figures.races import racing_line
from sparc.report.figures.style import RESOLUTIONS, write
from sparc.runs.load import load
from sparc.runs.run import Run
from sparc.runs.tests import choose_contexts, tested_with, variant_of
from sparc.watch.lap_page import LINE, Course, LapPair, write_replay

if TYPE_CHECKING:  # brings JAX
    from sparc.acting.policy import Policy


COURSE_POINTS = 6.0  # m apart
MOST_PICTURES = 12  # of laps, of however many are on the page
# Where a row of state keeps what a trace holds.
RECORDED = [COLUMN[{"time": "lap_now", "speed": "vx"}.get(name, name)] for name in TRACE]


def drive_laps(
    policy: Policy, env: str, contexts: np.ndarray, options: Mapping[str, Any], progress: ProgressCall | None = None,
    space: ContextSpace | None = None,
) -> tuple[list[LapPair], Road]:  # fmt: skip
    """Drive a flying lap in every context, with these options of the environment, and race the AI in the same cars.

    Progress counts both, after the laps of the AI that are missing to compare with. IND is what the space says, by
    default the environment's own.
    """
    (track, task), entry = RACES[env], get_env(env)
    space = space or entry.context_space
    options = entry.resolve_test_options(options)
    entry.prepare_tests(contexts, options, progress)
    rows = [list[np.ndarray]() for _ in contexts]
    venv = make_vector_env(env, len(contexts), usable_cores(), **options)
    assert isinstance(venv, RaceVectorEnv)
    road = venv.course

    def record(step: Step) -> None:
        alive = step.running
        on_lap = alive & (venv.states[:, COLUMN["laps"]] == 1)
        for row in np.flatnonzero(on_lap).tolist():
            rows[row].append(venv.states[row, RECORDED].copy())
        if progress:  # laps over, and the parts of those that are under way
            driven = (~alive).sum() + venv.states[on_lap, COLUMN["distance"]].sum() / road.length
            progress(int(driven), 2 * len(contexts))

    try:
        measures = evaluate(policy, venv, contexts, on_step=record).measures
    finally:
        venv.close()
    cars = [task.describe(context, options.get("physics", PHYSICS[0])) for context in contexts]
    laps = race_all(track, cars, progress)
    pairs = []
    for row, (context, ai) in enumerate(zip(contexts, laps, strict=True)):
        name, tyre, kind, size = task.label(context), "", "", {}
        if isinstance(task, CarModels):
            car, tyre = task.find(context)
            name, kind, size = car.name, car.class_name, {"length": car.length, "width": car.width}
        done = bool(measures["completed"][row])
        pairs.append(
            LapPair(
                car=name,
                class_name=kind,
                tyre=tyre,
                region="ind" if space.is_train(context)[0] else "ood",
                agent=np.array(rows[row]).reshape(-1, len(TRACE)),
                ai=ai.trace,
                lap_time=float(measures["lap_time"][row]) if done else None,
                ai_time=float(ai.times[-1]),
                clean=bool(measures["clean"][row]),
                **size,
            )
        )
    return pairs, road


def race_all(track: Track, cars: Sequence[str], progress: ProgressCall | None = None) -> list[Laps]:
    """Let the AI race in each of these cars, on all cores: the second half of drive_laps."""
    torcs, laps = find_torcs(), list[Laps]()
    pool = ThreadPoolExecutor(usable_cores())
    if progress:
        progress(len(cars), 2 * len(cars))
    try:
        for lap in pool.map(lambda xml: race_safely(torcs, track, xml), cars):
            laps.append(lap)
            if progress:
                progress(len(cars) + len(laps), 2 * len(cars))
    finally:  # Ctrl-C too: no lap is begun that nobody waits for
        pool.shutdown(cancel_futures=True)
    return laps


def draw_lines(
    pairs: Sequence[LapPair], road: Road, folder: Path, progress: ProgressCall | None = None
) -> tuple[list[Path], str]:
    """Draw the lines of laps on the track, into a folder: of all, or of a choice where they are many.

    Give the pictures, and a line on the laps without one.
    """
    begun = [pair for pair in pairs if len(pair.agent) > 1]
    paths: list[Path] = []
    for old in folder.glob("*.png"):  # of an earlier page
        old.unlink()
    chosen = np.linspace(0, len(begun) - 1, min(len(begun), MOST_PICTURES)).round().astype(int).tolist()
    for index in chosen:
        if progress:
            progress(len(paths), len(chosen))
        pair = begun[index]
        time = f"{pair.lap_time:.1f} s" if pair.lap_time is not None else "not completed"
        name = " on ".join(filter(None, (pair.car, pair.tyre)))
        figure = racing_line(pair.agent, road, f"{name} ({pair.region.upper()}): {time}, AI {pair.ai_time:.1f} s")
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / f"{re.sub(r'[^a-zA-Z0-9.]+', '-', pair.car)}.png")
        write(figure, paths[-1], RESOLUTIONS, {"Software": None})
    beyond = f"beyond the {MOST_PICTURES} that are drawn (name up to {MOST_PICTURES} with --cars for theirs)"
    which = "--car NAME" if any(pair.tyre for pair in pairs) else "--context power=…,mass=…"
    never = f"never came to the line (`sparc play RUN {which}` shows why)"
    reasons = {never: len(pairs) - len(begun), beyond: len(begun) - len(paths)}
    return paths, ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)


def replay_run(
    run: Run,
    which: str,
    cars: int,
    names: list[str],
    physics: str | None,
    out: Path | None,
    progress: ProgressCall | None,
) -> tuple[Path, list[Path], str]:
    """Make the page of a run: of the cars named, or of so many over the whole test set.

    Give the page, the pictures of laps beside it, and a line on the laps without one.
    """
    env = get_env(run.config.env).id
    if env not in RACES:
        raise UserError(f"{run.path} is a run of {env}, and only races can be replayed.")
    if out is not None and out.is_dir():
        raise UserError(f"{out} is a folder: --out takes the file of the page, {out / 'race.html'} for instance.")
    if not names:
        contexts = choose_contexts(run.space, cars)
    elif task := car_models(env):
        contexts = np.array([task.context_of(name) for name in names])
    else:
        raise UserError(f"{env} has no cars by name: leave --cars out.")
    number = run.choose(which)
    pairs, road = drive_laps(load(run.path, number), env, contexts, tested_with(run, physics), progress, run.space)
    columns = [TRACK_COLUMNS.index(column.name) for column in LINE]
    line = road.table[:: max(1, round(COURSE_POINTS * len(road.table) / road.length)), columns]
    name = "-".join(filter(None, (str(number), variant_of(run, physics))))
    path = out or run.path / "replays" / f"{name}.html"
    title = f"{run.config.method} on {env}, seed {run.config.seed}, {number:,} updates"
    write_replay(path, Course(RACES[env][0].name, road.length, line), pairs, title)
    return path, *draw_lines(pairs, road, path.with_name(f"{path.stem}-lines"), progress)
