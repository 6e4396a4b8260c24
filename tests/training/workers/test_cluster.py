"""Workers on a cluster, a real Ray of two nodes on this machine: all methods, room, late joiners, other versions."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pooling import Session, wait_for

import sparc
from sparc.errors import RunFailure, UserError
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.loop import STOPPING
from sparc.training.workers import processes, source
from sparc.training.workers.messages import Limits

pytestmark = [pytest.mark.process, pytest.mark.slow]
BOAT = "DriftingBoat-v0"
HERE = Path(__file__).resolve().parents[2]  # where worlds.py is
SEARCHED = os.pathsep.join([str(Path(sparc.__file__).resolve().parents[1]), str(HERE)])  # by the nodes, as by us
Node = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, Node]]:
    """A cluster with room for two workers: its address, and a function that starts further nodes."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="sparc-", dir="/tmp") as folder:
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", SEARCHED)
        nodes: list[subprocess.Popen[bytes]] = []

        def start(*words: str, cpus: int, **more: str) -> subprocess.Popen[bytes]:
            ray = Path(sys.executable).with_name("ray")
            common = ("--block", "--num-cpus", str(cpus), "--num-gpus", "0", "--object-store-memory", str(10**8))
            with (Path(folder) / f"log{len(nodes)}").open("wb") as log:
                node = subprocess.Popen(
                    [ray, "start", *words, *common], env={**os.environ, **more}, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            nodes.append(node)
            return node

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"127.0.0.1:{port}"
        start(
            "--head", "--port", str(port), "--node-ip-address", "127.0.0.1", "--include-dashboard", "false",
            "--temp-dir", f"{folder}/r", cpus=2,
        )  # fmt: skip
        wait_for(lambda: "Ray runtime started" in (Path(folder) / "log0").read_text())
        try:
            yield address, start
        finally:
            for node in nodes:
                found = processes.descendants(node.pid)
                node.kill()
                node.wait()
                processes.kill(found)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(source, "LIMITS", Limits(room=0.5, rest=0.1))
    return Session(monkeypatch)


@pytest.mark.parametrize("method", ["sparc", "rma", "only-obs", "history-input", "oracle"])
def test_every_method_trains(
    cluster: tuple[str, Node], session: Session, tmp_path: Path, tiny: dict[str, Any], method: str
) -> None:
    run = sparc.train(
        method,
        BOAT,
        run_dir=tmp_path / "run",
        workers=2,
        cluster=cluster[0],
        report=session.report,
        updates=200,
        **tiny,
    )
    arrays, meta = checkpoint.load(run / "checkpoints" / "200")
    assert arrays["replay.count"].sum() == session.source.steps >= 50
    assert meta["phase"] == ("adapter" if method == "rma" else "train")
    assert Run.open(run).manifest()["sessions"][0]["cluster"] == cluster[0]
    assert session.notes == []
    actions = sparc.load(run).act([0.0, 0.0], *([[0.1, 0.1]] if method == "oracle" else []))
    assert actions.shape == (2,)


def test_workers_that_find_no_room_wait_and_join_later(
    cluster: tuple[str, Node], session: Session, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    address, start = cluster

    def story() -> None:
        session.wait_for(lambda: len(session.running()) == 2)
        assert [row["state"] for row in session.rows()] == ["running", "running", "waiting"]
        session.wait_for(lambda: "2 of 3 workers placed, 1 wait for room on the cluster." in session.notes)
        node = start("--address", address, "--node-ip-address", "127.0.0.1", cpus=1)
        session.wait_for(lambda: len(session.running()) == 3)
        # and a node that is gone takes only its own worker along
        found = processes.descendants(node.pid)
        node.kill()
        processes.kill(found)
        session.wait_for(lambda: [row["state"] for row in session.rows()].count("waiting") == 1)
        session.arrives()

    fields = {**tiny, "replay_capacity": 4000}
    session.run(
        lambda: sparc.train(
            "only-obs", BOAT, run_dir=tmp_path / "run", workers=3, cluster=address, report=session.report,
            updates=10**7, **fields,
        ),
        story,
    )  # fmt: skip


def test_a_real_time_console_of_the_users_own_never_waits_for_the_learner(
    cluster: tuple[str, Node], session: Session, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    log = tmp_path / "log"

    def story() -> None:
        session.wait_for(lambda: len(session.running()) == 2)
        assert [row["envs"] for row in session.rows()] == [1, 1]
        before = len(log.read_text().splitlines())
        session.learns()
        os.kill(os.getpid(), signal.SIGUSR1)  # the learner sleeps for two seconds
        session.learns()
        assert len(log.read_text().splitlines()) - before > 20  # of 200 ticks or more: the machine may be busy

    before = signal.signal(signal.SIGUSR1, lambda *_: time.sleep(2.0))
    try:
        session.run(
            lambda: sparc.train(
                "sparc", "worlds:Console-v0", run_dir=tmp_path / "run", workers=2, cluster=cluster[0],
                report=session.report, updates=10**7, env_options={"log": str(log), "stall": 0.05}, **tiny,
            ),
            story,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert session.notes == [STOPPING]
    assert session.records[-1]["workers_late_ticks"] >= 1  # the stalls


def test_an_environment_that_always_fails_ends_the_run_with_its_line(
    cluster: tuple[str, Node], session: Session, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    with pytest.raises(RunFailure) as caught:
        sparc.train(
            "only-obs", "worlds:Faulty-v0", run_dir=tmp_path / "run", workers=1, cluster=cluster[0],
            report=session.report, updates=10**6, env_options={"raises": 7}, **tiny,
        )  # fmt: skip
    line = str(caught.value)
    for part in ("All workers failed", "worker 0 on ", "Faulty-v0 raised ValueError", "pull=", "sparc resume"):
        assert part in line
    assert len([note for note in session.notes if "Another one in" in note]) == 4
    assert Run.open(tmp_path / "run").updates() == 0


def test_a_node_with_another_version_is_refused_by_name(
    cluster: tuple[str, Node], session: Session, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    address, start = cluster
    other = tmp_path / "other" / "sparc_rl-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: sparc-rl\nVersion: 9.9.9\n")

    def story() -> None:
        session.wait_for(lambda: len(session.running()) == 2)
        start(
            "--address", address, "--node-ip-address", "127.0.0.1", cpus=1,
            PYTHONPATH=os.pathsep.join([str(other.parent), SEARCHED]),
        )  # fmt: skip
        session.wait_for(lambda: any("another version of sparc-rl 9.9.9" in note for note in session.notes))
        session.arrives()  # from the others

    session.run(
        lambda: sparc.train(
            "only-obs", BOAT, run_dir=tmp_path / "run", workers=3, cluster=address, report=session.report,
            updates=10**7, **{**tiny, "replay_capacity": 4000},
        ),
        story,
    )  # fmt: skip


def test_a_start_that_the_cluster_leaves_pending_is_no_death() -> None:
    code = (
        "from types import SimpleNamespace as Some; from sparc.training.workers import pool as room; "
        "from sparc.training.workers.messages import Limits; "
        "room.ray = Some(wait=lambda refs, timeout: ([], refs), kill=print); "
        "pool, slot, sent = room.Pool.__new__(room.Pool), room.Slot(0, 1, 0), []; "
        "pool.begin, pool.slots = Some(cluster='here:1', limits=Limits()), [slot]; "
        "pool.send, pool.looked = sent.append, 0.0; "
        "slot.start(object()); slot.call('greet', object(), -1.0); pool.check_deadlines(); "
        "print(slot.state, slot.ref, slot.deaths, slot.restarts, pool.looked == room.NEVER, 'waits' in sent[0].text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # Ray stays there
    assert done.stdout.splitlines()[-1] == "waiting None 0 0 True True"


def test_an_answer_that_has_come_is_not_late() -> None:
    """The pool may stand still itself, when the learner does and takes nothing."""
    code = (
        "from types import SimpleNamespace as Some; from sparc.training.workers import pool as room; "
        "room.ray = Some(wait=lambda refs, timeout: ([ref for ref in refs if ref == 'came'], []), kill=print); "
        "pool, slots, sent = room.Pool.__new__(room.Pool), [room.Slot(0, 1, 0), room.Slot(1, 1, 0)], []; "
        "pool.begin, pool.slots = Some(cluster=None, limits=Some(hang=-1.0)), slots; pool.send = sent.append; "
        "[slot.start(None) or slot.call('exchange', ref, None) for slot, ref in zip(slots, ('came', 'missing'))]; "
        "pool.check_deadlines(); print([slot.deaths for slot in slots])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # Ray stays there
    assert done.stdout.splitlines()[-1] == "[0, 1]"


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"No Ray cluster answers at 127.0.0.1:1 .*--node-ip-address 127.0.0.1 --port 1`"
    ):
        sparc.train("sparc", BOAT, run_dir=tmp_path / "run", workers=2, cluster="127.0.0.1:1")
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_cannot_be_joined_ends_the_session_with_a_remedy(
    cluster: tuple[str, Node], session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))  # another one than the cluster's
    with pytest.raises(RunFailure, match=f"cannot join the Ray cluster at {cluster[0]}: .*token.* `sparc resume "):
        sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", workers=1, cluster=cluster[0], updates=100, **tiny)
    assert Run.open(tmp_path / "run").updates() == 0 and session.source.pools == 1
