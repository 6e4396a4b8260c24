"""What a suite has and what is missing, in words: a mean never hides that runs are missing or unevenly many.

`kind` is a table of results: "returns", "curves", "traces" or "latents".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from sparc.suites.results import Results


def labels_in(results: Results, env: str) -> list[str]:
    """Return the labels that the suite plans for an environment."""
    return [name for name in results.labels if results.members(env, name)]


def count(results: Results, env: str, kind: str, name: str) -> int:
    """Return the number of seeds of a label with results."""
    return len(results.envs[env].available(kind, name))


def seeds(results: Results, env: str, name: str) -> str:
    """Return the number of seeds with returns, and of those planned where it differs: n = 2 of 3."""
    done, planned = count(results, env, "returns", name), len(results.members(env, name))
    return f"n = {done}" if done == planned else f"n = {done} of {planned}"


def means_over(results: Results, envs: Iterable[str], kind: str, names: Iterable[str], shown: str = "") -> str:
    """Return how many seeds means are over, as one number or a range, and how single seeds are drawn."""
    found = {count(results, env, kind, name) for name in names for env in envs} - {0}
    if max(found, default=0) <= 1:
        return "one seed each" if found else "no results"
    return f"mean ± s.e.m. over {how_many(found)}" + (f" ({shown})" if shown else "")


def how_many(counts: Collection[int]) -> str:
    """Return numbers of seeds as one number or a range: 1 seed, 3 seeds, 0–1 seeds."""
    low, high = min(counts), max(counts)
    return f"{low}–{high} seeds" if low < high else f"{low} seed{'s' * (low != 1)}"


def why_missing(results: Results, env: str, name: str) -> str:
    """Return that a label has no results, and the states of its runs."""
    states = Counter(member["state"] for member in results.members(env, name))
    return "\n".join(["no results", *(f"{number} {state}" for state, number in states.items() if state != "done")])


def gaps(results: Results, env: str, kind: str, names: Iterable[str]) -> list[str]:
    """Return a line that names the labels with missing seeds, or uneven numbers of seeds; empty if complete."""
    planned = {name: len(results.members(env, name)) for name in names}
    found = {name: count(results, env, kind, name) for name, number in planned.items() if number}
    if found and not any(found.values()):
        return [f"{env}: no results"]
    shown = results.names
    incomplete = [
        f"{shown[key]} {number} of {planned[key]} seeds" for key, number in found.items() if number < planned[key]
    ]
    if incomplete:
        return [f"{env} is incomplete: {', '.join(incomplete)}"]
    if len(set(found.values())) > 1:
        return [
            f"{env}: uneven numbers of seeds: {', '.join(f'{shown[key]} {number}' for key, number in found.items())}"
        ]
    return []
