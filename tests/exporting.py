"""Policies of every kind for tests of exports: built from a Spec with large weights, and trained on the boat."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import sparc
from sparc.acting.policy import Policy
from sparc.deploy import runtime
from sparc.deploy.contract import describe_policy
from sparc.methods.build import build_policy
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.load import POLICY_NAME
from sparc.runs.run import Run

# Enough to choose actions that are not zero, on networks that compile fast.
LIGHT: dict[str, Any] = {
    "width": 32, "latent": 16, "history_length": 12, "updates": 1_500, "random_steps": 500, "num_envs": 10,
    "replay_capacity": 20_000, "evaluate_every": 1_500, "log_every": 500, "chunk": 50, "learning_rate": 3e-3,
}  # fmt: skip
SPEC = Spec(
    obs_size=5,
    action_size=3,
    context_centre=(0.5, -1.0),
    context_half_range=(2.0, 0.5),
    context_names=("x", "z"),
    context_units=("N", "N"),
    action_low=(-1.0, 0.0, -3.0),
    action_high=(1.0, 2.0, 5.0),
    history_length=50,
    width=24,
    latent=16,
    observation_clip=5.0,
    reads="history",
    encoder="history-adapter",
)
SPECS = {
    "history": SPEC,
    "history, not standardised": dataclasses.replace(SPEC, observation_clip=None, history_length=7),
    "observation": dataclasses.replace(SPEC, reads="nothing", encoder="none"),
    "context": dataclasses.replace(SPEC, reads="context", encoder="raw-context"),
    "encoded context": dataclasses.replace(SPEC, reads="context", encoder="context-encoder"),
}


class Pair:
    """The same policy in JAX and in NumPy."""

    def __init__(self, spec: Spec, seed: int = 0):
        actor, _ = build_policy(spec, np.random.default_rng(seed))
        # Larger than at the start of training: outputs that are all near zero would be equal too easily.
        actor = jax.tree.map(lambda leaf: leaf * 2.0 if leaf.ndim == 2 else leaf, actor)
        if actor.norm is not None:
            rng = np.random.default_rng(seed + 1)
            moments = rng.normal(size=spec.obs_size), rng.uniform(0.0, 4.0, spec.obs_size) ** 2
            mean, variance = (jax.numpy.asarray(part, jax.numpy.float32) for part in moments)
            variance = variance.at[0].set(0.0)  # an element that never moved
            actor = eqx.tree_at(lambda actor: (actor.norm.mean, actor.norm.variance), actor, (mean, variance))
        self.jax = Policy(actor, spec)
        self.weights = checkpoint.flatten(actor, POLICY_NAME)
        self.contract = describe_policy(spec)
        self.numpy = runtime.Policy(self.contract, self.weights)


def train_on_boat(method: str, folder: Path) -> Run:
    """Train a method for some seconds."""
    options = LIGHT | ({"updates": 2_500, "expert_updates": 1_500} if method == "rma" else {})
    return Run.open(sparc.train(method, "DriftingBoat-v0", preset="light", run_dir=folder, **options))
