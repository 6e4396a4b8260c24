"""What a machine lacks: tests that need it are skipped with the remedy, but not in CI; a dead network is given up."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command where programs={name: script} come first in the PATH, or are all there is of it."""

    def start(
        *command: str, programs: dict[str, str], alone: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "PYTEST", "SPARC"))}
        path = str(folder) if alone else os.pathsep.join([str(folder), os.environ["PATH"]])
        full = inherited | {"PATH": path} | env
        return subprocess.run(command, env=full, cwd=ROOT, capture_output=True, text=True, timeout=120)

    return start


Command = Callable[..., subprocess.CompletedProcess[str]]


# A test of each kind, and what the machine is said to lack.
NEEDY = {
    "apt-get install chromium": "tests/report/test_report.py::test_the_page_asks_nothing_of_the_network",
    "apt-get install libegl1": "tests/watch/test_play.py::test_a_robot_falls",
}
WITHOUT_OPENGL = """
def pytest_collection_finish(session):
    from sparc.envs.robots import view

    view.OFF_SCREEN.update(dict.fromkeys(view.OFF_SCREEN, "libmissing.so"))
"""


@pytest.mark.process
@pytest.mark.parametrize("required", ["", "1"])
@pytest.mark.parametrize("remedy", NEEDY)
def test_what_is_missing_skips_a_test_or_fails_it_where_all_are_required(
    run: Command, tmp_path: Path, remedy: str, required: str
) -> None:
    (tmp_path / "without_opengl.py").write_text(WITHOUT_OPENGL)
    options = ("-rs", "-p", "no:cacheprovider", "-p", "without_opengl", f"--basetemp={tmp_path / 'tests'}")
    python_path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = run(sys.executable, "-m", "pytest", *options, NEEDY[remedy], programs={}, alone=True,
               SPARC_REQUIRE_ALL=required, PYTHONPATH=python_path)  # fmt: skip
    assert done.returncode == (1 if required else 0), done.stdout + done.stderr
    assert remedy in done.stdout and " passed" not in done.stdout
    assert ("SPARC_REQUIRE_ALL is set" if required else " skipped in ") in done.stdout


def test_ci_requires_all_tests(run: Command) -> None:
    done = run(".ci/run", programs={"make": 'echo "$@, required: $SPARC_REQUIRE_ALL"; exit 7'})
    assert (done.returncode, done.stdout) == (7, "test, required: 1\n")


def test_packages_that_cannot_be_had_are_noted(run: Command, tmp_path: Path) -> None:
    """apt-get fails, as without a network: after its lists nothing more is tried."""
    calls = tmp_path / "calls"
    programs = {"dpkg": "exit 1", "id": "echo 0", "apt-get": f'echo "$@" >> {calls}; exit 100'}
    done = run("make", "--no-print-directory", "system", programs=programs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("note: ") and "apt-get install chromium" in done.stdout
    (call,) = calls.read_text().splitlines()
    assert call.endswith(" update") and "Acquire::Retries=1" in call and "Acquire::http::Timeout=20" in call


def test_packages_that_are_missing_are_installed_and_no_others(run: Command, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    programs = {"dpkg": 'test "$2" != libegl1', "id": "echo 0", "apt-get": f'echo "$@" >> {calls}'}
    done = run("make", "--no-print-directory", "system", programs=programs)
    assert (done.returncode, done.stdout) == (0, "Installing libegl1\n"), done.stderr
    update, install = calls.read_text().splitlines()
    assert update.endswith(" update") and install.endswith(" install -y --no-install-recommends libegl1")
    assert "Acquire::http::Timeout=20" in install
