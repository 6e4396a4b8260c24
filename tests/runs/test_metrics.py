"""metrics.jsonl: damage costs the line that it is in, is said, and the file as it was is kept."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparc
from sparc.runs.metrics import encode, read_metrics
from sparc.runs.run import Run


def record(updates: int) -> dict[str, Any]:
    return {"kind": "evaluation", "updates": updates, "phase": "train", "mean_return": -1.5 * updates, "clean": 0.25}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(encode(record(updates)) for updates in range(10, 60, 10)))
    return path


def test_lines_come_back(file: Path) -> None:
    assert read_metrics(file) == read_metrics(file, 10**9)
    assert read_metrics(file).records == [record(updates) for updates in range(10, 60, 10)]
    assert not read_metrics(file).damaged and not read_metrics(file).note
    assert read_metrics(file, 300).records == [record(40), record(50)]
    assert read_metrics(file.with_name("none")).records == []


def test_lines_of_older_versions_have_no_checksum(tmp_path: Path) -> None:
    text = b'{"kind": "train", "updates": 10, "updates_per_s": 3.0}\n'
    (tmp_path / "metrics.jsonl").write_bytes(text)
    assert [line.text + b"\n" for line in read_metrics(tmp_path / "metrics.jsonl").lines] == [text]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["flip a bit", "set to zero", "insert", "delete"])
def test_one_bad_byte_costs_at_most_its_line(file: Path, change: str) -> None:
    sound, whole = file.read_bytes(), read_metrics(file).records
    rng = np.random.default_rng(0)
    for at in range(len(sound)):
        data = bytearray(sound)
        if change == "flip a bit":
            data[at] ^= 1 << rng.integers(8)
        elif change == "set to zero":
            data[at] = 0
        elif change == "insert":
            data.insert(at, int(rng.integers(256)))
        else:
            del data[at]
        file.write_bytes(data)
        found = read_metrics(file)
        assert all(line in whole for line in found.records), at
        assert len(found.records) >= len(whole) - 1, at
        # the last line break alone looks like a kill
        assert found.damaged or found.records == whole or at == len(sound) - 1, at


def test_a_last_line_that_a_kill_cut_short_is_no_damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])
    assert len(read_metrics(file).records) == 4 and not read_metrics(file).damaged


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"\xff", b"#"])
def test_resume_goes_on_says_what_is_lost_and_keeps_the_file(
    tmp_path: Path,
    tiny: dict[str, Any],
    damage: bytes,
    capsys: pytest.CaptureFixture[str],
    assert_same_run: Callable[..., None],
) -> None:
    run = sparc.train("only-obs", "DriftingBoat-v0", run_dir=tmp_path / "run", updates=100, **tiny)
    straight = shutil.copytree(run, tmp_path / "straight")
    data = (run / "metrics.jsonl").read_bytes()
    lost = data.index(b"\n") + 20  # in the second line
    (run / "metrics.jsonl").write_bytes(damaged := data[:lost] + damage + data[lost + 1 :])
    for path in (run, straight):
        sparc.resume(path, updates=200)
    assert "metrics.jsonl is damaged in line 2" in capsys.readouterr().err
    assert (run / "metrics.damaged-1.jsonl").read_bytes() == damaged
    left, whole = ([(r["kind"], r["updates"]) for r in Run.open(path).records()] for path in (run, straight))
    assert left == [*whole[:1], *whole[2:]]
    for path in (run, straight):  # the same bits, whatever happened to the metrics
        (path / "metrics.jsonl").unlink()
    assert_same_run(run, straight)
