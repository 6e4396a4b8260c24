"""Failures of the system are told apart: each names its own culprit and remedy."""

import errno
import os
from pathlib import Path

import pytest

from sparc.errors import cannot_write, describe_os_error, in_bytes


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full, 3.0 MB needed and"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "too many open files"),
        (errno.ENOMEM, "the memory is used up"),
        (errno.EROFS, "no permission"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_each_culprit_is_named(tmp_path: Path, number: int, words: str) -> None:
    said = str(cannot_write(tmp_path / "file", failure(number), "`sparc resume RUN`", 3_000_000))
    assert words in said and said.endswith("then `sparc resume RUN`.") and str(tmp_path / "file") in said


def test_a_deleted_folder_is_no_full_disk(tmp_path: Path) -> None:
    said = describe_os_error(failure(errno.ENOENT), tmp_path / "gone" / "metrics.jsonl")
    assert f"its folder {tmp_path / 'gone'} was moved or deleted" in said


def test_sizes() -> None:
    assert [in_bytes(size) for size in (0, 999, 1500, 123_456_789, 2e12, 5e15)] == [
        "0 bytes", "999 bytes", "1.5 kB", "123 MB", "2.0 TB", "5000 TB",
    ]  # fmt: skip
