"""A minibatch of transitions, as the replay cuts it and methods learn from it."""

from __future__ import annotations

from typing import Any, NamedTuple

Values = Any  # NumPy arrays here, traced JAX arrays inside an update; histories are None unless asked for


class Batch(NamedTuple):
    """Transitions over k steps, float32, with the leading axes that `sample` was asked for."""

    obs: Values
    action: Values
    reward: Values  # sum_{j<k} gamma^j r_{t+j}
    discount: Values  # gamma^k; 0 if the k-th step terminated
    next_obs: Values  # at t+k
    context: Values
    next_context: Values
    history: Values
    next_history: Values
