"""The Spec of a policy: what it was made for and what it is made of. Plain values, without JAX."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Reads = Literal["nothing", "context", "history"]


@dataclasses.dataclass(frozen=True)
class Spec:
    """Describes a policy well enough to rebuild it and to act with it, without its environment.

    Methods are built from the environment's part. They add the architecture from their config, and `QrSac.describe`
    adds the encoders.
    """

    # the environment
    obs_size: int
    action_size: int
    context_centre: tuple[float, ...]
    context_half_range: tuple[float, ...]
    context_names: tuple[str, ...] = ()
    context_units: tuple[str, ...] = ()
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    action_dtype: str = "float32"
    # the architecture
    history_length: int = 0  # observation-action pairs
    width: int = 0  # units of each observation and decision layer
    latent: int = 0  # outputs of a context encoder or a history adapter
    observation_clip: float | None = None  # of standardised observations; None: observations are not standardised
    # the encoders
    reads: Reads = "nothing"  # beside the observation
    encoder: str = "none"  # of the policy, by its name in `build.ENCODERS`
    psi: str | None = None  # the encoder of the expert, where an adapter has learned to replace it

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` reads them."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Spec:
        """Return the Spec that `to_dict` wrote; raise a ValueError where fields are missing or unknown."""
        names = {field.name for field in dataclasses.fields(cls)}
        if wrong := sorted(names ^ values.keys()):
            raise ValueError(f"its spec has missing or unknown fields: {', '.join(wrong)}")
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**fields)
