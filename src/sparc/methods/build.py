"""Networks from a Spec: the encoders of every method, and the policy that a checkpoint describes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparc.errors import UserError
from sparc.methods.nets import Actor, ContextEncoder, Encoder, HistoryAdapter, Nothing, RawContext, Trunk
from sparc.methods.normalization import RunningNorm
from sparc.methods.spec import Spec


def raw_context(spec: Spec) -> RawContext:
    """Return the Oracle's view of the context."""
    return RawContext(spec.context_centre, spec.context_half_range)


def context_encoder(spec: Spec, rng: np.random.Generator) -> ContextEncoder:
    """Return a new ψ."""
    return ContextEncoder(raw_context(spec), spec.latent, rng=rng)


def history_adapter(spec: Spec, rng: np.random.Generator) -> HistoryAdapter:
    """Return a new φ."""
    return HistoryAdapter(spec.obs_size + spec.action_size, spec.history_length, spec.latent, rng=rng)


# By the name that a Spec has for them. An encoder of your own needs a line here, or its policies cannot be saved.
ENCODERS: dict[str, tuple[type[Encoder], Callable[[Spec, np.random.Generator], Encoder]]] = {
    "none": (Nothing, lambda spec, rng: Nothing()),
    "raw-context": (RawContext, lambda spec, rng: raw_context(spec)),
    "context-encoder": (ContextEncoder, context_encoder),
    "history-adapter": (HistoryAdapter, history_adapter),
}


def encoder_name(encoder: Encoder) -> str:
    """Return the name of an encoder's kind."""
    for name, (kind, _) in ENCODERS.items():
        if type(encoder) is kind:
            return name
    raise UserError(
        f"a Spec has no name for the encoder {type(encoder).__name__}: add it to sparc.methods.build.ENCODERS."
    )


def build_encoder(name: str, spec: Spec, rng: np.random.Generator) -> Encoder:
    """Return a new encoder of the kind of this name."""
    if name not in ENCODERS:
        raise UserError(f"unknown encoder '{name}': upgrade sparc-rl, or import the module that defines it first.")
    return ENCODERS[name][1](spec, rng)


def latent_size(encoder: Encoder, spec: Spec) -> int:
    """Return how many inputs an encoder adds to the decision layers."""
    if isinstance(encoder, RawContext):
        return len(spec.context_centre)
    return 0 if isinstance(encoder, Nothing) else spec.latent


def build_norm(spec: Spec) -> RunningNorm | None:
    """Return new statistics of observations, where the policy standardises them."""
    return None if spec.observation_clip is None else RunningNorm(spec.obs_size, spec.observation_clip)


def build_actor(spec: Spec, encoder: Encoder, rng: np.random.Generator) -> Actor:
    """Return a new actor with this encoder, on observations as its trunk takes them."""
    return Actor(Trunk(spec.obs_size, latent_size(encoder, spec), spec.width, 2 * spec.action_size, rng=rng), encoder)


def build_policy(spec: Spec, rng: np.random.Generator) -> tuple[Actor, Encoder | None]:
    """Return a new policy as its Spec describes it, and the ψ of its expert, where its adapter replaces one."""
    actor = build_actor(spec, build_encoder(spec.encoder, spec, rng), rng)
    psi = None if spec.psi is None else build_encoder(spec.psi, spec, rng)
    return Actor(actor.trunk, actor.encoder, build_norm(spec)), psi
