"""One run on the live page: its environment, its policy, and what its φ says about the context."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from sparc.acting.history import History
from sparc.contexts import Array
from sparc.envs.registry import get_env, make_env
from sparc.envs.wind.view import choose_backend, make_current, release
from sparc.errors import RunFailure, UserError
from sparc.methods.nets import Actor, Inputs
from sparc.methods.registry import find_method
from sparc.runs.load import load_with_psi
from sparc.runs.run import Run
from sparc.watch.live.belief import Belief
from sparc.watch.play import DEFAULT_RATE, make_drawn, titles

PICTURE_WIDTH = 640  # pixels, of environments that only draw themselves
QUALITY = 80  # of their JPEGs
ENDLESS = -1  # max_episode_steps of Gymnasium: the page decides when an episode is over
READS = {"nothing": "observation only", "history": "observation and history", "context": "observation and true context"}


@jax.jit
def decide(actor: Actor, inputs: Inputs) -> tuple[Any, Any]:
    """Return the action without noise and the latent it was chosen with."""
    return actor.mode(inputs), actor.latent(inputs)


@dataclass(frozen=True)
class Cast:
    """Which checkpoint of a run is shown, and as what."""

    run: Run
    number: int
    title: str


def casts(paths: Sequence[Path], checkpoint: str) -> list[Cast]:
    """Open the runs, which must be of one environment, and choose their checkpoints."""
    runs = [Run.open(path) for path in paths]
    first = get_env(runs[0].config.env).id
    for run in runs[1:]:
        if (other := get_env(run.config.env).id) != first:
            raise UserError(f"{run.path} is a run of {other}, not of {first}: only runs of one can stand side by side.")
    names = [name_of(run, title) for run, title in zip(runs, titles(runs), strict=True)]
    return [Cast(run, run.choose(checkpoint), name) for run, name in zip(runs, names, strict=True)]


def name_of(run: Run, title: str) -> str:
    """Return a run's title with its method as reports call it."""
    return find_method(run.config.method).title + title.removeprefix(run.config.method)


class Stage:
    """One run in its environment. Everything happens in the thread that made it: OpenGL asks for that."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.policy, psi = load_with_psi(cast.run, cast.number)
        self.env = open_env(cast.run)
        self.has_scene = self.env.has_wrapper_attr("scene")
        self.rate = float(self.env.metadata.get("render_fps") or DEFAULT_RATE)  # steps per second in real time
        self.belief = Belief(psi, get_env(cast.run.config.env).context_space) if psi is not None else None
        self.steps, self.total, self.episode, self.ends = 0, 0.0, 0, 0
        self.over = False

    def begin(self, seed: int, context: Array) -> None:
        """Start an episode."""
        self.context = context
        self.obs, _ = self.env.reset(seed=seed, options={"context": context})
        size = self.policy.obs_size + self.policy.action_size
        self.history = History(1, self.policy.history_length, size)
        self.steps, self.total, self.over = 0, 0.0, False
        self.episode += 1

    def switch(self, context: Array) -> None:
        """Put another context in force, in mid-episode where the environment can."""
        self.context = context
        self.env.get_wrapper_attr("set_context")(context)

    def advance(self) -> dict[str, Any]:
        """Take a step; return the reward and what φ(h) says about the context."""
        seen = np.asarray(self.obs, np.float32)[None]
        reads = self.policy.reads
        inputs = Inputs(
            seen,
            self.context[None].astype(np.float32) if reads == "context" else None,
            self.history.array if reads == "history" else None,
        )
        unit, latent = (np.asarray(part) for part in decide(self.policy.actor, inputs))
        self.history.push(seen, unit)
        self.obs, reward, terminated, truncated, _ = self.env.step(self.policy.scale(unit)[0])
        if not (np.isfinite(reward) and np.isfinite(self.obs).all()):
            raise RunFailure(f"{self.env} returned NaN or infinity at step {self.steps}")
        self.steps += 1
        self.total += float(reward)
        self.over = bool(terminated or truncated)
        self.ends += self.over
        sample: dict[str, Any] = {"reward": round(float(reward), 5)}
        if self.belief is not None:
            sample |= self.belief.read(latent[0].astype(np.float64), self.context)
        return sample

    def describe(self) -> dict[str, Any]:
        """Return what the page shows of the run itself."""
        entry = find_method(self.cast.run.config.method)
        return {
            "title": self.cast.title,
            "reads": READS[self.policy.reads],
            "colour": entry.colour,
            "updates": self.cast.number,
            "seed": self.cast.run.config.seed,
            "ending": self.env.get_wrapper_attr("ending") if self.env.has_wrapper_attr("ending") else "ended",
            "map": self.belief.map() if self.belief else None,
        }

    def state(self) -> dict[str, Any]:
        """Return what changes at every step, the scene or picture included."""
        what = {
            "steps": self.steps, "total": round(self.total, 2), "episode": self.episode, "ends": self.ends,
            "over": self.over,
        }  # fmt: skip
        if self.has_scene:
            return what | {"scene": self.env.get_wrapper_attr("scene")()}
        return what | {"picture": base64.b64encode(self.picture()).decode()}

    def picture(self) -> bytes:
        """Return what the environment draws of itself, as a JPEG."""
        make_current(self.env)
        pixels = self.env.render()
        if np.ndim(pixels) != 3 or np.shape(pixels)[2] != 3:
            raise UserError(f"{self.env} cannot draw itself: its render() gave no RGB array, but {type(pixels)}")
        file = BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def close(self) -> None:
        """Close the environment."""
        release(self.env)
        self.env.close()


def open_env(run: Run) -> Any:
    """Make a run's environment, without end; it draws itself only if the page cannot."""
    options = {**run.config.env_options, "max_episode_steps": ENDLESS}
    env = make_env(run.config.env, disable_env_checker=True, **options)
    if env.has_wrapper_attr("scene"):
        return env
    env.close()
    with suppress(UserError):  # an environment that needs OpenGL will say so; another one does not care
        choose_backend()
    return make_drawn(run.config.env, PICTURE_WIDTH, options)
