"""How one trained run adapts: what a switch of the context in mid-episode does, and where φ(h) lies on ψ's map.

evaluations/<updates>-trace.csv    a row per region and step around the switch, means over the episodes still running
evaluations/<updates>-latents.csv  a row per context of the grid; only of methods with an adapter
evaluations/<updates>-adaptation.json  the seal, written last: the grid, the rows of both, why there is no trace
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparc.acting.episodes import Episodes, Step
from sparc.arrays import Array
from sparc.contexts import ContextSpace, Finite
from sparc.envs.contextual import ProgressCall
from sparc.envs.registry import get_env, make_vector_env
from sparc.machine import usable_cores

if TYPE_CHECKING:  # these bring JAX
    from sparc.acting.policy import Policy
    from sparc.methods.nets import ContextEncoder


@dataclass(frozen=True)
class Trace:
    """What a switch of the context in mid-episode does, averaged over several switches, to IND and to OOD contexts."""

    region: NDArray[np.str_]  # (T,) "ind" or "ood": where the new context lies
    step: Array  # (T,) since the switch: negative before it
    reward: Array  # (T,)
    distance: Array  # (T,) of φ(h) from ψ(c), relative to the spread of ψ over the contexts; NaN without an adapter
    rows: Array  # (T,) episodes still running


@dataclass(frozen=True)
class Latents:
    """The encodings over the grid of contexts, on the first two principal components of ψ(c)."""

    psi: Array  # (M, 2) of the true context
    phi: Array  # (M, 2) guessed from history, mean over the episode's second half


SWITCHES = 16  # to IND contexts, and as many to OOD ones
VISIBLE = 0.5  # a switch changes some feature by at least so much of its training range, where contexts allow it
DRAWS = 256  # pairs of contexts to choose each switch from
BEFORE, AFTER = 100, 400  # steps kept around the switch, where the episode has them
SPREAD_GRID = 21  # cells per feature over which the spread of ψ is measured: the unit of distance

NO_TRACE = Trace(np.empty(0, np.str_), *np.empty((4, 0)))


# Switches


class Switches(NamedTuple):
    """Contexts before and after a switch, and where the new one lies."""

    before: Array  # (R, C), all IND
    after: Array  # (R, C)
    region: NDArray[np.str_]  # (R,) "ind" or "ood"


def switches(space: ContextSpace, n: int = SWITCHES, seed: int = 0) -> Switches:
    """Draw n switches from IND to IND and n from IND to OOD contexts, as many as there can be, always the same.

    Each changes some feature by at least half its training range; where contexts lie closer, the largest changes count.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for region in ("ind", "ood"):
        after = space.sample(rng, DRAWS * n) if region == "ind" else draw_outside(space, rng, DRAWS * n)
        before = space.sample(rng, len(after))
        change = np.abs((after - before) / (2 * space.half_range)).max(axis=1)
        chosen = np.argsort(-np.minimum(change, VISIBLE), kind="stable")[:n]  # those large enough in their drawn order
        chosen = chosen[change[chosen] > 0]
        parts.append((before[chosen], after[chosen], np.full(len(chosen), region)))
    before, after, regions = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Switches(before, after, regions)


def draw_outside(space: ContextSpace, rng: np.random.Generator, n: int) -> Array:
    """Draw up to n OOD contexts."""
    if isinstance(space.test, Finite):
        outside = space.test.values[~space.is_train(space.test.values)]
        return outside[rng.integers(len(outside), size=n)] if len(outside) else outside
    drawn = space.test.sample(rng, n)
    return drawn[~space.is_train(drawn)]


# Rollouts


def rollout(
    policy: Policy,
    env: str,
    before: Array,
    steps: int,
    after: Array | None = None,
    switch: int = 0,
    seed: int = 0,
    progress: ProgressCall | None = None,
    **env_options: Any,
) -> Iterator[Step]:
    """Run one episode per context for at most so many steps, under `after` from step `switch` on.

    Between two steps, `policy.latent` is what its encoder made of the last one.
    """
    venv = make_vector_env(env, len(before), threads=usable_cores(), **env_options)
    try:
        episodes = Episodes(policy, venv, before, seed)
        while episodes.running.any() and episodes.steps < steps:
            if after is not None and episodes.steps == switch:
                episodes.switch(after)
            yield episodes.step()
            if progress:
                progress(episodes.steps, steps)
    finally:
        policy.reset()
        for note in venv.take_notes():
            warnings.warn(note, stacklevel=2)
        venv.close()


