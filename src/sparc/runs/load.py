"""From a run directory back to a policy: which checkpoint, and how its arrays become networks again.

A checkpoint describes its own policy by a Spec, so no environment, simulator or optimiser is needed to load one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from sparc.acting.policy import Policy
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.registry import EnvEntry, get_env, make_vector_env
from sparc.errors import UserError
from sparc.methods import get_method
from sparc.methods.build import build_policy
from sparc.methods.nets import Actor, ContextEncoder, Encoder
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.run import Run

if TYPE_CHECKING:  # brings the optimisers
    from sparc.methods.qr_sac import QrSac, State

POLICY_NAME, PSI_NAME = "policy", "psi"  # what the names of their arrays begin with


def load(run_dir: str | Path, which: str | int = "best") -> Policy:
    """Load a run's policy; `sparc.load` takes exports and policies by name as well."""
    run = Run.open(run_dir)
    return load_with_psi(run, run.choose(which))[0]


def load_with_psi(run: Run, number: int) -> tuple[Policy, ContextEncoder | None]:
    """Load a checkpoint's policy and the ψ that its φ learned to guess; None where no adapter acts."""
    policy, psi = load_both(run, number)
    return policy, psi if isinstance(psi, ContextEncoder) else None


def load_expert(run: Run, number: int) -> Policy | None:
    """Load the expert beside a checkpoint's policy: the same trunk, with ψ(c) of the true context in the place of φ(h).

    None where no adapter acts.
    """
    policy, psi = load_both(run, number)
    if psi is None or policy.spec.psi is None:
        return None
    spec = dataclasses.replace(policy.spec, reads=psi.reads, encoder=policy.spec.psi, psi=None)
    return Policy(Actor(policy.actor.trunk, psi, policy.actor.norm), spec)


def load_both(run: Run, number: int) -> tuple[Policy, Encoder | None]:
    """Load a checkpoint's policy and the encoder of its expert, of whatever kind."""
    folder = run.checkpoints / str(number)
    meta = checkpoint.load_meta(folder)
    run.check_config(number, meta["config"])
    if (entry := find_env(run.config.env)) is not None:
        check_env(run, meta, entry)
    return load_policy(folder, meta) if "spec" in meta else load_from_state(run, folder)


def load_policy(folder: Path, meta: checkpoint.Meta) -> tuple[Policy, Encoder | None]:
    """Rebuild a policy and its ψ from a checkpoint's Spec and policy arrays."""
    arrays = checkpoint.read_arrays(folder, checkpoint.POLICY, meta)
    try:
        spec = Spec.from_dict(meta["spec"])
    except ValueError as error:
        raise checkpoint.damaged(folder, error) from error
    actor, psi = build_policy(spec, np.random.default_rng(0))  # every number is replaced
    return (
        Policy(checkpoint.unflatten(actor, arrays, POLICY_NAME), spec),
        checkpoint.unflatten(psi, arrays, PSI_NAME),
    )


def load_from_state(run: Run, folder: Path) -> tuple[Policy, Encoder | None]:
    """Rebuild a policy and its ψ from a checkpoint of format 1, which holds nothing but the state of training."""
    arrays, meta = checkpoint.load(folder)
    venv = make_vector_env(run.config.env, 1, **run.config.env_options)
    method = get_method(run.config.method)(run.config, make_spec(venv), meta["phase"])
    venv.close()
    state = restored(method, arrays)
    return Policy(method.policy(state), method.describe(state)), method.psi(state)


def policy_arrays(method: QrSac, state: State) -> checkpoint.Arrays:
    """Return the arrays of a checkpoint's policy, and of its ψ, which `load_policy` reads."""
    policy = checkpoint.flatten(method.policy(state), POLICY_NAME)
    return policy | checkpoint.flatten(method.psi(state), PSI_NAME)


def find_env(id: str) -> EnvEntry | None:
    """Return the entry of an environment with its contexts; None where it is not installed or cannot be imported."""
    try:
        entry = get_env(id)
        entry.context_space  # noqa: B018 (made when it is first asked for)
    except Exception:  # whatever its module raises: a policy can act where its environment cannot run
        return None
    return entry


def check_env(run: Run, meta: checkpoint.Meta, entry: EnvEntry) -> None:
    """Refuse a run whose environment has changed since: other contexts to train on, other actions or rewards."""
    if meta.get("lineage", {}) != run.lineage.to_dict():
        raise UserError(
            f"{run.path / 'config.yaml'} has other stages, or continues its parent otherwise, than checkpoint "
            f"{meta['updates']} was trained with: put them back."
        )
    if meta.get("contexts", now := run.lineage.space(entry).fingerprint()) != now:
        what = "had other contexts to train on"
    elif (old := meta.get("revision", 1)) != entry.revision:
        what = (
            f"was at revision {old}, and it is at {entry.revision}: its actions, observations or rewards have changed"
        )
    else:
        return
    raise UserError(
        f"{run.path} was trained when {run.config.env} {what}. Use the version of sparc, or of the environment's file, "
        "that it was made with, or train it anew."
    )


def restored(method: QrSac, arrays: checkpoint.Arrays) -> State:
    """Put a checkpoint's networks and optimisers into a state of the method."""
    state: State = checkpoint.unflatten(method.init(np.random.default_rng(0)), arrays, "state")
    return state


def make_spec(venv: ContextualVectorEnv) -> Spec:
    """Return the environment's part of a Spec: sizes, action bounds, and the names and scale of its contexts."""
    observation, action, contexts = venv.single_observation_space, venv.single_action_space, venv.context_space
    assert isinstance(observation, spaces.Box) and isinstance(action, spaces.Box)
    return Spec(
        obs_size=observation.shape[0],
        action_size=action.shape[0],
        context_centre=tuple(contexts.centre.tolist()),
        context_half_range=tuple(contexts.half_range.tolist()),
        context_names=contexts.names,
        context_units=contexts.units,
        action_low=tuple(action.low.tolist()),
        action_high=tuple(action.high.tolist()),
        action_dtype=str(action.dtype),
    )
