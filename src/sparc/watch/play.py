"""`sparc play`: one episode of one or more runs in one context, side by side, as a video. Needs no screen."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sparc.acting.episodes import Episodes
from sparc.arrays import Array
from sparc.contexts import ContextSpace, Finite
from sparc.deploy.load import VIDEOS, Source, open_sources
from sparc.envs.contextual import ProgressCall
from sparc.envs.drawing import font
from sparc.envs.racing import car_models, context_of, label_of
from sparc.envs.registry import get_env
from sparc.envs.robots.view import choose_backend, release
from sparc.envs.sync import SyncContextualVectorEnv
from sparc.errors import UserError, unknown
from sparc.text import short
from sparc.watch.frames import ASPECT, how_it_ended, lap_of, make_test_env, steps_per_second, take_frame
from sparc.watch.video import check_suffix, pace, size_of, written

MOST_PICTURES = {".mp4": 50.0, ".gif": 15.0}  # per second
COLUMNS = 3
WIDTHS = {1: 640, 2: 480, 3: 400}  # of a panel, by columns
GIF_PANEL, GIF_TOTAL = 480, 800  # pixels at most
NARROWEST, WIDEST = 120, 1920

BAR, PANEL_BAR, WHITE, GREY = (17, 24, 36), (30, 40, 56), (255, 255, 255), (176, 188, 204)
BADGES = {"IND": (38, 148, 84), "OOD": (214, 92, 16)}
OVER = (190, 32, 32)
GAP = 2  # pixels between panels


@dataclass(frozen=True)
class PlayedEpisode:
    """What was shown and where it is written."""

    env: str
    context: Array
    regions: list[str]  # of each run, IND or OOD: runs may have been trained in other regions
    titles: list[str]
    returns: list[float]
    lengths: list[int]
    ended: list[str]  # "", or how the episode ended before its time
    files: list[Path]
    laps: list[str]  # of races, what became of the lap; else ""

    @property
    def region(self) -> str:
        """IND or OOD, or which of the runs it is IND for."""
        trained = [title for title, region in zip(self.titles, self.regions, strict=True) if region == "IND"]
        return common(self.regions) or f"IND for {' and '.join(trained)} only"


@dataclass
class Panel:
    """One run in the video."""

    title: str
    note: str
    env: Any
    episodes: Episodes  # of one row
    total: float = 0.0
    ended: str = ""
    stale: bool = True  # whether the picture is older than the last step
    picture: Image.Image = field(init=False)

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self.episodes.steps

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return not self.episodes.running.any()

    def advance(self) -> None:
        """Take a step, as `sparc.evaluate` does."""
        step = self.episodes.step()
        self.total += float(step.reward[0])
        self.stale = True
        if step.terminated[0]:
            self.ended = how_it_ended(self.env, True, self.steps)

    def lap(self) -> str:
        """Return what became of a race's flying lap; nothing of other environments."""
        return lap_of(self.env, self.over)

    def look(self) -> None:
        """Let the environment draw itself, if anything changed."""
        if self.stale:
            self.picture, self.stale = Image.fromarray(take_frame(self.env)), False


def play(
    run: str | Path,
    context_text: str | None = None,
    video: Sequence[str | Path] = (),
    compare: Sequence[str | Path] = (),
    checkpoint: str | int | None = None,
    seed: int = 0,
    steps: int | None = None,
    fps: float | None = None,
    width: int | None = None,
    progress: ProgressCall | None = None,
    car: str | None = None,
    tyre: str | None = None,
    out: Path | None = None,
) -> PlayedEpisode:
    """Show an episode of the run, and of those to compare it with, and write it to the video files.

    Every panel has the start state of this seed, and the return that `sparc.evaluate` gives for the same seed and that
    context alone. fps is how many pictures there are per second at most; the speed is always real time. width is that
    of one panel, in pixels. In races of car models, car and tyre take the place of the context. Without video, one is
    named after all that it shows and written to out, or into the run.
    """
    runs = open_sources((run, *compare), checkpoint)
    entry = get_env(runs[0].env)
    if context_text and car_models(entry.id):
        raise UserError(f"{entry.id} races whole cars: use --car NAME [--tyre NAME] instead of --context.")
    if car is None and tyre is None:
        context = parse_context(context_text or "", runs[0].space(), entry.id)
    elif car is None or context_text:
        raise UserError("--tyre goes with --car, and neither goes with --context.")
    else:
        context = context_of(entry.id, car, tyre)
    default = default_path(runs, entry.id, context, seed)
    paths = [Path(path) for path in video] or [out / default.name if out is not None else default]
    columns = min(len(runs), COLUMNS)
    widths = {path: panel_width(check_suffix(path), columns, width) for path in paths}
    if fps is not None and not 0 < fps < float("inf"):
        raise UserError(f"--fps must be above 0, not {fps:g}.")
    with suppress(UserError):  # an environment that needs OpenGL will say so; another one does not care
        choose_backend()

    panels: list[Panel] = []
    regions = ["IND" if each.space().is_train(context)[0] else "OOD" for each in runs]
    heading = (entry.id, describe(context, entry.context_space, entry.id), common(regions))
    with ExitStack() as stack:
        for each, title, region in zip(runs, titles(runs), regions, strict=True):
            venv = SyncContextualVectorEnv([partial(make_test_env, each, max(widths.values()))])
            stack.callback(venv.close)
            (env,) = venv.envs
            stack.callback(release, env)
            episodes = Episodes(each.load()[0], venv, context[None], seed)
            note = f"{each.updates:,} updates" + ("" if common(regions) else f", {region}")
            panels.append(Panel(title, note, env, episodes))
            panels[-1].look()  # before a long rollout: can it be drawn at all?
        last = steps_of(panels[0].env, entry.max_episode_steps, steps)
        rate = steps_per_second(panels[0].env)
        strides = {path: pace(rate, fps or MOST_PICTURES[check_suffix(path)]) for path in widths}
        with written({path: rate / stride for path, stride in strides.items()}) as videos:
            for step in range(last + 1):
                end = step == last or all(panel.over for panel in panels)
                for path, stride in strides.items():
                    if end or step % stride == 0:
                        videos[path].add(compose(panels, heading, widths[path], last))
                if progress:
                    progress(step, last)
                if end:
                    laps = [panel.lap() for panel in panels]
                    break
                for panel in panels:
                    if not panel.over:
                        panel.advance()
    return PlayedEpisode(
        entry.id, context, regions, [panel.title for panel in panels], [panel.total for panel in panels],
        [panel.steps for panel in panels], [panel.ended for panel in panels], list(widths), laps,
    )  # fmt: skip


