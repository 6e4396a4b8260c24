"""What must hold for every method: what an update changes, what each network reads, who acts."""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparc.config import make_config
from sparc.errors import UserError
from sparc.methods import all_methods, find_method, get_method
from sparc.methods.batch import Batch
from sparc.methods.nets import ContextEncoder, HistoryAdapter, Inputs, Nothing, RawContext
from sparc.methods.qr_sac import QrSac, State, scan_updates
from sparc.methods.spec import Spec

O, A, C, H, B = 3, 2, 2, 6, 5  # noqa: E741
SPEC = Spec(O, A, (1.0, -2.0), (2.0, 4.0))
SMALL = {"width": 8, "latent": 4, "history_length": H, "num_quantiles": 3, "batch_size": B, "chunk": 2, "num_envs": 1}
RATE = {"learning_rate": 1e-3, "adapter_learning_rate": 2e-3}
CASES = [(name, phase) for name in all_methods() for phase in find_method(name).phases]
# Compiling is nearly all of the time here, and optimising is most of compiling.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
KEY = jax.random.key(3)

for_every_case = pytest.mark.parametrize(("name", "phase"), CASES, ids=[f"{n}-{p}" for n, p in CASES])


@cache
def build(name: str, phase: str, **values: Any) -> QrSac:
    return get_method(name)(make_config({"method": name, "env": "any", **SMALL, **RATE, **values}), SPEC, phase)


def make(name: str, phase: str | None = None, **values: Any) -> QrSac:
    """Return a method, the same one each time, so that it is compiled once."""
    return build(name, phase or next(iter(find_method(name).phases)), **values)


@cache
def compiled(method: QrSac) -> Any:
    return jax.jit(method.update, compiler_options=QUICK)


def some_state(method: QrSac, seed: int = 0) -> State:
    """Return a state with numbers from NumPy, targets unlike their critics and fresh optimisers."""
    rng = np.random.default_rng(seed)

    def fill(leaf: Any) -> jax.Array:
        scale = leaf.shape[0] ** -0.5 if leaf.ndim == 2 else 0.3  # no layer dies and no action saturates
        return jnp.asarray(scale * rng.uniform(-1.2, 1.4, leaf.shape), leaf.dtype)

    shapes = jax.eval_shape(lambda: method.init(np.random.default_rng(0)))
    zeros = jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape), leaf.dtype), shapes.optimisers)
    return eqx.tree_at(
        lambda s: (s.optimisers, s.log_temperature),
        jax.tree.map(fill, shapes),
        (zeros, jnp.asarray(np.log(method.config.temperature), jnp.float32)),
    )


