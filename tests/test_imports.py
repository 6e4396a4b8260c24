"""Who may import whom, room by room; and `import sparc` stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparc

ROOT = Path(sparc.__file__).parent
LEAVES = ("config", "contexts", "errors", "files", "machine", "plugins", "seals", "text")
# A room imports only rooms above it in this list, lazy imports and those for types included.
ROOMS: dict[str, set[str]] = {
    "leaves": set(),
    "methods": {"leaves"},
    "envs": {"leaves"},
    "acting": {"leaves", "methods", "envs"},
    "runs": {"leaves", "methods", "envs", "acting"},
    "training": {"leaves", "methods", "envs", "acting", "runs"},
    "suites": {"leaves", "methods", "envs", "acting", "runs"},  # it starts processes that train
    "report": {"leaves", "methods", "envs", "acting", "runs", "suites"},
    "watch": {"leaves", "methods", "envs", "acting", "runs", "suites", "report"},
    "cli": {"leaves", "methods", "envs", "acting", "runs", "training", "suites", "report", "watch"},
}
PACKAGE = ("__init__", "__main__")  # the public names, and `python -m sparc`: they may import any room


def imports(file: Path) -> Iterator[str]:
    """Yield the sparc modules that a file imports, also within functions, as `room.module` or `leaf`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} has a relative import"
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("sparc.") for name in found if name.startswith("sparc."))


def room_of(module: str) -> str:
    first = module.split(".")[0]
    return "leaves" if first in LEAVES else first


def files(room: str) -> list[Path]:
    return [ROOT / f"{name}.py" for name in LEAVES] if room == "leaves" else sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files(room)
        for name in imports(file)
        if room_of(name) not in ROOMS[room] | {room}
    ]
    assert not wrong


def test_every_file_lives_in_a_room() -> None:
    housed = {file for room in ROOMS for file in files(room)} | {ROOT / f"{name}.py" for name in PACKAGE}
    assert {file for file in ROOT.rglob("*.py") if file not in housed} == set()
    assert all(file.is_file() for file in housed)


def test_the_table_sees_what_it_forbids(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    lines = ["from sparc import text", "def f():", "    from sparc.training import loop", "    import sparc.envs.sync"]
    file.write_text("\n".join(lines))
    assert {name: room_of(name) for name in imports(file)} == {
        "training.loop": "training", "envs.sync": "envs", "text": "leaves",
    }  # fmt: skip


def test_importing_sparc_loads_nothing_heavy() -> None:
    heavy = ["jax", "jaxlib", "equinox", "optax", "mujoco", "matplotlib", "tensorboardX"]
    code = f"import sys, sparc, sparc.methods; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
