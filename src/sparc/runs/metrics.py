"""The lines of metrics.jsonl, each with a checksum of its own: damage costs the line that it is in, and is noticed."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

SEALED = re.compile(rb'(.*), "crc32": "([0-9a-f]{8})"\}', re.DOTALL)
BEGIN = re.compile(rb'(?=\{"kind": )')  # where a lost line break has joined two lines
# What the readers of a line rely on, by its kind. Older lines have no checksum.
NEEDED: dict[str, dict[str, type]] = {
    "train": {"updates": int, "updates_per_s": float},
    "evaluation": {"updates": int, "mean_return": float, "phase": str},
}


class Line(NamedTuple):
    """A sound line."""

    record: dict[str, Any]
    text: bytes  # as it is in the file, without a line break


class Metrics(NamedTuple):
    """What a file holds."""

    lines: list[Line]
    damaged: list[int]  # numbers of lines, from one on, that are lost; not a last one that a kill cut short

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines as dictionaries."""
        return [line.record for line in self.lines]

    @property
    def note(self) -> str:
        """What is to be said about lost lines; empty without any."""
        if not self.damaged:
            return ""
        which = ", ".join(map(str, self.damaged[:5])) + (", …" if len(self.damaged) > 5 else "")
        return f"metrics.jsonl is damaged in line{'s' * (len(self.damaged) > 1)} {which}: left out"


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record."""
    text = json.dumps(record).encode()
    return text[:-1] + f', "crc32": "{zlib.crc32(text):08x}"}}\n'.encode()


def read_metrics(path: Path, newest: int | None = None) -> Metrics:
    """Read a file, or the lines within its newest bytes."""
    try:
        with path.open("rb") as file:
            if newest is not None and (skipped := path.stat().st_size - newest) > 0:
                file.seek(skipped)
                file.readline()
            data = file.read()
    except FileNotFoundError:
        data = b""
    metrics = Metrics([], [])
    texts = data.split(b"\n")
    for number, text in enumerate(texts, start=1):
        sound = [line for piece in BEGIN.split(text) if (line := decode(piece)) is not None]
        metrics.lines.extend(sound)
        whole = b"".join(line.text for line in sound) == text
        if not whole and number < len(texts):  # what follows the last line break is a line that was cut short
            metrics.damaged.append(number)
    return metrics


def decode(text: bytes) -> Line | None:
    """Return a sound line; None if it is damaged."""
    if sealed := SEALED.match(text):
        text, content = sealed[0], sealed[1] + b"}"
        if zlib.crc32(content) != int(sealed[2], 16):
            return None
    elif text.endswith(b'"}'):  # as lines with a checksum do, those of older versions end with a number
        return None
    else:
        content = text
    try:
        record = json.loads(content)
        for name, kind in NEEDED[record["kind"]].items():
            if not isinstance(record[name], (int, kind)):
                return None
    except (ValueError, LookupError, TypeError):
        return None
    return Line(record, text)
