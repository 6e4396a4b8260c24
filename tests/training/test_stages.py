"""The parts of a stage: its region, what its minibatches are made of, and what counts as not worse."""

from typing import Any

import numpy as np
import pytest

import sparc
from sparc.contexts import Finite
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.runs.stages import Lineage, Stage
from sparc.training.kept import Mixture, old_rows
from sparc.training.replay import Replay
from sparc.training.stages import not_worse

BOAT = "DriftingBoat-v0"
NEW = {"x": (0.5, 1.0), "y": (0.5, 1.0)}


# Regions


def test_a_stage_keeps_the_scale_and_what_was_in_distribution() -> None:
    entry = get_env(BOAT)
    first, second, third = Lineage((Stage(), Stage(NEW), Stage({"x": (-1.0, 0.0)}))).spaces(entry)
    assert first is entry.context_space
    assert np.array_equal(third.centre, first.centre) and np.array_equal(third.half_range, first.half_range)
    assert third.train.low.tolist() == [-1.0, 0.5] and third.train.high.tolist() == [0.0, 1.0]  # y as before
    assert third.is_train([[0.0, 0.0], [0.9, 0.9], [-0.9, 0.9], [0.9, -0.9]]).tolist() == [True, True, True, False]
    assert second.train.contains(second.settings).all() and second.train.contains(second.choice_settings).all()
    assert len({space.fingerprint() for space in (first, second, third)}) == 3
    assert sparc.ContextSpace.from_dict(third.to_dict()).fingerprint() == third.fingerprint()


def test_a_first_stage_in_another_region_is_scaled_by_it() -> None:
    space = Lineage((Stage(NEW),)).space(get_env(BOAT))
    assert space.centre.tolist() == [0.75, 0.75] and not space.earlier


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ({"z": (0, 1)}, "unknown context feature 'z'"),
        ({"x": (0.5, 2)}, r"x=0.5:2 reaches outside the test region: x must stay within \[-1, 1\]"),
        ({"x": (1, 0.5)}, "the range of x is reversed: 1 is greater than 0.5"),
        ({"x": (float("nan"), 1)}, "the bounds of x must be finite, not nan:1"),
        ({"x": 3}, r"the range of x must be two numbers, \(low, high\), not 3"),
        ({"x": ("a", "b")}, r"the range of x must be two numbers, \(low, high\), not \('a', 'b'\)"),
    ],
)
def test_a_region_that_cannot_be(ranges: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        get_env(BOAT).context_space.region(ranges)


def test_cars_by_name_and_by_group() -> None:
    entry = get_env("RaceCars-forza-v0")
    whole = entry.context_space
    held_out, some = entry.subset_of(["ood"]), entry.subset_of(["kart-03", "rally-07"])
    assert not whole.is_train(held_out.train.low[None])[0] and len(some.train.low) == whole.size
    assert not whole.is_train(held_out.settings).any() and held_out.train.contains(held_out.choice_settings).all()
    parts = [entry.subset_of([f"ind:{ends}"]) for ends in ("0:300", "300:1000")]
    counts = [len(space.train.values) for space in (*parts, whole) if isinstance(space.train, Finite)]
    assert counts[0] + counts[1] == counts[2] and counts[0] == 300 * 9
    assert np.array_equal(entry.subset_of(["ind"]).choice_settings, whole.choice_settings)
    for names, says in (
        (["kart-3"], "kart-03"),
        (["ind:a:b"], "no group of cars"),
        (["ind:9000:9001"], "no such cars"),
    ):
        with pytest.raises(UserError, match=says):
            entry.subset_of(names)
    with pytest.raises(UserError, match="have no names"):
        get_env(BOAT).subset_of(["kart-03"])


# Minibatches


def filled(value: float, steps: int = 60) -> Replay:
    replay = Replay(
        None, capacity=100, num_envs=2, obs_size=1, action_size=1, context_size=1, history_length=3, n_step=1,
        discount=0.9,
    )  # fmt: skip
    ones, no = np.full((2, 1), value, np.float32), np.zeros(2, bool)
    for _ in range(steps):
        replay.add(ones, ones, ones[:, 0], no, no, ones, ones, ones)
    return replay


@pytest.mark.parametrize("share", [0.25, 0.5, 0.3, 0.1])
def test_every_minibatch_has_the_share_in_every_part(share: float) -> None:
    mixed = Mixture(filled(1.0), [filled(2.0), filled(3.0)], share, 40)
    batch = mixed.sample(np.random.default_rng(0), (5, 40), history=20, next_history=True)
    assert batch.obs.shape == (5, 40, 1) and batch.history.shape == (5, 20, 3, 2)
    assert batch.next_history.shape == (5, 40, 3, 2)
    old = batch.obs[..., 0] > 1
    assert (old.sum(axis=1) == round(40 * share)).all() and (old[:, :20].sum(axis=1) == round(20 * share)).all()
    counts = [(batch.obs[0] == value).sum() for value in (2.0, 3.0)]
    assert abs(counts[0] - counts[1]) <= 1
    for field in (batch.action, batch.context, batch.next_obs, batch.next_context):
        assert np.array_equal(field, batch.obs)
    assert np.array_equal(batch.reward, batch.obs[..., 0])
    assert np.array_equal(batch.history[..., -1, 0], batch.obs[:, :20, 0])  # the histories are those of the rows
    assert mixed.sample(np.random.default_rng(0), (5, 40), history=0, next_history=False).history is None


def test_a_share_of_no_row_is_refused() -> None:
    assert old_rows(0.25, 8).tolist() == [False, False, False, True] * 2
    with pytest.raises(UserError, match=r"0\.1 of a minibatch of 8 is less than a row: choose at least 0\.125, or 0\."):
        old_rows(0.1, 8)


def test_not_worse_is_of_every_stage() -> None:
    assert not_worse([99.5, 90.0], [100.0, 80.0]) and not_worse([-1.005], [-1.0])
    assert not not_worse([98.0, 99.0], [100.0, 80.0]) and not not_worse([-1.02], [-1.0])
