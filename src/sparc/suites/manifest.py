"""The manifest of a folder of results, and tables that the folder of another suite has as well.

A suite may test the runs of another one (`runs:`). Where its results are written beside those of that suite, tables of
the same content are left out, and its manifest says where they are:

"base": {"folder": "../race-cars", "tables": {"cells-RaceCars-forza-v0.csv": SHA-256 of the unpacked table}}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from sparc import seals
from sparc.errors import UserError
from sparc.files import packed_as, replace
from sparc.seals import content_checksum


def write_manifest(manifest: Mapping[str, Any], folder: Path, tables: Collection[str]) -> None:
    """Write manifest.json, with their checksums, beside these tables.

    Tables that the suite whose runs it shares has as well are left out.
    """
    written = {name: value for name, value in manifest.items() if name != "base"}
    if runs := written.get("runs"):
        written |= leave_out(folder, folder.parent / runs, tables)
    left_out = written.get("base", {"tables": {}})["tables"]
    written = seals.seal(written, [folder / name for name in tables if name not in left_out])
    text = json.dumps(written, indent=1)
    # numbers side by side; no string holds a line break as such, so that none is touched
    text = re.sub(r'\[\n([^\[\]{}"]*)\n *\]', lambda found: f"[{' '.join(found[1].split())}]", text)
    replace(folder / "manifest.json", text + "\n")


def leave_out(folder: Path, base: Path, tables: Iterable[str]) -> dict[str, Any]:
    """Delete the tables that the base folder has as well; return what the manifest says of them."""
    shared: dict[str, str] = {}
    for name in tables if (base / "manifest.json").is_file() else ():
        there = (base / name).exists() or packed_as(base / name).exists()
        if there and (own := content_checksum(folder / name)) == content_checksum(base / name):
            shared[name] = own
    for name in shared:
        (folder / name).unlink(missing_ok=True)
        packed_as(folder / name).unlink(missing_ok=True)
    return {"base": {"folder": os.path.relpath(base, folder), "tables": shared}} if shared else {}


def find_table(folder: Path, manifest: Mapping[str, Any], name: str) -> Path:
    """Return where a table is; a ValueError where the base's is no longer the one that was left out."""
    base = manifest.get("base", {"folder": ".", "tables": {}})
    if name not in base["tables"]:
        return folder / name
    path: Path = folder / base["folder"] / name
    if content_checksum(path) != base["tables"][name]:
        raise ValueError(f"{base['folder']}/{name} has changed since")
    return path


def check_seals(written: Mapping[str, Any], folder: Path, manifest: dict[str, Any], accept_edits: bool) -> None:
    """Refuse tables or a manifest that were changed since, or, if that is accepted, name them in `edited`.

    The seals are taken out of the manifest: they are of the files, not of the results.
    """
    if edited := seals.edited(written, folder, "manifest.json"):
        if not accept_edits:
            raise UserError(
                f"Changed in {folder} since `sparc suite report`: {', '.join(edited)}. Write the results anew, or add "
                "--accept-edits if the change is meant."
            )
        manifest["edited"] = edited
    for key in (seals.SEAL, seals.SEALS):
        manifest.pop(key, None)
