"""`sparc.load`: a policy from a run, from an export, or by the name of one that comes with sparc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from sparc.acting.policy import Policy
from sparc.contexts import Box, ContextSpace
from sparc.deploy import runtime
from sparc.deploy.contract import Contract, describe_policy, spec_of
from sparc.deploy.export import Exported, from_folder
from sparc.deploy.library import policy_folder
from sparc.envs.registry import get_env
from sparc.errors import UserError, unknown
from sparc.methods.build import build_policy
from sparc.methods.nets import ContextEncoder
from sparc.runs import checkpoint
from sparc.runs.load import POLICY_NAME, PSI_NAME, load_with_psi
from sparc.runs.run import Run

BACKENDS = ("jax", "numpy")
VIDEOS = Path("videos")  # of policies that have no run directory


@dataclass(frozen=True)
class Source:
    """Where a policy comes from, and what is known of it before it is loaded."""

    name: str  # of its folder
    home: Path  # where what is made with it belongs
    method: str
    seed: int
    env: str
    env_options: dict[str, Any]
    updates: int
    load: Callable[[], tuple[Policy, ContextEncoder | None]]  # the policy, and the ψ that its φ learned to guess
    space: Callable[[], ContextSpace]  # the contexts that it was trained on, in all of its stages


def open_source(source: str | Path, which: str | int | None = None) -> Source:
    """Find a policy: a checkpoint of a run, by default its best; an export; or one that comes with sparc."""
    folder = policy_folder(source)
    if folder is None:
        run = Run.open(source)
        number, config = run.choose("best" if which is None else which), run.config
        about = config.method, config.seed, config.env, config.env_options
        made = run.path / "videos"
        return Source(run.path.name, made, *about, number, lambda: load_with_psi(run, number), lambda: run.space)
    exported = from_folder(folder)
    contract = exported.contract
    if which is not None:
        raise UserError(
            f"{source} is an exported policy, of checkpoint {contract['checkpoint']} alone: only runs have others to "
            f"choose, so leave '{which}' out."
        )
    trained = contract["method"], contract["seed"], contract["env"], contract["env_options"], contract["checkpoint"]
    return Source(folder.name, VIDEOS, *trained, lambda: rebuild(exported), lambda: exported_space(contract))


def open_sources(sources: Sequence[str | Path], which: str | int | None = None) -> list[Source]:
    """Find several policies, which must be of one environment."""
    found = [open_source(source, which) for source in sources]
    first = get_env(found[0].env).id
    for source in found[1:]:
        if (other := get_env(source.env).id) != first:
            raise UserError(
                f"{source.name} was trained in {other}, not in {first}: only policies of one environment are compared."
            )
    return found


def exported_space(contract: Contract) -> ContextSpace:
    """Return the contexts that an exported policy was trained on, in all of its stages.

    Of a finite set a contract has only the bounds: then they are taken to be the environment's own.
    """
    space, context = get_env(contract["env"]).context_space, contract["context"]
    regions = [*context.get("earlier", []), *([context["train"]] if "train" in context else [])]
    if not regions or not isinstance(space.train, Box):
        return space
    first, *later = (space.with_train(Box(region["low"], region["high"])) for region in regions)
    return reduce(ContextSpace.continued, later, first)


def rebuild(exported: Exported) -> tuple[Policy, ContextEncoder | None]:
    """Build an exported policy in JAX again, and its ψ."""
    spec, weights = spec_of(exported.contract), exported.weights
    actor, psi = build_policy(spec, np.random.default_rng(0))  # every number is replaced
    policy = Policy(checkpoint.unflatten(actor, weights, POLICY_NAME), spec)
    psi = checkpoint.unflatten(psi, weights, PSI_NAME)
    return policy, psi if isinstance(psi, ContextEncoder) else None


def load(source: str | Path, which: str | int | None = None, backend: str = "jax") -> Any:
    """Load a policy, without its environment, simulator or optimiser.

    Args:
        source: a run directory, the folder of an export, or a policy that comes with sparc, "sparc://DriftingBoat-v0";
            `sparc policies` lists them.
        which: the checkpoint of a run: "best" (as by default), "last" or its number of updates. An export has only
            one, and none can be chosen.
        backend: "jax", or "numpy" for the runtime that exports have: faster for few rows, without noise keys.

    Returns:
        A policy that acts for one environment or for many at once: `policy.act(obs)`, `policy.reset(mask)`.

    Raises:
        UserError: there is no such run, export, policy or checkpoint, or its environment has changed since.
        RunFailure: the checkpoint is damaged.

    Example:
        >>> policy = sparc.load("runs/DriftingBoat-v0/sparc/seed1")
        >>> action = policy.act(obs)
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    policy, _ = open_source(source, which).load()
    if backend == "jax":
        return policy
    return runtime.Policy(describe_policy(policy.spec), checkpoint.flatten(policy.actor, POLICY_NAME))
