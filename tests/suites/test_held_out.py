"""The suite of examples/, which names a user's environment, through the real command line."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparc.suites.tables import read

ROOT = Path(__file__).resolve().parents[2]
ENVS = {"WindAnt-v5", "HeavyPendulum-v0"}
TRUST = "--allow-import"


def test_the_heavy_pendulum_is_the_readmes() -> None:
    code = (ROOT / "examples" / "heavy_pendulum.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.process
def test_the_held_out_suite_runs_and_reports(
    tmp_path: Path, tiny: dict[str, Any], sparc_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    file = tmp_path / "examples" / "held_out.yaml"
    suite = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(suite | {"updates": 20, "grid": 2, "config": tiny | {"evaluate_every": 20}}))
    few = ("--seeds", 0, "--methods", "sparc", "only-obs")
    refused = sparc_cli("suite", "run", "examples/held_out.yaml", *few)
    assert refused.returncode == 2 and TRUST in refused.stderr
    done = sparc_cli("suite", "run", "examples/held_out.yaml", *few, TRUST, timeout=300)
    assert done.returncode == 0 and "4 done" in done.stdout, done.stderr
    *_, hint = done.stdout.splitlines()
    assert hint == f"next: sparc suite report examples/held_out.yaml {TRUST}"
    report = sparc_cli(*hint.split()[2:], timeout=300)
    assert report.returncode == 0, report.stderr
    found = read(tmp_path / "runs" / "held_out" / "report")
    assert set(found.envs) == ENVS and all(set(part.returns) == {"sparc", "only-obs"} for part in found.envs.values())
    assert all("expert_return" in part.measures["sparc"][0] for part in found.envs.values())
    page = (tmp_path / "runs" / "held_out" / "report" / "report.html").read_text()
    assert all(env in page for env in ENVS) and "Policy and expert: mean return" in page


@pytest.mark.slow
@pytest.mark.process
def test_the_hint_of_a_run_works_where_the_command_line_named_the_module(
    tmp_path: Path, tiny: dict[str, Any], sparc_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shutil.copy(ROOT / "examples" / "heavy_pendulum.py", tmp_path)
    values = {"methods": ["only-obs"], "envs": ["DriftingBoat-v0"], "seeds": [0], "updates": 20, "grid": 2}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(values | {"config": tiny | {"evaluate_every": 20}}))
    done = sparc_cli("suite", "run", "own.yaml", "--envs", "heavy_pendulum:HeavyPendulum-v0")  # which allows it here
    assert done.returncode == 0, done.stderr
    *_, hint = done.stdout.splitlines()
    assert hint == f"next: sparc suite report own.yaml {TRUST}"
    report = sparc_cli(*hint.split()[2:])
    assert report.returncode == 0, report.stderr
