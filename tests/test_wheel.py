"""The wheel has all that the package needs: built, installed into a bare environment, used from another folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
BOAT = "DriftingBoat-v0"
RACING = """
import sparc.envs.racing.torcs.installation as installation
from sparc.envs.racing.cars.car import read_catalogue
print(len(read_catalogue()), *sorted(file.name for file in installation.SOURCE.iterdir()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without build isolation and so without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path) -> Path:
    """Install the wheel into a new environment that finds every library, but no sparc, where this process does."""
    folder = wheel.parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    # a folder named in a .pth file comes last on the path, and the .pth file of an editable sparc in it is not read
    (packages,) = folder.glob("lib/python*/site-packages")
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "libraries.pth").write_text("".join(f"{library}\n" for library in sorted(libraries)))
    return folder


def run(bare: Path, cwd: Path, program: str, *words: object) -> str:
    """Run a program of the bare environment and return what it prints."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [bare / "bin" / program, *map(str, words)], cwd=cwd, env=own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    ours = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "sparc").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    theirs = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("sparc/")}
    assert ours == theirs


def test_racing_finds_its_cars_and_the_sources_of_its_worker(bare: Path, tmp_path: Path) -> None:
    assert str(bare) in run(bare, tmp_path, "python", "-c", "import sparc; print(sparc.__file__)")
    worker = sorted(file.name for file in (ROOT / "src/sparc/envs/racing/torcs/worker").iterdir())
    assert run(bare, tmp_path, "python", "-c", RACING).split() == ["515", *worker]


def test_what_is_installed_trains_evaluates_and_reports(bare: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    envs = run(bare, tmp_path, "sparc", "envs")
    assert BOAT in envs and "RaceCars-forza-v0" in envs
    assert "race-power-mass" in run(bare, tmp_path, "sparc", "suite", "list")
    plan = {"methods": ["sparc"], "envs": [BOAT], "seeds": [0], "updates": 100, "grid": 3, "config": tiny}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(plan))
    run(bare, tmp_path, "sparc", "suite", "run", "own.yaml")  # it trains and tests in processes of its own
    member = tmp_path / "runs" / "own" / BOAT / "sparc" / "seed0"
    run(bare, tmp_path, "sparc", "evaluate", member, "--grid", 2)
    assert (member / "evaluations" / "100-grid2.csv").is_file()
    run(bare, tmp_path, "sparc", "suite", "report", "own.yaml")
    assert "<table" in (tmp_path / "runs" / "own" / "report" / "report.html").read_text()
