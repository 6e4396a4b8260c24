"""What a child keeps of the stages before it: their replays, copied, and a share of every minibatch from them.

replay/rows.npy                           the child's own, or replay/shelvesN/rows.npy with workers, see layout.py
replay/stage1/{rows.npy,cursor.safetensors}   of its first stage, as the parent had it when the child began; and so on
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparc.errors import RunFailure, UserError, cannot_write
from sparc.files import sync
from sparc.methods.batch import Batch
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.layout import SHELVES, open_rows, replay_folder
from sparc.training.replay import Replay

ROWS, CURSOR = "rows.npy", "cursor.safetensors"


def stage_folders(replay: Path) -> list[Path]:
    """Return the folders of the kept stages, the first stage first."""
    found = {int(path.name.removeprefix("stage")): path for path in replay.glob("stage*") if path.is_dir()}
    return [found[number] for number in sorted(found)]


def keep_replays(parent: Run, child: Run) -> None:
    """Copy what the parent keeps and has collected itself; check it against the parent's newest checkpoint."""
    from safetensors.numpy import save_file

    arrays, meta = newest_checkpoint(parent)
    rows = replay_folder(parent.replay, meta.get(SHELVES, 0)) / ROWS
    if not rows.is_file():
        raise UserError(f"{parent.path} has no replay to keep from, {rows} is missing: add --keep 0 to go without.")
    for folder in stage_folders(parent.replay):
        copy(folder / ROWS, child.replay / folder.name / ROWS)
        copy(folder / CURSOR, child.replay / folder.name / CURSOR)
    own = child.replay / f"stage{parent.lineage.number}"
    copy(rows, own / ROWS)
    save_file(checkpoint.section(arrays, "replay."), own / CURSOR)
    sync(own / CURSOR)


def newest_checkpoint(parent: Run) -> tuple[checkpoint.Arrays, checkpoint.Meta]:
    """Return the parent's newest sound checkpoint, whose replay is the one on the disk."""
    for number in reversed(checkpoint.numbers(parent.checkpoints)):
        try:
            return checkpoint.load(parent.checkpoints / str(number))
        except RunFailure:
            continue
    raise RunFailure(f"No checkpoint in {parent.checkpoints} is sound: there is nothing to continue from.")


def copy(source: Path, target: Path) -> None:
    """Copy a file to the disk."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        sync(target)
    except OSError as error:
        how = "continue with --run-dir on another disk, or --keep 0"
        raise cannot_write(target, error, how, source.stat().st_size) from error


def open_kept(run: Run, spec: Spec) -> list[Replay]:
    """Open the kept replays of a child and check that they are what was copied."""
    from safetensors.numpy import load_file

    config, found = run.config, []
    for folder in stage_folders(run.replay):
        try:
            lanes, slots = np.load(folder / ROWS, mmap_mode="r").shape
            cursor: dict[str, Any] = load_file(folder / CURSOR)
        except (OSError, ValueError, LookupError, EOFError) as error:
            raise RunFailure(f"{folder}, which {run.path} keeps of an earlier stage, is damaged: {error}.") from error
        # the room beyond window and history, which a run with other intervals between its evaluations has otherwise
        margin = (slots - config.replay_capacity // lanes - config.history_length - 1) // 2
        replay = open_rows(folder, config, spec, lanes, margin)
        replay.seek(cursor)
        if replay.size:
            found.append(replay)
    return found


def mixture(run: Run, own: Replay, spec: Spec) -> Mixture | Replay:
    """Return what a run's minibatches are drawn from: its own replay, in a child that keeps some with older ones."""
    parent = run.lineage.parent
    if parent is None or not parent.keep or not (kept := open_kept(run, spec)):
        return own
    return Mixture(own, kept, parent.keep, run.config.batch_size)


def old_rows(share: float, batch_size: int) -> np.ndarray:
    """Return which rows of a minibatch are of kept replays, (B,) bool.

    Evenly spaced, so that the first rows, which alone may have a history, have the same share as all.
    """
    counts = np.floor(np.arange(batch_size + 1) * share + 1e-9)  # against a share such as 0.3, which is a bit less
    old: np.ndarray = np.diff(counts) > 0
    if not old.any():
        least = np.ceil(1000 / batch_size) / 1000
        raise UserError(
            f"--keep {share:g} of a minibatch of {batch_size} is less than a row: choose at least {least:g}, or 0."
        )
    return old


class Mixture:
    """Minibatches of which a share is drawn from kept replays, in equal parts, and the rest from the run's own."""

    def __init__(self, own: Replay, kept: Sequence[Replay], share: float, batch_size: int):
        old = old_rows(share, batch_size)
        source = np.where(old, 1 + (np.cumsum(old) - 1) % len(kept), 0)
        self.sources = [(replay, np.flatnonzero(source == i)) for i, replay in enumerate((own, *kept))]

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, int], *, history: bool | int, next_history: bool
    ) -> Batch:
        """Draw transitions as `Replay.sample` does, (updates, batch size) of them."""
        updates, size = shape
        rows = size if history is True else int(history)
        parts = []
        for replay, places in self.sources:
            if not len(places):
                continue
            few = int((places < rows).sum())
            parts.append((places, replay.sample(rng, (updates, len(places)), history=few, next_history=next_history)))
        return Batch(*(self._joined(name, parts, updates, size, rows) for name in Batch._fields))

    @staticmethod
    def _joined(
        name: str, parts: list[tuple[np.ndarray, Batch]], updates: int, size: int, rows: int
    ) -> np.ndarray | None:
        fields = [(places, getattr(batch, name)) for places, batch in parts]
        if name == "history":
            fields, size = [(places[places < rows], value) for places, value in fields], rows
        fields = [(places, value) for places, value in fields if value is not None and len(places)]
        if not fields:
            return None
        joined = np.empty((updates, size, *fields[0][1].shape[2:]), fields[0][1].dtype)
        for places, value in fields:
            joined[:, places] = value
        return joined
