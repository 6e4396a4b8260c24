"""`sparc play`: what is shown, what is written, and what happens when it cannot be."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from conftest import TINY, skip_or_fail
from PIL import Image

import sparc
from sparc.contexts import ContextSpace, Finite
from sparc.deploy.export import from_run, write
from sparc.deploy.load import open_source
from sparc.envs.contextual import ContextualEnv
from sparc.envs.robots import view as robot_view
from sparc.errors import RunFailure, UserError
from sparc.runs.run import Run
from sparc.watch import video
from sparc.watch.play import default_path, describe, middle, panel_width, parse_context, play, report, titles

BOAT, WALKER, CHEETAH = "DriftingBoat-v0", "WindWalker2d-v5", "WindHalfCheetah-v5"
BOAT_STEPS_PER_SECOND = 10


def loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def opengl() -> None:
    """OpenGL without a screen."""
    if not any(map(loads, robot_view.OFF_SCREEN.values())):
        skip_or_fail(f"neither EGL nor OSMesa: {robot_view.REMEDY}")


needs_opengl = pytest.mark.usefixtures("opengl")


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "")  # so that what is set on the way is undone as well
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Train a tiny run, once."""
    made: dict[tuple[str, str], Path] = {}

    def train(method: str, env: str) -> Path:
        if (method, env) not in made:
            folder = tmp_path_factory.mktemp("runs") / f"{method}-{env.rpartition(':')[2]}"
            made[method, env] = sparc.train(method, env, run_dir=folder, updates=10, **TINY)
        return made[method, env]

    return train


@pytest.fixture
def boat(trained: Callable[[str, str], Path]) -> Path:
    """A run of SPARC on the boat."""
    return trained("sparc", BOAT)


def read_gif(path: Path) -> tuple[list[np.ndarray], list[int]]:
    with Image.open(path) as image:
        frames, durations = [], []
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(int(image.info["duration"]))
        return frames, durations


def read_mp4(path: Path) -> tuple[list[np.ndarray], float]:
    # imageio_ffmpeg.read_frames would fork, of which JAX warns
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    about = re.search(r"Video: h264.*?, yuv420p.*?, (\d+)x(\d+).*? ([\d.]+) fps", done.stderr.decode())
    assert about is not None
    width, height = int(about[1]), int(about[2])
    return list(np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)), float(about[3])


def test_an_episode_becomes_an_mp4_and_a_gif(boat: Path, tmp_path: Path) -> None:
    files = [tmp_path / "new" / "out.mp4", tmp_path / "out.GIF"]
    calls: list[tuple[int, int]] = []
    played = play(boat, "x=0.9", files, steps=7, progress=lambda *call: calls.append(call))
    assert played.files == files and played.lengths == [7] and played.region == "OOD" and played.titles == ["sparc"]
    assert calls == [(step, 7) for step in range(8)]
    frames, fps = read_mp4(files[0])
    assert fps == BOAT_STEPS_PER_SECOND
    assert len(frames) == 8 + BOAT_STEPS_PER_SECOND  # the start, seven steps, and the last picture for a second more
    assert frames[0].shape[1] == 640 and frames[0].shape[0] > 480  # the bars are above the picture
    pictures, durations = read_gif(files[1])
    assert len(pictures) == 8 and pictures[0].shape[1] == 480 and durations == [100] * 7 + [1100]
    # both show the same
    small = np.asarray(Image.fromarray(frames[5]).resize(pictures[5].shape[1::-1])).astype(float)
    assert np.abs(small - pictures[5]).mean() < 6
    assert np.abs(small - pictures[0]).mean() > np.abs(small - pictures[5]).mean()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["new", "out.GIF", "out.mp4"]