def common(regions: Sequence[str]) -> str:
    """Return the region that all runs have a context in; nothing if they differ."""
    return regions[0] if len(set(regions)) == 1 else ""


def report(played: PlayedEpisode) -> str:
    """Return what was played, the laps and returns, and where the videos are."""
    space = get_env(played.env).context_space
    lines = [f"{played.env}, {describe(played.context, space, played.env)} ({played.region})"]
    rows = zip(played.titles, played.laps, played.returns, played.lengths, played.ended, strict=True)
    for title, lap, total, length, ended in rows:
        what = f"{lap}; " if lap else ""
        lines.append(f"{title}: {what}return {short(total)} in {length:,} steps" + (f", {ended}" if ended else ""))
    return "\n".join([*lines, *(f"video: {path} ({size_of(path)})" for path in played.files)])


# What to show, and where to put it


def parse_context(text: str, space: ContextSpace, env: str) -> Array:
    """Read "x=2.5,z=-5"; features that are not named are as in the middle of the training region."""
    context, seen = middle(space), set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in space.names:
            raise unknown("context feature", name, space.names, "`sparc envs`", of=env)
        if not equals or name in seen:
            raise UserError(f"--context takes each feature once, as name=value with commas between, not '{text}'.")
        seen.add(name)
        try:
            context[space.names.index(name)] = float(value)
        except ValueError:
            raise UserError(f"--context: {name} must be a number, not '{value}'.") from None
    return space.check(context)[0]


def middle(space: ContextSpace) -> Array:
    """Return the middle of the training region, or that of a finite set's contexts which is nearest to it."""
    if not isinstance(space.train, Finite):
        return space.centre.copy()
    distance = np.abs((space.train.values - space.centre) / space.half_range).sum(axis=1)
    return space.train.values[int(distance.argmin())].copy()


def describe(context: Array, space: ContextSpace, env: str) -> str:
    """Write a context in words where it has a name, else with its units."""
    if name := label_of(env, context):
        return name
    parts = zip(space.names, context, space.units, strict=True)
    return ", ".join(f"{name} = {value:g} {unit}".strip() for name, value, unit in parts).replace("-", "−")


def default_path(runs: Sequence[Source], env: str, context: Array, seed: int) -> Path:
    """Name a video in the run's own directory, or in videos/ for a policy without one, after all that it shows."""
    names = get_env(env).context_space.names
    features = "".join(f"-{name}{value:g}" for name, value in zip(names, context, strict=True))
    if name := label_of(env, context):
        features = "-" + name.replace(" ", "-").replace("×", "")
    others = "".join(f"-{other.method}-seed{other.seed}" for other in runs[1:])
    start = f"-start{seed}" if seed else ""
    name = f"{runs[0].updates}" if runs[0].home != VIDEOS else runs[0].name
    return runs[0].home / f"{name}{features}{start}{others}.mp4"


def titles(runs: Sequence[Source]) -> list[str]:
    """Call runs by their methods; where that does not tell them apart, by seed or directory as well."""
    methods = [run.method for run in runs]
    seeds = [f"{run.method}, seed {run.seed}" for run in runs]
    folders = [f"{run.method}, {run.name}" for run in runs]
    return next((names for names in (methods, seeds) if len(set(names)) == len(names)), folders)


