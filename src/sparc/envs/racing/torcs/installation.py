"""Find TORCS and our worker on this machine; install.py sets them up."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparc import machine
from sparc.errors import UserError

VERSION = "1.3.7"
DATA = Path("/usr/share/games/torcs")
LIBRARIES = Path("/usr/lib")
SOURCE = Path(__file__).with_name("worker")
LINKED = ("modules/simu/simuv2.so", "modules/track/track.so", "lib/librobottools.so", "lib/libtgf.so", "lib/libtxml.so")
DRIVER = "inferno"  # of TORCS's: it drives the reference laps, and the check of the worker
REMEDY = "run `sparc racing install`"
OTHER_VERSION = f"install Debian's packages of it: `apt-get install 'torcs={VERSION}*' 'torcs-data={VERSION}*'`"


@dataclass(frozen=True)
class Installation:
    """Where TORCS and our worker are."""

    libraries: Path
    data: Path
    worker: Path
    version: str  # of the package, and of our worker: what laps depend on


def cache_folder() -> Path:
    """Return the folder for what is built or computed on this machine."""
    return machine.cache_folder() / "torcs"


def package_version() -> str | None:
    """Return the version of the installed Debian package; None without it."""
    try:
        run = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "torcs"], capture_output=True, text=True)
    except OSError:
        return None
    return run.stdout if run.returncode == 0 and run.stdout else None


def find_libraries() -> Path:
    """Find the folder of TORCS's libraries."""
    folders = sorted(LIBRARIES.glob("*/torcs"), key=lambda folder: not (folder / LINKED[0]).is_file())
    if not folders:
        raise UserError(f"TORCS's libraries are not where Debian puts them: {REMEDY}")
    check_whole([folders[0] / name for name in (*LINKED, f"drivers/{DRIVER}/{DRIVER}.so")], "torcs")
    return folders[0]


def check_whole(files: Iterable[Path], package: str) -> None:
    """Raise a UserError where a file of a package is missing."""
    for file in files:
        if not file.is_file():
            raise UserError(f"TORCS is not whole, {file} is missing: `apt-get install --reinstall {package}`")


def fingerprint(version: str, libraries: Path) -> str:
    """Return a digest of our source and of the libraries it is linked with: it identifies a build."""
    digest = hashlib.sha256(version.encode())
    for file in sorted(SOURCE.glob("*.[ch]*")):
        digest.update(file.name.encode() + file.read_bytes())
    for name in LINKED:
        digest.update((libraries / name).read_bytes())
    return digest.hexdigest()[:16]


def worker_file(built: str) -> Path:
    """Return where the worker of a fingerprint is, or would be."""
    return cache_folder() / f"worker-{built}"


@cache  # a run that has begun goes on with its worker, whatever becomes of this package meanwhile
def find_torcs() -> Installation:
    """Return the installation, or say in one line what is missing and what to run."""
    version = package_version()
    if version is None or not DATA.is_dir():
        raise UserError(f"racing needs TORCS {VERSION} and it is not installed: {REMEDY} (Debian, as root)")
    if not version.startswith(VERSION):
        raise UserError(f"racing needs TORCS {VERSION}, and this machine has {version}: {OTHER_VERSION}")
    libraries = find_libraries()
    built = fingerprint(version, libraries)
    if not worker_file(built).is_file():
        raise UserError(f"TORCS {version} is there, but the worker for it is not built: {REMEDY}")
    return Installation(libraries, DATA, worker_file(built), f"{version} {built}")
