"""A finished run, and how the real command line answers."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import sparc

BOAT = "DriftingBoat-v0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    """A run of 20 updates with the checkpoints 10 and 20; copy it before changing it."""
    fields = {**tiny_fields, "evaluate_every": 10, "updates": 20}
    return sparc.train("only-obs", BOAT, run_dir=tmp_path_factory.mktemp("finished") / "run", **fields)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The same, to break: `run` in the directory where commands run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
