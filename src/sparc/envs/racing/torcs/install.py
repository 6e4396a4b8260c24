"""Set TORCS up: install its packages, fetch its headers, build the worker on this machine, check it against the game.

`sparc racing install` and `make torcs` run it, the latter as `python -m sparc.envs.racing.torcs.install`. TORCS is
licensed under the GPL: it is linked here, on the user's machine, and nothing of it is shipped with this package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from sparc.envs.contextual import ProgressCall
from sparc.envs.racing.torcs.installation import (
    DRIVER,
    LINKED,
    OTHER_VERSION,
    SOURCE,
    VERSION,
    Installation,
    cache_folder,
    find_libraries,
    find_torcs,
    fingerprint,
    package_version,
    worker_file,
)
from sparc.errors import SparcError, UserError

PACKAGES = ("torcs", "torcs-data", "g++", "xz-utils")
HEADERS = ("interfaces", "libs/tgf", "libs/robottools", "libs/portability", "linux", "modules/simu/simuv2",
           "modules/simu/simuv2/SOLID-2.0/include", "modules/simu/simuv2/SOLID-2.0/include/SOLID")  # fmt: skip
SOURCE_MB = 400  # of TORCS's source package
LOOK_SECONDS = 0.5  # between two looks at how much of it is there
CHECK = (DRIVER, 3, "car1-trb1", "road", "g-track-1", 3)  # driver, number, its car, track's category, track, laps

Bar = Callable[[str, str], AbstractContextManager[ProgressCall]]  # makes a progress bar from a title and a unit


# Setting it up


def no_bar(title: str, unit: str) -> AbstractContextManager[ProgressCall]:
    """Show no progress bar: the lines that are printed say what goes on."""
    return nullcontext(lambda done, total: None)


def install_packages() -> None:
    """Install what is missing with apt, where that is possible."""
    missing = [name for name in PACKAGES if not _installed(name)]
    if not missing:
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not shutil.which("apt-get") or (root and subprocess.run([*root, "true"], capture_output=True).returncode):
        names = " ".join(missing)
        raise UserError(f"racing needs the Debian packages {names}: install them as root, `apt-get install {names}`")
    print(f"Installing {' '.join(missing)} (a minute)", flush=True)
    environment = [*root, "env", "DEBIAN_FRONTEND=noninteractive"]
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        _run([*environment, "apt-get", "-qq", *arguments], f"apt-get {arguments[0]}")


def _installed(package: str) -> bool:
    try:
        run = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True)
    except OSError:
        return False
    return run.stdout.endswith("ok installed")


def _run(command: list[str], what: str, **how: object) -> None:
    run = subprocess.run(command, capture_output=True, text=True, **how)  # type: ignore[call-overload]
    if run.returncode:
        said = (run.stderr or run.stdout).strip().splitlines()
        raise SparcError(f"{what} failed: {said[-1] if said else f'exit code {run.returncode}'}")


def _fetch(command: list[str], what: str, folder: Path, progress: ProgressCall) -> None:
    """Run a command that downloads into a folder, and report how many megabytes are there."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        try:
            while process.poll() is None:
                progress(_megabytes(folder), SOURCE_MB)
                time.sleep(LOOK_SECONDS)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            said.seek(0)
            lines = said.read().strip().splitlines()
            raise SparcError(f"{what} failed: {lines[-1] if lines else f'exit code {process.returncode}'}")


def _megabytes(folder: Path) -> int:
    size = 0
    for file in folder.rglob("*"):
        with suppress(OSError):  # a temporary file that is gone
            size += file.stat().st_size
    return size // 10**6


def fetch_headers(version: str, folder: Path, bar: Bar) -> None:
    """Fetch the headers of this very version from Debian's source package, with an apt configuration of our own."""
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True)
    sources = folder / "sources"
    sources.mkdir()
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        if file.suffix == ".sources":
            text = "\n".join("Types: deb-src" if line.startswith("Types:") else line for line in _lines(file))
        elif file.suffix == ".list":
            text = "\n".join("deb-src" + line[3:] for line in _lines(file) if line.startswith("deb "))
        else:
            continue
        (sources / file.name).write_text(text + "\n")
    apt = ["apt-get", "-qq", "-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={sources}",
           "-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User=root"]  # fmt: skip
    source = version.partition("+b")[0]  # a rebuild has the same source
    print(f"Fetching TORCS's headers from its source package ({SOURCE_MB} MB, of which 1 MB stays)", flush=True)
    _run([*apt, "update"], "apt-get update for source packages")
    with bar("fetching TORCS's source package", "MB") as progress:
        command = [*apt, "--download-only", "source", f"torcs={source}"]
        _fetch(command, "fetching TORCS's source package", folder, progress)
    _run(["apt-get", "-qq", "download", "libplib-dev"], "fetching plib's headers", cwd=folder)
    archive, plib = next(folder.glob("torcs_*.orig.tar.*")), next(folder.glob("libplib-dev*.deb"))
    kept = _made(folder / "headers")
    command = ["tar", "-xf", str(archive), "--strip-components=1", "--wildcards", "*/src/*.h"]
    _run(command, "unpacking TORCS's headers", cwd=kept)
    _run(["dpkg-deb", "-x", str(plib), "plib"], "unpacking plib's headers", cwd=kept)
    shutil.copytree(kept / "src/libs/math", kept / "src/include/tmath")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.is_file() else []


