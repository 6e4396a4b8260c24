"""Suites run for real, in processes of their own: to the end, killed on the way, with members that fail."""

import errno
import fcntl
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

import sparc
from sparc.config import make_config
from sparc.errors import UserError
from sparc.machine import PARENT, usable_cores
from sparc.runs import checkpoint
from sparc.runs.adaptations import adapt_run
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run, stem_of
from sparc.suites.gather import gather, train_seconds
from sparc.suites.plan import planned
from sparc.suites.runner import Runner, remaining_seconds, status_table
from sparc.suites.status import State, Status, finished, other_config, status_of
from sparc.suites.suite import Member, Suite, find_suite, read_suite
from sparc.suites.tables import read

Cli = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]
UPDATES = 200


@pytest.fixture
def suite_file(tmp_path: Path, tiny: dict[str, Any]) -> Callable[..., Path]:
    """Write a suite of tiny runs on the light example."""

    def make(**changes: Any) -> Path:
        values = {"methods": ["sparc", "only-obs"], "envs": ["DriftingBoat-v0"], "seeds": [0], "updates": UPDATES,
                  "grid": 3, "config": tiny} | changes  # fmt: skip
        path = tmp_path / "own.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    return make


def trained(suite: Suite, folder: Path, method: str, evaluated: bool = True) -> Run:
    """Bring a member to its end in this process."""
    member = next(m for m in suite.members() if m.config.method == method)
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    sparc.train(method, member.config.env, run_dir=folder / member.path, **fields)
    run = Run.open(folder / member.path)
    if evaluated:
        evaluate_run(run, suite.grid, suite.episodes, "best", None)
        adapt_run(run, run.choose("best"), suite.grid)
    return run


def state_of(suite: Suite, folder: Path, method: str) -> Status:
    return status_of(suite, next(m for m in suite.members() if m.config.method == method), folder)


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def updates_of(run: Path) -> int:
    return max((r["updates"] for r in Run.open(run).records()), default=0) if (run / "config.yaml").exists() else 0


# With real processes


def test_a_suite_runs_reports_a_failure_and_goes_on(
    suite_file: Callable[..., Path], tmp_path: Path, sparc_cli: Cli
) -> None:
    path = suite_file()
    folder = tmp_path / "runs" / "own"
    broken = folder / "DriftingBoat-v0" / "sparc" / "seed0"
    Run.create(next(m for m in read_suite(path).members() if m.config.method == "sparc").config, broken)
    (broken / "checkpoints" / "100").mkdir()  # as after a damaged disk: a checkpoint without contents

    done = sparc_cli("suite", "run", path)
    assert done.returncode == 1, done.stderr
    assert "DriftingBoat-v0/sparc/seed0: failed: No checkpoint" in done.stderr
    assert "DriftingBoat-v0/only-obs/seed0: done: IND" in done.stderr
    assert "1 done · 1 failed" in done.stdout
    status = sparc_cli("suite", "status", path)
    assert status.returncode == 0 and "No checkpoint" in status.stdout + status.stderr

    (broken / "checkpoints" / "100").rmdir()
    again = sparc_cli("suite", "run", path)
    assert again.returncode == 0, again.stderr
    assert "only-obs" not in again.stderr  # what is done stays done
    assert "2 done" in again.stdout and "sparc suite report" in again.stdout
    machine = Run.open(broken).manifest()["sessions"][-1]["machine"]
    assert machine["cores"] == 1  # one thread each, so that the results do not depend on the machine's cores
    report = sparc_cli("suite", "report", path, "--out", tmp_path / "out")
    assert report.returncode == 0, report.stderr
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"manifest.json", "report.html", "figures", "cells-DriftingBoat-v0.csv"} <= names
    assert "no results" not in report.stdout  # nothing is missing
    for kind in ("summary", "heatmaps-DriftingBoat-v0", "adaptation-DriftingBoat-v0", "latents-DriftingBoat-v0"):
        assert (tmp_path / "out" / "figures" / f"{kind}.png").exists(), kind
    page = (tmp_path / "out" / "report.html").read_text()
    assert str(tmp_path) not in page
    assert read(tmp_path / "out").manifest["members"] == gather(planned("own", folder), folder).manifest["members"]


