"""Labels for the steps of workers in a stage without known contexts: what the history of each tells about it."""

from __future__ import annotations

import numpy as np

from sparc.acting.history import window_index
from sparc.training.blocks import Block
from sparc.training.stages import Estimate

TOGETHER = 64  # histories that φ reads at a time: blocks have any number of rows, and each other shape is compiled anew


def relabelled(block: Block, estimate: Estimate, length: int) -> Block:
    """Return a block whose rows have the contexts that their histories tell, in place of those that a worker knew."""
    history, rows = histories(block, length), block.rows.copy()
    for begin in range(0, len(rows), TOGETHER):
        part = history[begin : begin + TOGETHER]
        filled = np.zeros((TOGETHER, *part.shape[1:]), np.float32)
        filled[: len(part)] = part
        rows["context"][begin : begin + len(part)] = estimate(filled)[: len(part)]
    return block._replace(rows=rows)


def histories(block: Block, length: int) -> np.ndarray:
    """Return h_t of every row of a block, (n + 1, H, O+A); a block brings the rows of its past along."""
    steps = np.concatenate([block.past["step"], block.rows["step"]])
    row = np.arange(len(block.rows))
    offsets, inside = window_index(int(block.rows["position"][0]) + row, length)
    at = len(block.past) + row[:, None] + offsets
    return np.where(inside[..., None], steps[np.maximum(at, 0)], np.float32(0))
