"""The trained policies that come with sparc: lean exports below policies/, by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from sparc.deploy import runtime
from sparc.deploy.contract import Contract
from sparc.errors import unknown

FOLDER = Path(__file__).parent / "policies"
SCHEME = "sparc://"


def policies() -> dict[str, Contract]:
    """Return the contracts of all policies by name."""
    return {name: runtime.read_contract(FOLDER / name) for name in names()}


def names() -> list[str]:
    """Return the names of all policies."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{runtime.CONTRACT}"))


def is_export(folder: Path) -> bool:
    """Return whether a folder is an export."""
    return (folder / runtime.CONTRACT).is_file()


def find_policy(name: str) -> Path:
    """Return the folder of a policy by its name, with or without sparc:// before it."""
    plain = name.removeprefix(SCHEME)
    if plain not in names():
        raise unknown("policy", plain, names(), "`sparc policies`")
    return FOLDER / plain


def policy_folder(source: str | Path) -> Path | None:
    """Return the folder of an export, or of a policy by its name; None where the source can only be a run."""
    path = Path(source)
    if str(source).startswith(SCHEME):
        return find_policy(str(source))
    if path.exists():
        return path if is_export(path) else None
    plain = path.name == str(path)  # a path with folders in it is that of a run
    return find_policy(path.name) if plain and difflib.get_close_matches(path.name, names()) else None
