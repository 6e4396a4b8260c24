"""Racing in TORCS: hundreds of cars, nine tyre compounds, one policy. Nothing here needs TORCS before a race begins.

Importing this package registers the races; the registry does so when a race is asked for or all environments are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sparc.arrays import Array
from sparc.envs.contextual import ProgressCall
from sparc.envs.racing.course import OBSERVATION
from sparc.envs.racing.env import (
    ACTION,
    EPISODE_STEPS,
    RaceVectorEnv,
    choose_by,
    make_race,
    reference_times,
    weak_laps,
)
from sparc.envs.racing.measures import JUDGED, MEASURES, VARIANTS
from sparc.envs.racing.reference import find_references
from sparc.envs.racing.tasks import PHYSICS, CarModels, PowerMass, Task
from sparc.envs.racing.torcs.installation import DATA
from sparc.envs.racing.torcs.simulator import CONTROL_STEP
from sparc.envs.racing.tracks import TRACKS, Track
from sparc.envs.registry import register_env
from sparc.errors import UserError

LAP_STEPS = 20_000  # of a flying lap, which ends by its own limit long before
SHOWN_WEAK = 10  # laps of the AI
REVISION = 2  # since 2: the pedal's gain, steering that fades with speed, a price on swings of the wheel
RACES: dict[str, tuple[Track, Task]] = {}  # by the id of the environment


def label_of(id: str, context: Array) -> str | None:
    """Name the car of a race's context; None where the environment is no race."""
    return RACES[id][1].label(context) if id in RACES else None


def car_models(id: str) -> CarModels | None:
    """Return an environment's task if it races cars of the catalogue."""
    task = RACES[id][1] if id in RACES else None
    return task if isinstance(task, CarModels) else None


def context_of(id: str, car: str, tyre: str | None = None) -> Array:
    """Return the context of a car by its name, on its test compound unless told otherwise."""
    if (task := car_models(id)) is None:
        raise UserError(f"{id} has no cars by name: only races of car models (RaceCars-…) have.")
    return task.context_of(car, tyre)


def prepare(
    track: Track, task: Task, contexts: Array, options: Mapping[str, Any], progress: ProgressCall | None
) -> None:
    """Let the built-in AI drive the laps that flying laps in these contexts are compared with."""
    if options.get("setting") == "lap":
        reference_times(track, task, contexts, options.get("physics", PHYSICS[0]), progress)


def remarks(track: Track, task: Task, contexts: Array, options: Mapping[str, Any]) -> list[str]:
    """Return notes on laps of the built-in AI that are no good to compare with."""
    if options.get("setting") != "lap":
        return []
    cars = [task.describe(context, options.get("physics", PHYSICS[0])) for context in contexts]
    weak = [name for name, _ in weak_laps(task, contexts, find_references(track, cars))]
    if not weak:
        return []
    names = ", ".join(weak[:SHOWN_WEAK]) + (", …" if len(weak) > SHOWN_WEAK else "")
    return [
        f"{len(weak)} of {len(contexts)} reference laps of the AI left the course, touched a wall or did damage "
        f"({names}): a policy looks faster beside them"
    ]


def register_track(name: str, category: str, dirt: bool, summary: str) -> None:
    """Add a track of TORCS's, and the two environments on it."""
    if name in TRACKS:
        raise UserError(f"there is a track '{name}' already: {TRACKS[name].summary}")
    track = Track(name, category, dirt, summary)
    if DATA.is_dir():  # else it is said when a race is made
        track.check()
    TRACKS[name] = track
    _register(track)


def _register(track: Track) -> None:
    races: tuple[tuple[str, Task, str], ...] = (
        (f"RaceCars-{track.name}-v0", CarModels(track), "a car and tyres that nobody names"),
        (f"RacePowerMass-{track.name}-v0", PowerMass(track), "a car of unknown power and mass"),
    )
    for id, task, what in races:
        RACES[id] = track, task
        register_env(
            id,
            context_space=partial(getattr, task, "space"),
            make=partial(make_race, track, task),
            make_vector=partial(RaceVectorEnv, track, task),
            max_episode_steps=EPISODE_STEPS,
            test_options={"setting": "lap", "max_episode_steps": LAP_STEPS},
            measures=MEASURES,
            judged_by=JUDGED,
            variants=VARIANTS,
            probes={"friction": task.friction} if isinstance(task, CarModels) else None,
            choose_by=choose_by,
            prepare=partial(prepare, track, task),
            preparing=f"the built-in AI drives on {track.name}",
            prepared="reference laps",
            remarks=partial(remarks, track, task),
            preset="racing",
            revision=REVISION,
            observation=OBSERVATION,
            action=ACTION,
            period=CONTROL_STEP,
            subset=task.subset if isinstance(task, CarModels) else None,
            summary=f"race {what} on {track.name} ({track.summary}) in TORCS",
        )


for _track in TRACKS.values():
    _register(_track)
