"""SPARC: single-phase adaptation for robust control."""

from jax import Array

from sparc.methods.adapter import AdapterMethod
from sparc.methods.batch import Batch
from sparc.methods.nets import Actor
from sparc.methods.qr_sac import Metrics, State, Weights


class Sparc(AdapterMethod):
    """Algorithm 1: the adapter acts, the expert learns from what it saw, and φ(h) follows ψ(c) in the same phase."""

    def update(self, state: State, batch: Batch, key: Array, improve: bool = True) -> tuple[State, Metrics]:
        """Take one minibatch for both: QR-SAC on π_ex(o, ψ(c)) and Q(o, a, c), then regression of φ(h) on ψ(c)."""
        state, metrics = self.update_expert(state, batch, key, improve)
        state, adapter_metrics = self.update_adapter(state, batch)  # ψ(c) has just moved: that is the point
        return state, metrics | adapter_metrics

    def actor(self, weights: Weights) -> Actor:
        """Return π_ad(o, φ(h)): no layers are copied, the two policies share one trunk."""
        return self.adapted(weights)

    def rollout_actor(self, weights: Weights) -> Actor:
        """Return the adapter policy, which collects the experience; in the ablation, the expert."""
        return self.adapted(weights) if self.config.options["rollout_policy"] == "adapter" else weights.expert