def panel_width(suffix: str, columns: int, width: int | None) -> int:
    """Choose how wide a panel is, in pixels: GIFs smaller, unless told."""
    if width is None:
        widest = (GIF_TOTAL - (columns - 1) * GAP) // columns
        return min(WIDTHS[columns], GIF_PANEL, widest) if suffix == ".gif" else WIDTHS[columns]
    if not NARROWEST <= width <= WIDEST:
        raise UserError(f"--width must be between {NARROWEST} and {WIDEST} pixels, not {width}.")
    return width


def steps_of(env: Any, most: int, steps: int | None) -> int:
    """Return the number of steps to play: those asked for, at most an episode."""
    limit = env.get_wrapper_attr("most_steps") if env.has_wrapper_attr("most_steps") else None
    limit = limit or int((env.spec and env.spec.max_episode_steps) or most)
    return limit if steps is None else min(steps, limit)


# Putting a picture together: a bar with the context, and per panel a bar with the numbers above the picture


def compose(panels: Sequence[Panel], heading: tuple[str, str, str], width: int, last: int) -> Image.Image:
    """Draw the panels in their present state, each so wide."""
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    unit = max(10.0, width / 26)  # the height of a letter's line
    bar, top = round(1.9 * unit), round(3.0 * unit)
    across = columns * width + (columns - 1) * GAP
    height = top + round(width * ASPECT)
    image = Image.new("RGB", (across, bar + rows * height + (rows - 1) * GAP), BAR)
    draw_heading(ImageDraw.Draw(image), heading, across, bar, unit)
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        image.paste(draw_panel(panel, width, top, unit, last), (column * (width + GAP), bar + row * (height + GAP)))
    return image


def draw_heading(canvas: ImageDraw.ImageDraw, heading: tuple[str, str, str], width: int, bar: int, unit: float) -> None:
    """Draw the environment, the context and whether it is in or out of distribution, if that is so for all runs."""
    name, context, region = heading
    pad, size = round(0.6 * unit), 0.85 * unit
    while True:  # a context of many features needs smaller letters
        parts = [(f"{name}   ", font(size, True)), (context, font(size, False)), (region, font(0.9 * size, True))]
        widths = [letters.getlength(text) for text, letters in parts]
        if sum(widths) + 4 * pad <= width or size < 6:
            break
        size *= 0.95
    canvas.text((pad, bar / 2), parts[0][0], WHITE, parts[0][1], anchor="lm")
    canvas.text((pad + widths[0], bar / 2), context, WHITE, parts[1][1], anchor="lm")
    if not region:
        return
    right, half = width - pad, 0.7 * size
    box = (right - widths[2] - pad, bar / 2 - half, right, bar / 2 + half)
    canvas.rounded_rectangle(box, radius=half / 2, fill=BADGES[region])
    canvas.text((right - pad / 2, bar / 2), region, WHITE, parts[2][1], anchor="rm")


def draw_panel(panel: Panel, width: int, top: int, unit: float, last: int) -> Image.Image:
    """Draw one run: whose it is, how far it is, its return so far or its lap, and its picture below."""
    panel.look()
    size = (width, round(width * ASPECT))
    image = Image.new("RGB", (width, top + size[1]), PANEL_BAR)
    scaled = panel.picture if panel.picture.size == size else panel.picture.resize(size, Image.Resampling.LANCZOS)
    image.paste(scaled, (0, top))
    canvas = ImageDraw.Draw(image)
    pad, upper, lower = round(0.6 * unit), 0.32 * top, 0.74 * top
    total = (panel.lap() if panel.over else "") or f"return {panel.total:,.1f}".replace("-", "−")
    letters = fitting(total, 1.05 * unit, 0.7 * width)
    room = width - 3 * pad - letters.getlength(total)
    canvas.text((pad, upper), panel.title, WHITE, fitting(panel.title, 1.05 * unit, room), anchor="lm")
    canvas.text((width - pad, upper), total, WHITE, letters, anchor="rm")
    canvas.text((pad, lower), panel.note, GREY, font(0.75 * unit, False), anchor="lm")
    step = f"step {panel.steps:,} of {last:,}"
    canvas.text((width - pad, lower), step, GREY, font(0.75 * unit, False), anchor="rm")
    if panel.ended:
        letters = font(0.95 * unit, True)
        half = letters.getlength(panel.ended) / 2 + pad
        x, y = width / 2, image.height - 1.4 * unit
        canvas.rounded_rectangle((x - half, y - 0.85 * unit, x + half, y + 0.85 * unit), radius=unit / 2, fill=OVER)
        canvas.text((x, y), panel.ended, WHITE, letters, anchor="mm")
    return image


def fitting(text: str, size: float, room: float) -> ImageFont.FreeTypeFont:
    """Load bold letters so small that the text fits."""
    while (letters := font(size, True)).getlength(text) > room and size > 6:
        size *= 0.95
    return letters