@pytest.mark.parametrize(("method", "context"), [("sparc", [0.7, -0.2]), ("oracle", [-1.0, 1.0])])
def test_the_return_is_that_of_an_evaluation(
    trained: Callable[[str, str], Path], tmp_path: Path, method: str, context: list[float]
) -> None:
    run = trained(method, BOAT)
    played = play(run, f"x={context[0]},y={context[1]}", [tmp_path / "a.gif"], seed=5, fps=1, width=120)
    evaluation = sparc.evaluate(sparc.load(run), BOAT, np.array([context]), seed=5)
    assert played.returns == evaluation.returns.tolist() and played.lengths == evaluation.lengths.tolist()


def test_in_distribution_is_what_any_stage_was_trained_on(boat: Path, tmp_path: Path) -> None:
    corner = {"x": (0.5, 1.0), "y": (0.5, 1.0)}
    child, export = sparc.continue_run(boat, corner, updates=10, run_dir=tmp_path / "child"), tmp_path / "export"
    write(from_run(Run.open(child)), export, onnx=False)
    shown: dict[str, Any] = {"video": [tmp_path / "a.gif"], "steps": 2, "width": 160}
    for run in (child, export):
        found = {text: play(run, text, **shown).region for text in ("x=0.9,y=0.9", "x=0.1,y=0.1", "x=0.9,y=-0.9")}
        assert found == {"x=0.9,y=0.9": "IND", "x=0.1,y=0.1": "IND", "x=0.9,y=-0.9": "OOD"}
    assert play(boat, "x=0.9,y=0.9", **shown).region == "OOD"
    played = play(boat, "x=0.9,y=0.9", compare=[child], **shown)
    assert played.regions == ["OOD", "IND"] and "(IND for sparc, child only)" in report(played)


