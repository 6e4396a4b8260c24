"""Who may import whom, room by room; and `import sparc` stays light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparc

ROOT = Path(sparc.__file__).parent
LEAVES = ("arrays", "config", "contexts", "errors", "files", "machine", "plugins", "seals", "text")
# A room imports only rooms above it in this list, lazy imports and those for types included.
ROOMS: dict[str, set[str]] = {
    "leaves": set(),
    "methods": {"leaves"},
    "envs": {"leaves"},
    "acting": {"leaves", "methods", "envs"},
    "runs": {"leaves", "methods", "envs", "acting"},
    "deploy": {"leaves", "methods", "envs", "acting", "runs"},
    "training": {"leaves", "methods", "envs", "acting", "runs", "deploy"},
    "suites": {"leaves", "methods", "envs", "acting", "runs"},  # it starts processes that train
    "report": {"leaves", "methods", "envs", "acting", "runs", "suites"},
    "watch": {"leaves", "methods", "envs", "acting", "runs", "deploy", "suites", "report"},
    "cli": {"leaves", "methods", "envs", "acting", "runs", "training", "deploy", "suites", "report", "watch"},
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


# Racing's own words belong to these; the page's files leave the list as they become generic.
MAY_SAY_LAP = (
    "envs/racing/", "watch/", "cli/", "report/races.py", "report/figures/races.py", "report/page/races.py",
    "report/page/templates/races.html.j2",
    "suites/older.py",  # a name in files of earlier versions
)  # fmt: skip
LAP = re.compile(r"(?<![a-z])laps?(?![a-z])", re.IGNORECASE)


def says_lap(text: str) -> bool:
    return any(LAP.search(line) for line in text.splitlines() if not line.startswith("from sparc."))


def test_only_racing_speaks_of_laps() -> None:
    said = [
        name
        for file in sorted(ROOT.rglob("*"))
        if file.suffix in (".py", ".js", ".html", ".j2", ".css")
        and not (name := file.relative_to(ROOT).as_posix()).startswith(MAY_SAY_LAP)
        and says_lap(file.read_text())
    ]
    assert not said


def test_the_word_is_seen_in_names_and_not_in_other_words() -> None:
    assert all(says_lap(text) for text in ("a lap", "lap_time", "SAME_LAP = 1", "Laps are long"))
    assert not any(says_lap(text) for text in ("overlap", "elapsed", "collapse", "from sparc.watch.laps import x"))


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
    heavy = ("jax", "jaxlib", "equinox", "optax", "mujoco", "matplotlib", "tensorboardX", "sparc.envs.racing")
    code = f"import sys, sparc, sparc.methods; print([name for name in sys.modules if name.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_races_are_registered_when_they_are_asked_for() -> None:
    code = "import sys, sparc.envs as e; e.get_env({!r}); print([*e.all_envs()], 'sparc.envs.racing' in sys.modules)"
    ids = [
        "DriftingBoat-v0", "WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5", "WindAnt-v5",
        "MotorHalfCheetah-v5", "MotorWalker2d-v5",
        *(f"{race}-{track}-v0" for track in ("forza", "spring", "mixed-2", "g-track-1")
          for race in ("RaceCars", "RacePowerMass")),
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code.format(ids[-1])], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{ids} True"
    code = "import sys, sparc; sparc.make_env('DriftingBoat-v0'); print('sparc.envs.racing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
