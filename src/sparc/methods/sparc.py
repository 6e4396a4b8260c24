"""SPARC: single-phase adaptation for robust control."""

import numpy as np
from jax import Array

from sparc.methods.batch import Batch
from sparc.methods.nets import Actor, ContextEncoder
from sparc.methods.qr_sac import Metrics, QrSac, State, Weights


class Sparc(QrSac):
    """Algorithm 1: the adapter drives, the expert learns from what it saw, and φ(h) chases ψ(c) in the same phase."""

    has_adapter = True

    def encoder(self, rng: np.random.Generator) -> ContextEncoder:
        """ψ(c)."""
        return self.context_encoder(rng)

    def update(self, state: State, batch: Batch, key: Array, improve: bool = True) -> tuple[State, Metrics]:
        """Take one minibatch for both: QR-SAC on π_ex(o, ψ(c)) and Q(o, a, c), then regression of φ(h) on ψ(c)."""
        state, metrics = self.update_expert(state, batch, key, improve)
        state, adapter_metrics = self.update_adapter(state, batch)  # ψ(c) has just moved: that is the point
        return state, metrics | adapter_metrics

    def actor(self, weights: Weights) -> Actor:
        """π_ad(o, φ(h)): no copying of layers, the two policies share one trunk."""
        return self.adapted(weights)

    def rollout_actor(self, weights: Weights) -> Actor:
        """The adapter gathers experience, unless the ablation asks for the expert."""
        return self.adapted(weights) if self.config.rollout_policy == "adapter" else weights.expert
