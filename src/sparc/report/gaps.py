"""What a suite has and what it lacks, in words: a mean never hides that runs are missing or that their numbers differ.

`kind` is a table of results: "returns", "curves", "traces" or "latents".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from sparc.suites.tables import Results


def labels_in(results: Results, env: str) -> list[str]:
    """Return the labels that the suite plans for an environment."""
    return [name for name in results.labels if results.members(env, name)]


def count(results: Results, env: str, kind: str, name: str) -> int:
    """Count the seeds of a label that there are results of."""
    return len(results.envs[env].there(kind, name))


def seeds(results: Results, env: str, name: str) -> str:
    """Return how many seeds the returns of a label are from, and of how many planned."""
    there, planned = count(results, env, "returns", name), len(results.members(env, name))
    return f"n = {there}" if there == planned else f"n = {there} of {planned}"


def means_over(results: Results, envs: Iterable[str], kind: str, names: Iterable[str], shown: str = "") -> str:
    """Return over how many seeds means are, one number or the least and the most, and what shows the single ones."""
    found = {count(results, env, kind, name) for name in names for env in envs} - {0}
    if max(found, default=0) <= 1:
        return "one seed each" if found else "no results"
    return f"mean ± s.e.m. over {how_many(found)}" + (f" ({shown})" if shown else "")


def how_many(counts: Collection[int]) -> str:
    """Write numbers of seeds as one or, where they differ, as the least and the most: 1 seed, 3 seeds, 0–1 seeds."""
    low, high = min(counts), max(counts)
    return f"{low}–{high} seeds" if low < high else f"{low} seed{'s' * (low != 1)}"


def why_missing(results: Results, env: str, name: str) -> str:
    """Return a sentence that there are no results, with the states of the members."""
    states = Counter(member["state"] for member in results.members(env, name))
    return "\n".join(["no results", *(f"{number} {state}" for state, number in states.items() if state != "done")])


def gaps(results: Results, env: str, kind: str, names: Iterable[str]) -> list[str]:
    """Return in a line which labels lack seeds, or that their numbers differ."""
    planned = {name: len(results.members(env, name)) for name in names}
    found = {name: count(results, env, kind, name) for name, number in planned.items() if number}
    if found and not any(found.values()):
        return [f"{env}: no results"]
    shown = results.names
    lacking = [
        f"{shown[key]} {number} of {planned[key]} seeds" for key, number in found.items() if number < planned[key]
    ]
    if lacking:
        return [f"{env} is incomplete: {', '.join(lacking)}"]
    if len(set(found.values())) > 1:
        return [
            f"{env}: uneven numbers of seeds: {', '.join(f'{shown[key]} {number}' for key, number in found.items())}"
        ]
    return []
