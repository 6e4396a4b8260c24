"""A suite's plan: what was asked for so far in its folder, and in which order its members run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sparc.config import Config
from sparc.envs.registry import make_vector_env
from sparc.errors import UserError
from sparc.files import locked
from sparc.methods import find_method
from sparc.suites.published import Published
from sparc.suites.suite import LISTS, PLAN, PROVIDED, Member, Suite, find_suite, fixed_length, is_file, read_suite

# what the members of one folder have in common
EXPERIMENT = ("preset", "config", "variations", "grid", "episodes", "variants", "runs", "primary", "stages")


def folder_of(name: str, run_dir: Path | None) -> Path:
    """Return where a suite's runs lie."""
    return run_dir or Path("runs") / Path(name).stem


def planned(name: str, folder: Path) -> Suite:
    """Read what was asked for so far in a suite's folder."""
    if not (folder / PLAN).is_file():
        find_suite(name)  # says if there is none of that name
        raise UserError(f"{folder} holds no suite yet: run it first, `sparc suite run {name}`.")
    return read_suite(folder / PLAN)


def add_to_plan(name: str, folder: Path, published: Published | None = None, **given: Any) -> Suite:
    """Return what to run, and make it part of the folder's plan, if published results are its own.

    What is not given is the suite's own, but for the updates: a folder keeps its number. A name alone goes on with the
    plan; a user's file says itself what to run.
    """
    written = is_file(name)
    known = written or (PROVIDED / f"{name}.yaml").exists() or not (folder / PLAN).is_file()
    suite = find_suite(name) if known else planned(name, folder)  # a user's suite by the name of its folder
    given = {key: value for key, value in given.items() if value is not None}
    if suite.runs:
        suite = as_long(suite, folder.parent / suite.runs / PLAN, given.get("updates"))
    if written:
        given = {key: getattr(suite, key) for key in ("updates", *LISTS)} | given
    wanted = suite.scaled(**given)  # refuses what is wrong before a folder is made
    check = (published or Published()).check
    if not (folder / PLAN).is_file():
        check(wanted)
        try_environments(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):  # several runners may share a folder
        if not (folder / PLAN).is_file():
            wanted.write(folder)
            return wanted
        plan = planned(name, folder)
        if other := [key for key in EXPERIMENT if getattr(plan, key) != getattr(suite, key)]:
            raise UserError(f"{folder} holds a suite with another {' and '.join(other)}: choose another --run-dir.")
        if not given:
            check(plan)
            return plan
        updates = given.get("updates", plan.updates)
        if updates != plan.updates and (why := why_not(plan, updates)):
            raise UserError(
                f"{folder} was run with --updates {plan.updates}, not {updates}, and {why}: choose another --run-dir."
            )
        wanted = suite.scaled(**(given | {"updates": updates}))
        check(wanted)
        wanted.joined(vars(plan), suite).write(folder)
        return wanted


def try_environments(suite: Suite) -> None:
    """Make every environment once: what a simulator lacks is said once, not by every member."""
    wanted = {(member.config.env, repr(member.config.env_options)): member.config for member in suite.members()}
    for config in wanted.values():
        make_vector_env(config.env, 1, **config.env_options).close()


def why_not(plan: Suite, updates: int) -> str:
    """Return why the runs of a plan cannot have this other number of updates; empty if they can."""
    if updates < plan.updates:
        return "a run can only be extended"
    return next(filter(None, (fixed_length(member.config) for member in plan.members())), "")


def as_long(suite: Suite, plan: Path, updates: int | None) -> Suite:
    """Return a suite that shares another's runs their number of updates; refuse one that would train them on."""
    if not plan.is_file():
        find_suite(suite.runs)  # says if there is none of that name
        return suite
    shared = read_suite(plan).updates
    if updates not in (None, shared):
        raise UserError(f"The runs in {plan.parent} have {shared} updates, not {updates}: leave --updates out.")
    return dataclasses.replace(suite, updates=shared)


def cost(config: Config) -> float:
    """Estimate a member's time in updates of Only Obs, so that the longest can begin first."""
    entry = find_method(config.method)
    return config.updates * (entry.cost + entry.history_cost * config.history_length / 50)


def seed_by_seed(members: list[Member]) -> list[Member]:
    """Return members in the order to run them: a seed of everything, then the next; of a seed the longest first."""
    seeds = list(dict.fromkeys(member.config.seed for member in members))
    return sorted(members, key=lambda member: (seeds.index(member.config.seed), -cost(member.config)))
