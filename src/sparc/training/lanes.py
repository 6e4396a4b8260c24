"""Rows of steps, one lane per environment. NumPy only: workers write such rows too.

A lane is a ring. Its rows are numbered 0, 1, 2, ... for ever and row i lives in slot i % slots:

    ... (o, a, r) (o, a, r) (o, -, -) (o, a, r) (o, a, r) [o, -, -]
                            closing row of an ended episode,       written ahead; the next step of the episode
                            position -1, never sampled             overwrites it with the same observation
"""

from __future__ import annotations

import numpy as np

CLOSING = -1  # the position of a row that holds only what followed the last step of an episode
THIS_AND_NEXT = np.array([[0], [1]])


def row_dtype(obs_size: int, action_size: int, context_size: int) -> np.dtype:
    """Return the layout of a row."""
    return np.dtype([  # only 4-byte fields, so that everything is aligned without padding
        ("context", "<f4", (context_size,)),
        ("step", "<f4", (obs_size + action_size,)),
        ("reward", "<f4"),
        ("terminated", "<i4"),
        ("position", "<i4"),  # in the episode, or CLOSING
        ("count", "<i4"),  # transitions of this lane before this row
    ])  # fmt: skip


def as_bytes(rows: np.ndarray) -> np.ndarray:
    """Return a view of the rows without fields: copied so, they go ten times faster than field by field."""
    return rows.view(f"V{rows.dtype.itemsize}")


class Lanes:
    """The rows of several environments and where the next one of each goes."""

    def __init__(self, rows: np.ndarray, num_envs: int, obs_size: int) -> None:
        """Write to `rows`, (num_envs · slots,) of `row_dtype`."""
        row = rows.dtype
        self._rows, self._slots = rows, len(rows) // num_envs
        # Context and observation side by side: all that a row written ahead holds.
        known = row["context"].shape[0] + obs_size
        self._known = rows.view("<f4").reshape(len(rows), -1)[:, :known]
        self._lane = np.arange(num_envs)
        self._head, self._count, self._position = np.zeros((3, num_envs), np.int64)
        # The row and the one after it, as `add` writes them, with views of their fields in the order of its arguments.
        self._pair = np.zeros((2, num_envs), row)
        self._pair["position"][1] = CLOSING
        self._pair_known = self._pair.view("<f4").reshape(2, num_envs, -1)[0, :, :known]
        (now, ahead), obs = self._pair, self._pair["step"][..., :obs_size]
        action = now["step"][:, obs_size:]
        self._fields = obs[0], action, now["reward"], now["terminated"], obs[1], now["context"], ahead["context"]
        self._bytes, self._pair_bytes = as_bytes(rows), as_bytes(self._pair)

    def add(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        next_obs: np.ndarray, context: np.ndarray, next_context: np.ndarray,
    ) -> None:  # fmt: skip
        """Store one step of every environment; an `obs` that is not the last `next_obs` begins a new episode."""
        given = (obs, action, reward, terminated, next_obs, context, next_context)
        for field, value in zip(self._fields, given, strict=True):
            field[:] = value
        at = self._at(self._lane, self._head + THIS_AND_NEXT)
        # An episode may be abandoned without a flag (an environment that could not be restored).
        abandoned = (self._position > 0) & (self._known[at[0]] != self._pair_known).any(axis=1)
        if abandoned.any():
            self._close(abandoned)
            at = self._at(self._lane, self._head + THIS_AND_NEXT)
        self._pair["position"][0], self._pair["count"] = self._position, self._count + THIS_AND_NEXT
        self._bytes[at] = self._pair_bytes
        done = np.logical_or(terminated, truncated)
        self._head += 1 + done
        self._count += 1
        self._position = np.where(done, 0, self._position + 1)

    def _close(self, lanes: np.ndarray) -> None:
        """End the episodes under way in these lanes: what their last step led to stays, as a closing row."""
        # A process that was killed may have written the next step there.
        self._rows["position"][self._at(self._lane, self._head)[lanes]] = CLOSING
        self._head[lanes] += 1
        self._position[lanes] = 0

    def _at(self, lane: np.ndarray, row: np.ndarray) -> np.ndarray:
        return lane * self._slots + row % self._slots
