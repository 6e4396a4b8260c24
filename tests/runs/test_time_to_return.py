"""The processor time after which a return is reached, from a run's metrics; and that the metrics have it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparc
from sparc import cli, machine
from sparc.config import make_config
from sparc.errors import UserError
from sparc.runs.run import Run
from sparc.runs.time_to_return import table, times_to_return

BOAT = "DriftingBoat-v0"


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[..., Path]:
    """Make a run whose evaluations, 1,000 updates and a minute apart, gave these returns."""

    def make(returns: list[float], method: str = "oracle", name: str = "run", **values: Any) -> Path:
        run = Run.create(make_config({"method": method, "env": BOAT, **values}), tmp_path / name)
        train = {"kind": "train", "updates": 500, "phase": "train", "updates_per_s": 10.0, "processor_s": 30.0}
        lines: list[dict[str, Any]] = [train]
        for minute, value in enumerate(returns, start=1):
            lines.append({"kind": "evaluation", "updates": 1_000 * minute, "phase": "train", "mean_return": value,
                          "processor_s": 60.0 * minute})  # fmt: skip
        run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run.path

    return make


@pytest.mark.parametrize(
    ("returns", "reached", "held"),
    [
        ([10, 100, 120], 2, 2),
        ([10, 120, 90, 100, 130], 2, 4),
        ([100, 90], 1, None),
        ([110], 1, 1),
        ([10, 99.9], None, None),
    ],
)
def test_reached_is_the_first_time_and_held_the_first_without_a_fall(
    made_up: Callable[..., Path], returns: list[float], reached: int | None, held: int | None
) -> None:
    (found,) = times_to_return([made_up(returns)], 100.0)["runs"]
    for name, minute in (("reached", reached), ("held", held), ("end", len(returns))):
        assert found[name] == (minute and {"updates": 1_000 * minute, "processor_min": minute})
    assert (found["best"], found["last"]) == (max(returns), returns[-1])
    assert (found["env"], found["method"], found["seed"]) == (BOAT, "oracle", 0)


def test_the_experts_evaluations_are_not_those_of_rma(made_up: Callable[..., Path]) -> None:
    run = made_up([500.0, 50.0, 100.0], "rma")
    text = run.joinpath("metrics.jsonl").read_text().replace('"train", "mean', '"adapter", "mean')
    run.joinpath("metrics.jsonl").write_text(text.replace('"adapter"', '"expert"', 1))
    (found,) = times_to_return([run], 100.0)["runs"]
    assert found["reached"] == {"updates": 3_000, "processor_min": 3.0} and found["best"] == 100.0


def test_the_command_prints_a_table_and_one_object(
    made_up: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made_up([10, 120, 130], name="good"), made_up([10, 12.5, 11], name="bad")]
    assert cli.main(["bench", "time-to-return", *map(str, runs), "--return", "1e2"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["bench"] == "time-to-return" and found["return"] == 100.0 and "held" in found["rule"]
    assert [run["run"] for run in found["runs"]] == [str(run) for run in runs]
    header, good, bad = err.splitlines()
    assert "reaches 100" in header
    assert "2.0 min, 2,000 updates" in good and "130" in good
    assert "not reached (best 12.5)" in bad and "3.0 min, 3,000 updates" in bad
    assert err == table(found) + "\n"


def test_runs_that_cannot_tell(made_up: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="has no evaluation of its policy yet: train it first, `sparc resume"):
        times_to_return([made_up([], name="new")], 100.0)
    old = made_up([1.0], name="old")
    metrics = old / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("processor_s", "seconds"))
    with pytest.raises(UserError, match="was trained before processor time was noted"):
        times_to_return([old], 100.0)
    metrics.unlink()
    with pytest.raises(UserError, match="has no evaluation"):
        times_to_return([old], 100.0)


# What training notes


@pytest.mark.slow
def test_processor_time_grows_over_sessions(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(0, 100_000, 10))
    monkeypatch.setattr("sparc.training.loop.processor_seconds", lambda: float(next(ticks)))
    run = sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", **{**tiny, "updates": 100})
    before = Run.open(run).records()
    assert {record["kind"] for record in before} == {"train", "evaluation"}
    sparc.resume(run, 200)
    records = Run.open(run).records()
    assert records[: len(before)] == before
    spent = [record["processor_s"] for record in records]
    assert spent[0] > 0 and spent == sorted(spent) and len(set(spent)) == len(spent)
    last, first = spent[len(before) - 1], spent[len(before)]
    assert last < first < last + 200  # it goes on from the checkpoint, not from the clock


def test_a_run_that_did_not_note_its_time_does_not_begin_to(tmp_path: Path, tiny: dict[str, Any]) -> None:
    from sparc.training.loop import Trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "cost", lambda self: {})
        run = sparc.train("only-obs", BOAT, run_dir=tmp_path / "run", **{**tiny, "updates": 20, "evaluate_every": 20})
    sparc.resume(run, 40)
    records = Run.open(run).records()
    assert records[-1]["updates"] == 40 and not any("processor_s" in record for record in records)


WORK = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_processor_time_is_that_of_processes_too() -> None:
    before, own = machine.processor_seconds(), time.process_time()
    with subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        live = machine.processor_seconds() - before - (time.process_time() - own)
        process.kill()
        process.wait()
    ended = machine.processor_seconds() - before - (time.process_time() - own)
    assert 0.25 < live < 2.0  # Python's own start included
    assert live - 0.1 < ended < live + 0.5
