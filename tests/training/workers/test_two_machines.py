"""Two machines with a cable between them, and the commands of docs/workers.md: the cable is pulled and put back."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import CARD, Machine, two_machines
from pooling import wait_for
from windows import check_windows

import sparc
from sparc.runs.run import Run
from sparc.training.workers import processes

pytestmark = [pytest.mark.process, pytest.mark.slow]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "workers.md"
SOURCE = Path(sparc.__file__).resolve().parents[1]
FIRST, SECOND, PORT = "10.0.0.5", "10.0.0.6", 6379  # as in the documentation
ROOM = ("--num-cpus", "1")  # of each machine, however many it has: so one worker runs on each
SHORT = 4.0  # s without a cable, which Ray does not mind
# When it gives up a machine that does not answer, as the first machine is told: usually after about a minute.
GIVE_UP = {"RAY_health_check_period_ms": "2000", "RAY_health_check_timeout_ms": "1000",
           "RAY_health_check_failure_threshold": "4"}  # fmt: skip


def documented(begins: str) -> list[str]:
    """Return the words of the command in the section "Two machines" that begins so."""
    section = DOCS.read_text().split("\n## Two machines\n")[1].split("\n## ")[0]
    (line,) = re.findall(rf"^{begins}.*$", section, re.MULTILINE)
    return shlex.split(line, comments=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a name short enough for Ray's sockets, and in it the one that each machine has for itself."""
    with tempfile.TemporaryDirectory(prefix="sparc-", dir="/tmp") as name:
        (Path(name) / "own").mkdir()
        yield Path(name)


@pytest.fixture
def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a person sets on both machines, and our own folders instead of the usual ones."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    return {
        **os.environ, "HOME": str(folder), "PYTHONPATH": str(SOURCE), "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder / "own"), "TMPDIR": str(folder / "own"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # fmt: skip


class Learner:
    """A training that runs on the first machine."""

    def __init__(self, machine: Machine, folder: Path, environment: dict[str, str], *options: object):
        self.run, self.log = folder / "run", folder / "log"
        *command, method, _, workers, count, cluster, address = documented("sparc train ")
        assert (method, workers, cluster) == ("sparc", "--workers", "--cluster") and count.isdigit()
        words = [*command, method, "DriftingBoat-v0", workers, 2, cluster, address, "--run-dir", self.run, *options]
        with self.log.open("w") as log:
            self.outside = subprocess.Popen(
                machine.command(*words), cwd=folder, env=environment, stdout=log, stderr=log
            )

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the workers that run, by their machine."""
        try:
            table = json.loads((self.run / "workers.json").read_text())
        except FileNotFoundError:
            return {}
        return {row["host"]: row for row in table["rows"] if row["state"] == "running"}

    def updates(self) -> int:
        found: int = json.loads((self.run / "workers.json").read_text())["updates"]
        return found

    def wait_for(self, what: Any) -> None:
        """Wait until something is true, as long as it trains."""
        try:
            assert wait_for(lambda: self.outside.poll() is not None or what()) and self.outside.poll() is None
        except AssertionError:
            raise AssertionError(f"{self.rows()}\n{self.log.read_text()}") from None

    def delivers(self, name: str) -> None:
        """Wait until a machine has delivered more than now."""
        before = self.rows().get(name, {"delivered": 0})["delivered"]
        self.wait_for(lambda: self.rows().get(name, {"delivered": 0})["delivered"] > before + 20)

    def learns(self) -> None:
        """Wait until it has learned more than now."""
        before = self.updates()
        self.wait_for(lambda: self.updates() > before + 50)

    def stop(self) -> int:
        """Press Ctrl-C there; return the exit code."""
        (inside,) = (found for found in processes.descendants(self.outside.pid) if processes.name_of(found) == "sparc")
        os.kill(inside.pid, signal.SIGINT)
        return self.outside.wait(60)


def test_a_cable_is_pulled_and_put_back(folder: Path, environment: dict[str, str], tiny_yaml: Path) -> None:
    with two_machines((FIRST, SECOND), folder / "own") as (first, second):
        first.run(*documented("ray get-auth-token"), env=environment)
        first.run(*documented("ray start --head"), *ROOM, env=environment | GIVE_UP)
        join = (*documented("ray start --address"), *ROOM)
        second.run(*join, env=environment)
        daemons = set(first.processes().values())
        assert {"raylet", "gcs_server"} <= daemons
        options = ("--config", tiny_yaml, "--updates", 10**8, "--evaluate-every", 50_000, "--replay-capacity", 4_000)
        learner = Learner(first, folder, environment, *options)
        learner.wait_for(lambda: learner.rows().keys() == {"first", "second"})
        for machine in (first, second):
            learner.delivers(machine.name)

        # for a few seconds: what was under way arrives late, and nobody has died
        second.ip("link", "set", CARD, "down")
        time.sleep(SHORT)
        before = learner.rows()["second"]["delivered"]
        learner.learns()
        learner.delivers("first")
        assert learner.rows()["second"]["delivered"] == before
        second.ip("link", "set", CARD, "up")
        learner.delivers("second")
        assert "Another one in" not in learner.log.read_text()

        # for so long that Ray gives the machine up: it joins once more, and gets another worker
        second.ip("link", "set", CARD, "down")
        learner.wait_for(lambda: "second" not in learner.rows())
        learner.learns()
        learner.delivers("first")
        second.ip("link", "set", CARD, "up")
        wait_for(lambda: "raylet" not in second.processes().values())
        second.run(*join, env=environment)
        learner.delivers("second")
        learner.learns()

        assert learner.stop() == 130
        said = learner.log.read_text()
        assert "worker 1 on second: " in said and "continue with: sparc resume" in said
        assert check_windows(Run.open(learner.run)) > 1000

        # of our own nothing is left on either machine, and of Ray nothing after `ray stop`
        wait_for(lambda: set(first.processes().values()) <= daemons, 30)
        assert not [name for name in os.listdir(f"/proc/{first.pid}/root{folder}/own") if name.startswith("sparc-")]
        for machine in (second, first):
            machine.run("ray", "stop", env=environment)
            wait_for(lambda there=machine: not there.processes(), 30)
            assert os.listdir(Path("/proc", str(machine.pid), "root", "dev", "shm")) == []
    assert not Path(f"/proc/{first.pid}").exists() and not Path(f"/proc/{second.pid}").exists()