def some_batch(method: QrSac, seed: int = 0, *lead: int) -> Batch:
    """Return what the replay would: histories only where the method wants them."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=(*lead, B, *shape)).astype(np.float32)

    history, next_history = draw(H, O + A), draw(H, O + A)
    return Batch(
        draw(O), np.tanh(draw(A)), draw(), np.full((*lead, B), 0.9, np.float32), draw(O), draw(C), draw(C),
        history if method.wants_history else None, next_history if method.wants_next_history else None,
    )  # fmt: skip


class Step(NamedTuple):
    """A state before and after one update."""

    method: QrSac
    before: State
    after: State
    metrics: dict[str, jax.Array]


@cache
def one_update(name: str, phase: str) -> Step:
    method = make(name, phase)
    before = some_state(method)
    return Step(method, before, *compiled(method)(before, some_batch(method), KEY))


def leaves(tree: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def equal(first: Any, second: Any) -> bool:
    """Compare bit for bit."""
    a, b = leaves(first), leaves(second)
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def assert_close(first: Any, second: Any) -> None:
    for (name, a), b in zip(leaves(first).items(), leaves(second).values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6, err_msg=name)


def parts(state: State) -> dict[str, Any]:
    """Name the parts of a state that may change on their own; those without numbers are left out."""
    found = {
        "trunk": state.expert.trunk,
        "encoder": state.expert.encoder,
        "adapter": state.adapter,
        "critics": state.critics,
        "targets": state.targets,
        "log_temperature": state.log_temperature,
    } | {f"optimiser of {name}": optimiser for name, optimiser in state.optimisers.items()}
    return {name: part for name, part in found.items() if jax.tree.leaves(part)}


# One update

LEARNER = {"trunk", "encoder", "critics", "targets", "optimiser of expert", "optimiser of critics"}
CHANGES = {
    ("sparc", "train"): LEARNER | {"adapter", "optimiser of adapter"},
    ("rma", "expert"): LEARNER,
    ("rma", "adapter"): {"adapter", "optimiser of adapter"},
    ("only-obs", "train"): LEARNER - {"encoder"},  # it has none
    ("history-input", "train"): LEARNER,
    ("oracle", "train"): LEARNER - {"encoder"},  # the raw context
}
ADAPTER = {"adapter_loss"}
LEARNER_METRICS = {
    *("critic_loss", "q_target", "actor_loss", "entropy", "temperature"),
    *("critic_gradient_norm", "critic_clipped"),
}


@for_every_case
def test_an_update_changes_exactly_what_it_should(name: str, phase: str) -> None:
    step = one_update(name, phase)
    before, after = parts(step.before), parts(step.after)
    changed = {part for part in before if not equal(before[part], after[part])}
    assert changed == CHANGES[name, phase]  # all else is the same bit for bit
    for critic in range(2):  # both of them learn, with their encoders
        assert equal(step.before.critics[critic].trunk, step.after.critics[critic].trunk) == ("critics" not in changed)


@for_every_case
def test_an_update_keeps_structure_shapes_and_types(name: str, phase: str) -> None:
    step = one_update(name, phase)
    assert jax.tree.structure(step.before) == jax.tree.structure(step.after)
    before, after = leaves(step.before), leaves(step.after)
    assert {n: (x.shape, x.dtype) for n, x in before.items()} == {n: (x.shape, x.dtype) for n, x in after.items()}
    assert all(np.isfinite(x).all() for x in after.values())
    expected = {("sparc", "train"): LEARNER_METRICS | ADAPTER, ("rma", "adapter"): ADAPTER}
    assert set(step.metrics) == expected.get((name, phase), LEARNER_METRICS)
    assert all(value.shape == () and np.isfinite(value) for value in step.metrics.values())


@for_every_case
def test_a_fresh_state_compiles_once(name: str, phase: str) -> None:
    """A type that an update or a checkpoint would turn into another one would compile everything again."""
    state = jax.eval_shape(lambda: make(name, phase).init(np.random.default_rng(0)))
    assert not [leaf for leaf in jax.tree.leaves(state) if leaf.weak_type]


def test_sparc_does_in_one_phase_what_rma_does_in_two() -> None:
    """The expert learns as RMA's does, untouched by φ; then φ is regressed on ψ as it is after that step."""
    sparc = one_update("sparc", "train")
    expert, adapter = make("rma", "expert"), make("rma", "adapter")
    batch = some_batch(sparc.method)
    state, _ = compiled(expert)(sparc.before, batch._replace(history=None), KEY)
    state, metrics = compiled(adapter)(state, batch, KEY)
    assert_close(state, sparc.after)
    assert_close(metrics["adapter_loss"], sparc.metrics["adapter_loss"])


@pytest.mark.parametrize(("name", "phase"), [("sparc", "train"), ("rma", "adapter")])
def test_the_adapter_gets_closer_to_the_latent(name: str, phase: str) -> None:
    step = one_update(name, phase)
    batch = some_batch(step.method)
    inputs = Inputs(batch.obs, batch.context, batch.history)
    latent = step.after.expert.encoder(inputs)  # what both were regressed on
    before, after = (float(jnp.mean((s.adapter(inputs) - latent) ** 2)) for s in (step.before, step.after))
    assert float(step.metrics["adapter_loss"]) == pytest.approx(before, rel=1e-4)
    assert after < before


