"""QR-SAC, what all methods share: two quantile critics, a squashed-Gaussian actor, a fixed or tuned temperature.

A method says which encoders its networks have, what one update does, and which policy acts. The networks' state is
one pytree, an update is a pure function of it: `scan_updates` runs many of them in one compiled call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from sparc import losses
from sparc.config import Config
from sparc.nets import (
    Actor,
    ContextEncoder,
    Critic,
    Encoder,
    HistoryAdapter,
    Inputs,
    Nothing,
    RawContext,
    Trunk,
    reviving_relu,
)
from sparc.replay import Batch

Metrics = dict[str, Array]


class Spec(NamedTuple):
    """What a method knows of an environment: sizes, and the scale of its contexts."""

    obs_size: int
    action_size: int
    context_centre: tuple[float, ...]
    context_half_range: tuple[float, ...]


class State(eqx.Module):
    """Everything that learning changes."""

    expert: Actor  # the actor that reinforcement trains
    adapter: HistoryAdapter | None  # φ, where it is trained by regression
    critics: tuple[Critic, Critic]
    targets: tuple[Critic, Critic]
    log_temperature: Array
    optimisers: dict[str, Any]


class QrSac:
    """The base of every method; alone it is the Only Obs baseline's mathematics with the encoder left open."""

    phases: ClassVar[tuple[str, ...]] = ("train",)
    has_adapter: ClassVar[bool] = False  # φ is trained by regression on ψ(c), beside the expert

    def __init__(self, config: Config, spec: Spec, phase: str | None = None):
        self.config, self.spec = config, spec
        self.phase = phase or self.phases[0]
        last = config.expert_updates or config.updates  # of what the expert learns by
        rate = falling(config.learning_rate, config.final_rate, last)
        self.optimisers = {
            "expert": optax.adam(rate),
            "critics": optax.chain(optax.clip_by_global_norm(config.critic_clip), optax.adam(rate)),
            "log_temperature": optax.adam(rate),
        }
        if self.has_adapter:
            last = config.updates - config.expert_updates
            self.optimisers["adapter"] = optax.adam(falling(config.adapter_learning_rate, config.final_rate, last))

    # What a method decides

    def encoder(self, rng: np.random.Generator) -> Encoder:
        """Make the encoder of the actor; each critic gets one of its own."""
        return Nothing()

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Learn from one minibatch."""
        return self.update_expert(state, batch, key)

    def policy(self, state: State) -> Actor:
        """Give the policy that is evaluated and shipped."""
        return state.expert

    def rollout_policy(self, state: State) -> Actor:
        """Give the policy that acts while training."""
        return self.policy(state)

    @property
    def wants_history(self) -> bool:
        """Whether an update reads h."""
        return self.has_adapter or self.wants_next_history

    @property
    def wants_next_history(self) -> bool:
        """Whether an update reads the history at the next observation too."""
        return False

    # Networks

    def context_encoder(self, rng: np.random.Generator) -> ContextEncoder:
        """Make ψ."""
        return ContextEncoder(self.raw_context(), self.config.latent, rng=rng)

    def raw_context(self) -> RawContext:
        """Make the Oracle's view of the context."""
        return RawContext(self.spec.context_centre, self.spec.context_half_range)

    def history_adapter(self, rng: np.random.Generator) -> HistoryAdapter:
        """Make φ."""
        width = self.spec.obs_size + self.spec.action_size
        return HistoryAdapter(width, self.config.history_length, self.config.latent, rng=rng)

    def latent_size(self, encoder: Encoder) -> int:
        """Count what an encoder adds to the decision layers' input."""
        if isinstance(encoder, RawContext):
            return len(self.spec.context_centre)
        return 0 if isinstance(encoder, Nothing) else self.config.latent

    def init(self, rng: np.random.Generator) -> State:
        """Make networks, targets and optimisers."""
        config, spec = self.config, self.spec

        def trunk(size_in: int, encoder: Encoder, size_out: int) -> Trunk:
            return Trunk(size_in, self.latent_size(encoder), config.width, size_out, rng=rng)

        def critic() -> Critic:
            encoder = self.encoder(rng)
            return Critic(trunk(spec.obs_size + spec.action_size, encoder, config.num_quantiles), encoder)

        encoder = self.encoder(rng)
        parts: dict[str, Any] = {
            "expert": Actor(trunk(spec.obs_size, encoder, 2 * spec.action_size), encoder),
            "critics": (critic(), critic()),
            "adapter": self.history_adapter(rng) if self.has_adapter else None,
            "log_temperature": jnp.log(jnp.asarray(config.temperature, jnp.float32)),
        }

        @jax.jit  # for one small program instead of one per shape
        def prepare(parts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            optimisers = {name: optimiser.init(parts[name]) for name, optimiser in self.optimisers.items()}
            return jax.tree.map(jnp.copy, parts["critics"]), optimisers

        targets, optimisers = prepare(parts)
        return State(**parts, targets=targets, optimisers=optimisers)

    # Mathematics

    def descend(self, state: State, part: str, loss: Callable[[Any], tuple[Array, Metrics]]) -> tuple[State, Metrics]:
        """Take one optimiser step on one part of the state; `loss` maps that part to (loss, metrics)."""
        value = getattr(state, part)
        gradient, metrics = jax.grad(loss, has_aux=True)(value)
        step, optimiser = self.optimisers[part].update(gradient, state.optimisers[part])
        changed = {part: optax.apply_updates(value, step), "optimisers": state.optimisers | {part: optimiser}}
        return replace(state, **changed), metrics

    def update_expert(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Do one step of QR-SAC: critics, actor, temperature, targets."""
        now = Inputs(batch.obs, batch.context, batch.history)
        then = Inputs(batch.next_obs, batch.next_context, batch.next_history)
        next_key, actor_key = jax.random.split(key)
        temperature = jnp.exp(state.log_temperature)

        next_action, next_log_prob = state.expert.sample(then, next_key)
        next_quantiles = losses.pessimistic(*(target(then, next_action) for target in state.targets))
        target = losses.soft_target(batch.reward, batch.discount, next_quantiles, next_log_prob, temperature)

        def critic_loss(critics: tuple[Critic, Critic]) -> tuple[Array, Metrics]:
            first, second = (losses.quantile_huber(critic(now, batch.action), target) for critic in critics)
            loss = first + second
            return loss, {"critic_loss": loss, "q_target": jnp.mean(target)}

        state, metrics = self.descend(state, "critics", critic_loss)

        def actor_loss(actor: Actor) -> tuple[Array, Metrics]:
            action, log_prob = actor.sample(now, actor_key)
            quantiles = losses.pessimistic(*(critic(now, action) for critic in state.critics))
            loss = losses.actor_loss(log_prob, quantiles, temperature)
            return loss, {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}

        state, actor_metrics = self.descend(state, "expert", actor_loss)
        metrics |= actor_metrics | {"temperature": temperature}

        if self.config.tune_temperature:
            entropy = actor_metrics["entropy"]

            def temperature_loss(log_temperature: Array) -> tuple[Array, Metrics]:
                return losses.temperature_loss(log_temperature, -entropy, -float(self.spec.action_size)), {}

            state, _ = self.descend(state, "log_temperature", temperature_loss)
        return self.update_targets(state), metrics

    def update_targets(self, state: State) -> State:
        """Move the target critics by τ towards the critics."""
        rate = self.config.target_rate
        return replace(state, targets=jax.tree.map(lambda t, c: t + rate * (c - t), state.targets, state.critics))

    def update_adapter(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """Regress φ(h) on ψ(c), Eq. 2 of the paper."""
        inputs = Inputs(batch.obs, batch.context, batch.history)
        latent = state.expert.encoder(inputs)

        def adapter_loss(adapter: HistoryAdapter) -> tuple[Array, Metrics]:
            loss = losses.adapter_loss(adapter(inputs, last=reviving_relu), latent)
            return loss, {"adapter_loss": loss}

        return self.descend(state, "adapter", adapter_loss)

    def adapted(self, state: State) -> Actor:
        """Give the adapter policy π_ad: the expert's own trunk, with φ(h) in the place of ψ(c)."""
        assert state.adapter is not None
        return Actor(state.expert.trunk, state.adapter)


def falling(rate: float, share: float, updates: int) -> Any:
    """Let a rate fall linearly to a share of itself; a rate that stays is a number, without a count in the state."""
    return rate if share == 1.0 else optax.linear_schedule(rate, share * rate, updates)


def replace(state: State, **parts: Any) -> State:
    """Give a copy of the state with some parts exchanged."""
    names = list(parts)
    return eqx.tree_at(
        lambda s: [getattr(s, n) for n in names], state, [parts[n] for n in names], is_leaf=lambda x: x is None
    )


def scan_updates(method: QrSac) -> Callable[[State, Batch, Array, Array], tuple[State, Metrics]]:
    """Compile K updates into one call: (state, batches with a leading axis K, key, first) → (state, mean metrics)."""

    def step(carry: tuple[State, Array, Array], batch: Batch) -> tuple[tuple[State, Array, Array], Metrics]:
        state, key, count = carry
        state, metrics = method.update(state, batch, jax.random.fold_in(key, count))
        return (state, key, count + 1), metrics

    def run(state: State, batches: Batch, key: Array, first: Array) -> tuple[State, Metrics]:
        (state, _, _), metrics = jax.lax.scan(step, (state, key, first), batches)
        return state, jax.tree.map(jnp.mean, metrics)

    return jax.jit(run, donate_argnums=0)
