"""Who may import whom; and `import sparc` stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparc

ROOT = Path(sparc.__file__).parent


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(file: Path) -> Iterator[str]:
    """Give the full name of everything a file imports, also within functions; `from a import b` gives a and a.b."""
    package = ("sparc", *file.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize(("folder", "forbidden"), [("methods", "sparc.envs"), ("envs", "sparc.methods")])
def test_methods_and_environments_do_not_know_each_other(folder: str, forbidden: str) -> None:
    files = modules(folder)
    assert len(files) > 3
    found = {file.name: name for file in files for name in imports(file) if within(name, forbidden)}
    assert not found


BELOW = ["losses", "nets", "contexts", "history", "replay", "checkpoint", "select", "config", "errors", "machine"]


@pytest.mark.parametrize("name", BELOW)
def test_what_lies_below_knows_neither_methods_nor_environments_nor_the_loop(name: str) -> None:
    above = ("sparc.methods", "sparc.envs", "sparc.training", "sparc.rollout", "sparc.evaluation", "sparc.runs")
    assert not [found for found in imports(ROOT / f"{name}.py") if any(within(found, package) for package in above)]


def test_methods_and_environments_do_not_know_the_loop() -> None:
    loop = ("sparc.training", "sparc.rollout", "sparc.evaluation", "sparc.runs", "sparc.checkpoint", "sparc.policy")
    found = [
        (file.name, name)
        for file in (*modules("methods"), *modules("envs"))
        for name in imports(file)
        if any(within(name, package) for package in loop)
    ]
    assert not found


def test_importing_sparc_loads_nothing_heavy() -> None:
    heavy = ["jax", "jaxlib", "equinox", "optax", "mujoco", "matplotlib", "tensorboardX"]
    code = f"import sys, sparc, sparc.methods; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
