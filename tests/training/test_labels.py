"""A stage without known contexts and with workers: their rows get the contexts that their histories tell."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparc
from sparc.acting.inference import ContextEstimator
from sparc.acting.policy import infer
from sparc.errors import UserError
from sparc.runs.load import load_with_psi
from sparc.runs.run import Run
from sparc.training.blocks import RowWriter
from sparc.training.labels import TOGETHER, histories, relabelled
from sparc.training.loop import Trainer

BOAT = "DriftingBoat-v0"
H, O, A = 3, 2, 1  # noqa: E741


@pytest.mark.parametrize("most", [4, 100])
def test_rows_have_the_histories_of_their_episode(most: int) -> None:
    rng = np.random.default_rng(0)
    writer, no = RowWriter(O, A, 1, H, [(1, 0, 0, 0)], most), np.zeros(1, bool)
    episodes: list[list[np.ndarray]] = [[]]
    blocks, obs = [], rng.normal(size=(1, O)).astype(np.float32)
    for step in range(150):
        action, following = rng.normal(size=(1, A)).astype(np.float32), rng.normal(size=(1, O)).astype(np.float32)
        truncated = rng.random(1) < 0.1
        writer.add(obs, action, np.ones(1), no, truncated, following, np.full((1, 1), 99.0), np.full((1, 1), 99.0))
        episodes[-1].append(np.concatenate([obs[0], action[0]]))
        obs = following
        if truncated[0]:
            episodes.append([])
            obs = rng.normal(size=(1, O)).astype(np.float32)
        if step % 70 == 69:
            blocks += writer.take("train", 0)
    blocks += writer.take("train", 0)
    assert any(len(block.past) for block in blocks) and any(block.ended for block in blocks)
    assert most == 4 or max(len(block.rows) for block in blocks) > 10

    def estimate(history: np.ndarray) -> np.ndarray:
        assert history.shape == (TOGETHER, H, O + A)  # one shape: no other is compiled
        return history.sum(axis=(1, 2))[:, None]

    steps, episode = 0, 0
    for block in blocks:
        first = int(block.rows["position"][0])
        told = np.zeros((len(episodes[episode]) + H, O + A), np.float32)
        told[H:] = np.array(episodes[episode]).reshape(-1, O + A)
        expected = np.stack([told[row : row + H] for row in range(first, first + len(block.rows))])
        np.testing.assert_array_equal(histories(block, H), expected)
        found = relabelled(block, estimate, H)
        np.testing.assert_allclose(found.rows["context"][:, 0], expected.sum(axis=(1, 2)), rtol=1e-5)
        assert (block.rows["context"] == 99.0).all()  # a copy
        for name in ("step", "reward", "position", "count", "terminated"):
            np.testing.assert_array_equal(found.rows[name], block.rows[name])
        steps, episode = steps + len(block.rows) - 1, episode + block.ended
    assert steps == 150


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    return sparc.train("sparc", BOAT, run_dir=tmp_path_factory.mktemp("parent") / "run", updates=20, **tiny_fields)


@pytest.mark.process
def test_what_workers_know_of_contexts_is_not_learned_from(parent: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run = sparc.continue_run(
        parent, {"x": (0.5, 1.0)}, no_context=True, keep=0, updates=20, workers=1, run_dir=tmp_path / "child"
    )
    trainer = Trainer(Run.open(run), lambda record: None)
    batch = trainer.replay.sample(np.random.default_rng(0), (200,), history=True, next_history=True)
    trainer.close()
    trainer.run.close()
    policy, psi = load_with_psi(Run.open(parent), Run.open(parent).choose("best"))
    assert psi is not None
    estimator = ContextEstimator(psi, trainer.run.space)
    for contexts, history in ((batch.context, batch.history), (batch.next_context, batch.next_history)):
        assert contexts == pytest.approx(estimator.estimate(infer(policy.actor, history)), abs=1e-4)
    assert not trainer.run.space.train.contains(batch.context).all(), "a barely trained φ cannot know the region"


@pytest.mark.slow
def test_an_expert_in_workers_would_act_on_the_true_contexts(tmp_path: Path, tiny: dict[str, Any]) -> None:
    pytest.importorskip("ray")
    old = sparc.train("sparc", BOAT, run_dir=tmp_path / "old", updates=10, rollout_policy="expert", **tiny)
    with pytest.raises(UserError, match="the expert would act on them"):
        sparc.continue_run(old, no_context=True, workers=1, run_dir=tmp_path / "child")
    assert not (tmp_path / "child").exists()
