"""Seals: the sha256 of what was written, kept beside it, so that a later change is noticed and named."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparc.files import read_unpacked

SEAL, SEALS = "sha256", "seals"  # keys of a sealed dictionary: its own digest, and the checksums of its files


def digest(values: Mapping[str, Any]) -> str:
    """Return the sha256 of a dictionary's content, however its JSON is laid out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_checksum(path: Path) -> str:
    """Return the sha256 of a table, of its content where there is only its packed file."""
    return hashlib.sha256(read_unpacked(path)).hexdigest()


def seal(values: Mapping[str, Any], files: Iterable[Path] = ()) -> dict[str, Any]:
    """Return a dictionary with the checksums of files, if there are any, and its own digest."""
    content = {name: value for name, value in values.items() if name not in (SEAL, SEALS)}
    if checksums := {path.name: checksum(path) for path in files}:
        content[SEALS] = checksums
    sealed = json.loads(json.dumps(content))  # as it will be read: JSON has no numbers as keys and no tuples
    return {**sealed, SEAL: digest(sealed)}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Return whether a dictionary has seals; those of older versions of sparc have none."""
    return SEAL in values or SEALS in values


def is_intact(values: Mapping[str, Any]) -> bool:
    """Return whether a dictionary is what was sealed, or was never sealed."""
    content = {name: value for name, value in values.items() if name != SEAL}
    return not is_sealed(values) or values.get(SEAL) == digest(content)


def changed_files(values: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the names of the files that are not what was sealed; one that is packed by gzip counts as unpacked."""
    return [name for name, sealed in dict(values.get(SEALS, {})).items() if found(folder / name) != sealed]


def edited(values: Mapping[str, Any], folder: Path, name: str) -> list[str]:
    """Return what is not as it was sealed: the file of these values, by its name, and the files that they seal."""
    return [*([] if is_intact(values) else [name]), *changed_files(values, folder)]


def found(path: Path) -> str:
    """Return the checksum of a table's content, or nothing if it cannot be read."""
    try:
        return content_checksum(path)
    except (OSError, EOFError, zlib.error):
        return ""
