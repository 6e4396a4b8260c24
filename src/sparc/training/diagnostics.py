"""What one needs to understand a run, from its state at an evaluation: how wrong φ is, and the critics are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparc.acting.episodes import Step
from sparc.acting.policy import Policy
from sparc.contexts import ContextSpace
from sparc.methods.nets import Actor, Critic, Inputs, Trunk, normalized
from sparc.methods.normalization import RunningNorm
from sparc.training.replay import Replay

BANDS = (0, 10, 50)  # the first episode position of each: the history is nearly empty, filling up, full
BAND_ROWS = 1_000  # of each band, at most
BAND_DRAWS = 50_000  # among which they are looked for: the first ten steps of a thousand are rare
Q_EPISODES = 16  # episodes of an evaluation that are recorded for the critics, at most: some are long
Q_ROWS = 2_000  # steps of these that the critics are asked about, at most
DORMANT = 0.025  # of a layer's mean activation
DORMANT_ROWS = 1_000  # transitions that it is measured on
CUT_OFF = 0.01  # the largest weight γ^k of what the end of a truncated episode leaves out of a discounted return


@jax.jit
def _latents(policy: Actor, expert: Actor, inputs: Inputs) -> tuple[Any, Any]:
    return policy.latent(inputs), expert.latent(inputs)


def adapter_errors(policy: Actor, expert: Actor, replay: Replay, rng: np.random.Generator) -> dict[str, float]:
    """Return φ's error over ψ's spread for each band of episode positions, named after its first position."""
    batch, positions = replay.sample_bands(rng, BANDS, BAND_ROWS, BAND_DRAWS)
    phi, psi = map(np.asarray, _latents(policy, expert, Inputs(batch.obs, batch.context, batch.history)))
    band = np.searchsorted(BANDS, positions, side="right") - 1
    errors = {first: error_over_spread(phi[band == i], psi[band == i]) for i, first in enumerate(BANDS)}
    return {f"adapter_error_{first}": error for first, error in errors.items() if np.isfinite(error)}


def error_over_spread(phi: np.ndarray, psi: np.ndarray) -> float:
    """Return the mean squared error of φ(h) against ψ(c), (B, Z) each, over the variance of ψ(c); NaN without any."""
    variance = float(np.var(psi, axis=0, dtype=np.float64).mean()) if len(psi) else 0.0
    return float(np.mean((phi - psi) ** 2, dtype=np.float64)) / variance if variance > 0.0 else float("nan")


def dormant_units(policy: Actor, critic: Critic, norm: RunningNorm | None, replay: Replay,
                  rng: np.random.Generator) -> dict[str, float]:  # fmt: skip
    """Return the share of dormant units in the trunks of the policy and of a critic, on stored transitions.

    A unit is dormant if its mean activation is at most DORMANT of its layer's (Sokar et al., 2023): it has lost what
    it could learn with.
    """
    batch = replay.sample(rng, (DORMANT_ROWS,), history=True, next_history=False)
    inputs = normalized(Inputs(batch.obs, batch.context, batch.history), norm)
    plain = Actor(policy.trunk, policy.encoder)
    both = {
        "dormant_actor": (plain.trunk, plain.latent(inputs), inputs.obs),
        "dormant_critic": (critic.trunk, critic.encoder(inputs), np.concatenate([inputs.obs, batch.action], axis=-1)),
    }
    return {name: dormant_share(trunk, np.asarray(x), np.asarray(z)) for name, (trunk, z, x) in both.items()}


def dormant_share(trunk: Trunk, x: np.ndarray, z: np.ndarray) -> float:
    """Return the share of a trunk's units that are dormant for inputs x (B, I) and latents z (B, Z)."""
    if trunk.latent_norm is not None:
        z = np.asarray(trunk.latent_norm(jnp.asarray(z)))
    dormant: list[np.ndarray] = []
    for number, part in enumerate((trunk.observe, trunk.decide)):
        x = np.concatenate([x, z], axis=-1) if number else x
        for i, layer in enumerate(part.layers):
            x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
            x = np.maximum(x if part.norms is None else np.asarray(part.norms[i](jnp.asarray(x))), 0.0)
            means = x.mean(axis=0)
            dormant.append(means <= DORMANT * means.mean())
    return float(np.concatenate(dormant).mean())


