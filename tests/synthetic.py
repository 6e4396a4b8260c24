"""Results and a driver with known properties: training real ones would take days."""

from typing import Any

import numpy as np

from sparc.acting.adaptation import Latents, Trace
from sparc.contexts import ContextSpace, Finite
from sparc.envs.registry import get_env
from sparc.methods import all_methods
from sparc.report.figures.style import Style, method_style
from sparc.suites.results import Curve, EnvResults, Results, label
from sparc.suites.tables import by_label

ENVS = ("WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5")
METHODS = {"sparc": 1.0, "rma": 0.9, "only-obs": 0.6, "history-input": 0.85, "oracle": 1.1}  # level of the returns
ADAPTERS = ("sparc", "rma")
UPDATES, EXPERT_UPDATES = 300_000, 220_000
STYLES: dict[str, Style] = {name: look for name in METHODS if (look := method_style(all_methods()[name]))}


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
                        np.where(updates <= EXPERT_UPDATES, "expert", "adapter") if method == "rma" else ["train"] * 30
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


POWER_MASS, CARS = "RacePowerMass-forza-v0", "RaceCars-forza-v0"
SKILL = {"sparc": 0.95, "rma": 0.8, "only-obs": 0.55, "history-input": 0.75, "oracle": 1.0}  # of the drivers
CLASSES = ("kart", "kei", "rally", "formula", "van")


def make_races(
    envs: tuple[str, ...] = (POWER_MASS, CARS),
    methods: dict[str, float] | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    grid: int = 21,
    cars: int = 60,
    gaps: tuple[tuple[str, str, int], ...] = (),
    variations: tuple[str, ...] = ("",),
    variants: tuple[str, ...] = (),
) -> Results:
    """Make laps that are slower and fail more often the harder the context is and the less skilled the driver."""
    methods = SKILL if methods is None else methods
    rng = np.random.default_rng(0)
    parts, members = {}, []
    for env in envs:
        space, named = race_space(env, cars, grid)
        contexts = space.grid(grid)
        ind = space.is_train(contexts)
        criteria = get_env(env).criteria
        others = {name: EnvResults(space, contexts, ind, context_labels=named, criteria=criteria) for name in variants}
        part = EnvResults(space, contexts, ind, context_labels=named, variants=others, criteria=criteria)
        hard = np.abs((contexts[:, 0] - space.centre[0]) / space.half_range[0] + 0.2) / 2  # about 1 at the far edge
        reference = 95 + 20 * contexts[:, 1] - 10 * contexts[:, 0]
        for method, skill in methods.items():
            for variation in variations:
                for seed in seeds:
                    missing = (env, method, seed) in gaps
                    members.append(member(env, method, variation, seed, "missing" if missing else "done"))
                    if missing:
                        continue
                    name = label(method, variation)
                    for tested, harder in ((part, 1.0), *((other, 1.5) for other in others.values())):
                        risk = (1.3 - skill) * harder * hard + rng.normal(0, 0.02)
                        measured = drive(reference, risk, rng)
                        fill(tested.measures, name, seed, measured)
                        fill(tested.returns, name, seed, 400 * (2.2 - measured["ratio"]))
                    updates = np.arange(1, 21) * 2_500.0
                    curve = 400 * skill * (1 - np.exp(-updates / 15_000))
                    learnt = np.minimum(curve / 400 + np.random.default_rng(seed).normal(0, 0.02, 20), 1.0)
                    laps = {"clean": np.clip(learnt, 0, 1), "ratio": 2.0 - learnt}
                    fill(part.curves, name, seed, Curve(updates, curve, np.full(20, "train"), laps))
        parts[env] = part
    laps = {
        test: {
            region: {
                name: {"ratio": [1.5 - skill / 2, 0.01], "completed": [100 * skill]} for name, skill in SKILL.items()
            }
            for region in ("ood", "ind")
        }
        for test in Results({}, parts).parts
    }
    manifest: dict[str, Any] = {
        "suite": "raced", "title": "Made-up laps", "about": "For tests.", "updates": 50_000,
        "grid": grid, "episodes": 1, "variants": list(variants), "made": "2026-01-01T00:00:00+00:00",
        "contexts": {env: part.space.to_dict() for env, part in parts.items()},
        "labels": {
            env: part.context_labels for env, part in parts.items() if by_label(part.space, part.context_labels)
        },
        "reference": {
            "title": "paper, another game, 3 seeds", "updates": 9_000_000, "note": "Not comparable.", "measures": laps,
        },
        "commands": ["sparc suite run raced", "sparc suite report raced"], "members": members,
    }  # fmt: skip
    return Results(manifest, parts)


def race_space(env: str, cars: int, grid: int) -> tuple[ContextSpace, list[str]]:
    """The contexts of a race, and the names of its cars."""
    if env.startswith("RacePowerMass"):
        factors: Any = ("×", (0.75, 1.25), (0.5, 1.5))
        space = ContextSpace.box(power=factors, mass=factors)
        return space, [f"power ×{power:.2f} mass ×{mass:.2f}" for power, mass in space.grid(grid)]
    values = np.random.default_rng(1).uniform(0.5, 1.5, (cars, 6))
    values[: cars // 5, 0] += 1.0  # the outliers
    names = [f"{CLASSES[car % len(CLASSES)]}-{car:02d} sports-medium" for car in range(cars)]
    features = ("power", "mass", "length", "width", "drag", "grip")
    return ContextSpace(features, ("",) * 6, Finite(values[cars // 5 :]), Finite(values)), names


def drive(reference: np.ndarray, risk: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A lap per context, as an evaluation measures it."""
    luck = rng.uniform(size=len(reference))
    completed, clean = luck > np.clip(risk, 0, 1) ** 2, luck > np.clip(1.3 * risk, 0, 1)
    ratio = 0.97 + 0.2 * np.clip(risk, 0, None) + rng.normal(0, 0.005, len(reference))
    return {
        "completed": completed.astype(float),
        "clean": (clean & completed).astype(float),
        "lap_time": np.where(completed, ratio * reference, np.nan),
        "reference": reference,
        "ratio": np.where(completed, ratio, 2.0),
        "completed_ratio": np.where(completed, ratio, np.nan),
    }


class Pilot:
    """A policy for races that follows the centre line, by the offset, heading error and speed that it sees."""

    reads = "obs"

    def reset(self) -> None: ...

    def act(self, obs: np.ndarray, context: Any = None) -> np.ndarray:
        steer = np.clip(-0.4 * obs[:, 15] - 0.5 * obs[:, 14], -1, 1)
        return np.stack([steer, np.where(obs[:, 0] * 20 < 26, 0.5, -0.2)], axis=1).astype(np.float32)


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
