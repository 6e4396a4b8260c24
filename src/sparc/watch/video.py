"""Video files, written beside and then renamed: MP4 through ffmpeg, GIF through Pillow."""

from __future__ import annotations

import math
import os
import subprocess
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from PIL import Image

from sparc.errors import RunFailure, UserError
from sparc.files import beside

HOLD = 1.0  # s: how long the last picture stays
QUALITY = ("-preset", "fast", "-crf", "20")  # of H.264: no loss that one sees in a drawing
COLOURS = 255  # of a GIF; one more stands for "as in the picture before"
SAMPLE = 12  # pictures that the palette of a GIF is made from


class Video(ABC):
    """A video file in the making: `add` pictures of one size, then `close`, or `abandon` and leave nothing."""

    def __init__(self, path: Path, beside: Path, fps: float):
        self.path, self.beside, self.fps = path, beside, fps

    @abstractmethod
    def add(self, picture: Image.Image) -> None:
        """Take the next picture."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file beside."""

    @abstractmethod
    def abandon(self) -> None:
        """Stop writing; the file beside is then removed."""


class Mp4(Video):
    """H.264 in MP4, which every browser and presentation plays.

    Not through imageio_ffmpeg.write_frames: it hides ffmpeg's exit code, so that a full disk leaves a broken video
    without an error, and it forks, of which JAX warns.
    """

    def __init__(self, path: Path, beside: Path, fps: float):
        self.encoder = encoder()
        super().__init__(path, beside, fps)
        self.process: subprocess.Popen[bytes] | None = None
        self.last = b""

    def add(self, picture: Image.Image) -> None:
        """Encode a picture."""
        # H.264 halves the resolution of colours: both sides must be even
        picture = picture.crop((0, 0, picture.width // 2 * 2, picture.height // 2 * 2))
        if self.process is None:
            size = f"{picture.width}x{picture.height}"
            read = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{self.fps:.6f}", "-i", "-")
            write = ("-c:v", "libx264", *QUALITY, "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4")
            self.process = subprocess.Popen(
                [self.encoder, "-y", "-v", "error", *read, *write, str(self.beside)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
        self.last = picture.tobytes()
        self.write(self.last)

    def write(self, data: bytes) -> None:
        """Hand a picture to the encoder."""
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(data)
        except BrokenPipeError:
            self.end()
            raise RunFailure(f"Cannot write {self.path}: ffmpeg stopped.") from None

    def close(self) -> None:
        """Hold the last picture and let the encoder end."""
        for _ in range(round(HOLD * self.fps)):
            self.write(self.last)
        self.end()

    def end(self) -> None:
        """Wait for the encoder, and say why it failed if it did."""
        assert self.process is not None
        _, complaints = self.process.communicate()
        if code := self.process.returncode:
            lines = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
            raise RunFailure(f"Cannot write {self.path}: ffmpeg says '{lines[-1] if lines else f'exit code {code}'}'.")

    def abandon(self) -> None:
        """Stop the encoder."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


class Gif(Video):
    """A GIF with one palette for all pictures, so that still parts stay still."""

    def __init__(self, path: Path, beside: Path, fps: float):
        super().__init__(path, beside, fps)
        self.pictures: list[bytes] = []  # compressed: the palette comes last, and a long episode has many
        self.size = (0, 0)

    def add(self, picture: Image.Image) -> None:
        """Keep a picture."""
        self.size = picture.size
        self.pictures.append(zlib.compress(picture.tobytes(), 1))

    def abandon(self) -> None:
        """Drop the pictures."""
        self.pictures.clear()

    def picture(self, index: int) -> Image.Image:
        """Return a picture back."""
        return Image.frombytes("RGB", self.size, zlib.decompress(self.pictures[index]))

    def palette(self) -> Image.Image:
        """Choose the colours by some pictures of the whole episode, the first and the last among them."""
        count = min(SAMPLE, len(self.pictures))
        chosen = [round(i * (len(self.pictures) - 1) / max(count - 1, 1)) for i in range(count)]
        sheet = Image.new("RGB", (self.size[0], self.size[1] * count))
        for row, index in enumerate(chosen):
            sheet.paste(self.picture(index), (0, row * self.size[1]))
        return sheet.quantize(COLOURS, Image.Quantize.FASTOCTREE)  # keeps small patches of a colour of their own, too

    def close(self) -> None:
        """Write all pictures; each is shown for whole hundredths of a second, without drifting from the clock."""
        palette = self.palette()
        ticks = [round(100 * i / self.fps) for i in range(len(self.pictures) + 1)]
        durations = [10 * (after - before) for before, after in pairwise(ticks)]
        durations[-1] += round(1000 * HOLD)

        def quantized() -> Iterator[Image.Image]:
            for index in range(len(self.pictures)):
                # dithering would flicker, and not compress
                yield self.picture(index).quantize(palette=palette, dither=Image.Dither.NONE)

        frames = quantized()
        colours = bytes(palette.getpalette() or ())[: 3 * COLOURS]
        try:
            next(frames).save(
                self.beside, "GIF", save_all=True, append_images=frames, duration=durations, loop=0,
                palette=colours, optimize=True,
            )  # fmt: skip
        except OSError as error:
            raise RunFailure(f"Cannot write {self.path}: {error.strerror or error}.") from error


FORMATS: dict[str, type[Video]] = {".mp4": Mp4, ".gif": Gif}


def check_suffix(path: Path) -> str:
    """Return the suffix of a video's name, or raise a UserError if it is none that can be written."""
    if (suffix := path.suffix.lower()) not in FORMATS:
        raise UserError(f"A video's name must end in {' or '.join(FORMATS)}, not '{path.name}'.")
    return suffix


def encoder() -> str:
    """Find ffmpeg."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise UserError("MP4 needs imageio-ffmpeg: pip install imageio-ffmpeg, or write a .gif.") from None


def pace(rate: float, most: float) -> int:
    """Return every how manieth step to show, so that there are at most so many pictures per second."""
    return max(1, math.ceil(rate / most - 1e-9))


@contextmanager
def written(paths: Mapping[Path, float]) -> Iterator[dict[Path, Video]]:
    """Open videos with so many pictures per second; in the end put all in their places, or, on failure, leave none."""
    videos: dict[Path, Video] = {}
    with ExitStack() as places:
        try:
            for path, fps in paths.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                videos[path] = FORMATS[check_suffix(path)](path, places.enter_context(beside(path)), fps)
            yield videos
            for video in videos.values():
                video.close()
        except BaseException:
            for video in videos.values():
                video.abandon()
            raise


def size_of(path: Path) -> str:
    """Write a file's size for a person."""
    size = os.path.getsize(path)
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"
