"""`sparc.load`: a policy from a run, from an export, or by the name of one that comes with sparc."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparc.acting.policy import Policy
from sparc.deploy import runtime
from sparc.deploy.contract import describe_policy, spec_of
from sparc.deploy.export import Exported, from_folder
from sparc.deploy.library import policy_folder
from sparc.errors import unknown
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


def open_source(source: str | Path, which: str | int = "best") -> Source:
    """Find a policy: the checkpoint of a run, an export, or one that comes with sparc by its name."""
    folder = policy_folder(source)
    if folder is None:
        run = Run.open(source)
        number, config = run.choose(which), run.config
        about = config.method, config.seed, config.env, config.env_options
        return Source(run.path.name, run.path / "videos", *about, number, lambda: load_with_psi(run, number))
    exported = from_folder(folder)
    contract = exported.contract
    trained = contract["method"], contract["seed"], contract["env"], contract["env_options"], contract["checkpoint"]
    return Source(folder.name, VIDEOS, *trained, lambda: rebuild(exported))


def rebuild(exported: Exported) -> tuple[Policy, ContextEncoder | None]:
    """Build an exported policy in JAX again, and its ψ."""
    spec, weights = spec_of(exported.contract), exported.weights
    actor, psi = build_policy(spec, np.random.default_rng(0))  # every number is replaced
    policy = Policy(checkpoint.unflatten(actor, weights, POLICY_NAME), spec)
    psi = checkpoint.unflatten(psi, weights, PSI_NAME)
    return policy, psi if isinstance(psi, ContextEncoder) else None


def load(source: str | Path, which: str | int = "best", backend: str = "jax") -> Any:
    """Load a policy: of a run (its best checkpoint, the last one, or one by its number of updates), of an export's
    folder, or one that comes with sparc, as in "sparc://DriftingBoat-v0".

    With backend="numpy" it is the runtime that exports have: faster for few rows, without noise keys.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    policy, _ = open_source(source, which).load()
    if backend == "jax":
        return policy
    return runtime.Policy(describe_policy(policy.spec), checkpoint.flatten(policy.actor, POLICY_NAME))
