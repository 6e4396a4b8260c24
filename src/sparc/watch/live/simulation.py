"""One policy on the live page: its environment, its episodes, and what its φ says about the context."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sparc.acting.episodes import Episodes
from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.deploy.load import Source, open_sources
from sparc.envs.registry import get_env, make_env
from sparc.envs.robots.view import choose_backend, release
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.errors import UserError
from sparc.methods.registry import find_method
from sparc.watch.frames import how_it_ended, make_drawn, steps_per_second, take_frame, word_for_end
from sparc.watch.live.belief import Belief
from sparc.watch.play import titles

PICTURE_WIDTH = 640  # pixels, of environments that only draw themselves
QUALITY = 80  # of their JPEGs
LONGEST = 100_000  # steps of an episode: over an hour of a robot, yet the vector environment keeps their actions
READS = {"nothing": "observation only", "history": "observation and history", "context": "observation and true context"}


@dataclass(frozen=True)
class Contender:
    """Which policy is shown, and under which title."""

    source: Source
    title: str


def open_contenders(paths: Sequence[str | Path], checkpoint: str | None = None) -> list[Contender]:
    """Find the policies to show: runs, exports, or policies that come with sparc, all of one environment."""
    sources = open_sources(paths, checkpoint)
    named = zip(sources, titles(sources), strict=True)
    return [
        Contender(source, find_method(source.method).title + title.removeprefix(source.method))
        for source, title in named
    ]


class Simulation:
    """One policy in its environment. Everything happens in the thread that made it: OpenGL asks for that."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.policy, psi = contender.source.load()
        self.venv = SyncContextualVectorEnv([partial(open_env, contender.source)])
        (self.env,) = self.venv.envs
        self.has_scene = self.env.has_wrapper_attr("scene")
        self.can_push = self.env.has_wrapper_attr("push")
        self.can_switch = not self.venv.why_not_switch()
        self.rate = steps_per_second(self.env)
        self.belief = Belief(psi, contender.source.space()) if psi is not None else None
        self.total, self.episode, self.failures = 0.0, 0, 0
        self.ended = ""  # how, once the episode is over

    def begin(self, seed: int, context: Array) -> None:
        """Start an episode."""
        self.episodes = Episodes(self.policy, self.venv, context[None], seed)
        self.total, self.ended = 0.0, ""
        self.episode += 1

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return not self.episodes.running.any()

    def switch(self, context: Array) -> None:
        """Put another context in force in mid-episode."""
        self.episodes.switch(context[None])

    def push(self, rng: np.random.Generator) -> None:
        """Push the robot."""
        self.env.get_wrapper_attr("push")(rng)

    def advance(self) -> dict[str, Any]:
        """Take a step; return the reward and what φ(h) says about the context."""
        step = self.episodes.step()
        reward, failed = float(step.reward[0]), bool(step.terminated[0])
        self.total += reward
        if self.over:
            self.failures += failed
            self.ended = how_it_ended(self.env, failed, self.episodes.steps)
        sample: dict[str, Any] = {"reward": round(reward, 5)}
        if self.belief is not None:
            sample |= self.belief.read(self.policy.latent[0].astype(np.float64), step.contexts[0])
        return sample

    def describe(self) -> dict[str, Any]:
        """Return what the page shows of the policy itself."""
        source = self.contender.source
        return {
            "title": self.contender.title,
            "reads": READS[self.policy.reads],
            "colour": find_method(source.method).colour,
            "updates": source.updates,
            "seed": source.seed,
            "failure": word_for_end(self.env),
            "map": self.belief.map() if self.belief else None,
            "regions": regions_of(source.space()),
        }

    def state(self) -> dict[str, Any]:
        """Return what changes at every step, the scene or picture included."""
        what = {
            "steps": self.episodes.steps, "total": round(self.total, 2), "episode": self.episode,
            "failures": self.failures, "ended": self.ended,
        }  # fmt: skip
        if self.has_scene:
            return what | {"scene": self.env.get_wrapper_attr("scene")()}
        return what | {"picture": base64.b64encode(self.picture()).decode()}

    def picture(self) -> bytes:
        """Return what the environment draws of itself, as a JPEG."""
        file = BytesIO()
        Image.fromarray(take_frame(self.env)).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def close(self) -> None:
        """Close the environment."""
        release(self.env)
        self.venv.close()


def regions_of(space: ContextSpace) -> list[dict[str, Any]]:
    """Return the bounds of the regions that a policy was trained in, its last stage first."""
    regions = (space.train, *reversed(space.earlier))
    return [{"low": region.low.tolist(), "high": region.high.tolist()} for region in regions]


def open_env(source: Source) -> Any:
    """Make a policy's environment as it is tested, but with long episodes; it draws itself only if the page cannot."""
    entry = get_env(source.env)
    options = entry.resolve_test_options({**source.env_options, "max_episode_steps": LONGEST})
    env = make_env(source.env, disable_env_checker=True, **options)
    if env.has_wrapper_attr("scene"):
        return env
    env.close()
    with suppress(UserError):  # an environment that needs OpenGL will say so; another one does not care
        choose_backend()
    return make_drawn(source.env, PICTURE_WIDTH, options)
