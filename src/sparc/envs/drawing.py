"""What the pictures of several environments share."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import matplotlib
from PIL import ImageFont


@lru_cache(64)
def font(size: float, bold: bool) -> ImageFont.FreeTypeFont:
    """Load the letters that Matplotlib brings along."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)