@for_every_case
def test_targets_follow_by_tau(name: str, phase: str) -> None:
    step = one_update(name, phase)
    if "critics" not in CHANGES[name, phase]:
        assert equal(step.before.targets, step.after.targets)
        return
    expected = jax.tree.map(lambda t, c: 0.995 * t + 0.005 * c, step.before.targets, step.after.critics)
    for want, got in zip(jax.tree.leaves(expected), jax.tree.leaves(step.after.targets), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", all_methods())
def test_the_critics_gradient_is_clipped_and_the_others_are_not(name: str) -> None:
    method = make(name)
    state, batch = some_state(method), some_batch(method)
    huge = batch._replace(obs=1e4 * batch.obs)  # large activations make large gradients
    after, _ = compiled(method)(state, huge, KEY)

    def gradient_norm(part: str) -> float:
        adam = optax.tree_utils.tree_get(after.optimisers[part], "mu")  # after one step (1 - 0.9) times the gradient
        return float(optax.tree.norm(adam)) / 0.1

    assert gradient_norm("critics") == pytest.approx(10.0, rel=1e-3)
    assert gradient_norm("expert") > 20.0


@pytest.mark.parametrize("name", all_methods())
def test_nothing_is_bootstrapped_after_termination(name: str) -> None:
    method = make(name)
    state, batch = some_state(method), some_batch(method)
    other = some_batch(method, seed=1)
    elsewhere = {"next_obs": other.next_obs, "next_context": other.next_context, "next_history": other.next_history}
    update = compiled(method)
    ended = batch._replace(discount=np.zeros_like(batch.discount))
    first, _ = update(state, ended, KEY)
    second, _ = update(state, ended._replace(**elsewhere), KEY)
    assert equal(first.critics, second.critics)
    first, second = (update(state, b, KEY)[0] for b in (batch, batch._replace(**elsewhere)))
    assert not equal(first.critics, second.critics)


@pytest.mark.parametrize("name", all_methods())
def test_an_update_depends_on_its_key_alone_for_chance(name: str) -> None:
    method = make(name)
    update, state, batch = compiled(method), some_state(method), some_batch(method)
    first, again, other = (update(state, batch, jax.random.key(seed))[0] for seed in (3, 3, 4))
    assert equal(first, again) and not equal(first, other)


@pytest.mark.parametrize("name", all_methods())
def test_learning_rates_belong_to_their_parts(name: str) -> None:
    """Adam's first step is the learning rate wherever the gradient is not tiny."""
    step = one_update(name, make(name).phases[0])

    def longest(part: str) -> float:
        before, after = (leaves(getattr(state, part)) for state in (step.before, step.after))
        return max(float(np.abs(after[name] - before[name]).max()) for name in before)

    assert longest("expert") == pytest.approx(1e-3, rel=1e-2)
    assert longest("critics") == pytest.approx(1e-3, rel=1e-2)
    if name == "sparc":
        assert longest("adapter") == pytest.approx(2e-3, rel=1e-2)


@pytest.mark.parametrize(("name", "phase"), CHANGES)
def test_rates_fall_to_their_share_at_the_end_of_their_phase(name: str, phase: str) -> None:
    """With a steady gradient Adam's step is the rate."""
    lengths = {"updates": 1000, "chunk": 50, "final_lr_fraction": 0.1} | (
        {"expert_updates": 600} if name == "rma" else {}
    )
    method = make(name, phase, **lengths)
    last = {"expert": 600, "adapter": 400}.get(phase, 1000)
    part, rate = ("adapter", 2e-3) if phase == "adapter" else ("expert", 1e-3)
    optimiser, gradient = method.optimisers[part], jnp.ones(())

    def step(state: Any, _: Any) -> tuple[Any, jax.Array]:
        change, state = optimiser.update(gradient, state)
        return state, -change

    _, steps = jax.lax.scan(step, optimiser.init(gradient), None, last + 1)
    np.testing.assert_allclose(steps[jnp.array([0, last // 2, last])], rate * np.array([1.0, 0.55, 0.1]), rtol=1e-3)


@pytest.mark.parametrize(("log_std", "direction"), [(-20.0, +1), (0.458, -1)], ids=["narrow", "wide"])
def test_a_tuned_temperature_steers_the_entropy(log_std: float, direction: int) -> None:
    # Narrow: log σ = -5, entropy near 2 · (1.42 - 5) = -7.2 < -2, so the temperature must rise.
    # Wide: log σ = 0, entropy near that of the uniform density, log 4 = 1.4 > -2, so it must fall.
    method = make("only-obs", tune_temperature=True)
    state = eqx.tree_at(
        lambda s: (s.expert.trunk.head.weight, s.expert.trunk.head.bias),
        some_state(method),
        (jnp.zeros((8, 2 * A)), jnp.array([0.0, 0.0, log_std, log_std])),
    )
    after, metrics = compiled(method)(state, some_batch(method), KEY)
    assert np.sign(float(after.log_temperature - state.log_temperature)) == direction
    assert abs(float(after.log_temperature - state.log_temperature)) == pytest.approx(1e-3, rel=1e-2)
    assert float(metrics["temperature"]) == pytest.approx(0.01)


@for_every_case
@pytest.mark.parametrize("values", [{"num_quantiles": 1}, {"tune_temperature": True}, {"history_length": 1}], ids=str)
def test_options_fit_every_method(name: str, phase: str, values: dict[str, Any]) -> None:
    """Tracing is enough: shapes are what could go wrong."""
    method = make(name, phase, **values)
    state, batch = jax.eval_shape(lambda: method.init(np.random.default_rng(0))), some_batch(method)
    if values.get("history_length") and batch.history is not None:
        batch = jax.tree.map(lambda x: x[:, :1] if x.ndim == 3 else x, batch)
    after, _ = jax.eval_shape(method.update, state, batch, KEY)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert state.critics[0].trunk.head.bias.shape == (values.get("num_quantiles", 3),)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phase"), [("rma", "adapter"), ("only-obs", "train")])
def test_a_scan_of_updates_is_so_many_single_updates(name: str, phase: str) -> None:
    method = make(name, phase)
    batches, first = some_batch(method, 0, 3), 40
    state, single = some_state(method), []
    for k in range(3):
        batch = jax.tree.map(lambda x, k=k: x[k], batches)
        state, metrics = compiled(method)(state, batch, jax.random.fold_in(KEY, first + k))
        single.append(metrics)
    scanned, means = scan_updates(method)(some_state(method), batches, KEY, jnp.int32(first))
    assert_close(scanned, state)
    for metric, mean in means.items():
        assert float(mean) == pytest.approx(np.mean([float(m[metric]) for m in single]), rel=1e-3)


# A fresh state


@for_every_case
def test_a_fresh_state(name: str, phase: str) -> None:
    state = make(name, phase).init(np.random.default_rng(0))
    assert equal(state.critics, state.targets)
    assert float(jnp.exp(state.log_temperature)) == pytest.approx(0.01)
    assert all(not leaf.any() for leaf in leaves(state.optimisers).values())
    assert (state.adapter is not None) == (name in ("sparc", "rma")) == ("adapter" in state.optimisers)
    # No two networks, encoders included, begin alike; biases tell them apart.
    networks = [state.expert, *state.critics] + ([state.adapter] if state.adapter is not None else [])
    biases = [x.tobytes() for network in networks for n, x in leaves(network).items() if "bias" in n]
    assert len(set(biases)) == len(biases)
    encoder = {"sparc": ContextEncoder, "rma": ContextEncoder, "only-obs": Nothing, "history-input": HistoryAdapter,
               "oracle": RawContext}[name]  # fmt: skip
    assert {type(network.encoder) for network in (state.expert, *state.critics)} == {encoder}


# What each network reads


def variants(*fields: str) -> tuple[Inputs, jax.Array, list[str]]:
    """Return a row of inputs, and one more for each field in which only that field is another."""
    rng = np.random.default_rng(5)
    shapes = {"obs": (O,), "action": (A,), "context": (C,), "history": (H, O + A)}
    rows = {name: np.repeat(rng.normal(size=(1, *shape)), 1 + len(fields), axis=0) for name, shape in shapes.items()}
    for row, name in enumerate(fields, start=1):
        rows[name][row] += rng.normal(size=shapes[name])
    obs, action, context, history = (jnp.asarray(rows[name], jnp.float32) for name in shapes)
    return Inputs(obs, context, history), action, list(fields)


def felt(out: jax.Array, fields: list[str]) -> set[str]:
    """Name the fields whose change changed the output."""
    return {name for row, name in enumerate(fields, start=1) if not np.array_equal(out[row], out[0])}


ACTOR_READS = {
    ("sparc", "train"): {"obs", "history"},
    ("rma", "expert"): {"obs", "context"},
    ("rma", "adapter"): {"obs", "history"},
    ("only-obs", "train"): {"obs"},
    ("history-input", "train"): {"obs", "history"},
    ("oracle", "train"): {"obs", "context"},
}


@for_every_case
def test_the_policy_reads_what_the_paper_says(name: str, phase: str) -> None:
    method = make(name, phase)
    actor = method.policy(some_state(method))
    inputs, _, fields = variants("obs", "context", "history")
    actions = actor.mode(inputs)
    assert felt(actions, fields) == ACTOR_READS[name, phase]
    # What it does not read need not be there.
    hidden = {field: None for field in ("context", "history") if field not in ACTOR_READS[name, phase]}
    assert np.array_equal(actor.mode(inputs._replace(**hidden)), actions)
    extra = (ACTOR_READS[name, phase] - {"obs"}) or {"nothing"}
    assert {actor.encoder.reads} == extra
    if phase == method.phases[-1]:  # the table of methods tells users the same
        assert {"observation": "nothing"}.get(reads := find_method(name).reads, reads) == actor.encoder.reads


CRITIC_READS = {
    "sparc": {"obs", "action", "context"},
    "rma": {"obs", "action", "context"},
    "only-obs": {"obs", "action"},
    "history-input": {"obs", "action", "history"},
    "oracle": {"obs", "action", "context"},
}


@pytest.mark.parametrize("name", all_methods())
def test_the_critics_read_what_the_paper_says(name: str) -> None:
    state = some_state(make(name))
    inputs, action, fields = variants("obs", "action", "context", "history")
    for critic in (*state.critics, *state.targets):
        quantiles = critic(inputs, action)
        assert quantiles.shape == (5, 3)
        assert felt(quantiles, fields) == CRITIC_READS[name]


def test_the_oracle_reads_the_context_unencoded_and_scaled() -> None:
    state = some_state(make("oracle"))
    assert state.expert.trunk.decide.layers[0].weight.shape == (8 + C, 8)
    inputs = Inputs(jnp.zeros((1, O)), context=jnp.array([[3.0, -6.0]]))
    np.testing.assert_allclose(state.expert.encoder(inputs), [[1.0, -1.0]])  # (3 - 1) / 2, (-6 + 2) / 4


# Who acts, and what is asked of the replay


@for_every_case
def test_the_policy_shares_the_experts_trunk(name: str, phase: str) -> None:
    step = one_update(name, phase)
    for state in (step.before, step.after):
        actor = step.method.policy(state)
        assert actor.trunk is state.expert.trunk  # "copy modules": there is nothing to copy
        adapts = "history" in ACTOR_READS[name, phase] and name != "history-input"
        assert actor.encoder is (state.adapter if adapts else state.expert.encoder)


@for_every_case
def test_the_shipped_policy_gathers_experience(name: str, phase: str) -> None:
    method = make(name, phase)
    state = some_state(method)
    assert method.rollout_policy(state).encoder is method.policy(state).encoder


def test_sparcs_expert_gathers_experience_if_asked() -> None:
    method = make("sparc", rollout_policy="expert")
    state = some_state(method)
    assert equal(method.rollout_policy(state), state.expert)
    assert method.policy(state).encoder is state.adapter  # what is shipped stays the adapter


@for_every_case
def test_histories_are_asked_for_only_where_they_are_read(name: str, phase: str) -> None:
    method = make(name, phase)
    readers = [("sparc", "train"), ("rma", "adapter"), ("history-input", "train")]
    assert method.wants_history == ((name, phase) in readers)
    assert method.wants_next_history == (name == "history-input")  # only its bootstrap reads φ


def test_an_unknown_method_names_the_nearest() -> None:
    assert [find_method(name).name for name in all_methods()] == list(all_methods())
    with pytest.raises(UserError, match=r"unknown method 'spark': did you mean 'sparc'\?"):
        get_method("spark")
