"""How a stage begins: in its own region, from the parent's networks, with numbers that the parent has not drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparc.acting.inference import ContextEstimator
from sparc.acting.policy import infer
from sparc.contexts import ContextSpace
from sparc.envs import guard
from sparc.envs.contextual import ContextualVectorEnv
from sparc.errors import UserError
from sparc.methods.nets import ContextEncoder
from sparc.methods.qr_sac import QrSac, State, replace
from sparc.runs import checkpoint
from sparc.runs.load import restored
from sparc.runs.run import Run

Estimate = Callable[[np.ndarray], np.ndarray]  # histories (N, H, O+A) → contexts (N, C)
GUARD_TOLERANCE = 0.01  # of the parent's value in a stage: evaluations of equally good policies differ by so much


def use_stage(venv: ContextualVectorEnv, run: Run) -> None:
    """Let environments draw contexts from the run's own stage, where that is not the environment as it is."""
    if run.lineage.to_dict():
        use_space(venv, run.config.env, run.space)


def use_space(venv: ContextualVectorEnv, env: str, space: ContextSpace) -> None:
    """Let environments draw contexts from another space; refuse those whose space cannot be set."""
    try:
        venv.use_space(space)
    except AttributeError as error:
        raise UserError(
            f"{env} cannot train on another region, its context_space cannot be set ({error}): make it a plain "
            "attribute."
        ) from error


def check_contexts(venv: ContextualVectorEnv, run: Run) -> None:
    """Refuse an environment whose contexts, once drawn, are not of the region that `use_stage` has set."""
    if run.lineage.to_dict():
        guard.check_region(venv)


def stage_seed(run: Run) -> int:
    """Return the seed of a stage; a child must not draw its parent's noise and minibatches again."""
    seed, number = run.config.seed, run.lineage.number
    return seed if number == 1 else int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def inherited(method: QrSac, parent: Path) -> State:
    """Return the state of the parent's checkpoint with learning rates that begin their schedule anew.

    Adam's moments are kept: with empty ones, the first steps would be of full length whatever the gradient. The
    statistics of observations are frozen from here on. Were they to follow the new region, the policy would change
    although nothing was learned: an Oracle on HalfCheetah lost a fifth of its return while its weights were held.
    """
    state = restored(method, checkpoint.load(parent)[0])

    def is_count(node: object) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def from_zero(node: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32)) if is_count(node) else node

    norm = None if state.norm is None else state.norm.frozen()
    return replace(state, optimisers=jax.tree.map(from_zero, state.optimisers, is_leaf=is_count), norm=norm)


def unknown_contexts(run: Run, method: QrSac, state: State) -> Estimate | None:
    """Return how a run labels its steps; None where contexts are known, as in all runs but stages without them."""
    parent = run.lineage.parent
    return context_estimate(method, state, run.space) if parent is not None and parent.no_context else None


def context_estimate(method: QrSac, state: State, space: ContextSpace) -> Estimate:
    """Return how a stage without known contexts labels its steps: φ(h), read back through ψ.

    Both stay as they are in `state`, at the beginning of the stage: labels that moved with the networks could drift.
    """
    adapter, psi = jax.tree.map(jnp.copy, method.policy(state)), method.psi(state)  # updates donate the state's buffers
    assert isinstance(psi, ContextEncoder)
    estimator = ContextEstimator(psi, space)

    def estimate(history: np.ndarray) -> np.ndarray:
        return estimator.estimate(infer(adapter, history))

    return estimate


def not_worse(values: Sequence[float], before: Sequence[float]) -> bool:
    """Return whether no stage has a value that is worse than before by more than GUARD_TOLERANCE."""
    pairs = zip(values, before, strict=True)
    return all(value >= old - GUARD_TOLERANCE * abs(old) for value, old in pairs)
