"""The parts of a pool that need no Ray: one worker's place, messages, options, the table."""

import inspect
import json
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparc
from sparc import cli
from sparc.errors import UserError
from sparc.runs.run import Run
from sparc.suites.suite import read_suite
from sparc.training.blocks import Block, row_dtype
from sparc.training.workers import wire
from sparc.training.workers.link import private_folder
from sparc.training.workers.options import NO_WORKERS, WorkerOptions, resolve, resolve_again
from sparc.training.workers.rollout import Reply, Stats
from sparc.training.workers.slots import Slot, mismatch, rest_seconds
from sparc.training.workers.table import read_table, write_table

ROW = row_dtype(2, 1, 1)
BOAT = "DriftingBoat-v0"


def reply(steps: int, version: int = 10) -> Reply:
    blocks = (
        [Block((1, 0, 0, 0), 0, "train", version, np.zeros(0, ROW), np.zeros(steps + 1, ROW), False)] if steps else []
    )
    return Reply(blocks, Stats(steps=steps), [], [], {}, "train")


# One worker


def test_deaths_without_a_block_give_a_worker_up_and_a_block_forgives_them() -> None:
    slot = Slot(3, 2, first_incarnation=0)
    assert [rest_seconds(deaths) for deaths in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    for death in range(1, 5):
        slot.start(object())
        assert (
            slot.died("its process died", False) == f"worker 3: its process died. Another one in {2 ** (death - 1)} s."
        )
        assert slot.state == "resting" and slot.incarnation == death - 1
    slot.start(object())
    slot.heard(reply(5))
    assert slot.deaths == 0 and slot.died("its process died", False).endswith("Another one in 1 s.")
    for _ in range(4):
        assert slot.state == "resting"
        said = slot.died("no answer for 31 s", False)
    assert slot.state == "given up" and said.endswith("It is given up after 5 deaths without a block.")
    assert Slot(0, 1, 0).died("unknown environment 'X'", True).endswith("It is given up.")


def test_a_slow_worker_has_a_longer_deadline_and_a_starting_one_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    slot = Slot(0, 1, 0)
    slot.call("greet", object(), 120.0)
    now[0] += 119
    assert not slot.overdue(30.0)
    slot.answered()
    slot.call("exchange", object(), None)
    now[0] += 5
    slot.heard(reply(5))
    slot.call("exchange", object(), None)
    now[0] += 49
    assert not slot.overdue(30.0)  # ten times what it usually takes
    now[0] += 2
    assert slot.overdue(30.0) == 51


def test_what_incarnations_did_adds_up() -> None:
    slot = Slot(0, 1, 0)
    for steps in (5, 7):
        slot.start(object())
        slot.heard(reply(steps))
        slot.died("its process died", False)
    row = slot.row()
    assert (row["delivered"], row["steps"], row["restarts"], row["version"]) == (12, 12, 2, 10)


def test_other_versions_are_named() -> None:
    ours = {"sparc-rl": "0.1.0", "numpy": "2.3.1"}
    assert mismatch(ours, {**ours, "ray": "1"}) == ""
    assert "numpy 2.2.0 (the learner 2.3.1)" in mismatch(ours, {**ours, "numpy": "2.2.0"})


# Messages


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    big = np.random.default_rng(0).normal(size=(1000, 700)).astype(np.float32)
    sent = [{"a": 1}, reply(3), (big, big[::2]), "end"]
    writer = threading.Thread(target=lambda: [wire.send(ours, message) for message in sent])
    writer.start()
    assert wire.receive(theirs) == sent[0]
    np.testing.assert_equal(wire.receive(theirs).blocks[0].rows, sent[1].blocks[0].rows)  # type: ignore[attr-defined]
    found = wire.receive(theirs)
    np.testing.assert_equal(found[0], big)
    np.testing.assert_equal(found[1], big[::2])
    assert wire.receive(theirs) == "end"
    writer.join()
    ours.sendall(b"\x01\x00")  # killed in the middle of a message
    ours.close()
    with pytest.raises(EOFError):
        wire.receive(theirs)
    theirs.close()


def test_a_reader_gets_all_messages_that_have_arrived_at_once() -> None:
    ours, theirs = socket.socketpair()
    wire.gather(theirs)
    assert list(wire.receive_all(theirs)) == []  # nothing for a while
    sent = [(number, "x" * number, np.arange(37 * number, dtype=np.float32)) for number in range(50)]
    for message in sent[:10]:
        wire.send(ours, message)
    found = list(wire.receive_all(theirs))
    assert len(found) == 10  # with one call, although they are fewer bytes than it waits for
    big = np.arange(10**6, dtype=np.float32)  # more than a socket holds, beside small ones

    def write() -> None:
        for message in [*sent[10:], (50, "", big), *sent[:3]]:
            wire.send(ours, message)
        ours.sendall(b"\x01\x00")  # killed in the middle of a message
        ours.close()

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(EOFError):
        while True:
            for message in wire.receive_all(theirs):
                found.append(message)
    writer.join()
    theirs.close()
    expected = [*sent, (50, "", big), *sent[:3]]
    for (number, text, array), (a, b, c) in zip(found, expected, strict=True):
        assert (number, text) == (a, b) and array.flags.aligned
        np.testing.assert_array_equal(array, c)


def test_the_folder_has_a_short_name_whatever_the_temporary_folder_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = private_folder()
    assert len(str(folder)) <= 40 and folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()


# Options


@pytest.mark.parametrize(
    ("count", "cluster", "part"),
    [
        (-1, None, "a whole number from 0"),
        (10**9, None, "a whole number from 0"),
        (4096, None, "choose fewer, or a --cluster"),
        (2.5, None, "a whole number from 0"),
        (0, "here:1", "--cluster needs workers"),
        (2, "10.0.0.5", "takes HOST:PORT"),
        (2, "here:99999", "takes HOST:PORT"),
        (2, "no host:1", "takes HOST:PORT"),
        (2, f"{'x' * 70}.org:1", "or go on without: --workers 0"),
        (2, "127.0.0.1:1", "No Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_options_that_cannot_be(count: Any, cluster: str | None, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}[name])
    with pytest.raises(UserError) as caught:
        WorkerOptions(count, cluster).check()
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_without_ray_one_line_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "sparc", BOAT, "--workers", "2"]) == 2
    line = capsys.readouterr().err
    assert line == (
        "sparc: Workers need Ray, which is not installed: pip install 'sparc-rl[distributed]', or go on without: "
        "--workers 0.\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert resolve(0, None) == resolve(None, None) == WorkerOptions(0)  # nothing is needed for none


def test_a_resumed_run_has_the_workers_of_the_session_before(tmp_path: Path, finished: Path) -> None:
    run = Run.open(finished)
    assert resolve_again(run, None, None) == WorkerOptions(0)

    with socket.create_server(("127.0.0.1", 0)) as head:
        here, there = f"127.0.0.1:{head.getsockname()[1]}", f"localhost:{head.getsockname()[1]}"
        for cluster in (None, here):
            before: Any = SimpleNamespace(
                manifest=lambda at=cluster: {"sessions": [{}, WorkerOptions(3, at).to_dict()]}, lineage=run.lineage
            )
            assert resolve_again(before, None, None) == WorkerOptions(3, cluster)
            assert resolve_again(before, 12, None) == WorkerOptions(12, cluster)
            assert resolve_again(before, None, "local") == WorkerOptions(3)
            assert resolve_again(before, 5, "local") == WorkerOptions(5)
            assert resolve_again(before, 5, there) == WorkerOptions(5, there)
            assert resolve_again(before, 0, None) == WorkerOptions(0)


def test_a_run_that_is_done_needs_no_ray(
    monkeypatch: pytest.MonkeyPatch, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["resume", str(copy), "--workers", "2"]) == 0
    assert "already at 20 updates" in capsys.readouterr().out
    assert cli.main(["resume", str(copy), "--workers", "2", "--updates", "30"]) == 2
    assert "or go on without: --workers 0" in capsys.readouterr().err


def test_suites_may_have_workers(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = f"methods: [sparc]\nenvs: [{BOAT}]\nseeds: [0]\nupdates: 100\n"
    file.write_text(text + "workers: 3\n")
    assert read_suite(file).workers == 3
    file.write_text(text + "workers: many\n")
    with pytest.raises(UserError, match="workers must be a whole number of at least 0"):
        read_suite(file)


def test_a_suite_asks_once_whether_there_can_be_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(f"methods: [sparc]\nenvs: [{BOAT}]\nseeds: [0]\nupdates: 100\nworkers: 3\n")
    assert cli.main(["suite", "run", "mine.yaml"]) == 2
    assert capsys.readouterr().err.startswith("sparc: Workers need Ray")


# The table


def test_the_table_of_a_run(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with pytest.raises(UserError, match="has had no workers yet"):
        read_table(run)
    rows = [Slot(0, 5, 0), Slot(1, 5, 0)]
    rows[0].start(object())
    rows[0].host, rows[0].state = "east", "running"
    rows[0].heard(reply(1234))
    rows[1].died("its process died", False)
    write_table(
        run,
        {
            "time": time.time(), "updates": 60, "wanted": 2, "cluster": None, "pools": 1, "steps": 1234,
            "asked_steps_per_update": 10, "achieved_steps_per_update": 9.5, "workers_steps_per_s": 100.0,
            "workers_blocks_waiting": 1234.0, "rows": [slot.row() for slot in rows],
        },
    )  # fmt: skip

    def shown() -> str:
        assert cli.main(["workers", str(run)]) == 0
        return " ".join(capsys.readouterr().out.split())

    common = ("9.5 steps per update (10 asked)", "worker 1: its process died", "1,234 blocks wait for the learner")
    expected = ("0 east ended 1,234", "0 of 2 workers running", "the run is not being trained; its last workers ended")
    assert all(part in shown() for part in (*common, *expected)), shown()
    expected = ("0 east running 1,234", "resting", "1 of 2 workers running on this machine · 100 steps/s")
    for options, parts in (
        (WorkerOptions(2), (*common, *expected)),
        (NO_WORKERS, ("0 of 2 workers", "is being trained without workers")),
    ):
        training = Run.open(run)
        training.lock()
        training.begin(20, options.to_dict())
        assert all(part in shown() for part in parts), shown()
        training.close()
    for pools, part in ((2, "the pool was replaced once"), (3, "the pool was replaced 2 times")):
        write_table(run, {**json.loads((run / "workers.json").read_text()), "pools": pools})
        assert cli.main(["workers", str(run)]) == 0
        assert part in " ".join(capsys.readouterr().out.split())
    (run / "workers.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        read_table(run)


def test_the_public_functions_take_workers() -> None:
    for function in (sparc.train, sparc.resume, sparc.continue_run):
        assert {"workers", "cluster"} <= inspect.signature(function).parameters.keys()