@needs_opengl
def test_a_robot_falls(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    run = trained("sparc", WALKER)
    context = np.array([[-20.0, 5.0]])
    played = play(run, "x=-20,z=5", [tmp_path / "a.mp4"], width=160, fps=60)
    evaluation = sparc.evaluate(sparc.load(run), WALKER, context)
    assert played.returns == evaluation.returns.tolist() and evaluation.terminated.all()
    length = int(evaluation.lengths[0])
    assert played.ended == [f"fell at step {length}"]
    frames, fps = read_mp4(tmp_path / "a.mp4")
    assert fps == pytest.approx(125 / 3, abs=0.01)  # 125 steps per second: every third step makes at most 60 pictures
    assert len(frames) == 1 + -(-length // 3) + round(fps)
    red = [int((np.abs(frame[-25:].astype(int) - [190, 32, 32]).sum(axis=2) < 60).sum()) for frame in frames]
    assert red[0] == 0 and red[-1] > 100  # "fell at step …"


def test_runs_side_by_side(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    runs = [trained("sparc", BOAT), trained("oracle", BOAT)]
    alone = [play(run, "y=0.4", [tmp_path / "alone.gif"], steps=6, width=200) for run in runs]
    played = play(runs[0], "y=0.4", [tmp_path / "both.gif"], compare=runs[1:], steps=6, width=200)
    assert played.titles == ["sparc", "oracle"] and played.region == "IND"
    assert played.returns == [one.returns[0] for one in alone] and played.returns[0] != played.returns[1]
    frames, _ = read_gif(tmp_path / "both.gif")
    assert frames[0].shape[1] == 402
    left, right = frames[-1][-140:, :200], frames[-1][-140:, 202:]
    assert (left != right).any()
    many = play(runs[0], None, [tmp_path / "many.gif"], compare=[runs[1], runs[0], runs[1]], steps=1, width=120)
    assert len(many.returns) == 4
    frames, _ = read_gif(tmp_path / "many.gif")
    assert frames[0].shape[1] == 3 * 120 + 4 and frames[0].shape[0] > 2 * 90  # the fourth is in a second row


def test_the_numbers_are_written_above_the_picture(boat: Path, tmp_path: Path) -> None:
    for name, context in (("a", "x=0.1"), ("b", "x=0.1,y=0.9")):
        play(boat, context, [tmp_path / f"{name}.gif"], steps=4, width=480)
    (first, *_, last), _ = read_gif(tmp_path / "a.gif")
    (other, *_), _ = read_gif(tmp_path / "b.gif")
    heading, bar = slice(0, 35), slice(35, 90)  # at 480 pixels
    assert (first[heading] > 240).all(axis=2).sum() > 200  # white letters
    np.testing.assert_array_equal(first[heading], last[heading])
    assert (first[heading] != other[heading]).any(axis=2).sum() > 200  # another context, and OOD instead of IND
    np.testing.assert_array_equal(first[bar, :200], last[bar, :200])  # method and checkpoint
    assert (first[bar, 240:] != last[bar, 240:]).any(axis=2).sum() > 100  # return and step


def test_a_gif_flickers_nowhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    still = rng.integers(0, 255, (40, 60, 3)).astype(np.uint8)
    path = tmp_path / "a.gif"
    with video.written({path: 30.0}) as videos:
        for step in range(9):
            frame = still.copy()
            frame[10:20, step : step + 10] = (255, 0, 0)
            videos[path].add(Image.fromarray(frame))
    frames, durations = read_gif(path)
    assert len(frames) == 9 and sum(durations) == 1300  # 9 / 30 s and a second, in whole hundredths
    assert set(durations[:-1]) == {30, 40}
    for frame in frames:
        np.testing.assert_array_equal(frame[20:], frames[0][20:])


def test_pictures_per_second() -> None:
    assert [video.pace(125, most) for most in (200, 125, 60, 50, 15)] == [1, 1, 3, 3, 9]
    assert panel_width(".gif", 1, None) == 480 and panel_width(".gif", 3, None) == 265
    assert panel_width(".mp4", 1, None) == 640 and panel_width(".gif", 3, 500) == 500
    with pytest.raises(UserError, match="--width must be between"):
        panel_width(".mp4", 1, 7)


# The environments draw themselves


def blue(frame: np.ndarray) -> np.ndarray:
    """Where the wind's arrow is."""
    red, green, blue = frame.astype(int).transpose(2, 0, 1)
    return (blue > 90) & (blue > 1.7 * red) & (blue > 1.3 * green)


def extent(frame: np.ndarray) -> tuple[int, int]:
    rows, columns = np.nonzero(blue(frame))
    return (int(np.ptp(columns)), int(np.ptp(rows))) if len(rows) else (0, 0)


@needs_opengl
def test_the_wind_is_an_arrow() -> None:
    env = sparc.make_env(CHEETAH, render_mode="rgb_array", width=320, height=240)
    frames = {}
    for wind in [(0, 0), (5, 0), (-5, 0), (2.5, 0), (0, 10), (0, -10)]:
        env.reset(seed=0, options={"context": wind})
        frames[wind] = env.render()
    env.close()
    sizes = {wind: extent(frame) for wind, frame in frames.items()}
    assert sizes[0, 0] == (0, 0)
    assert sizes[5, 0][0] > 30 > sizes[5, 0][1] and sizes[0, 10][1] > 60 > sizes[0, 10][0]
    assert sizes[0, 10][1] == pytest.approx(2 * sizes[5, 0][0], rel=0.12)  # as long as the wind is strong
    assert sizes[5, 0][0] == pytest.approx(2 * sizes[2.5, 0][0], rel=0.12)
    head = {
        wind: (blue(frame).sum(axis=0).argmax(), blue(frame).sum(axis=1).argmax()) for wind, frame in frames.items()
    }
    assert head[5, 0][0] > 160 > head[-5, 0][0]  # where it is thickest; the arrow's middle is that of the picture
    assert head[0, 10][1] + 15 < head[0, -10][1]
    changed = (frames[5, 0] != frames[0, 10]).any(axis=2)
    assert changed[:120].any() and not changed[140:].any()  # nothing but the arrow


@needs_opengl
def test_the_camera_goes_with_the_robot() -> None:
    env = sparc.make_env(WALKER, render_mode="rgb_array", width=160, height=120)
    env.reset(seed=0, options={"context": (10, 0)})
    before = env.render()
    base = env.unwrapped
    base.set_state(base.data.qpos + np.eye(base.model.nq)[0] * 50.0, base.data.qvel)
    after = env.render()
    env.close()
    robot = (before[..., 0].astype(int) > before[..., 2] + 15).sum()
    moved = (after[..., 0].astype(int) > after[..., 2] + 15).sum()
    assert robot > 100 and moved == pytest.approx(robot, rel=0.1)
    assert extent(after) == extent(before)


@needs_opengl
def test_environments_draw_in_turns() -> None:
    envs = [sparc.make_env(id, render_mode="rgb_array", width=80, height=60) for id in (CHEETAH, WALKER)]
    for env in envs:
        env.reset(seed=0, options={"context": (1, 1)})
    first, second = envs[0].render(), envs[1].render()
    np.testing.assert_array_equal(envs[0].render(), first)
    envs[1].close()
    np.testing.assert_array_equal(envs[0].render(), first)
    envs[0].close()
    assert (first != second).any() and first.any() and second.any()


@needs_opengl
def test_no_screen_is_needed_and_nothing_is_said(tmp_path: Path) -> None:
    code = (
        f"import sparc; env = sparc.make_env('{CHEETAH}', render_mode='rgb_array', width=64, height=48)\n"
        "env.reset(seed=0); print(env.render().shape)"  # not closed, either
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(48, 64, 3)\n", "")


def test_without_opengl_the_packages_are_named(boat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robot_view, "OFF_SCREEN", {"egl": "libNothing.so", "osmesa": "libNeither.so"})
    play(boat, None, [tmp_path / "a.gif"], steps=1)  # needs none
    with pytest.raises(UserError, match="apt-get install libegl1 libgl1-mesa-dri"):
        sparc.make_env(CHEETAH, render_mode="rgb_array")
    monkeypatch.setattr(robot_view, "OFF_SCREEN", {"egl": "libNothing.so", "osmesa": "libc.so.6"})
    robot_view.choose_backend()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setenv("DISPLAY", ":0")
    robot_view.choose_backend()
    assert "MUJOCO_GL" not in os.environ


def test_the_boat_draws_its_current_and_stays_the_same_boat() -> None:
    drawn, plain = sparc.make_env(BOAT, render_mode="rgb_array", width=160, height=120), sparc.make_env(BOAT)
    pictures = {}
    for current in [(0, 0), (1, 0), (-1, 0)]:
        for env in (drawn, plain):
            env.reset(seed=1, options={"context": current})
        for action in np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32):
            pictures[current] = drawn.render()
            np.testing.assert_array_equal(drawn.step(action)[0], plain.step(action)[0])
    yellow = {key: (frame[:40, :, 0] > 240) & (frame[:40, :, 2] < 120) for key, frame in pictures.items()}
    assert pictures[0, 0].shape == (120, 160, 3) and pictures[0, 0].dtype == np.uint8
    assert not yellow[0, 0].any() and yellow[1, 0].sum() > 20
    assert yellow[1, 0].sum(axis=0).argmax() > 80 > yellow[-1, 0].sum(axis=0).argmax()  # the head
    assert plain.render() is None
    with pytest.raises(UserError, match="rgb_array"):
        sparc.make_env(BOAT, render_mode="ansi")


class Lamp(gym.Env[np.ndarray, np.ndarray]):
    """An environment of someone else: it has its own size, and ends after three steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))
        self.brightness, self.steps, self.render_mode = 0.0, 0, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2), 1.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return np.full((11, 17, 3), round(255 * self.brightness), np.uint8)


class Lap(Lamp):
    """One that is judged as races are: by a lap, which its three steps complete."""

    def measures(self) -> dict[str, float]:
        done = self.steps == 3
        return {"completed": done, "clean": self.brightness < 0.5, "lap_time": 81.26, "ratio": 1.0338 if done else 2.0}


LAMPS = ContextSpace.box(brightness=("", (0.0, 0.5), (0.0, 1.0)))


def make_lamp(change_probability: float = 0.0, **options: Any) -> ContextualEnv:
    def shine(env: Lamp, context: np.ndarray) -> None:
        env.brightness = float(context[0])

    return ContextualEnv(Lamp(**options), LAMPS, shine, change_probability)


def make_dark(change_probability: float = 0.0) -> ContextualEnv:
    return make_lamp(change_probability)


def make_lap(change_probability: float = 0.0, **options: Any) -> ContextualEnv:
    return ContextualEnv(Lap(**options), LAMPS, lambda env, context: setattr(env, "brightness", context[0]))


sparc.register_env("Lap-v0", make=make_lap, context_space=LAMPS, max_episode_steps=10)
sparc.register_env("Lamp-v0", make=make_lamp, context_space=LAMPS, max_episode_steps=10)
sparc.register_env("Dark-v0", make=make_dark, context_space=LAMPS, max_episode_steps=10)


def test_any_environment_that_draws_itself(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    played = play(trained("only-obs", "Lamp-v0"), "brightness=0.8", [tmp_path / "a.gif"], width=160)
    assert played.ended == ["ended at step 3"] and played.returns == [3.0] and played.region == "OOD"
    frames, durations = read_gif(tmp_path / "a.gif")
    assert (
        len(frames) == 1 + 2 and sum(durations) == 1200
    )  # 30 steps per second where it says nothing: every second one
    assert np.abs(frames[0][-100:-60].astype(int) - 204).max() <= 4


def test_one_that_does_not_is_named(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Dark-v0 cannot draw itself.*render_mode"):
        play(trained("only-obs", "Dark-v0"), None, [tmp_path / "a.gif"])
    assert not list(tmp_path.iterdir())


# What cannot be


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("z=1", "unknown context feature 'z' of DriftingBoat-v0: choose one of x, y."),
        ("xx=1", "unknown context feature 'xx' of DriftingBoat-v0: did you mean 'x'"),
        ("x", "name=value"),
        ("x=1,x=0", "each feature once"),
        ("x=fast", "x must be a number, not 'fast'"),
        ("x=nan", "outside the test region"),
        ("x=7", r"x = 7 m/s is outside the test region; choose it in \[-1, 1\]"),
    ],
)
def test_a_context_that_cannot_be(boat: Path, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        play(boat, text, [tmp_path / "a.gif"])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_context_in_words() -> None:
    space = sparc.make_env(CHEETAH).get_wrapper_attr("context_space")
    np.testing.assert_array_equal(parse_context(" z = -5 ", space, CHEETAH), [0.0, -5.0])
    np.testing.assert_array_equal(parse_context("", space, CHEETAH), space.centre)
    assert describe(np.array([-2.5, 5.0]), space, "WindHopper-v5") == "x = −2.5 N, z = 5 N"
    cars = np.array([[1.0], [2.0], [9.0]])
    assert middle(ContextSpace(("car",), ("",), Finite(cars), Finite(cars))).tolist() == [2.0]


def test_what_cannot_be_played(trained: Callable[[str, str], Path], boat: Path, tmp_path: Path) -> None:
    other = trained("only-obs", "Lamp-v0")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"video": ["a.webm"]}, "must end in .mp4 or .gif, not 'a.webm'"),
        ({"compare": [other]}, "was trained in Lamp-v0, not in DriftingBoat-v0"),
        ({"compare": [tmp_path]}, "is not a run directory"),
        ({"checkpoint": "first"}, "best, last or a number"),
        ({"checkpoint": 11}, "has no checkpoint 11: it has 0, 10"),
        ({"fps": 0.0}, "--fps must be above 0"),
    ]
    for options, message in cases:
        with pytest.raises(UserError, match=message):
            play(boat, None, **{"video": [tmp_path / "a.gif"], **options})
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_a_gif_is_offered(boat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"pip install imageio-ffmpeg, or write a .gif"):
        play(boat, None, [tmp_path / "a.gif", tmp_path / "a.mp4"])
    assert not list(tmp_path.iterdir())
    play(boat, None, [tmp_path / "a.gif"], steps=1)


def test_without_a_name_it_is_put_into_the_run(boat: Path) -> None:
    played = play(boat, "x=0.5,y=-1", steps=1, width=120)
    assert played.files == [boat / "videos" / "10-x0.5-y-1.mp4"]
    assert len(read_mp4(played.files[0])[0]) == 2 + BOAT_STEPS_PER_SECOND
    source = open_source(boat)
    other = default_path([source, source], BOAT, np.zeros(2), 3)
    assert other.name == "10-x0-y0-start3-sparc-seed0.mp4"
    assert titles([source, source]) == ["sparc, sparc-DriftingBoat-v0"] * 2


@pytest.mark.parametrize("words", ["exit 3", "head -c 1000 >/dev/null; echo 'No space left on device' >&2; exit 1"])
def test_an_encoder_that_dies_leaves_nothing(
    boat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    encoder, folder = tmp_path / "ffmpeg", tmp_path / "videos"
    encoder.write_text(f'#!/bin/sh\nfor last; do :; done\necho half > "$last"\n{words}\n')
    encoder.chmod(0o755)
    folder.mkdir()
    (folder / "a.mp4").write_text("an earlier one")
    monkeypatch.setattr(video, "encoder", lambda: str(encoder))
    with pytest.raises(RunFailure, match=r"Cannot write .*a.mp4: ffmpeg says '(exit code 3|No space left on device)'"):
        play(boat, None, [folder / "a.gif", folder / "a.mp4"])
    assert [file.name for file in folder.iterdir()] == ["a.mp4"]
    assert (folder / "a.mp4").read_text() == "an earlier one"


def test_an_interruption_leaves_nothing(boat: Path, tmp_path: Path) -> None:
    def interrupt(step: int, most: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(boat, None, [tmp_path / "a.mp4", tmp_path / "a.gif"], progress=interrupt)
    assert not list(tmp_path.iterdir())


def test_what_is_said_at_the_end(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    lines = report(play(trained("only-obs", "Lamp-v0"), "brightness=0.2", [path])).splitlines()
    assert lines[:2] == ["Lamp-v0, brightness = 0.2 (IND)", "only-obs: return 3.00 in 3 steps, ended at step 3"]
    assert re.fullmatch(r"video: .*/a\.gif \(\d+ KB\)", lines[2])


def test_a_race_is_told_by_its_lap(trained: Callable[[str, str], Path], tmp_path: Path) -> None:
    run, path = trained("only-obs", "Lap-v0"), tmp_path / "a.gif"
    told = [report(play(run, f"brightness={value}", [path], width=400)).splitlines()[1] for value in (0.2, 0.8)]
    assert told[0] == "only-obs: lap 81.3 s, ratio 1.034, clean; return 3.00 in 3 steps, ended at step 3"
    assert "ratio 1.034, not clean; return" in told[1]
    with_lap = read_gif(path)[0][-1]
    assert report(play(run, None, [path], steps=2)).splitlines()[1] == (
        "only-obs: the lap was not over; return 2.00 in 2 steps"
    )
    play(trained("only-obs", "Lamp-v0"), "brightness=0.8", [path], width=400)
    bar = slice(30, 60)  # at 400 pixels, above the picture
    assert (with_lap[bar, 100:] != read_gif(path)[0][-1][bar, 100:]).any(axis=2).sum() > 200
