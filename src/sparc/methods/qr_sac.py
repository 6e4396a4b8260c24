"""QR-SAC, what all methods share: two quantile critics, a squashed-Gaussian actor, a fixed or tuned temperature.

A method says which encoders its networks have, what one update does, and which policy acts. The networks' state is
one pytree, an update is a pure function of it: `scan_updates` runs many of them in one compiled call.

Beyond the paper, each by a field of the config: batch-renormalised critics without targets (CrossQ, Bhatt et al.,
2024), standardised observations, delayed actor updates, and an average of the weights as the policy that is shipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from sparc.config import Config
from sparc.methods import build, losses, optimisers
from sparc.methods.batch import Batch
from sparc.methods.nets import (
    Actor,
    ContextEncoder,
    Critic,
    Encoder,
    HistoryAdapter,
    Inputs,
    Nothing,
    RawContext,
    Trunk,
    joined,
    normalized,
)
from sparc.methods.normalization import RunningNorm
from sparc.methods.registry import find_method, phase_span
from sparc.methods.spec import Spec

Metrics = dict[str, Array]


class Weights(eqx.Module):
    """What policies are made of."""

    expert: Actor  # the actor that reinforcement trains
    adapter: HistoryAdapter | None  # φ, where it is trained by regression


class State(eqx.Module):
    """Everything that learning changes; the networks take standardised observations, where there is a norm."""

    expert: Actor
    adapter: HistoryAdapter | None
    critics: tuple[Critic, Critic]
    targets: tuple[Critic, Critic] | None
    log_temperature: Array
    optimisers: dict[str, Any]
    norm: RunningNorm | None = None  # of observations
    average: Weights | None = None  # of expert and adapter, over the updates

    @property
    def newest(self) -> Weights:
        """The weights after the last update."""
        return Weights(self.expert, self.adapter)

    @property
    def shipped(self) -> Weights:
        """The weights that are evaluated and shipped: the average, where there is one."""
        return self.newest if self.average is None else self.average


class QrSac:
    """The base of every method; alone it is the Only Obs baseline's mathematics with the encoder left open."""

    def __init__(self, config: Config, spec: Spec, phase: str | None = None):
        self.config = config
        self.spec = dataclasses.replace(
            spec,
            history_length=config.history_length,
            width=config.width,
            latent=self.latent,
            observation_clip=config.observation_clip if config.normalize_observations else None,
        )
        self.phases = tuple(find_method(config.method).phases)
        self.phase = phase or self.phases[0]
        self.optimisers = self.make_optimisers()

    def make_optimisers(self) -> dict[str, optax.GradientTransformation]:
        """Make an optimiser for each part of the state that a gradient trains, by the part's name."""
        config = self.config
        _, end = phase_span(config, self.phases[0])  # actor and critics learn in the first phase
        clip = optax.clip_by_global_norm(config.critic_clip)
        return {
            "expert": self.adam(config.learning_rate, end // config.policy_delay),
            "critics": optax.chain(clip, self.adam(config.learning_rate, end)),
            "log_temperature": self.adam(config.learning_rate, end // config.policy_delay),
        }

    def adam(self, rate: float, steps: int) -> optax.GradientTransformation:
        """Make an Adam whose rate decays over so many steps, if the config asks for it."""
        return optimisers.adam(linear_decay(rate, self.config.final_lr_fraction, steps), b1=self.config.adam_beta1)

    # What a method decides

    def encoder(self, rng: np.random.Generator) -> Encoder:
        """Make the encoder of the actor; each critic gets one of its own."""
        return Nothing()

    def make_adapter(self, rng: np.random.Generator) -> HistoryAdapter | None:
        """Make φ where it is trained by regression beside the expert, see `adapter.py`; else there is none."""
        return None

    @property
    def latent(self) -> int:
        """The units of an encoding: of ψ(c), and of its estimate φ(h)."""
        return self.config.latent

    def update(self, state: State, batch: Batch, key: Array, improve: bool = True) -> tuple[State, Metrics]:
        """Learn from one minibatch of standardised observations; without `improve`, the actor waits."""
        return self.update_expert(state, batch, key, improve)

    def actor(self, weights: Weights) -> Actor:
        """Return the policy that is evaluated and shipped, made of these weights."""
        return weights.expert

    def rollout_actor(self, weights: Weights) -> Actor:
        """Return the policy that acts while training, made of these weights."""
        return self.actor(weights)

    @property
    def trains_expert(self) -> bool:
        """Whether this phase trains actor and critics, and with them the statistics of observations."""
        return True

    @property
    def wants_history(self) -> bool:
        """Whether an update reads h."""
        return self.wants_next_history

    @property
    def wants_next_history(self) -> bool:
        """Whether an update reads the history at the next observation too."""
        return False

    @property
    def history_rows(self) -> int:
        """The number of rows of a minibatch, the first ones, whose history an update reads."""
        return self.config.batch_size if self.wants_history else 0

    # Policies, which take observations as the environment gives them

    def policy(self, state: State) -> Actor:
        """Return the policy that is evaluated and shipped."""
        return equipped(self.actor(state.shipped), state.norm)

    def rollout_policy(self, state: State) -> Actor:
        """Return the policy that acts while training: of the newest weights."""
        return equipped(self.rollout_actor(state.newest), state.norm)

    def variants(self, state: State) -> dict[str, Actor]:
        """Return what else is worth evaluating: the expert with the true context, the newest weights."""
        found = {}
        if self.actor(state.shipped).encoder is not state.shipped.expert.encoder:
            found["expert"] = state.shipped.expert
        if state.average is not None:
            found["newest"] = self.actor(state.newest)
        return {name: equipped(actor, state.norm) for name, actor in found.items()}

    def psi(self, state: State) -> Encoder | None:
        """Return the expert's encoder where the policy has an adapter in its place; None where it acts itself."""
        expert = self.variants(state).get("expert")
        return None if expert is None else expert.encoder

    def describe(self, state: State) -> Spec:
        """Return the Spec of the policy that is evaluated and shipped."""
        encoder, psi = self.policy(state).encoder, self.psi(state)
        return dataclasses.replace(
            self.spec,
            reads=encoder.reads,
            encoder=build.encoder_name(encoder),
            psi=None if psi is None else build.encoder_name(psi),
        )

    def q_value(self, state: State, inputs: Inputs, action: Array) -> Array:
        """Return the critics' pessimistic estimate of the return (B,); observations are the environment's own."""
        inputs = normalized(inputs, state.norm)
        return jnp.mean(losses.pessimistic(*(critic(inputs, action) for critic in state.critics)), axis=1)

    # Networks

    def context_encoder(self, rng: np.random.Generator) -> ContextEncoder:
        """Return a new ψ."""
        return build.context_encoder(self.spec, rng)

    def raw_context(self) -> RawContext:
        """Return the Oracle's view of the context."""
        return build.raw_context(self.spec)

    def history_adapter(self, rng: np.random.Generator) -> HistoryAdapter:
        """Return a new φ."""
        return build.history_adapter(self.spec, rng)

    def init(self, rng: np.random.Generator) -> State:
        """Make networks, targets and optimisers."""
        config, spec = self.config, self.spec

        def critic() -> Critic:
            encoder, size_in = self.encoder(rng), spec.obs_size + spec.action_size
            latent, outputs = build.latent_size(encoder, spec), config.num_quantiles
            # without targets, nothing else holds the scale of a φ that learns by reinforcement: it was seen to grow
            # thirtyfold within a thousand updates, and the critics to diverge
            renorm_latent = config.batch_renorm and encoder.reads == "history"
            trunk = Trunk(
                size_in, latent, spec.width, outputs,
                rng=rng, batch_renorm=config.batch_renorm, renorm_latent=renorm_latent,
            )  # fmt: skip
            return Critic(trunk, encoder)

        parts: dict[str, Any] = {
            "expert": build.build_actor(spec, self.encoder(rng), rng),
            "critics": (critic(), critic()),
            "adapter": self.make_adapter(rng),
            "log_temperature": jnp.log(jnp.asarray(config.temperature, jnp.float32)),
        }

        @jax.jit  # for one small program instead of one per shape
        def prepare(parts: dict[str, Any]) -> dict[str, Any]:
            copied = jax.tree.map(jnp.copy, parts)
            return {
                "optimisers": {name: optimiser.init(parts[name]) for name, optimiser in self.optimisers.items()},
                "targets": copied["critics"] if config.target_networks else None,
                "average": Weights(copied["expert"], copied["adapter"]) if config.ema_decay else None,
            }

        return State(**parts, **prepare(parts), norm=build.build_norm(spec))

    # Mathematics

    def learn(self, state: State, batch: Batch, key: Array, improve: bool = True) -> tuple[State, Metrics]:
        """Update from one minibatch of raw observations: their statistics, the networks, the average of the weights."""
        if (norm := state.norm) is not None:
            norm = norm.updated(batch.obs) if self.trains_expert else norm
            state, batch = replace(state, norm=norm), standardized(batch, norm)
        state, metrics = self.update(state, batch, key, improve)
        if improve and state.average is not None:
            state = replace(state, average=self.averaged(state))
        return state, metrics

    def averaged(self, state: State) -> Weights:
        """Move the average of the weights towards the newest."""
        rate = 1.0 - self.config.ema_decay
        average: Weights = jax.tree.map(lambda a, n: a + rate * (n - a), state.average, state.newest)
        return average

    def descend(self, state: State, part: str, loss: Callable[[Any], tuple[Array, Any]]) -> tuple[State, Any, Any]:
        """Take one optimiser step on one part of the state; `loss` maps that part to (loss, extra).

        Return the state, the extra and the gradient.
        """
        value = getattr(state, part)
        gradient, extra = jax.grad(loss, has_aux=True)(value)
        step, optimiser = self.optimisers[part].update(gradient, state.optimisers[part], value)
        changed = {part: optax.apply_updates(value, step), "optimisers": state.optimisers | {part: optimiser}}
        return replace(state, **changed), extra, gradient

    def update_expert(self, state: State, batch: Batch, key: Array, improve: bool) -> tuple[State, Metrics]:
        """Do one step of QR-SAC: critics, actor, temperature, targets."""
        next_key, actor_key = jax.random.split(key)
        state, metrics = self.update_critics(state, batch, next_key)
        if improve:
            state, actor_metrics = self.update_actor(state, batch, actor_key)
            metrics |= actor_metrics
        return self.update_targets(state), metrics

    def update_critics(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Fit the critics to r + d·(Z(o', a') − α log π(a'|o')).

        Without targets, (o, a) and (o', a') go through the critics as one batch, whose moments both share.
        """
        now, then = (
            Inputs(batch.obs, batch.context, batch.history),
            Inputs(batch.next_obs, batch.next_context, batch.next_history),
        )
        next_action, next_log_prob = state.expert.sample(then, key)
        temperature = jnp.exp(state.log_temperature)

        def target_of(next_quantiles: list[Array]) -> Array:
            pessimistic = losses.pessimistic(*next_quantiles)
            return losses.soft_target(batch.reward, batch.discount, pessimistic, next_log_prob, temperature)

        fixed = None if state.targets is None else target_of([t(then, next_action) for t in state.targets])

        def critic_loss(critics: tuple[Critic, Critic]) -> tuple[Array, Any]:
            if fixed is None:
                both, actions = joined(now, then), jnp.concatenate([batch.action, next_action])
                passes, moments = zip(*(critic.train(both, actions) for critic in critics), strict=True)
                quantiles, next_quantiles = zip(*(jnp.split(x, 2) for x in passes), strict=True)
                target = target_of(list(next_quantiles))
            else:
                quantiles, moments = zip(*(critic.train(now, batch.action) for critic in critics), strict=True)
                target = fixed
            first, second = (losses.quantile_huber(x, target) for x in quantiles)
            loss = first + second
            return loss, ({"critic_loss": loss, "q_target": jnp.mean(target)}, moments)

        state, (metrics, moments), gradient = self.descend(state, "critics", critic_loss)
        critics = tuple(critic.follow(batch) for critic, batch in zip(state.critics, moments, strict=True))
        norm = optax.tree.norm(gradient)
        metrics |= {"critic_gradient_norm": norm, "critic_clipped": (norm > self.config.critic_clip).astype(norm.dtype)}
        return replace(state, critics=critics), metrics

    def update_actor(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Improve the actor by the critics, and move the temperature, where it is tuned."""
        now = Inputs(batch.obs, batch.context, batch.history)
        temperature = jnp.exp(state.log_temperature)

        def actor_loss(actor: Actor) -> tuple[Array, Metrics]:
            action, log_prob = actor.sample(now, key)
            quantiles = losses.pessimistic(*(critic(now, action) for critic in state.critics))
            loss = losses.actor_loss(log_prob, quantiles, temperature)
            return loss, {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}

        state, metrics, _ = self.descend(state, "expert", actor_loss)
        metrics |= {"temperature": temperature}

        if self.config.tune_temperature:
            entropy = metrics["entropy"]

            def temperature_loss(log_temperature: Array) -> tuple[Array, Metrics]:
                return losses.temperature_loss(log_temperature, -entropy, -float(self.spec.action_size)), {}

            state, _, _ = self.descend(state, "log_temperature", temperature_loss)
        return state, metrics

    def update_targets(self, state: State) -> State:
        """Move the target critics by τ towards the critics."""
        if state.targets is None:
            return state
        rate = self.config.tau
        return replace(state, targets=jax.tree.map(lambda t, c: t + rate * (c - t), state.targets, state.critics))

    def frozen(self, state: State) -> State:
        """Return the state that a phase without an expert in training begins from: with the expert that was shipped."""
        expert = jax.tree.map(jnp.copy, state.shipped.expert)
        average = None if state.average is None else jax.tree.map(jnp.copy, Weights(expert, state.adapter))
        return replace(state, expert=expert, average=average)


def equipped(actor: Actor, norm: RunningNorm | None) -> Actor:
    """Return an actor that takes observations as the environment gives them."""
    return Actor(actor.trunk, actor.encoder, norm)


def standardized(batch: Batch, norm: RunningNorm) -> Batch:
    """Return the batch with standardised observations."""
    now = normalized(Inputs(batch.obs, None, batch.history), norm)
    then = normalized(Inputs(batch.next_obs, None, batch.next_history), norm)
    return batch._replace(obs=now.obs, history=now.history, next_obs=then.obs, next_history=then.history)


def linear_decay(rate: float, share: float, updates: int) -> Any:
    """Let a rate fall linearly to a share of itself; a rate that stays is a number, without a count in the state."""
    return rate if share == 1.0 else optax.linear_schedule(rate, share * rate, updates)


def replace(state: State, **parts: Any) -> State:
    """Return a copy of the state with some parts exchanged."""
    names = list(parts)
    return eqx.tree_at(
        lambda s: [getattr(s, n) for n in names], state, [parts[n] for n in names], is_leaf=lambda x: x is None
    )


def scan_updates(method: QrSac) -> Callable[[State, Batch, Array, Array], tuple[State, Metrics]]:
    """Compile K updates into one call: (state, batches with a leading axis K, key, first) → (state, mean metrics)."""
    delay = method.config.policy_delay

    def step(carry: tuple[State, Array, Array], batches: Batch) -> tuple[tuple[State, Array, Array], Metrics]:
        """Do `policy_delay` updates, of which the last one improves the actor."""
        state, key, count = carry
        metrics: dict[str, list[Array]] = {}
        for i in range(delay):
            batch = jax.tree.map(lambda x, i=i: x[i], batches)
            state, found = method.learn(state, batch, jax.random.fold_in(key, count + i), improve=i == delay - 1)
            for name, value in found.items():
                metrics.setdefault(name, []).append(value)
        return (state, key, count + delay), {name: jnp.mean(jnp.stack(values)) for name, values in metrics.items()}

    def run(state: State, batches: Batch, key: Array, first: Array) -> tuple[State, Metrics]:
        grouped = jax.tree.map(lambda x: x.reshape(-1, delay, *x.shape[1:]), batches)
        (state, _, _), metrics = jax.lax.scan(step, (state, key, first), grouped)
        return state, jax.tree.map(jnp.mean, metrics)

    return jax.jit(run, donate_argnums=0)