def episode_limit(env: str, env_options: dict[str, Any]) -> int:
    """Return the most steps an episode can have."""
    return int(env_options.get("max_episode_steps") or get_env(env).max_episode_steps)


def encode(psi: ContextEncoder, contexts: Array) -> Array:
    """Return ψ(c) for contexts (M, C) as (M, Z)."""
    from sparc.methods.nets import Inputs

    return np.asarray(psi(Inputs(None, context=contexts.astype(np.float32))), np.float64)


# What is measured


def spread(latent: Array) -> float:
    """Return the root-mean-square distance of latents (M, Z) from their mean; NaN if they are all the same."""
    value = float(np.sqrt(np.square(latent - latent.mean(axis=0)).sum(axis=1).mean()))
    return value if value > 0 else np.nan


def trace(
    policy: Policy,
    psi: ContextEncoder | None,
    env: str,
    n: int = SWITCHES,
    seed: int = 0,
    progress: ProgressCall | None = None,
    **env_options: Any,
) -> Trace:
    """Switch the context in the middle of the episode; average reward and distance of φ(h) from ψ(c) at each step.

    c is the context in force. A distance of 1 is that of always guessing the average ψ(c) of the test region.
    """
    space, limit = get_env(env).context_space, episode_limit(env, env_options)
    switch = limit // 2
    first, last = max(0, switch - BEFORE), min(limit, switch + AFTER)
    chosen = switches(space, n, seed)
    if psi is not None:
        old, new = encode(psi, chosen.before), encode(psi, chosen.after)
        unit = spread(encode(psi, space.grid(SPREAD_GRID)))
    records: dict[str, list[tuple[float, ...]]] = {name: [] for name in dict.fromkeys(chosen.region.tolist())}
    if records:
        run = rollout(policy, env, chosen.before, last, chosen.after, switch, seed, progress, **env_options)
        for step, now in enumerate(run):
            if step < first:
                continue
            distance = np.full(len(chosen.region), np.nan)
            if psi is not None:
                distance = np.linalg.norm(policy.latent - (new if step >= switch else old), axis=1) / unit
            for name, record in records.items():
                rows = now.running & (chosen.region == name)
                if rows.any():
                    record.append((step - switch, now.reward[rows].mean(), distance[rows].mean(), rows.sum()))
    regions = np.array([name for name, record in records.items() for _ in record], np.str_)
    columns = np.array([line for record in records.values() for line in record], np.float64).reshape(-1, 4).T
    return Trace(regions, *columns)


def latents(
    policy: Policy,
    psi: ContextEncoder | None,
    env: str,
    contexts: Array,
    seed: int = 0,
    progress: ProgressCall | None = None,
    **env_options: Any,
) -> Latents | None:
    """Put ψ(c), and φ(h) averaged over the second half of an episode, on ψ's first two principal components.

    None without an adapter. The second half is that of the steps which an episode lasted.
    """
    if psi is None:
        return None
    space, limit = get_env(env).context_space, episode_limit(env, env_options)
    truth = encode(psi, contexts)
    axes = principal_axes(truth, (contexts - space.centre) / space.half_range)
    run = rollout(policy, env, contexts, limit, seed=seed, progress=progress, **env_options)
    steps = [(now.running, (policy.latent - truth.mean(axis=0)) @ axes) for now in run]
    running, guess = (np.stack(column) for column in zip(*steps, strict=True))  # (T, M), (T, M, 2)
    late = running & (np.arange(len(running))[:, None] >= running.sum(axis=0) // 2)
    phi = np.where(late[..., None], guess, 0.0).sum(axis=0) / late.sum(axis=0)[:, None]
    return Latents((truth - truth.mean(axis=0)) @ axes, phi)


def principal_axes(latent: Array, contexts: Array) -> Array:
    """Return the directions (Z, 2) in which latents (M, Z) vary most.

    Each points to where the context feature that varies most along it grows, in scaled contexts (M, C).
    """
    centred = latent - latent.mean(axis=0)
    found = np.linalg.svd(centred, full_matrices=False)[2][:2].T
    axes = np.zeros((latent.shape[1], 2))
    axes[:, : found.shape[1]] = found
    together = (contexts - contexts.mean(axis=0)).T @ (centred @ axes)  # (C, 2)
    dominant = np.take_along_axis(together, np.abs(together).argmax(axis=0)[None], axis=0)[0]
    return axes * np.where(dominant < 0, -1.0, 1.0)
