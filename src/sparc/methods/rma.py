"""RMA: rapid motor adaptation (Kumar et al., 2021) on QR-SAC, in two phases."""

from jax import Array

from sparc.methods.adapter import AdapterMethod
from sparc.methods.batch import Batch
from sparc.methods.nets import Actor
from sparc.methods.qr_sac import Metrics, State, Weights


class Rma(AdapterMethod):
    """First QR-SAC on π_ex(o, ψ(c)); then, from the best expert seen, φ(h) → ψ(c) with all else frozen.

    The run takes the best checkpoint of the first phase, forgets the replay and lets the adapter act.
    """

    def update(self, state: State, batch: Batch, key: Array, improve: bool = True) -> tuple[State, Metrics]:
        """Train the expert or the adapter, never both."""
        return (
            self.update_expert(state, batch, key, improve) if self.trains_expert else self.update_adapter(state, batch)
        )

    def actor(self, weights: Weights) -> Actor:
        """The expert acts in the first phase, the adapter in the second."""
        return weights.expert if self.trains_expert else self.adapted(weights)

    @property
    def trains_expert(self) -> bool:
        """The second phase leaves everything but φ as it is."""
        return self.phase == self.phases[0]

    @property
    def wants_history(self) -> bool:
        """Only the regression reads h."""
        return not self.trains_expert
