"""TensorBoard's event files: what is in them, and what a disk that cannot be written costs."""

import os
import struct
import threading
from pathlib import Path

import pytest

from sparc.runs.board import Board


def events(folder: Path) -> list[dict[str, float]]:
    """Read event files as TensorBoard does: length, its checksum, an event, its checksum."""
    from tensorboardX.proto import event_pb2

    found = []
    for file in sorted(folder.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            found.append({"step": event.step, **{value.tag: value.simple_value for value in event.summary.value}})
            at += 16 + length
    return found


def test_what_is_added_can_be_read_and_no_thread_writes_it(tmp_path: Path) -> None:
    threads = threading.active_count()
    board = Board(tmp_path / "tensorboard", first_step=11)
    board.add({"train/loss": 0.5, "train/speed": 2.0}, 20)
    assert threading.active_count() == threads
    board.close()
    assert events(tmp_path / "tensorboard") == [
        {"step": 0}, {"step": 11}, {"step": 20, "train/loss": 0.5}, {"step": 20, "train/speed": 2.0},
    ]  # fmt: skip


def test_a_disk_that_cannot_be_written_costs_one_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(tmp_path / "tensorboard", first_step=1)
    (file,) = (tmp_path / "tensorboard").iterdir()
    with open("/dev/full", "wb", buffering=0) as full:
        os.dup2(full.fileno(), board._writer._writer.fileno())
    monkeypatch.setattr("sparc.runs.board.SYNC_SECONDS", 0)
    for step in range(100):
        board.add({"train/loss": 0.5}, step)
    board.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith(f"note: no more events for TensorBoard in {file.parent}: the disk is")


def test_no_folder_for_events_is_a_note_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tensorboard").write_text("")
    board = Board(tmp_path / "tensorboard", first_step=1)
    board.add({"train/loss": 0.5}, 1)
    board.close()
    assert "no more events for TensorBoard" in capsys.readouterr().err
