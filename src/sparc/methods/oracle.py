"""Oracle: QR-SAC that reads the true context, also at test time."""

import numpy as np

from sparc.methods.nets import RawContext
from sparc.methods.qr_sac import QrSac


class Oracle(QrSac):
    """Actor on (o, c), critics on (o, a, c), with the raw, unencoded context in the latent's place."""

    def encoder(self, rng: np.random.Generator) -> RawContext:
        """c itself."""
        return self.raw_context()
