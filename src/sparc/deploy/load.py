"""`sparc.load`: a policy from a run, from an export, or by the name of one that comes with sparc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sparc.acting.policy import Policy
from sparc.deploy import runtime
from sparc.deploy.contract import describe_policy, spec_of
from sparc.deploy.export import from_folder
from sparc.deploy.library import policy_folder
from sparc.errors import UserError
from sparc.methods.build import build_policy
from sparc.methods.nets import ContextEncoder
from sparc.runs import checkpoint
from sparc.runs.load import POLICY_NAME, PSI_NAME, load_with_psi
from sparc.runs.run import Run

BACKENDS = ("jax", "numpy")


def load(source: str | Path, which: str | int = "best", backend: str = "jax") -> Any:
    """Load a policy: of a run (its best checkpoint, the last one, or one by its number of updates), of an export's
    folder, or one that comes with sparc, as in "sparc://DriftingBoat-v0".

    With backend="numpy" it is the runtime that exports have: faster for few rows, without noise keys.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend must be {' or '.join(BACKENDS)}, not '{backend}'.")
    policy, _ = load_any(source, which)
    if backend == "jax":
        return policy
    return runtime.Policy(describe_policy(policy.spec), checkpoint.flatten(policy.actor, POLICY_NAME))


def load_any(source: str | Path, which: str | int = "best") -> tuple[Policy, ContextEncoder | None]:
    """Load a policy and the ψ that its φ learned to guess; None where no adapter acts."""
    folder = policy_folder(source)
    if folder is None:
        run = Run.open(source)
        return load_with_psi(run, run.choose(which))
    contract, weights, _ = from_folder(folder)
    actor, psi = build_policy(spec_of(contract), np.random.default_rng(0))  # every number is replaced
    policy = Policy(checkpoint.unflatten(actor, weights, POLICY_NAME), spec_of(contract))
    psi = checkpoint.unflatten(psi, weights, PSI_NAME)
    return policy, psi if isinstance(psi, ContextEncoder) else None
