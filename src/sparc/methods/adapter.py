"""The adapter: φ(h) learns to estimate the expert's ψ(c) by regression, Eq. 2 of the paper. SPARC and RMA have one."""

from __future__ import annotations

import numpy as np
import optax
from jax import Array

from sparc.methods import losses
from sparc.methods.batch import Batch
from sparc.methods.nets import Actor, ContextEncoder, HistoryAdapter, Inputs, reviving_relu
from sparc.methods.qr_sac import Metrics, QrSac, State, Weights
from sparc.methods.registry import phase_span


class AdapterMethod(QrSac):
    """QR-SAC on π_ex(o, ψ(c)) with φ(h) beside it.

    A method says when φ learns and which policy acts: the expert, or the adapter policy π_ad(o, φ(h)) of `adapted`.
    """

    def encoder(self, rng: np.random.Generator) -> ContextEncoder:
        """ψ(c)."""
        return self.context_encoder(rng)

    def make_adapter(self, rng: np.random.Generator) -> HistoryAdapter:
        """φ(h)."""
        return self.history_adapter(rng)

    def make_optimisers(self) -> dict[str, optax.GradientTransformation]:
        """Add φ's own optimiser, which learns in the last phase."""
        begin, end = phase_span(self.config, self.phases[-1])
        return super().make_optimisers() | {"adapter": self.adam(self.config.adapter_learning_rate, end - begin)}

    def update_adapter(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """Regress φ(h) on ψ(c), Eq. 2 of the paper."""
        rows = self.history_rows
        inputs = Inputs(batch.obs[:rows], batch.context[:rows], batch.history[:rows])
        latent = state.expert.encoder(inputs)

        def adapter_loss(adapter: HistoryAdapter) -> tuple[Array, Metrics]:
            loss = losses.adapter_loss(adapter(inputs, last=reviving_relu), latent)
            return loss, {"adapter_loss": loss}

        state, metrics, _ = self.descend(state, "adapter", adapter_loss)
        return state, metrics

    def adapted(self, weights: Weights) -> Actor:
        """Return the adapter policy π_ad: the expert's own trunk, with φ(h) in the place of ψ(c)."""
        assert weights.adapter is not None
        return Actor(weights.expert.trunk, weights.adapter)

    @property
    def wants_history(self) -> bool:
        """The regression reads h."""
        return True

    @property
    def history_rows(self) -> int:
        """The number of rows of a minibatch that the regression uses."""
        if not self.wants_history:
            return 0
        return min(self.config.adapter_batch_size or self.config.batch_size, self.config.batch_size)