def test_a_killed_suite_leaves_no_process_and_goes_on_bit_for_bit(
    suite_file: Callable[..., Path], tmp_path: Path, sparc_start: Start, sparc_cli: Cli,
    assert_same_run: Callable[[Path, Path], None],
) -> None:  # fmt: skip
    path = suite_file(methods=["sparc"], updates=3000)
    member = Path("DriftingBoat-v0") / "sparc" / "seed0"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    runner = sparc_start("suite", "run", path, "--run-dir", killed)
    wait_for(lambda: updates_of(killed / member) >= 300)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait_for(lambda: not Run.open(killed / member).is_locked())  # the member saw that it is alone, saved and ended
    assert 300 <= Run.open(killed / member).updates() < 3000

    options = ("--updates", "3000", "--seeds", "0", "--methods", "sparc", "--jobs", "1", "--run-dir", str(killed))
    again = sparc_start("suite", "run", path, *options)
    before = updates_of(killed / member)
    wait_for(lambda: updates_of(killed / member) > before)
    again.send_signal(signal.SIGINT)  # politely this time
    out, err = again.communicate(timeout=60)
    assert again.returncode == 130, err
    assert "1 stopped" in out and "waiting" not in out
    assert f"continue with: {shlex.join(['sparc', 'suite', 'run', str(path), *options])}" in out
    assert not Run.open(killed / member).is_locked()

    by_hand = sparc_cli("resume", killed / member, env={"XLA_FLAGS": "", "NPROC": ""})  # with the runner's own flags
    assert by_hand.returncode == 0 and "note" not in by_hand.stderr, by_hand
    flags = [session["flags"] for session in Run.open(killed / member).manifest()["sessions"]]
    assert all(each == flags[0] for each in flags) and flags[0]["NPROC"] == "1"
    for folder in (killed, whole):
        assert sparc_cli("suite", "run", path, "--run-dir", folder).returncode == 0
    assert_same_run(killed / member, whole / member)


# Where a member is


def test_survey_follows_a_member_from_nothing_to_done(suite_file: Callable[..., Path], tmp_path: Path) -> None:
    suite, folder = read_suite(suite_file(methods=["only-obs"])), tmp_path / "runs"
    assert state_of(suite, folder, "only-obs") == Status("waiting")
    run = trained(suite, folder, "only-obs", evaluated=False)
    status = state_of(suite, folder, "only-obs")
    assert (status.state, status.updates, status.note) == ("waiting", UPDATES, "not evaluated yet.")
    assert status.score.startswith("IND ") and status.speed > 0
    run.lock()
    assert state_of(suite, folder, "only-obs").state == "in use"
    run.close()
    evaluate_run(run, 3, 1, "best", None)
    assert state_of(suite, folder, "only-obs").state == "waiting"
    adapt_run(run, run.choose("best"), 3)
    done = state_of(suite, folder, "only-obs")
    assert done.state == "done" and done.score.startswith("OOD ") and float(done.score[4:].replace(",", "")) >= 0
    run.lock(run.evaluating)  # tested again, for another suite: its results are there all the same
    assert state_of(suite, folder, "only-obs").state == "done"
    run.close()

    # a higher number of updates: the run is continued
    assert state_of(suite.scaled(updates=300), folder, "only-obs").state == "stopped"
    # a lower one, another field: not this suite's run
    less = state_of(suite.scaled(updates=100), folder, "only-obs")
    assert less.state == "other config" and "updates is 200, not 100" in less.note and "--run-dir" in less.note
    other = state_of(suite.scaled(config={**suite.config, "width": 8}), folder, "only-obs")
    assert other.state == "other config" and "width is 16, not 8" in other.note


def test_a_half_written_evaluation_is_made_again(suite_file: Callable[..., Path], tmp_path: Path) -> None:
    suite, folder = read_suite(suite_file(methods=["only-obs"])), tmp_path / "runs"
    run = trained(suite, folder, "only-obs")
    rows = stem_of(run, run.choose("best"), 3, 1).with_suffix(".csv")
    text = rows.read_bytes()
    rows.write_bytes(text[: len(text) // 2])
    assert state_of(suite, folder, "only-obs").state == "done"  # which is asked often, and so reads no rows
    with pytest.raises(UserError, match="damaged"):
        finished(suite, run)
    entry = gather(suite, folder).manifest["members"][0]
    assert entry["state"] == "failed" and "damaged" in entry["note"]  # a marked gap, never half an average

    def found_by_the_runner() -> bool:
        ((member, status),) = (runner := Runner(suite, folder)).statuses.items()
        status = runner.fully_tested(member, status)
        assert (status.state == "waiting") == ("damaged" in status.note)
        return status.state == "waiting"

    assert found_by_the_runner()
    lines = text.splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:-1]))  # whole lines are missing: the summary tells
    assert found_by_the_runner()
    rows.write_bytes(text)
    assert not found_by_the_runner()
    summary = rows.with_suffix(".json")
    whole = summary.read_text()
    summary.write_text("null")
    assert "damaged" in state_of(suite, folder, "only-obs").note
    summary.write_text(whole)
    trace = next(run.evaluations.glob("*-trace.csv"))
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:20]))
    assert found_by_the_runner()  # and the suite makes it again


