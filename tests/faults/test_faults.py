"""A short, seeded part of the fault suite; `make faults` runs the long one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import skip_or_fail

from . import inputs
from .damages import FILES, Damages
from .disks import Disks, SuiteOnFullDisk, TrainOnFullDisk, TrainWithoutSharedMemory
from .kills import Rma
from .tally import GOOD, Outcome, Tally


@pytest.fixture(scope="module")
def damages(tmp_path_factory: pytest.TempPathFactory) -> Damages:
    return Damages(tmp_path_factory.mktemp("damages"), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_damage_is_named_or_harmless(damages: Damages, kind: str) -> None:
    tries = [damages.attempt(kind, number) for number in range(6)]
    assert [details for outcome, details in tries if outcome not in GOOD] == []


@pytest.fixture
def _back() -> Iterator[None]:
    before = os.getcwd()
    yield
    os.chdir(before)


@pytest.mark.slow
@pytest.mark.usefixtures("_back")
def test_hostile_inputs_get_one_line(tmp_path: Path) -> None:
    tally = Tally(seed=1)
    inputs.work(tally, 120, tmp_path)
    assert list(tally.failures()) == [] and [tally.tries(kind) for kind in inputs.KINDS] == [40, 40, 40]


@pytest.mark.process
def test_killed_processes_end_in_the_same_bits(tmp_path: Path) -> None:
    kills = Rma(tmp_path, seed=1)
    assert kills.attempt(0) == ("harmless", "")


@pytest.mark.process
@pytest.mark.parametrize("kind", [TrainOnFullDisk, SuiteOnFullDisk, TrainWithoutSharedMemory])
def test_a_full_disk_is_named_and_survived(kind: type[Disks], tmp_path: Path) -> None:
    if reason := kind.why_not():
        skip_or_fail(reason)
    assert kind(tmp_path, seed=1).attempt(0) in (("named", ""), ("harmless", ""))


def test_the_tally_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    tally = Tally.open(tmp_path, 3)
    tally.work("a", 2, lambda number: ("named", ""))
    again = Tally.open(tmp_path, 3)
    seen: list[int] = []

    def attempt(number: int) -> Outcome:
        seen.append(number)
        return "silent", "why"

    again.work("a", 4, attempt)
    Tally.open(tmp_path, 3).work("b", 1, lambda number: ("harmless", ""))  # another process
    assert seen == [2, 3] and list(again.failures()) == ["a, try 2: silent: why", "a, try 3: silent: why"]
    lines = Tally.open(tmp_path, 3).table().splitlines()
    assert lines[2:] == [
        "| a | 4 | 2 | 0 | 2 | 0 | 0 |",
        "| b | 1 | 0 | 1 | 0 | 0 | 0 |",
        "| **all** | 5 | 2 | 1 | 2 | 0 | 0 |",
    ]
    assert Tally.open(tmp_path, 4).kinds == {}
