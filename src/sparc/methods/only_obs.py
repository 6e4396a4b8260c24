"""Only Obs: QR-SAC that is told nothing of the context."""

from sparc.methods.qr_sac import QrSac


class OnlyObs(QrSac):
    """Actor on o, critics on (o, a): the encoder stays empty."""
