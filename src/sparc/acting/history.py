"""The only definition of h_t = (o_{t-H:t-1}, a_{t-H:t-1}): oldest first, zeros before the episode, no (o_t, a_t)."""

import numpy as np

from sparc.arrays import Flags


class History:
    """What an acting policy carries: h_t of `num` environments side by side."""

    def __init__(self, num: int, length: int, width: int) -> None:
        self._array = np.zeros((num, length, width), np.float32)
        self._acted: Flags = np.zeros(num, bool)  # since its reset

    @classmethod
    def of(cls, array: np.ndarray) -> "History":
        """Go on from an array handed out before."""
        history = cls(*array.shape)
        history._array = np.asarray(array, np.float32)
        history._acted = np.asarray(history._array[:, -1].any(axis=1))
        return history

    @property
    def array(self) -> np.ndarray:
        """Return h_t (N, H, O+A); no later push or reset changes what was handed out."""
        return self._array

    def push(self, obs: np.ndarray, action: np.ndarray) -> None:
        """Append (o_t, a_t), which turns h_t into h_{t+1}."""
        # A fresh array each time: JAX may still be reading the last one, without a copy of its own.
        moved = np.empty_like(self._array)
        moved[:, :-1] = self._array[:, 1:]
        size = np.shape(obs)[-1]
        moved[:, -1, :size] = obs
        moved[:, -1, size:] = action
        self._array = moved
        self._acted[:] = True

    def correct(self, action: np.ndarray) -> None:
        """Replace a_{t-1}, because another action was executed; environments that have not acted yet keep zeros."""
        size = np.shape(action)[-1]
        corrected = self._array.copy()  # as in push
        corrected[self._acted, -1, -size:] = action[self._acted]
        self._array = corrected

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget the past of the masked environments (of all without a mask): their next episode begins."""
        keep = np.zeros(len(self._array), bool) if mask is None else ~np.asarray(mask, bool)
        self._array = np.where(keep[:, None, None], self._array, np.float32(0))
        self._acted &= keep


def window_index(position: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where h_t is relative to t (H,) and what of it is in the episode (..., H), given t's position there."""
    offsets = np.arange(-length, 0)
    return offsets, position[..., None] >= -offsets
