"""A suite's plan: what was asked for so far in its folder, and in which order its members run."""

from __future__ import annotations

import dataclasses
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparc.config import Config
from sparc.envs.registry import make_vector_env
from sparc.errors import UserError
from sparc.suites.suite import LISTS, PLAN, PROVIDED, Member, Suite, find_suite, is_file, read_suite

# what the members of one folder have in common
EXPERIMENT = ("preset", "config", "variations", "grid", "episodes", "physics", "runs")


def folder_of(name: str, run_dir: Path | None) -> Path:
    """Say where a suite's runs lie."""
    return run_dir or Path("runs") / Path(name).stem


def planned(name: str, folder: Path) -> Suite:
    """Read what was asked for so far in a suite's folder."""
    if not (folder / PLAN).is_file():
        find_suite(name)  # says if there is none of that name
        raise UserError(f"{folder} holds no suite yet: run it first, `sparc suite run {name}`.")
    return read_suite(folder / PLAN)


def enrol(name: str, folder: Path, **given: Any) -> Suite:
    """Say what to run, and make it part of the folder's plan.

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
    if not (folder / PLAN).is_file():
        try_environments(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runners may share a folder
        if not (folder / PLAN).is_file():
            wanted.write(folder)
            return wanted
        plan = planned(name, folder)
        if other := [key for key in EXPERIMENT if getattr(plan, key) != getattr(suite, key)]:
            raise UserError(f"{folder} holds a suite with another {' and '.join(other)}: choose another --run-dir.")
        if not given:
            return plan
        updates = given.get("updates", plan.updates)
        if updates != plan.updates and (why := fixed_length(plan, updates)):
            raise UserError(
                f"{folder} was run with --updates {plan.updates}, not {updates}, and {why}: choose another --run-dir."
            )
        wanted = suite.scaled(**(given | {"updates": updates}))
        wanted.joined(plan, suite).write(folder)
        return wanted


def try_environments(suite: Suite) -> None:
    """Make every environment once: what a simulator lacks is said once, not by every member."""
    wanted = {(member.config.env, repr(member.config.env_options)): member.config for member in suite.members()}
    for config in wanted.values():
        make_vector_env(config.env, 1, **config.env_options).close()


def fixed_length(plan: Suite, updates: int) -> str:
    """Say why the runs of a plan cannot have this other number of updates; nothing if they can."""
    if updates < plan.updates:
        return "a run can only be extended"
    if "rma" in plan.methods:
        return "RMA's second phase cannot be undone"
    if any(member.config.final_rate != 1.0 for member in plan.members()):
        return "learning rates that fall to the end of a run cannot rise again"
    return ""


def as_long(suite: Suite, plan: Path, updates: int | None) -> Suite:
    """Give a suite that shares another's runs their number of updates; refuse one that would train them on."""
    if not plan.is_file():
        find_suite(suite.runs)  # says if there is none of that name
        return suite
    shared = read_suite(plan).updates
    if updates not in (None, shared):
        raise UserError(f"The runs in {plan.parent} have {shared} updates, not {updates}: leave --updates out.")
    return dataclasses.replace(suite, updates=shared)


def cost(config: Config) -> float:
    """Estimate a member's time in arbitrary units, so that the longest can begin first.

    Measured on one core with the preset mujoco: microseconds per update, of which those of the history grow with H.
    """
    plain, history = COSTS.get(config.method, COSTS["sparc"])
    return config.updates * (plain + history * config.history_length / 50)


COSTS = {"sparc": (3800, 1700), "rma": (3300, 400), "only-obs": (3600, 0), "history-input": (4300, 5500),
         "oracle": (3700, 0)}  # fmt: skip


def longest_first(members: list[Member]) -> Iterator[Member]:
    """Order members so that no core waits long at the end."""
    yield from sorted(members, key=lambda member: -cost(member.config))
