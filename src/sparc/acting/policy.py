"""A policy that keeps its own history: what collects experience, what is evaluated and what `sparc.load` gives."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import Array

from sparc.acting.history import History
from sparc.errors import UserError
from sparc.methods.nets import Actor, Inputs
from sparc.methods.spec import Reads, Spec


@partial(jax.jit, static_argnames="noisy")
def _choose(actor: Actor, inputs: Inputs, key: Array | None, noisy: bool) -> Array:
    if noisy:
        assert key is not None
        return actor.sample(inputs, key)[0]
    return actor.mode(inputs)


@jax.jit
def _encode(actor: Actor, inputs: Inputs) -> Array:
    return actor.latent(inputs)


def infer(adapter: Actor, history: np.ndarray) -> np.ndarray:
    """Return φ(h) of histories (N, H, O+A) as (N, Z); the observations in them are the environment's own."""
    obs = history[:, -1, : adapter.norm.mean.size] if adapter.norm is not None else None
    return np.asarray(_encode(adapter, Inputs(obs, history=history)), np.float64)


class Policy:
    """Acts for one environment, or for N side by side, from observations alone.

    It keeps its own history: call `reset()` when a new episode begins, or `reset(mask)` for the rows that ended.

    Example:
        >>> policy, env = sparc.load(run), sparc.make_env("DriftingBoat-v0")
        >>> obs, _ = env.reset(seed=0)
        >>> policy.reset()
        >>> obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
    """

    def __init__(self, actor: Actor, spec: Spec):
        self.actor, self.spec = actor, spec
        self.obs_size, self.action_size = spec.obs_size, spec.action_size
        self.low, self.high = (np.array(bound, spec.action_dtype) for bound in (spec.action_low, spec.action_high))
        self.middle, self.half = (self.high + self.low) / 2, (self.high - self.low) / 2
        self.history_length = spec.history_length
        self.history: History | None = None
        self._inputs: Inputs | None = None  # of the last action

    @property
    def reads(self) -> Reads:
        """What the policy needs beside the observation: nothing, its history or the context."""
        return self.actor.encoder.reads

    @property
    def context_size(self) -> int:
        """The number of context features of its environment."""
        return len(self.spec.context_centre)

    @property
    def latent(self) -> np.ndarray:
        """The encoding behind the last action, (N, Z): φ(h) of its history or ψ(c) of its context."""
        if self._inputs is None:
            raise UserError("The policy has no latent before its first action: call act(obs) first.")
        return np.asarray(_encode(self.actor, self._inputs))

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget the history, because new episodes begin.

        Args:
            mask: the rows whose episode ended, (N,) bool; without it, all, and the next `act` may have another N.

        Raises:
            UserError: the mask has another number of rows than the policy acts for.
        """
        if mask is None:
            self.history = self._inputs = None
        elif self.history is not None:
            rows = len(self.history.array)
            if np.shape(mask) != (rows,):
                raise UserError(f"The policy acts for {rows} rows: its mask must have as many, not {np.shape(mask)}.")
            self.history.reset(mask)

    def act(
        self,
        obs: np.ndarray,
        context: np.ndarray | None = None,
        key: Array | None = None,
        *,
        executed: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return actions in the environment's own range, and remember them with the observations.

        Args:
            obs: one observation (O,) or N of them (N, O).
            context: the true context, (C,) or (N, C), for policies that read it: the Oracle and experts.
            key: a JAX random key, to sample the actions; without it they are the mode of the distribution.
            executed: what was executed since the last call, (A,) or (N, A), where that is not what `act` returned: the
                driver took over, an actuator saturated. It replaces the last action in the history.

        Returns:
            Actions, (A,) or (N, A).

        Raises:
            UserError: shapes do not fit, an observation or executed action is not finite, or N has changed without
                `reset()`. The history stays as it was.
        """
        obs = np.asarray(obs, np.float32)
        single = obs.ndim == 1
        rows = obs[None] if single else obs
        if rows.ndim != 2 or rows.shape[1] != self.obs_size:
            raise UserError(
                f"The policy expects observations of {self.obs_size} numbers, got an array of shape {obs.shape}."
            )
        check_finite(rows, "observation")  # or the history would never be rid of it
        if single and context is not None:
            context = np.asarray(context)[None]
        if executed is not None:
            executed = np.asarray(executed, np.float32)
            executed = executed[None] if single else executed
            if executed.shape != (len(rows), self.action_size):
                expected = (len(rows), self.action_size)
                raise UserError(f"The policy expects executed actions of shape {expected}, got {executed.shape}.")
            check_finite(executed, "executed action")
        action = self.scale(self.choose(rows, context, key, executed))
        return action[0] if single else action

    def choose(
        self, obs: np.ndarray, context: np.ndarray | None, key: Array | None, executed: np.ndarray | None = None
    ) -> np.ndarray:
        """Choose unit actions (N, A) in [−1, 1] for observations (N, O), and remember them.

        `executed` are the actions executed since the last call, in the environment's own range.
        """
        if self.history is None:
            self.start(len(obs))
        assert self.history is not None
        if len(self.history.array) != len(obs):
            raise UserError(
                f"The policy has acted for {len(self.history.array)} rows, now for {len(obs)}: call reset() first."
            )
        if executed is not None:
            self.history.correct(self.unscale(executed))
        if self.reads == "context":
            if context is None:
                raise UserError("This policy reads the true context (Oracle or an RMA expert): call act(obs, context).")
            expected = (len(obs), self.context_size)
            if np.shape(context) != expected:
                raise UserError(f"The policy expects contexts of shape {expected}, got {np.shape(context)}.")
            inputs = Inputs(obs, context=np.asarray(context, np.float32))
        elif self.reads == "history":
            inputs = Inputs(obs, history=self.history.array)
        else:
            inputs = Inputs(obs)
        self._inputs = inputs
        action = np.asarray(_choose(self.actor, inputs, key, noisy=key is not None))
        self.history.push(obs, action)
        return action

    def start(self, rows: int) -> None:
        """Begin with empty histories for this many rows."""
        self.history = History(rows, self.history_length, self.obs_size + self.action_size)

    def scale(self, unit: np.ndarray) -> np.ndarray:
        """Stretch unit actions to the environment's range."""
        return np.clip(self.middle + self.half * unit, self.low, self.high)

    def unscale(self, action: np.ndarray) -> np.ndarray:
        """Return actions of the environment's range as unit actions; those beyond its bounds are clipped."""
        return np.clip((action - self.middle) / np.where(self.half > 0, self.half, 1.0), -1.0, 1.0)


def check_finite(rows: np.ndarray, what: str) -> None:
    """Raise a UserError that names the first element that is not finite."""
    if not (finite := np.isfinite(rows)).all():
        row, column = np.argwhere(~finite)[0]
        raise UserError(f"Element {column} of the {what} in row {row} is {rows[row, column]}: check the environment.")
