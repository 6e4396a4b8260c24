"""The manifest of a folder of results, and tables that the folder of another suite has as well.

A suite may test the runs of another one (`runs:`). Where its results are written beside those of that suite, tables of
the same content are left out, and its manifest says where they are:

"base": {"folder": "../race-cars", "tables": {"cells-RaceCars-forza-v0.csv": SHA-256 of the unpacked table}}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparc.files import packed_as, read_unpacked, replace


def write_manifest(manifest: Mapping[str, Any], folder: Path, tables: Iterable[str]) -> None:
    """Write manifest.json beside these tables, without those that the suite whose runs it shares has as well."""
    written = {name: value for name, value in manifest.items() if name != "base"}
    if runs := written.get("runs"):
        written |= leave_out(folder, folder.parent / runs, tables)
    text = json.dumps(written, indent=1)
    # numbers side by side; no string holds a line break as such, so that none is touched
    text = re.sub(r'\[\n([^\[\]{}"]*)\n *\]', lambda found: f"[{' '.join(found[1].split())}]", text)
    replace(folder / "manifest.json", text + "\n")


def digest(path: Path) -> str:
    """Return the SHA-256 of a table's text, packed or not."""
    return hashlib.sha256(read_unpacked(path)).hexdigest()


def leave_out(folder: Path, base: Path, tables: Iterable[str]) -> dict[str, Any]:
    """Delete the tables that the base folder has as well; return what the manifest says of them."""
    shared: dict[str, str] = {}
    for name in tables if (base / "manifest.json").is_file() else ():
        there = (base / name).exists() or packed_as(base / name).exists()
        if there and (own := digest(folder / name)) == digest(base / name):
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
    if digest(path) != base["tables"][name]:
        raise ValueError(f"{base['folder']}/{name} has changed since")
    return path
