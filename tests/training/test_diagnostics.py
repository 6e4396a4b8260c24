"""What explains a run: φ's error over ψ's spread, the critics' bias, and what evaluations log of it."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import sparc
from sparc.acting.episodes import Step
from sparc.acting.evaluate import Evaluation, evaluate
from sparc.envs.registry import get_env
from sparc.methods.nets import Inputs, Trunk
from sparc.methods.normalization import Moments
from sparc.runs.run import Run
from sparc.training import diagnostics
from sparc.training import loop as training
from sparc.training.diagnostics import (
    Recorder,
    Recording,
    adapter_errors,
    discounted_returns,
    error_over_spread,
    known,
    q_bias,
    setting_titles,
    windows,
)
from sparc.training.evaluations import EVALUATION_SEED, Evaluator
from sparc.training.loop import Trainer
from sparc.training.replay import CLOSING, Replay

BOAT = "DriftingBoat-v0"
FAST = {"ema_decay": 0.9, "normalize_observations": True, "discount": 0.9}  # 0.9^50 is below 1 %


def test_error_over_spread_by_hand() -> None:
    psi = np.array([[0.0, 1.0], [2.0, 1.0]], np.float32)  # variances 1 and 0: 0.5 on average
    phi = psi + np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)  # squares 1, 0, 0, 4: 1.25 on average
    assert error_over_spread(phi, psi) == pytest.approx(2.5)
    assert error_over_spread(psi, psi) == 0.0
    assert np.isnan(error_over_spread(phi, np.ones_like(psi)))  # a ψ that tells nothing apart
    assert np.isnan(error_over_spread(phi[:0], psi[:0]))


def recording(reward: list[list[float]], length: list[int], terminated: list[bool]) -> Recording:
    """Rows of rewards, observed as 10 · row + step, with actions of minus that."""
    rewards = np.array(reward).T
    steps, rows = rewards.shape
    obs = np.arange(steps)[:, None] + 10.0 * np.arange(rows)
    context = np.broadcast_to(np.arange(rows)[None, :, None], (steps, rows, 1))
    return Recording(obs[..., None], -obs[..., None], context, rewards, np.array(length), np.array(terminated))


def test_discounted_returns_by_hand() -> None:
    found = discounted_returns(np.array([[1.0, 4.0], [2.0, 0.0], [4.0, 0.0]]), 0.5)
    np.testing.assert_array_equal(found, [[1 + 1 + 1, 4.0], [2 + 2, 0.0], [4.0, 0.0]])


def test_a_return_is_known_where_the_episode_terminated_or_has_long_to_go() -> None:
    # γ = 0.1: two steps left weigh 0.01 at most
    found = known(recording([[1, 1, 1], [1, 1, 0], [1, 1, 1]], [3, 2, 3], [False, True, True]), 0.1)
    np.testing.assert_array_equal(found.T, [[True, True, False], [True, True, False], [True, True, True]])
    assert not known(recording([[1, 1, 1]], [3], [False]), 1.0).any()
    assert known(recording([[1, 1, 1]], [3], [True]), 1.0).all()
    np.testing.assert_array_equal(known(recording([[1, 1]], [2], [False]), 0.0), [[True], [True]])


def test_the_bias_of_q_by_hand() -> None:
    seen: list[Inputs] = []

    def value(inputs: Inputs, action: np.ndarray) -> np.ndarray:
        seen.append(inputs)
        assert len(action) == diagnostics.Q_ROWS and (action == -inputs.obs).all()
        return 5.0 + inputs.obs[:, 0]

    episodes = recording([[1, 2, 4], [8, 0, 0]], [3, 1], [True, True])
    # returns 3, 4, 4 and 8 at observations 0, 1, 2 and 10
    found = q_bias(episodes, 0.5, 0, value)
    assert found == pytest.approx({"q_bias": (5 - 3 + 6 - 4 + 7 - 4 + 15 - 8) / 4, "discounted_return": 19 / 4})
    assert seen[0].history is None and seen[0].context[:4, 0].tolist() == [0, 1, 0, 0]
    q_bias(episodes, 0.5, 2, value)
    assert seen[1].history is not None and seen[1].history.shape == (diagnostics.Q_ROWS, 2, 2)
    assert q_bias(recording([[1, 1]], [2], [False]), 1.0, 0, value) == {}


def test_of_a_long_evaluation_the_critics_see_steps_from_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "Q_ROWS", 3)
    found = q_bias(recording([[1.0] * 9], [9], [True]), 0.0, 0, lambda inputs, action: inputs.obs[:, 0])
    assert found == {"q_bias": 4.0 - 1.0, "discounted_return": 1.0}  # the steps 0, 4 and 8


def test_windows_are_those_of_a_policy() -> None:
    episodes = recording([[1, 1, 1, 1], [1, 1, 1, 1]], [4, 4], [True, True])
    found = windows(episodes, np.array([0, 1, 3]), np.array([0, 1, 1]), 2)
    expected = [[[0, 0], [0, 0]], [[0, 0], [10, -10]], [[11, -11], [12, -12]]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_recorder_sees_what_the_policy_saw_and_did(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = sparc.train("history-input", BOAT, run_dir=tmp_path / "run", updates=10, **tiny)
    policy, space = sparc.load(run), get_env(BOAT).context_space
    recorder, histories = Recorder(policy, 3), list[np.ndarray]()

    def watch(step: Step) -> None:
        assert policy.history is not None
        histories.append(policy.history.array)
        recorder(step)

    rows = evaluate(policy, BOAT, space.settings, seed=[7, 8, 9], threads=1, on_step=watch)
    found = recorder.recording()
    np.testing.assert_array_equal(found.length, rows.lengths)
    np.testing.assert_array_equal(found.terminated, rows.terminated)
    np.testing.assert_allclose(found.reward.sum(axis=0), rows.returns)
    np.testing.assert_allclose(found.context[0], space.settings, rtol=1e-6)
    at = np.array([1, 4, 9])
    seen = windows(found, at, np.zeros(3, int), tiny["history_length"])
    np.testing.assert_allclose(seen, [histories[step - 1][0] for step in at], atol=1e-6)
    again = evaluate(policy, BOAT, space.settings, seed=7, threads=1)
    np.testing.assert_array_equal(rows.returns, again.returns)  # a seed for each row, or one to count up from


def test_of_many_episodes_some_are_recorded(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", updates=10, **tiny)
    policy, contexts = sparc.load(run), get_env(BOAT).context_space.grid(7)
    recorder = Recorder(policy, len(contexts))
    rows = evaluate(policy, BOAT, contexts, seed=7, threads=1, on_step=recorder)
    found = recorder.recording()
    assert len(recorder.rows) == len(set(recorder.rows)) == diagnostics.Q_EPISODES
    assert recorder.rows[0] == 0 and recorder.rows[-1] == len(contexts) - 1
    np.testing.assert_allclose(found.reward.sum(axis=0), rows.returns[recorder.rows])
    np.testing.assert_allclose(found.context[0], contexts[recorder.rows], rtol=1e-6)


# Rows of the replay by their place in the episode


def filled(lanes: int = 2, length: int = 30, steps: int = 90) -> Replay:
    """Episodes of a length, whose observation is the position."""
    replay = Replay(
        None, capacity=1_000, num_envs=lanes, obs_size=1, action_size=1, context_size=1, history_length=4, n_step=1,
        discount=0.9,
    )  # fmt: skip
    for step in range(steps):
        position, one = step % length, np.ones(lanes)
        obs = np.full((lanes, 1), float(position))
        ended = np.full(lanes, position == length - 1)
        replay.add(obs, obs, one, ended, ended & False, obs + 1, one[:, None], one[:, None])
    return replay


def test_rows_are_drawn_from_bands_of_positions() -> None:
    batch, positions = filled().sample_bands(np.random.default_rng(0), (0, 3, 10, 40), 5, 2_000)
    assert len(positions) == 20 == len(batch.obs)
    bands = np.searchsorted((0, 3, 10, 40), positions, side="right") - 1
    assert bands.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [-1] * 5  # none is as late as 40
    assert (positions[15:] == CLOSING).all()
    np.testing.assert_array_equal(batch.obs[:15, 0], positions[:15])
    for row, position in enumerate(positions[:15]):
        past = np.arange(position - 4, position)
        np.testing.assert_array_equal(batch.history[row, :, 0], np.where(past >= 0, past, 0))
    again = filled().sample_bands(np.random.default_rng(0), (0, 3, 10, 40), 5, 2_000)
    np.testing.assert_array_equal(again[1], positions)


def test_the_adapters_error_by_bands() -> None:
    class Encoder:
        def __init__(self, guess: float):
            self.guess = guess

        def latent(self, inputs: Inputs) -> Any:
            # ψ is the observation, which is the position; φ is off by 1 from the tenth on
            return inputs.obs + self.guess * (inputs.obs >= 10)

    plain = diagnostics._latents.__wrapped__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "_latents", plain)
        actors: Any = Encoder(1.0), Encoder(0.0)
        found = adapter_errors(*actors, filled(), np.random.default_rng(1))
    assert found.keys() == {"adapter_error_0", "adapter_error_10"}  # no episode comes to 50
    assert found["adapter_error_0"] == 0.0
    assert found["adapter_error_10"] == pytest.approx(1 / np.var(np.arange(10, 30)), rel=0.1)


# What evaluations log


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> dict[str, Path]:
    """Short runs of methods with averaged weights."""
    folder = tmp_path_factory.mktemp("explained")
    fields = {**tiny_fields, **FAST, "evaluate_every": 40, "log_every": 40, "updates": 80}
    special = {"rma": {"expert_updates": 40}}
    return {
        method: sparc.train(method, BOAT, run_dir=folder / method, **fields, **special.get(method, {}))
        for method in ("sparc", "rma", "only-obs")
    }


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [record for record in Run.open(run).records() if record["kind"] == "evaluation"]


def test_evaluations_log_variants_errors_and_bias(runs: dict[str, Path]) -> None:
    learning = {"entropy", "temperature", "critic_gradient_norm", "critic_clipped"}
    critics = {"q_bias", "discounted_return"}
    bands = {"adapter_error_0", "adapter_error_10"}
    last = {method: evaluations(run)[-1] for method, run in runs.items()}
    assert learning | critics | bands | {"expert_return", "newest_return"} <= last["sparc"].keys()
    assert critics | {"newest_return"} <= last["only-obs"].keys()
    assert not {"expert_return", *bands} & last["only-obs"].keys()
    first, *_, second = evaluations(runs["rma"])
    assert first["phase"] == "expert" and not {"expert_return", *bands} & first.keys() and "newest_return" in first
    assert second["phase"] == "adapter" and {"expert_return", "newest_return", *bands, *critics} <= second.keys()
    assert not learning & second.keys()  # φ alone learns
    for record in last.values():
        assert all(np.isfinite(value) for value in record.values() if isinstance(value, float))


def test_the_logged_values_are_those_of_the_checkpoint(runs: dict[str, Path]) -> None:
    run = Run.open(runs["sparc"])
    record = evaluations(run.path)[-1]
    trainer = Trainer(run, lambda _: None)  # at its end
    before = trainer.replay.cursor(), trainer.collector.steps
    space, method = trainer.evaluator.space, trainer.method
    expert = method.variants(trainer.state)["expert"]
    policies = {"newest_return": method.rollout_policy(trainer.state), "expert_return": expert}
    for name, actor in policies.items():
        policy = sparc.load(run.path, "last")
        policy.actor = actor
        rows = evaluate(policy, BOAT, space.evaluated, seed=EVALUATION_SEED, threads=1)
        assert record[name] == rows.returns[space.choice_rows].mean(), name
    trainer.evaluate({})
    again = evaluations(run.path)[-1]
    explained = [name for name in record if name not in (*training.LEARNING, "processor_s")]
    assert {name: again[name] for name in explained} == {name: record[name] for name in explained}
    assert before[1] == trainer.collector.steps
    np.testing.assert_equal(trainer.replay.cursor(), before[0])
    trainer.close()
    run.close()


def test_where_settings_are_many_variants_are_compared_in_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(BOAT, {})
    monkeypatch.setattr("sparc.training.evaluations.VARIANT_SETTINGS", 8)
    chosen = evaluator.space.choice_rows
    asked: list[np.ndarray] = []

    def result(rows: np.ndarray, more: float) -> Evaluation:
        none = np.zeros(len(rows), int)
        measures = {"ratio": 1.0 + rows, "lap_time": np.full(len(rows), np.nan)}
        return Evaluation(("x", "y"), none, none == 0, none, rows + more, none, none > 0, measures)

    def half(policy: Any, rows: np.ndarray) -> Evaluation:
        asked.append(rows)
        return result(rows.astype(float), 5.0)

    monkeypatch.setattr(evaluator, "run", half)
    policy: Any = None  # `half` asks it for nothing
    found = evaluator.compare(result(np.arange(19.0), 0.0), {"newest": policy})
    assert [rows.tolist() for rows in asked] == [chosen[::2].tolist()]
    assert found == pytest.approx({"newest_return": chosen.mean() + 5.0, "newest_ratio": 1.0 + chosen.mean()})


def test_settings_go_by_their_contexts_or_their_labels() -> None:
    space = sparc.ContextSpace.box(x=("N", (-1, 1), (-2, 2)), z=("N", (0, 5), (0, 9)), settings=[(-0.5, 0), (1, 2.5)])
    assert setting_titles(space) == {"return_0": "return_x_-0.5_z_0", "return_1": "return_x_1_z_2.5"}
    labels = ("kei-07 racing-soft", "van-01 comfort-hard", "more")
    assert list(setting_titles(space, labels).values()) == ["return_kei-07_racing-soft", "return_van-01_comfort-hard"]


def test_dormant_units_are_those_of_the_renormalised_latent() -> None:
    trunk = Trunk(3, 4, 16, 2, rng=np.random.default_rng(0), batch_renorm=True, renorm_latent=True)
    running = Moments(jnp.full(4, 300.0), jnp.full(4, 100.0))
    trunk = eqx.tree_at(lambda t: t.latent_norm.running, trunk, running)
    assert trunk.latent_norm is not None
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(64, 3)).astype(np.float32), rng.normal(300.0, 10.0, (64, 4)).astype(np.float32)
    plain = eqx.tree_at(lambda t: t.latent_norm, trunk, None)
    seen = np.asarray(trunk.latent_norm(jnp.asarray(z)))
    assert diagnostics.dormant_share(trunk, x, z) == diagnostics.dormant_share(plain, x, seen)
    assert diagnostics.dormant_share(trunk, x, z) != diagnostics.dormant_share(plain, x, z)
