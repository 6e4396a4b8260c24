"""Windows of a boat's replay, checked by the laws of the boat: whatever happened to the run, none may be wrong."""

import numpy as np

from sparc.envs.boat.env import drift, reward_of
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.layout import SHELVES, open_replay

TOLERANCE = 1e-4  # of positions: the replay has 32 bits


def check_windows(run: Run, draws: int = 20_000) -> int:
    """Draw windows from the replay of a run's newest checkpoint; return how many steps of history were checked."""
    arrays, meta = checkpoint.load(run.checkpoints / str(run.updates()))
    replay = open_replay(run.replay, run.config, Spec.from_dict(meta["spec"]), meta.get(SHELVES, 0))
    replay.seek(checkpoint.section(arrays, "replay."))
    assert run.config.n_step == 1, "one step after the other"
    batch = replay.sample(np.random.default_rng(0), (draws,), history=True, next_history=False)
    after = drift(batch.obs, batch.action, batch.context)
    np.testing.assert_allclose(batch.next_obs, after, atol=TOLERANCE)
    np.testing.assert_allclose(batch.reward, reward_of(after), atol=TOLERANCE)
    then = np.concatenate([batch.history[:, 1:, :2], batch.obs[:, None]], axis=1)
    known = batch.history.any(axis=-1)
    assert (np.diff(known.astype(int), axis=1) >= 0).all(), "something is missing in between"
    past, current = batch.history[known], np.broadcast_to(batch.context[:, None], then.shape)[known]
    np.testing.assert_allclose(then[known], drift(past[:, :2], past[:, 2:], current), atol=TOLERANCE)
    return int(known.sum())
