"""The tracks that races are held on: TORCS's own, by name. Another one is one call of register_track."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sparc.envs.racing.torcs.installation import DATA, check_whole
from sparc.errors import UserError, unknown


@dataclass(frozen=True)
class Track:
    """A track of TORCS's."""

    name: str
    category: str  # the folder that TORCS keeps it in: road, dirt, oval
    dirt: bool  # whether parts of it are unpaved: only dirt-capable cars race here
    summary: str

    @property
    def file(self) -> Path:
        """The description that TORCS builds the track from."""
        return DATA / "tracks" / self.category / self.name / f"{self.name}.xml"

    def files(self) -> list[Path]:
        """Return the description and the files that it includes."""
        text = self.file.read_text(encoding="latin-1")
        return [
            self.file,
            *(self.file.parent / name for name in re.findall(r'<!ENTITY\s+\S+\s+SYSTEM\s+"(.+?)"', text)),
        ]

    def check(self) -> None:
        """Raise a UserError where a file is missing; TORCS itself would crash."""
        if not self.file.is_file():
            files = [file for file in DATA.glob("tracks/*/*/*.xml") if file.stem == file.parent.name]
            categories = {file.stem: file.parent.parent.name for file in files}
            known = [name for name, category in categories.items() if category == self.category] or [*categories]
            if self.name in categories:
                right = f"it is in '{categories[self.name]}', not in '{self.category}'"
                raise UserError(f"the track '{self.name}' is of another category: {right}.")
            where = f"TORCS's category '{self.category}'"
            raise unknown("track", self.name, known, str(self.file.parent.parent), of=where)
        check_whole(self.files(), "torcs-data")


TRACKS: dict[str, Track] = {
    track.name: track
    for track in (
        Track("forza", "road", False, "medium, tarmac, 5.8 km"),
        Track("spring", "road", False, "long, tarmac, 22.1 km"),
        Track("mixed-2", "dirt", True, "short, asphalt and dirt, 1.4 km"),
        Track("g-track-1", "road", False, "short, tarmac, 2.1 km, for trials"),
    )
}
