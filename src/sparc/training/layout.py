"""How a session's replay lies on the disk: in as many lanes as there are streams, so that each has one for itself.

replay/rows.npy              of sessions without workers: a lane per environment
replay/shelves256/rows.npy   of sessions whose workers have 256 environments: a shelf for each

A checkpoint notes its layout. A session with another one takes over what was collected into its own, and saves.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sparc.config import Config
from sparc.errors import RunFailure, UserError
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.training.replay import Replay

SHELVES = "shelves"  # the name of a checkpoint's note, and of a folder with their number


def replay_folder(replay: Path, shelves: int) -> Path:
    """Return where the rows of a layout are; 0 shelves: those of sessions without workers."""
    return replay / f"{SHELVES}{shelves}" if shelves else replay


def open_replay(replay: Path, config: Config, spec: Spec, shelves: int = 0) -> Replay:
    """Open, or create, the replay of a run with this config in a layout."""
    lanes, margin = shelves or config.num_envs, shelf_margin(config, shelves) if shelves else replay_margin(config)
    return open_rows(replay_folder(replay, shelves), config, spec, lanes, margin)


def open_rows(folder: Path, config: Config, spec: Spec, lanes: int, margin: int) -> Replay:
    """Open, or create, the rows of a folder."""
    return Replay(
        folder,
        capacity=config.replay_capacity,
        num_envs=lanes,
        obs_size=spec.obs_size,
        action_size=spec.action_size,
        context_size=len(spec.context_centre),
        history_length=config.history_length,
        n_step=config.n_step,
        discount=config.discount,
        margin=margin,
    )


def replay_margin(config: Config) -> int:
    """Count the vector steps after which a checkpoint need no longer be resumable: two intervals and a warm-up.

    Two, for the newest checkpoint may turn out damaged.
    """
    steps = (2 * config.evaluate_every + config.chunk) * config.steps_per_update + config.random_steps
    return -(-steps // config.num_envs)


def shelf_margin(config: Config, shelves: int) -> int:
    """Return the margin of a shelf: a checkpoint is due before half of the replay has been replaced since the last.

    Workers deliver at a rate of their own, so no number of updates says how many rows come between two checkpoints. A
    block and its past must fit as well, several times.
    """
    return max(config.replay_capacity // shelves // 2, 4 * (config.history_length + 2))


def check_shelves(config: Config, shelves: int) -> None:
    """Refuse more streams than the replay has room for.

    A shelf is at least as long as a history, which it keeps beyond its own steps, or as a lane without workers is.
    """
    least = max(2, min(config.history_length, config.replay_capacity // config.num_envs))
    if shelves * least > config.replay_capacity:
        raise UserError(
            f"replay_capacity {config.replay_capacity:,} has room for {config.replay_capacity // least:,} workers, "
            f"{least} steps each, not for {shelves:,}: choose fewer, or train a new run with replay_capacity "
            f"{shelves * least} or more."
        )


def drop_layouts(replay: Path, checkpoints: list[Path]) -> None:
    """Remove the rows of layouts that none of these checkpoints has."""
    try:
        used = {replay_folder(replay, checkpoint.load_meta(path).get(SHELVES, 0)) for path in checkpoints}
    except (RunFailure, UserError):  # of a damaged one nobody knows: all of them stay
        return
    for folder in replay.glob(f"{SHELVES}*"):
        if folder not in used:
            shutil.rmtree(folder, ignore_errors=True)
    if replay not in used:
        for name in ("rows.npy", "commits"):
            (replay / name).unlink(missing_ok=True)
