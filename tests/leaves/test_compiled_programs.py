"""Compiled programs are kept between processes: the same bits with and without, and never a reason to stop."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from sparc import machine

BOAT = "DriftingBoat-v0"
Cli = Callable[..., subprocess.CompletedProcess[str]]


def files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what is written to the error stream, but for the progress of training."""
    return [line for line in done.stderr.splitlines() if " updates, " not in line and ": loading JAX" not in line]


def test_a_resumed_run_has_the_same_bits_with_cold_and_warm_cache(
    sparc_cli: Cli, tmp_path: Path, tiny_yaml: Path, assert_same_run: Callable[..., None]
) -> None:
    def cli(cache: str, *arguments: object) -> None:
        env = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / cache)}
        done = sparc_cli(*arguments, env=env)
        assert done.returncode == 0 and not complaints(done), done.stderr

    train = ("train", "sparc", BOAT, "--config", tiny_yaml, "--updates", 20, "--run-dir")
    cli("one", *train, "cold-then-warm")
    kept = files(tmp_path / "one" / "sparc-rl" / "jax")
    assert any("jit_run" in file.name for file in kept)
    cli("one", *train, "warm-then-cold")
    assert files(tmp_path / "one" / "sparc-rl" / "jax") == kept  # all of it was found
    cli("one", "resume", "cold-then-warm", "--updates", 40)
    cli("other", "resume", "warm-then-cold", "--updates", 40)
    assert any("jit_run" in file.name for file in files(tmp_path / "other"))
    assert_same_run(tmp_path / "cold-then-warm", tmp_path / "warm-then-cold")


FULL = """
import errno, os, sys
from jax._src import lru_cache

def put(self, key, value):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

lru_cache.LRUCache.put = put
from sparc import cli
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("what", ["no folder", "full"])
def test_without_room_for_a_cache_all_is_compiled(sparc_cli: Cli, tmp_path: Path, tiny_yaml: Path, what: str) -> None:
    if what == "no folder":
        (tmp_path / "cache").write_text("a file")
    command = (sys.executable, "-c", FULL) if what == "full" else (sys.executable, "-m", "sparc")
    arguments = ("train", "only-obs", BOAT, "--config", tiny_yaml, "--updates", 10, "--run-dir", "run")
    env = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = sparc_cli(*arguments, command=command, env=env)
    assert done.returncode == 0 and not complaints(done), done.stderr
    assert "done: best checkpoint 10" in done.stdout
    assert not files(tmp_path / "cache")


SHOW = """
import jax
from sparc import machine

machine.keep_compiled_programs()
print(jax.config.jax_compilation_cache_dir)
"""


def test_jaxs_own_switch_turns_it_off(sparc_cli: Cli, tmp_path: Path) -> None:
    env = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    show = (sys.executable, "-c", SHOW)
    assert sparc_cli(command=show, env=env).stdout.startswith(f"{tmp_path}/sparc-rl/jax/")
    off = sparc_cli(command=show, env=env | {"JAX_ENABLE_COMPILATION_CACHE": "false"})
    assert (off.returncode, off.stdout.strip(), off.stderr) == (0, "", "")


def test_a_folder_that_the_user_chose_is_kept() -> None:
    assert os.environ["JAX_COMPILATION_CACHE_DIR"]  # see conftest.py
    machine.keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir == os.environ["JAX_COMPILATION_CACHE_DIR"]


def test_programs_are_told_apart_by_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for cores in ("1", "2", "1"):
        monkeypatch.setenv("NPROC", cores)
        names.append(machine.compiled_for())
    assert names[0] == names[2] != names[1]


def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old", "oldest")):
        file = tmp_path / name / "program"
        file.parent.mkdir()
        file.write_bytes(bytes(100))
        os.utime(file, (1e9 - age, 1e9 - age))
    machine.prune(tmp_path, 300)
    assert len(files(tmp_path)) == 3
    machine.prune(tmp_path, 250)
    assert files(tmp_path) == {tmp_path / name / "program" for name in ("new", "old")}
