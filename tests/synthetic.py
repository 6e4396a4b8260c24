"""Results with known properties, for tests of figures and pages: training real ones would take days."""

from typing import Any

import numpy as np

from sparc.envs import get_env
from sparc.results import EXPERT, Curve, EnvResults, Latents, Results, Trace, label

ENVS = ("WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5")
METHODS = {"sparc": 1.0, "rma": 0.9, "only-obs": 0.6, "history-input": 0.85, "oracle": 1.1}  # level of the returns
ADAPTERS = ("sparc", "rma")
UPDATES, EXPERT_UPDATES = 300_000, 220_000


def make_results(
    envs: tuple[str, ...] = ENVS,
    methods: dict[str, float] | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    grid: int = 21,
    gaps: tuple[tuple[str, str, int], ...] = (),
    variations: tuple[str, ...] = ("",),
) -> Results:
    """Make returns that fall with the distance from the centre, at a level per method; `gaps` are missing members."""
    methods = METHODS if methods is None else methods
    rng = np.random.default_rng(0)
    parts, members = {}, []
    for env in envs:
        space = get_env(env).context_space
        contexts = space.grid(grid)
        part = EnvResults(space, contexts, space.is_train(contexts))
        distance = np.abs((contexts - space.centre) / space.half_range).max(axis=1)
        for method, level in methods.items():
            for variation in variations:
                for seed in seeds:
                    missing = (env, method, seed) in gaps
                    members.append(member(env, method, variation, seed, "missing" if missing else "done"))
                    if missing:
                        continue
                    name = label(method, variation)
                    noise = rng.normal(0, 150, len(contexts)) + rng.normal(0, 200)
                    fill(part.returns, name, seed, level * 4000 * (1.4 - 0.5 * distance) + noise)
                    updates = np.arange(1, 31) * 10_000.0
                    curve = level * 4000 * (1 - np.exp(-updates / 80_000)) + rng.normal(0, 120, 30)
                    phase = (
                        np.where(updates <= EXPERT_UPDATES, EXPERT, "adapter") if method == "rma" else ["train"] * 30
                    )
                    fill(part.curves, name, seed, Curve(updates, curve, np.array(phase)))
                    fill(part.traces, name, seed, trace(method, level, rng))
                    if method in ADAPTERS:
                        psi = (contexts - space.centre) / space.half_range
                        fill(part.latents, name, seed, Latents(psi, psi + rng.normal(0, 0.1, psi.shape)))
        parts[env] = part
    manifest: dict[str, Any] = {
        "suite": "made", "title": "Made-up numbers", "about": "For tests.", "updates": UPDATES,
        "grid": grid, "episodes": 1, "made": "2026-01-01T00:00:00+00:00",
        "contexts": {env: get_env(env).context_space.to_dict() for env in envs},
        "reference": {
            "title": "paper, 5 seeds", "updates": 3_000_000,
            "ood": {env: {name: [4000 * level, 100.0] for name, level in METHODS.items()} for env in envs},
        },
        "commands": [f"sparc suite run made --updates {UPDATES} --seeds 0 1 2", "sparc suite report made"],
        "members": members,
    }  # fmt: skip
    return Results(manifest, parts)


def trace(method: str, level: float, rng: np.random.Generator) -> Trace:
    """A reward that drops at the switch and comes back within about twenty steps."""
    step = np.tile(np.arange(-100, 400), 2).astype(float)
    region = np.repeat(["ind", "ood"], 500)
    after = np.where(step >= 0, np.exp(-np.maximum(step, 0) / 20), 0.0)
    reward = level * 4 * (1 - 0.6 * after) * np.where(region == "ood", 0.8, 1.0) + rng.normal(0, 0.1, 1000)
    distance = 0.1 + 0.9 * after if method in ADAPTERS else np.full(1000, np.nan)
    return Trace(region, step, reward, distance, np.full(1000, 16.0))


def member(env: str, method: str, variation: str, seed: int, state: str) -> dict[str, Any]:
    """A manifest's entry."""
    done = state == "done"
    return {
        "env": env, "method": method, "variation": variation, "seed": seed, "state": state,
        "note": "" if done else "not started",
        "run": f"{env}/{method}{f'-{variation}' if variation else ''}/seed{seed}",
        "updates": UPDATES if done else 0, "checkpoint": UPDATES - 10_000 if done else None,
        "train_seconds": 1650.0 if done else None, "config": {"history_length": 50}, "versions": {"jax": "0.10.0"},
        "machine": {"processor": "a processor", "cores": 1},
    }  # fmt: skip


def fill(by_member: dict[str, dict[int, Any]], name: str, seed: int, value: Any) -> None:
    """Put a value in its place."""
    by_member.setdefault(name, {})[seed] = value