class Recording(NamedTuple):
    """The episodes of an evaluation side by side, zeros after the end of each."""

    obs: np.ndarray  # (T, N, O)
    action: np.ndarray  # (T, N, A) in [−1, 1]
    context: np.ndarray  # (T, N, C)
    reward: np.ndarray  # (T, N)
    length: np.ndarray  # (N,)
    terminated: np.ndarray  # (N,) bool


class Recorder:
    """Collects the steps of an evaluation of a policy, as its `on_step`, in some of its episodes."""

    def __init__(self, policy: Policy, episodes: int):
        self.policy = policy
        self.rows = np.linspace(0, episodes - 1, min(episodes, Q_EPISODES)).round().astype(int)
        self.steps: list[tuple[np.ndarray, ...]] = []

    def __call__(self, step: Step) -> None:
        rows, alive = self.rows, step.running[self.rows]
        unit = (step.action - self.policy.middle) / self.policy.half
        parts = (part[rows] for part in (step.obs, unit, step.contexts))
        seen = (np.where(alive[:, None], part, 0.0).astype(np.float32) for part in parts)
        self.steps.append((*seen, np.where(alive, step.reward[rows], 0.0), alive, step.terminated[rows]))

    def recording(self) -> Recording:
        """Return all steps so far."""
        obs, action, context, reward, alive, terminated = (np.stack(part) for part in zip(*self.steps, strict=True))
        return Recording(obs, action, context, reward, alive.sum(axis=0), (alive & terminated).any(axis=0))


def q_bias(
    recording: Recording, discount: float, history_length: int, value: Callable[[Inputs, np.ndarray], Any]
) -> dict[str, float]:
    """Return the mean of Q(o, a) minus the discounted return that followed, and the mean of that return.

    Over the steps whose return is known, see `known`; nothing where there is none. `value` gives the critics' estimate,
    with histories if there is a history_length. It does not count the entropy as a reward, as the critics do.
    """
    step, row = np.nonzero(known(recording, discount))
    if not len(step):
        return {}
    count = min(len(step), Q_ROWS)
    some = np.linspace(0, len(step) - 1, count).round().astype(int)
    step, row = step[some], row[some]
    returns = discounted_returns(recording.reward, discount)[step, row]
    # always as many rows: another number would be compiled anew
    step, row = (np.pad(index, (0, Q_ROWS - count), mode="edge") for index in (step, row))
    history = windows(recording, step, row, history_length) if history_length else None
    inputs = Inputs(recording.obs[step, row], recording.context[step, row], history)
    values = np.asarray(value(inputs, recording.action[step, row]))[:count]
    return {"q_bias": float(np.mean(values - returns)), "discounted_return": float(returns.mean())}


def discounted_returns(reward: np.ndarray, discount: float) -> np.ndarray:
    """Return Σ_k γ^k r_{t+k} of every step to the end of its episode, (T, N)."""
    returns = np.zeros_like(reward, np.float64)
    after = np.zeros(reward.shape[1])
    for step in reversed(range(len(reward))):
        after = returns[step] = reward[step] + discount * after
    return returns


def known(recording: Recording, discount: float) -> np.ndarray:
    """Return the steps (T, N) whose discounted return is known but for CUT_OFF: those of episodes that terminated, and
    those far enough from the end of the others.
    """
    left = recording.length - np.arange(len(recording.reward))[:, None]  # steps, this one included
    return (left > 0) & (recording.terminated | (discount ** np.maximum(left, 0) <= CUT_OFF))


def windows(recording: Recording, step: np.ndarray, row: np.ndarray, length: int) -> np.ndarray:
    """Return the histories (B, H, O+A) before these steps of these rows, with zeros before the episode."""
    pairs = np.concatenate([recording.obs, recording.action], axis=-1)
    padded = np.concatenate([np.zeros((length, *pairs.shape[1:]), pairs.dtype), pairs])
    return padded[step[:, None] + np.arange(length), row[:, None]]


def setting_titles(space: ContextSpace, labels: Sequence[str] = ()) -> dict[str, str]:
    """Return what TensorBoard calls the returns in the predetermined settings: by their labels or their contexts."""
    named = labels or [
        " ".join(f"{name} {value:g}" for name, value in zip(space.names, context, strict=True))
        for context in space.settings
    ]
    return {f"return_{i}": f"return {named[i]}".replace(" ", "_") for i in range(len(space.settings))}
