"""What videos and the live page share: environments that draw themselves, and how their episodes ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparc.deploy.load import Source
from sparc.envs.registry import get_env, make_env
from sparc.envs.robots.view import make_current
from sparc.errors import SparcError, UserError

DEFAULT_RATE = 30.0  # steps per second of an environment that does not tell
ASPECT = 0.75  # height : width of a picture


def make_test_env(source: Source, width: int) -> Any:
    """Make a policy's environment as it is tested, so that it draws itself."""
    return make_drawn(source.env, width, get_env(source.env).resolve_test_options(source.env_options))


def make_drawn(env: str, width: int, options: dict[str, Any]) -> Any:
    """Make an environment that draws itself, in this size if it can choose."""
    options = {"render_mode": "rgb_array", "disable_env_checker": True} | options
    try:
        return make_env(env, width=width, height=round(width * ASPECT), **options)
    except UserError:
        pass  # its pictures will be scaled
    try:
        return make_env(env, **options)
    except UserError as error:
        if "'render_mode'" not in str(error):
            raise
        raise UserError(
            f"{env} cannot draw itself: what makes it must take render_mode='rgb_array', see docs/video.md."
        ) from None


def take_frame(env: Any) -> np.ndarray:
    """Return what an environment draws of itself, RGB (height, width, 3)."""
    make_current(env)
    try:
        pixels = env.render()
    except SparcError:
        raise
    except Exception as error:  # an environment's own, such as a package for drawing that is not installed
        raise UserError(f"{env} cannot draw itself: {error}") from error
    shape = np.shape(pixels)
    if len(shape) != 3 or shape[2] != 3:
        raise UserError(f"{env} cannot draw itself: its render() gave no RGB array, but {type(pixels)}.")
    return np.ascontiguousarray(pixels, dtype=np.uint8)


def steps_per_second(env: Any) -> float:
    """Return how many steps an environment takes in a second of real time."""
    return float(env.metadata.get("render_fps") or DEFAULT_RATE)


def word_for_end(env: Any) -> str:
    """Return what it means that an episode ended before its time: "fell", "gave up"."""
    return str(env.get_wrapper_attr("ending")) if env.has_wrapper_attr("ending") else "ended"


def how_it_ended(env: Any, terminated: bool, steps: int) -> str:
    """Return how an episode that is over has ended."""
    if terminated:
        return f"{word_for_end(env)} at step {steps:,}"
    return lap_of(env, over=True) or f"time is up after {steps:,} steps"


def lap_of(env: Any, over: bool) -> str:
    """Return what became of a race's flying lap; nothing of other environments."""
    measures = env.get_wrapper_attr("measures")() if env.has_wrapper_attr("measures") else {}
    if "completed" not in measures:
        return ""
    if not measures["completed"]:
        return "lap not completed" if over else "the lap was not over"
    clean = "clean" if measures["clean"] else "not clean"
    return f"lap {measures['lap_time']:.1f} s, ratio {measures['ratio']:.3f}, {clean}"
