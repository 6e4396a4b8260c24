"""Files: all or nothing, one holder of a lock at a time, tables that say what is wrong with them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from sparc.errors import UserError
from sparc.files import Damaged, Lock, beside, is_held, locked, packed_as, read_table, replace, rewritten, write_table


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    replace(path, "first\n")
    with pytest.raises(KeyboardInterrupt), rewritten(path) as file:
        file.write("half of the sec")
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="no picture"), beside(path) as new:
        new.write_bytes(b"half")
        assert path.read_text() == "first\n"
        raise ValueError("no picture")
    assert path.read_text() == "first\n" and names(tmp_path) == ["a.txt"]
    replace(path, "second\n")
    assert path.read_text() == "second\n" and names(tmp_path) == ["a.txt"]


def test_a_lock_has_one_holder_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not is_held(path)
    lock = Lock(path, "this run")
    assert is_held(path)
    with pytest.raises(UserError, match=r"^this run is in use by process \d+: stop it first"):
        Lock(path, "this run")
    lock.release()
    assert not is_held(path)
    Lock(path, "this run").release()
    with locked(path):
        assert is_held(path)
    assert not is_held(path)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_table_survives(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "a.csv"
    write_table(path, ["name", "x"], [["a, b", 0.1], ['"c"', float("nan")], ["d\u2028e", ""]], line_end)
    assert path.read_bytes().count(line_end.encode()) == 4
    for _ in range(2):
        table = read_table(path)
        assert len(table) == 3 and table.text("name").tolist() == ["a, b", '"c"', "d\u2028e"]
        np.testing.assert_array_equal(table.numbers("x"), [0.1, np.nan, np.nan])
        part = table.part([2, 0], without=["x"])
        assert list(part.columns) == ["name"] and part.text("name").tolist() == ["d\u2028e", "a, b"]
        if path.exists():  # then once more, packed
            packed_as(path).write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


def test_a_table_without_rows(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", ["x", "y"], [])
    table = read_table(tmp_path / "a.csv")
    assert len(table) == 0 and table.numbers("y").tolist() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv is cut short"),
        (b"x,y\n1,2", "a.csv is cut short"),
        (b"x,y\n1,2\n3\n", "line 3 of a.csv has 1 cells instead of 2"),
        (b"x\n1\n", "a.csv has no column y"),
        (b"x,y\n1,2\n1,two\n", "a.csv has a cell in column y that is not a number"),
        (b"\xff\x00\n", "a.csv cannot be read"),
    ],
)
def test_damage_is_said_with_the_files_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=message):
        read_table(path).numbers("y")


def test_a_damaged_packed_table_and_a_missing_one(tmp_path: Path) -> None:
    whole = gzip.compress(b"x\n" + b"1\n" * 999)
    for content in (whole[:30], b"no gzip", whole[:20] + bytes(5) + whole[25:]):
        (tmp_path / "a.csv.gz").write_bytes(content)
        with pytest.raises(Damaged, match=r"a\.csv cannot be read"):
            read_table(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "b.csv")