def test_a_directory_of_another_config_is_left_alone(
    suite_file: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, folder = read_suite(suite_file()), tmp_path / "runs"
    trained(suite, folder, "only-obs")
    narrow = suite.scaled(config={**suite.config, "width": 8}, methods=["only-obs"])
    assert not Runner(narrow, folder).run()
    told = capsys.readouterr().err
    assert "only-obs/seed0: other config: its width is 16, not 8; move" in told  # named, not only counted
    assert Run.open(folder / narrow.members()[0].path).config.width == 16
    entry = gather(narrow, folder).manifest["members"][0]
    assert entry["state"] == "other config" and "width" in entry["note"] and entry["checkpoint"] is None
    assert str(tmp_path) not in entry["note"]


def test_a_member_whose_folder_cannot_be_read_fails_and_the_others_go_on(
    suite_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(read_suite(suite_file()), tmp_path / "runs")
    member, other = runner.members[:2]

    def unreadable(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "config.yaml")

    monkeypatch.setattr("sparc.suites.runner.status_of", unreadable)
    runner.attempt(unreadable, member)
    assert runner.statuses[member].state == "failed" and runner.statuses[other].state == "waiting"
    assert "failed: " in (told := capsys.readouterr().err) and "Input/output error" in told


class Sleeper(Runner):
    """A runner whose members' processes do nothing for a while."""

    def start(self, member: Member) -> None:
        path = self.folder / member.path
        Run.create(member.config, path)
        self.processes[member] = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        self.statuses[member] = Status("training")


class Instant(Runner):
    """A runner whose members are trained, and then tested, by a process that ends at once."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.order: list[tuple[str, int]] = []

    def start(self, member: Member) -> None:
        stage: State = "evaluating" if self.statuses[member].updates else "training"
        self.order.append((stage, self.members.index(member)))
        self.processes[member] = subprocess.Popen(["true"])
        self.processes[member].wait()
        self.statuses[member] = Status(stage, self.statuses[member].updates)

    def conclude(self, member: Member, code: int) -> None:
        trained = self.statuses[member].state == "training"
        self.statuses[member] = Status("waiting" if trained else "done", member.config.updates)


def test_what_is_trained_is_tested_before_anything_else_is_trained(
    suite_file: Callable[..., Path], tmp_path: Path
) -> None:
    runner = Instant(read_suite(suite_file(methods=["sparc"], seeds=[0, 1, 2])), tmp_path / "runs", 1)
    while runner.step():
        pass
    assert runner.order == [(stage, seed) for seed in (0, 1, 2) for stage in ("training", "evaluating")]


def test_a_run_whose_learning_rates_have_fallen_is_no_shorter_run_of_a_longer_member(
    suite_file: Callable[..., Path], tmp_path: Path
) -> None:
    suite = read_suite(suite_file(methods=["sparc"]))
    (member,) = suite.members()
    for rate, difference in ((1.0, ""), (0.0, f"its updates is 50, not {member.config.updates}")):
        config = replace(member.config, updates=50, final_lr_fraction=rate)
        run = Run.create(config, tmp_path / f"{rate:g}")
        assert other_config(run, Member(replace(member.config, final_lr_fraction=rate), "")) == difference


def test_a_member_whose_directory_vanishes_does_not_stop_the_others(
    suite_file: Callable[..., Path], tmp_path: Path
) -> None:
    runner = Sleeper(read_suite(suite_file()), tmp_path / "runs", jobs=2)
    assert runner.step()
    gone, stays = runner.members
    processes = dict(runner.processes)
    shutil.rmtree(runner.folder / gone.path)
    assert runner.step()
    assert runner.statuses[gone].state == "failed" and "not a run directory" in runner.statuses[gone].note
    assert runner.statuses[stays].state == "training" and processes[stays].poll() is None
    assert processes[gone].wait(timeout=10) < 0  # and nothing goes on writing there
    runner.end()
    assert processes[stays].wait(timeout=10) < 0


def test_what_another_process_finished_is_done_whatever_ours_said(
    suite_file: Callable[..., Path], tmp_path: Path
) -> None:
    suite, folder = read_suite(suite_file(methods=["only-obs"])), tmp_path / "runs"
    runner = Runner(suite, folder)
    (member,) = runner.members
    trained(suite, folder, "only-obs")
    runner.statuses[member] = Status("evaluating")
    runner.begun[member] = time.monotonic() - 5, UPDATES
    runner.conclude(member, 1)
    assert runner.statuses[member].state == "done" and not runner.besides
    runner.statuses[member] = Status("evaluating")
    runner.conclude(member, 0)
    assert 5 <= runner.besides["evaluating"][0] < 60  # what an evaluation takes, for the estimate


def test_an_evaluation_is_locked_and_ends_with_the_runner(
    suite_file: Callable[..., Path], tmp_path: Path, sparc_cli: Cli
) -> None:
    suite, folder = read_suite(suite_file(methods=["only-obs"])), tmp_path / "runs"
    run = trained(suite, folder, "only-obs", evaluated=False)
    orphan = sparc_cli("evaluate", run.path, "--grid", 3, env={PARENT: "1"})  # which is not its parent
    assert orphan.returncode == 1 and "the process that started this one is gone" in orphan.stderr
    assert not list(run.evaluations.glob("*.json"))
    run.lock(run.evaluating)
    assert state_of(suite, folder, "only-obs").state == "in use"
    second = sparc_cli("evaluate", run.path, "--grid", 3)
    assert second.returncode == 2 and f"in use by process {os.getpid()}" in second.stderr
    run.close()


def test_a_member_that_does_not_stop_is_killed(
    suite_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_suite(suite_file(methods=["only-obs"]))
    runner = Runner(suite, tmp_path / "runs", jobs=1)
    (member,) = runner.members
    runner.console = Console(file=(said := io.StringIO()), width=200)
    monkeypatch.setattr("sparc.suites.runner.GRACE_SECONDS", 0.5)
    deaf = "trap '' TERM; echo ready; while true; do sleep 1; done"
    process = subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        runner.processes[member] = process
        runner.end()
    assert process.returncode == -signal.SIGKILL
    assert "killed, it did not stop within 0.5 s" in said.getvalue()


def test_a_glance_at_a_lock_does_not_keep_others_from_it(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = Run.create(make_config({**tiny, "method": "sparc", "env": "DriftingBoat-v0"}), tmp_path / "run")
    run.lock()
    run.close()
    glance = os.open(run.training, os.O_RDWR)
    fcntl.flock(glance, fcntl.LOCK_EX)  # as is_locked does
    threading.Timer(0.1, lambda: os.close(glance)).start()
    run.lock()  # waits for it
    run.close()


# What is gathered


@pytest.mark.slow
def test_gather_reads_what_is_there_and_marks_what_is_not(suite_file: Callable[..., Path], tmp_path: Path) -> None:
    suite, folder = read_suite(suite_file(seeds=[0, 1])), tmp_path / "runs"
    for method in ("sparc", "only-obs"):
        trained(suite, folder, method)
    results = gather(suite, folder)
    part = results.envs["DriftingBoat-v0"]
    states = {(m["method"], m["seed"]): (m["state"], m["note"]) for m in results.manifest["members"]}
    assert states == {
        ("sparc", 0): ("done", ""), ("sparc", 1): ("missing", "not started"),
        ("only-obs", 0): ("done", ""), ("only-obs", 1): ("missing", "not started"),
    }  # fmt: skip
    run = Run.open(folder / "DriftingBoat-v0" / "sparc" / "seed0")
    number, evaluation, *_ = finished(suite, run)
    np.testing.assert_array_equal(part.returns["sparc"][0], evaluation.cells()[2])
    np.testing.assert_array_equal(part.curves["sparc"][0].updates, [100, 200])
    assert list(part.curves["sparc"][0].phase) == ["train", "train"]
    records = [record for record in run.records() if record["kind"] == "evaluation"]
    explained = part.curves["sparc"][0].measures
    assert {"expert_return", "adapter_error_0", "adapter_error_10"} <= explained.keys()
    assert {"entropy", "temperature", "critic_gradient_norm", "critic_clipped"} <= explained.keys()
    np.testing.assert_array_equal(explained["expert_return"], [record["expert_return"] for record in records])
    assert "expert_return" not in part.curves["only-obs"][0].measures
    assert results.manifest["commands"][0].startswith("sparc suite run own.yaml --updates 200")
    assert list(part.latents) == ["sparc"] and part.latents["sparc"][0].psi.shape == (9, 2)
    assert np.isnan(part.traces["only-obs"][0].distance).all() and np.isfinite(part.traces["sparc"][0].distance).all()
    entry = results.manifest["members"][0]
    assert entry["checkpoint"] == number and entry["updates"] == UPDATES and entry["versions"]["jax"]
    assert str(tmp_path) not in json.dumps(results.manifest)  # nothing of this machine's folders


def test_training_time_is_added_up_over_the_processes(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = Run.open(sparc.train("only-obs", "DriftingBoat-v0", updates=100, run_dir=tmp_path / "run", **tiny))
    speeds = {40: 10.0, 100: 20.0, 120: 1.0, 200: 40.0}
    text = "".join(json.dumps({"kind": "train", "updates": u, "updates_per_s": s}) + "\n" for u, s in speeds.items())
    run.metrics.write_text(text)
    manifest = run.manifest()
    manifest["sessions"].append({**manifest["sessions"][0], "from_updates": 100})
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    assert train_seconds(run) == pytest.approx(100 / 20 + 100 / 40)


# What is shown


def test_the_table_fits_into_80_columns_and_loses_nothing() -> None:
    members = find_suite("race-cars").members()
    score = "OOD clean 100% ratio 1.034"
    console = Console(file=io.StringIO(), width=80)
    lines = console.render_lines(status_table([(member, Status("done", 50_000, 9.0, score)) for member in members]))
    text = "\n".join("".join(part.text for part in line) for line in lines)
    assert "…" not in text and text.count(score) == len(members) == text.count("50,000")
    plain = find_suite("mujoco").members()[:9]
    table = status_table([(member, Status("done", 3_000_000, 9.0, "OOD 12,345.6")) for member in plain])
    assert len(console.render_lines(table)) == 1 + 9  # returns leave room for a line each


# Estimates


def test_the_rest_is_estimated_from_the_members_that_have_a_speed(suite_file: Callable[..., Path]) -> None:
    suite = read_suite(suite_file(methods=["only-obs"], seeds=[0, 1, 2, 3]))
    a, b, c, d = suite.members()
    statuses = {
        a: Status("done", 200, 10.0),
        b: Status("training", 100, 10.0),
        c: Status("waiting"),
        d: Status("waiting"),
    }
    assert remaining_seconds(statuses.items(), jobs=1) == pytest.approx(50)
    assert remaining_seconds(statuses.items(), jobs=2) == pytest.approx(25)
    assert remaining_seconds(statuses.items(), jobs=9) == pytest.approx(20)  # no shorter than its longest member
    assert remaining_seconds({c: Status("waiting")}.items(), jobs=1) is None

    besides: dict[State, float] = {"training": 3.0, "evaluating": 4.0}
    assert remaining_seconds(statuses.items(), 1, besides) == pytest.approx(50 + 2 * 3 + 3 * 4)  # begin, test
    statuses |= {b: Status("evaluating", 200, 10.0), c: Status("waiting", 200, 10.0), d: statuses[a]}
    assert remaining_seconds(statuses.items(), 1, besides) == pytest.approx(2 * 4)


def test_what_stages_take_besides_their_updates_is_measured(
    suite_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(read_suite(suite_file(methods=["only-obs"], seeds=[0, 1])), tmp_path / "runs")
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    runner.measure("training", Status("waiting", 200, 10.0), 68.0, 0)  # 32 s for 20 s of updates
    runner.measure("evaluating", Status("done", 200, 10.0), 95.0, 200)
    runner.measure("evaluating", Status("done", 200, 10.0), 93.0, 200)
    assert runner.besides == {"training": [12.0], "evaluating": [5.0, 7.0]}
    first, second = runner.members
    runner.statuses = {first: Status("done", 200, 10.0), second: Status("waiting")}
    assert "about 38 s left" in runner.conclusion()  # 12 s + 20 s + 6 s


def test_nproc_limits_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPROC", "1")
    assert usable_cores() == 1
    monkeypatch.setenv("NPROC", "many")
    assert usable_cores() == len(os.sched_getaffinity(0))
    assert checkpoint.numbers(Path("nowhere")) == []
