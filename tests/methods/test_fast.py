"""The parts of preset `fast`, one by one and together, for every method."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparc
from sparc.config import PRESETS, make_config
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import UserError
from sparc.methods import all_methods, find_method, get_method, losses
from sparc.methods.batch import Batch
from sparc.methods.nets import Inputs
from sparc.methods.qr_sac import QrSac, State, scan_updates, standardized
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.load import make_spec, restored
from sparc.runs.run import Run

pytestmark = pytest.mark.slow

BOAT = "DriftingBoat-v0"
O, A, C, H, B, K = 3, 2, 2, 6, 8, 4  # noqa: E741
SPEC = Spec(O, A, (1.0, -2.0), (2.0, 4.0))
SMALL = {"width": 8, "latent": 4, "history_length": H, "num_quantiles": 3, "batch_size": B, "chunk": K, "num_envs": 1}
SMALL |= {"adapter_batch_size": 4, "updates": 40, "log_every": 4, "evaluate_every": 20}
CASES = [(name, phase) for name in all_methods() for phase in find_method(name).phases]
for_every_case = pytest.mark.parametrize(("name", "phase"), CASES, ids=[f"{n}-{p}" for n, p in CASES])


def make(name: str, phase: str | None = None, **values: Any) -> QrSac:
    return get_method(name)(make_config({"method": name, "env": "any", **SMALL, **values}, "fast"), SPEC, phase)


def some_batch(method: QrSac, *lead: int) -> Batch:
    rng = np.random.default_rng(0)

    def draw(*shape: int, rows: int = B, mean: float = 0.0) -> np.ndarray:
        return rng.normal(mean, 1.0, (*lead, rows, *shape)).astype(np.float32)

    history = draw(H, O + A, rows=method.history_rows, mean=2.0) if method.wants_history else None
    next_history = draw(H, O + A, mean=2.0) if method.wants_next_history else None
    discount = np.full((*lead, B), 0.9, np.float32)
    return Batch(
        draw(O, mean=5.0),
        np.tanh(draw(A)),
        draw(),
        discount,
        draw(O, mean=5.0),
        draw(C),
        draw(C),
        history,
        next_history,
    )


@cache
def after(name: str, phase: str) -> tuple[QrSac, State, State, dict[str, jax.Array]]:
    """A fresh state, and the same after four updates in one compiled call."""
    method = make(name, phase)
    before = method.init(np.random.default_rng(0))
    copied = jax.tree.map(jnp.copy, before)  # the call takes what it is given
    state, metrics = scan_updates(method)(copied, some_batch(method, K), jax.random.key(0), jnp.int32(0))
    return method, before, state, metrics


def equal(first: Any, second: Any) -> bool:
    a, b = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# Together


@for_every_case
def test_a_chunk_of_updates_changes_what_the_phase_trains(name: str, phase: str) -> None:
    method, before, state, metrics = after(name, phase)
    assert jax.tree.structure(before) == jax.tree.structure(state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert all(np.isfinite(value) for value in metrics.values())
    trained = method.trains_expert
    assert state.targets is None and state.norm is not None and state.average is not None and before.norm is not None
    for part in ("expert", "critics", "norm", "log_temperature"):
        assert equal(getattr(before, part), getattr(state, part)) != trained, part
    has_phi = name == "sparc" or (name, phase) == ("rma", "adapter")
    assert before.average is not None
    if before.adapter is not None:
        assert equal(before.adapter, state.adapter) != has_phi
        assert equal(before.average.adapter, state.average.adapter) != has_phi
    assert equal(before.average.expert, state.average.expert) != trained
    assert float(state.norm.count) == (K if trained else 0)


def test_batch_statistics_live_in_critics_alone() -> None:
    for name, phase in CASES:
        state = after(name, phase)[2]
        names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
        running = [n for n in names if "running" in n and "optimisers" not in n]
        norms = 4 + (name == "history-input")  # of each critic: its layers, and the latent that it learns itself
        assert len(running) == 2 * norms * 2 and all(n.startswith(".critics") and "encoder" not in n for n in running)
        assert not [n for n in names if "norms" in n and not n.startswith((".critics", ".optimisers['critics']"))]


def test_the_optimiser_never_moves_running_statistics() -> None:
    """What is in them after an update is what the batch gave, nothing else."""
    method, before, _, _ = after("oracle", "train")
    batch = standardized(some_batch(method), before.norm.updated(some_batch(method).obs))  # type: ignore[union-attr]
    key = jax.random.key(1)
    state, _ = method.update_critics(before, batch, key)
    then = Inputs(batch.next_obs, batch.next_context)
    action, _ = before.expert.sample(then, key)
    both = Inputs(
        *(np.concatenate(pair) for pair in ((batch.obs, batch.next_obs), (batch.context, batch.next_context)))
    )
    _, (observed, *_) = before.critics[0].train(both, jnp.concatenate([batch.action, action]))
    first = before.critics[0].trunk.observe.norms[0].follow(observed[0])  # type: ignore[index]
    for got, want in zip(state.critics[0].trunk.observe.norms[0].running, first.running, strict=True):  # type: ignore[index]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_the_target_comes_from_the_second_half_of_the_joint_pass() -> None:
    method, before, _, _ = after("only-obs", "train")
    batch, key = some_batch(method), jax.random.key(2)
    _, metrics = method.update_critics(before, batch, key)
    action, log_prob = before.expert.sample(Inputs(batch.next_obs), key)
    both = Inputs(np.concatenate([batch.obs, batch.next_obs])), jnp.concatenate([batch.action, action])
    halves = [jnp.split(critic.train(*both)[0], 2) for critic in before.critics]
    temperature = jnp.exp(before.log_temperature)
    bootstrap = losses.pessimistic(*(half[1] for half in halves))
    target = losses.soft_target(batch.reward, batch.discount, bootstrap, log_prob, temperature)
    loss = sum(losses.quantile_huber(half[0], target) for half in halves)
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["q_target"], target.mean(), rtol=1e-4)


# One by one


def test_the_average_follows_each_actor_update_by_hand() -> None:
    method = make("sparc", ema_decay=0.9, policy_delay=2)
    state = method.init(np.random.default_rng(0))
    batch, average = some_batch(method), state.average
    for update in range(4):
        state, _ = method.learn(state, batch, jax.random.key(update), improve=update % 2 == 1)
        if update % 2:
            average = jax.tree.map(lambda a, n: 0.9 * a + 0.1 * n, average, state.newest)
        for got, want in zip(jax.tree.leaves(state.average), jax.tree.leaves(average), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert method.policy(state).trunk is state.average.expert.trunk  # type: ignore[union-attr]
    assert method.rollout_policy(state).trunk is state.expert.trunk


def test_the_actor_waits_for_its_turn() -> None:
    method = make("oracle", policy_delay=2)
    state = method.init(np.random.default_rng(0))
    waiting, metrics = method.learn(state, some_batch(method), jax.random.key(0), improve=False)
    assert equal(waiting.expert, state.expert) and equal(waiting.log_temperature, state.log_temperature)
    assert equal(waiting.average, state.average) and not equal(waiting.critics, state.critics)
    assert "actor_loss" not in metrics and "critic_loss" in metrics
    improved, metrics = method.learn(state, some_batch(method), jax.random.key(0), improve=True)
    assert not equal(improved.expert, state.expert) and "actor_loss" in metrics


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_learning_rates_reach_zero_with_the_last_update_and_not_before(delay: int) -> None:
    method = make("sparc", policy_delay=delay, final_lr_fraction=0.0, updates=8)
    state = method.init(np.random.default_rng(0))
    scan, batch = scan_updates(method), some_batch(method, delay)

    def learned(state: State) -> list[Any]:
        layers = [layer for critic in state.critics for layer in critic.trunk.observe.layers]
        return jax.tree.map(jnp.copy, [state.expert, state.adapter, state.log_temperature, layers])

    for first in range(0, 8, delay):
        before = learned(state)
        state, _ = scan(state, batch, jax.random.key(0), jnp.int32(first))
    assert not any(equal(old, new) for old, new in zip(before, learned(state), strict=True))  # to the last one
    before = learned(state)
    state, _ = scan(state, batch, jax.random.key(0), jnp.int32(8))
    assert equal(before, learned(state))  # beyond it nothing moves


@pytest.mark.parametrize("name", ["sparc", "history-input"])
def test_a_scan_with_a_delayed_actor_is_so_many_single_updates(name: str) -> None:
    method = make(name, policy_delay=2)
    batches, first = some_batch(method, K), 10
    single, learn = method.init(np.random.default_rng(0)), jax.jit(method.learn, static_argnames="improve")
    scanned, _ = scan_updates(method)(jax.tree.map(jnp.copy, single), batches, jax.random.key(3), jnp.int32(first))
    for k in range(K):
        batch = jax.tree.map(lambda x, k=k: x[k], batches)
        single, _ = learn(single, batch, jax.random.fold_in(jax.random.key(3), first + k), improve=k % 2 == 1)
    for got, want in zip(jax.tree.leaves(scanned), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-5)


PARTS: list[dict[str, Any]] = [
    {}, {"batch_renorm": True}, {"normalize_observations": True}, {"ema_decay": 0.9}, {"policy_delay": 2},
    {"adapter_batch_size": 4}, {"tune_temperature": True}, {"final_lr_fraction": 0.0}, {"adam_beta1": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_each_part_is_usable_alone(part: dict[str, Any]) -> None:
    values = {"method": "sparc", "env": "any", **SMALL, "adapter_batch_size": 0, **part}
    method = get_method("sparc")(make_config(values, "mujoco"), SPEC)
    before = method.init(np.random.default_rng(0))
    assert (before.norm is not None) == ("normalize_observations" in part)
    assert (before.average is not None) == ("ema_decay" in part)
    assert (before.critics[0].trunk.observe.norms is not None) == ("batch_renorm" in part)
    assert before.targets is not None
    copied = jax.tree.map(jnp.copy, before)
    state, metrics = scan_updates(method)(copied, some_batch(method, K), jax.random.key(0), jnp.int32(0))
    assert all(np.isfinite(value) for value in metrics.values())
    assert not equal(before.expert, state.expert) and not equal(before.adapter, state.adapter)
    assert equal(before.log_temperature, state.log_temperature) == ("tune_temperature" not in part)
    assert set(method.variants(state)) == {"expert"} | ({"newest"} if "ema_decay" in part else set())


def test_phi_learns_from_the_first_rows_alone() -> None:
    method = make("sparc", adapter_batch_size=4)
    assert method.history_rows == 4 and make("sparc", adapter_batch_size=0).history_rows == B
    assert make("history-input").history_rows == B and make("only-obs").history_rows == 0
    assert make("sparc", adapter_batch_size=B + 1).history_rows == B  # there are no more
    state, batch = method.init(np.random.default_rng(0)), some_batch(method)
    whole, _ = method.update_adapter(state, batch)
    changed = batch.context.copy()
    changed[4:] += 1.0
    assert equal(method.update_adapter(state, batch._replace(context=changed))[0].adapter, whole.adapter)
    changed[0] += 1.0
    assert not equal(method.update_adapter(state, batch._replace(context=changed))[0].adapter, whole.adapter)


def test_networks_see_standardised_observations_wherever_they_are() -> None:
    """Shifted and scaled observations, with statistics shifted and scaled alike, make the same update."""
    method = make("history-input")
    state, batch = method.init(np.random.default_rng(0)), some_batch(method)
    size, offset = np.float32(4.0), np.float32(32.0)  # powers of two: nothing is rounded otherwise

    def moved(history: np.ndarray) -> np.ndarray:
        return np.concatenate([size * history[..., :O] + offset, history[..., O:]], axis=-1)

    other = batch._replace(
        obs=size * batch.obs + offset, next_obs=size * batch.next_obs + offset,
        history=moved(batch.history), next_history=moved(batch.next_history),
    )  # fmt: skip
    (one, m1), (two, m2) = (method.learn(state, b, jax.random.key(0)) for b in (batch, other))
    np.testing.assert_allclose(m1["critic_loss"], m2["critic_loss"], rtol=1e-3)
    for a, b in zip(jax.tree.leaves(one.expert), jax.tree.leaves(two.expert), strict=True):
        np.testing.assert_allclose(a, b, atol=3e-4)


def test_rmas_second_phase_freezes_the_expert_that_was_chosen() -> None:
    method, _, state, _ = after("rma", "expert")
    frozen = method.frozen(state)
    assert equal(frozen.expert, state.average.expert) and not equal(frozen.expert, state.expert)  # type: ignore[union-attr]
    assert equal(frozen.average.expert, frozen.expert) and equal(frozen.average.adapter, state.adapter)  # type: ignore[union-attr]
    second = make("rma", "adapter")
    after_it, _ = second.learn(frozen, some_batch(second), jax.random.key(0))
    assert equal(after_it.norm, state.norm) and equal(after_it.average.expert, frozen.expert)  # type: ignore[union-attr]


def test_q_values_are_those_of_standardised_observations() -> None:
    method, _, state, _ = after("oracle", "train")
    obs, context = np.full((2, O), 5.0, np.float32), np.zeros((2, C), np.float32)
    action = np.zeros((2, A), np.float32)
    seen = Inputs(state.norm(obs), context)  # type: ignore[misc]
    expected = losses.pessimistic(*(critic(seen, action) for critic in state.critics)).mean(axis=1)
    np.testing.assert_allclose(method.q_value(state, Inputs(obs, context), action), expected, rtol=1e-6)


# Whole runs

TINY = {"updates": 60, "expert_updates": 0, "random_steps": 40, "replay_capacity": 400, "num_envs": 4, "chunk": 4}
RUN = {**SMALL, **TINY, "log_every": 20, "evaluate_every": 20, "steps_per_update": 2}


class Crash(Exception):
    """What a test raises in the middle of a run."""


def crash_at(updates: int) -> Any:
    def report(record: dict[str, Any]) -> None:
        if record.get("updates") == updates:
            raise Crash

    return report


@pytest.mark.parametrize("method", all_methods())
def test_statistics_averages_and_schedules_survive_resume_bit_for_bit(
    method: str, tmp_path: Path, assert_same_run: Any
) -> None:
    straight = sparc.train(method, BOAT, preset="fast", run_dir=tmp_path / "straight", **RUN)
    with pytest.raises(Crash):
        sparc.train(method, BOAT, preset="fast", run_dir=tmp_path / "run", report=crash_at(48), **RUN)
    sparc.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", straight)
    arrays = checkpoint.load(straight / "checkpoints" / "60")[0]
    assert {"state.norm.mean", "state.norm.variance", "state.norm.count"} <= arrays.keys()
    assert any(name.startswith("state.average.expert") for name in arrays)
    assert not any(name.startswith("state.targets") for name in arrays)


def test_a_loaded_policy_acts_as_in_training(tmp_path: Path) -> None:
    run = sparc.train("sparc", BOAT, preset="fast", run_dir=tmp_path / "run", **RUN)
    policy = sparc.load(run, "last")
    opened = Run.open(run)
    venv = make_vector_env(BOAT, 3)
    method = get_method("sparc")(opened.config, make_spec(venv))
    state = restored(method, checkpoint.load(run / "checkpoints" / "60")[0])
    assert state.norm is not None and state.average is not None
    obs, _ = venv.reset(seed=1, options={"context": get_env(BOAT).context_space.settings})
    history = np.zeros((3, H, policy.obs_size + policy.action_size), np.float32)
    for _ in range(H + 2):
        action = policy.act(obs)
        seen = Inputs(state.norm(obs.astype(np.float32)), history=state.norm.history(jnp.asarray(history)))
        expected = method.actor(state.average).mode(seen)  # networks on what they were trained on
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
        history = np.concatenate([history[:, 1:], np.concatenate([obs, action], axis=1)[:, None]], axis=1)
        obs = venv.step(action)[0]
    venv.close()


# Contradictions


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"batch_renorm": False}, "batch_renorm"),
        ({"batch_size": 4, "adapter_batch_size": 4}, "batch_size"),
        ({"ema_decay": 1.0}, "below 1"),
        ({"ema_decay": -0.1}, "at least 0"),
        ({"adam_beta1": 1.0}, "below 1"),
        ({"policy_delay": 3}, "multiple of policy_delay"),
        ({"policy_delay": 0}, "at least 1"),
        ({"observation_clip": 0.0}, "above 0"),
        ({"tau": 0.01}, "set target_networks=true"),
        ({"tune_temperature": False}, "also set temperature"),
        ({"policy_delay": 50, "chunk": 50}, "at most 10"),
    ],
)
def test_contradictory_options_are_refused_in_one_line(values: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UserError, match=remedy) as refused:
        make_config({"method": "sparc", "env": "any", **values}, "fast")
    assert "\n" not in str(refused.value) and next(iter(values)) in str(refused.value).replace("chunk", "policy_delay")


def test_the_robots_start_from_it() -> None:
    for id in ("WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5", "WindAnt-v5", "MotorHalfCheetah-v5"):
        assert get_env(id).preset == "fast"
    assert get_env(BOAT).preset == "mujoco" and PRESETS["mujoco"] == {}


def test_equinox_keeps_static_fields_out_of_the_state() -> None:
    state = make("oracle").init(np.random.default_rng(0))
    assert len(jax.tree.leaves(state.norm)) == 3  # count, mean and variance, not the clip


@pytest.mark.parametrize("name", ["sparc", "rma", "only-obs", "history-input", "oracle"])
def test_only_critics_that_read_the_history_renormalise_their_latent(name: str) -> None:
    for values, renormalised in (
        ({}, name == "history-input"),
        ({"batch_renorm": False, "target_networks": True}, False),
    ):
        state = make(name, **values).init(np.random.default_rng(0))
        assert [critic.trunk.latent_norm is not None for critic in state.critics] == [renormalised] * 2
        assert state.expert.trunk.latent_norm is None  # no batch statistics in what acts
