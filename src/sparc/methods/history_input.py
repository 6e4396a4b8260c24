"""History Input: QR-SAC whose networks read the history (Lee et al., 2020), without a context at any time."""

import numpy as np

from sparc.methods.nets import HistoryAdapter
from sparc.methods.qr_sac import QrSac


class HistoryInput(QrSac):
    """Actor on (o, φ(h)), critics on (o, a, φ_Q(h)); each network's φ is its own and learns by reinforcement."""

    def encoder(self, rng: np.random.Generator) -> HistoryAdapter:
        """φ(h)."""
        return self.history_adapter(rng)

    @property
    def wants_next_history(self) -> bool:
        """The bootstrap needs φ at the next observation."""
        return True