def build(version: str, libraries: Path, worker: Path, bar: Bar = no_bar) -> None:
    """Build the worker, complete or not at all."""
    headers = cache_folder() / f"headers-{version}"
    if not headers.is_dir():
        with tempfile.TemporaryDirectory(prefix=".headers-", dir=_made(cache_folder())) as name:
            fetch_headers(version, Path(name), bar)
            try:
                (Path(name) / "headers").rename(headers)
            except OSError:
                if not headers.is_dir():  # else another build was quicker: they are the same
                    raise
    includes = [f"-I{headers / 'src' / part}" for part in (*HEADERS, "include")] + [f"-I{headers}/plib/usr/include"]
    links = [str(libraries / part) for part in LINKED[:2]]
    links += [f"-L{libraries}/lib", "-lrobottools", "-ltgf", "-ltxml", f"-Wl,-rpath,{libraries}/lib"]
    links += ["-l:libplibsg.so.1", "-ldl", "-lm"]
    print("Building the worker", flush=True)
    with tempfile.TemporaryDirectory(prefix=".worker-", dir=_made(cache_folder())) as name:
        made = Path(name) / worker.name
        command = ["g++", "-O2", "-std=c++17", "-o", str(made), str(SOURCE / "main.cpp"), *includes, *links]
        _run(command, "building the worker")
        made.replace(worker)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# Checking it


def stock_car(data: Path, name: str) -> str:
    """Return the description of one of TORCS's cars with its category's, as the game merges them."""
    car = ElementTree.parse(data / f"cars/{name}/{name}.xml").getroot()
    category = next(e.get("val") for e in car.iter("attstr") if e.get("name") == "category")
    merged = ElementTree.parse(data / f"categories/{category}.xml").getroot()
    _merge(merged, car)
    return ElementTree.tostring(merged, encoding="unicode")


def _merge(into: ElementTree.Element, other: ElementTree.Element) -> None:
    mine = {(e.tag, e.get("name")): e for e in into}
    for element in other:
        same = mine.get((element.tag, element.get("name")))
        if same is None:
            into.append(element)
        elif element.tag == "section":
            _merge(same, element)
        else:
            same.attrib.update(element.attrib)


def game_laps(torcs: Installation, driver: str, number: int, track: tuple[str, str], laps: int) -> list[float]:
    """Let the game itself race, as `torcs -r`, and give its lap times in seconds."""
    with tempfile.TemporaryDirectory(prefix="sparc-torcs-") as name:
        local = Path(name)
        shutil.copytree(torcs.data / "config", local / "config")
        race = ElementTree.parse(torcs.data / "config/raceman/practice.xml")
        for path, key, value in (
            ("Tracks/1", "name", track[1]),
            ("Tracks/1", "category", track[0]),
            ("Practice", "laps", str(laps)),
            ("Drivers/1", "module", driver),
            ("Drivers/1", "idx", str(number)),
        ):
            section: ElementTree.Element | None = race.getroot()
            for part in path.split("/"):
                assert section is not None
                section = section.find(f"section[@name='{part}']")
            assert section is not None
            entry = section.find(f"*[@name='{key}']")
            assert entry is not None
            entry.set("val", value)
        race.write(local / "practice.xml")
        command = [str(torcs.libraries / "torcs-bin"), "-l", name, "-L", str(torcs.libraries), "-D", str(torcs.data)]
        environment = os.environ | {"LD_LIBRARY_PATH": f"{torcs.libraries}/lib"}
        _run([*command, "-r", str(local / "practice.xml")], "torcs -r", cwd=torcs.data, env=environment)
        result = next((local / "results/practice").glob("*.xml"))
        times = [
            float(e.get("val", "nan")) for e in ElementTree.parse(result).iter("attnum") if e.get("name") == "time"
        ]
    return times[-laps:]


def worker_laps(
    torcs: Installation, driver: str, number: int, car: str, track: tuple[str, str], laps: int
) -> list[float]:
    """Let the same driver race in our worker, and give its lap times in seconds."""
    from sparc.envs.racing.torcs.simulator import Worker, WorkerLost

    worker = Worker(torcs, torcs.data / f"tracks/{track[0]}/{track[1]}/{track[1]}.xml", 1, fuel=1.0)
    try:
        return worker.race(stock_car(torcs.data, car), driver, number, laps, True, 1000.0 * laps).times.tolist()
    except WorkerLost as lost:
        raise SparcError(f"{driver} cannot race in the worker on {track[1]}: {lost}") from None
    finally:
        worker.close()


def check(torcs: Installation) -> str:
    """Race in the game and in the worker; a SparcError if a flying lap differs by a millisecond.

    The first lap is left out: the game counts it from the green light, the worker from the line.
    """
    driver, number, car, *track, laps = CHECK
    road = (str(track[0]), str(track[1]))
    theirs = game_laps(torcs, driver, number, road, laps)[1:]
    ours = worker_laps(torcs, driver, number, car, road, laps)[1:]
    if len(ours) != laps - 1 or any(abs(a - b) >= 0.0005 for a, b in zip(theirs, ours, strict=True)):
        raise SparcError(f"{driver} laps {road[1]} in {ours} s here and in {theirs} s in the game")
    return f"{driver} laps {road[1]} in {', '.join(f'{lap:.3f}' for lap in ours)} s, here and in the game"


def install(bar: Bar = no_bar) -> str:
    """Set up what is missing, check it, and return a line on the result."""
    install_packages()
    version = package_version()
    if version is None or not version.startswith(VERSION):
        raise UserError(f"racing needs TORCS {VERSION}; apt gives {version or 'none'}: {OTHER_VERSION}")
    libraries = find_libraries()
    worker = worker_file(fingerprint(version, libraries))
    if not worker.is_file():
        build(version, libraries, worker, bar)
    torcs = find_torcs()
    print("Checking the worker: a race in it and in the game (some seconds)", flush=True)
    return f"TORCS {torcs.version}: {check(torcs)}"


def main() -> int:
    """Install, and report an error in one line."""
    try:
        print(install())
    except SparcError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
