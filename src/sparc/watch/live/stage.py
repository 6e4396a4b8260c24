"""One run on the live page: its environment, its policy, and what its φ says about the context."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sparc.arrays import Array
from sparc.deploy.load import Source, open_source
from sparc.envs.registry import get_env, make_env
from sparc.envs.wind.view import choose_backend, make_current, release
from sparc.errors import RunFailure, UserError
from sparc.methods.registry import find_method
from sparc.watch.live.belief import Belief
from sparc.watch.play import DEFAULT_RATE, make_drawn, titles

PICTURE_WIDTH = 640  # pixels, of environments that only draw themselves
QUALITY = 80  # of their JPEGs
ENDLESS = -1  # max_episode_steps of Gymnasium: the page decides when an episode is over
READS = {"nothing": "observation only", "history": "observation and history", "context": "observation and true context"}


@dataclass(frozen=True)
class Cast:
    """Which policy is shown, and as what."""

    source: Source
    title: str


def casts(paths: Sequence[str | Path], checkpoint: str) -> list[Cast]:
    """Find the policies, which must be of one environment: runs, exports, or policies that come with sparc."""
    sources = [open_source(path, checkpoint) for path in paths]
    first = get_env(sources[0].env).id
    for source in sources[1:]:
        if (other := get_env(source.env).id) != first:
            raise UserError(
                f"{source.name} is of {other}, not of {first}: only policies of one can stand side by side."
            )
    named = zip(sources, titles(sources), strict=True)
    return [
        Cast(source, find_method(source.method).title + title.removeprefix(source.method)) for source, title in named
    ]


class Stage:
    """One run in its environment. Everything happens in the thread that made it: OpenGL asks for that."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.policy, psi = cast.source.load()
        self.env = open_env(cast.source)
        self.has_scene = self.env.has_wrapper_attr("scene")
        self.rate = float(self.env.metadata.get("render_fps") or DEFAULT_RATE)  # steps per second in real time
        self.belief = Belief(psi, get_env(cast.source.env).context_space) if psi is not None else None
        self.steps, self.total, self.episode, self.ends = 0, 0.0, 0, 0
        self.over = False

    def begin(self, seed: int, context: Array) -> None:
        """Start an episode."""
        self.context = context
        self.obs, _ = self.env.reset(seed=seed, options={"context": context})
        self.policy.reset()
        self.steps, self.total, self.over = 0, 0.0, False
        self.episode += 1

    def switch(self, context: Array) -> None:
        """Put another context in force, in mid-episode where the environment can."""
        self.context = context
        self.env.get_wrapper_attr("set_context")(context)

    def advance(self) -> dict[str, Any]:
        """Take a step; return the reward and what φ(h) says about the context."""
        context = self.context if self.policy.reads == "context" else None
        action = self.policy.act(self.obs, context)
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        if not (np.isfinite(reward) and np.isfinite(self.obs).all()):
            raise RunFailure(f"{self.env} returned NaN or infinity at step {self.steps}")
        self.steps += 1
        self.total += float(reward)
        self.over = bool(terminated or truncated)
        self.ends += self.over
        sample: dict[str, Any] = {"reward": round(float(reward), 5)}
        if self.belief is not None:
            sample |= self.belief.read(self.policy.latent[0].astype(np.float64), self.context)
        return sample

    def describe(self) -> dict[str, Any]:
        """Return what the page shows of the run itself."""
        entry = find_method(self.cast.source.method)
        return {
            "title": self.cast.title,
            "reads": READS[self.policy.reads],
            "colour": entry.colour,
            "updates": self.cast.source.updates,
            "seed": self.cast.source.seed,
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


def open_env(source: Source) -> Any:
    """Make a policy's environment, without end; it draws itself only if the page cannot."""
    options = {**source.env_options, "max_episode_steps": ENDLESS}
    env = make_env(source.env, disable_env_checker=True, **options)
    if env.has_wrapper_attr("scene"):
        return env
    env.close()
    with suppress(UserError):  # an environment that needs OpenGL will say so; another one does not care
        choose_backend()
    return make_drawn(source.env, PICTURE_WIDTH, options)
