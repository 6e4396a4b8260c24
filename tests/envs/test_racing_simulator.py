"""TORCS in a process of its own: the game's laps, the same bits however many cars there are, and crashes survived."""

import dataclasses
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sparc.cli import main
from sparc.envs.racing.cars.car import find_car
from sparc.envs.racing.cars.description import describe
from sparc.envs.racing.torcs import columns, install, installation, simulator
from sparc.envs.racing.torcs.columns import COLUMN, STATE, TRACE, TRACK_COLUMNS
from sparc.envs.racing.torcs.install import game_laps, stock_car, worker_laps
from sparc.envs.racing.torcs.installation import Installation
from sparc.envs.racing.torcs.simulator import Simulator
from sparc.envs.racing.tracks import TRACKS
from sparc.errors import RunFailure, SparcError, UserError

ROLLING = [300.0, 0.0, 0.0, 15.0]  # distance, offset, heading, speed

Make = Callable[[int], Simulator]


@pytest.fixture
def track(torcs: Installation) -> Path:
    return torcs.data / "tracks/road/g-track-1/g-track-1.xml"


@pytest.fixture
def car(torcs: Installation) -> str:
    return stock_car(torcs.data, "car1-trb1")


@pytest.fixture
def make(torcs: Installation, track: Path, car: str) -> Iterator[Make]:
    """Make simulators with the same car in every slot, rolling at the same place."""
    made = []

    def build(slots: int) -> Simulator:
        made.append(Simulator(torcs, track, slots))
        for slot in range(slots):
            made[-1].load(slot, car)
        made[-1].reset(range(slots), np.array([ROLLING] * slots))
        return made[-1]

    yield build
    for one in made:
        one.close()


def drive(simulator: Simulator, steps: int, seed: int = 0, slot: int = 0) -> np.ndarray:
    """LapPair one slot by random commands, and the others differently; give the slot's rows, (steps, S)."""
    rng, others = np.random.default_rng(seed), np.random.default_rng(99)
    rows = []
    for _ in range(steps):
        actions = others.uniform(-1, 1, (simulator.slots, 2))
        actions[slot] = [rng.uniform(-0.2, 0.2), rng.uniform(-0.3, 1.0)]
        simulator.step(actions)
        rows.append(simulator.states[slot].copy())
    return np.array(rows)


SWAPPED = {
    "state": (*STATE[1::-1], *STATE[2:]),  # as long as the right one
    "trace": TRACE[:-1],
    "track": (*TRACK_COLUMNS, "banking"),
    "off_course": ("2",),
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("state", "its state has x in place 1, not y;"),
        ("trace", "its trace has wheels_out in place 12, not nothing;"),
        ("track", "its track has nothing in place 7, not banking;"),
        ("off_course", "its off_course has 3 in place 1, not 2;"),
    ],
)
def test_a_worker_that_calls_things_otherwise_is_refused(
    torcs: Installation, track: Path, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(columns.VOCABULARY, kind, SWAPPED[kind])
    with pytest.raises(RunFailure, match=re.escape(words)) as caught:
        Simulator(torcs, track, 1)
    assert installation.REMEDY in str(caught.value) and "\n" not in str(caught.value)


def value(simulator: Simulator, name: str, slot: int = 0) -> float:
    return float(simulator.states[slot, COLUMN[name]])


@pytest.mark.parametrize(("number", "name"), [(3, "car1-trb1"), (2, "p406")])
def test_laps_are_the_games_to_the_millisecond(torcs: Installation, number: int, name: str) -> None:
    road = ("road", "g-track-1")
    theirs = game_laps(torcs, "inferno", number, road, 3)
    ours = worker_laps(torcs, "inferno", number, name, road, 3)
    assert len(ours) == 3
    np.testing.assert_allclose(ours[1:], theirs[1:], atol=5e-4)
    assert theirs[0] > ours[0]  # the game counts from the green light, the worker from the line


def test_a_cars_bits_do_not_depend_on_the_others(make: Make) -> None:
    alone = drive(make(1), 60)
    for slots, slot in ((2, 1), (7, 3)):
        np.testing.assert_array_equal(drive(make(slots), 60, slot=slot), alone)


def test_a_snapshot_goes_on_in_another_slot_of_another_process(make: Make) -> None:
    first, second = make(3), make(2)
    drive(first, 20, slot=2)
    snapshot = first.snapshots()[2]
    expected = drive(first, 20, seed=5, slot=2)
    both = second.snapshots()
    both[1] = snapshot
    second.restore(both)
    np.testing.assert_array_equal(drive(second, 20, seed=5, slot=1), expected)


def test_a_snapshot_has_nothing_of_its_process_in_it(make: Make) -> None:
    first, second = make(1), make(1)
    drive(first, 5)
    drive(second, 5)
    np.testing.assert_array_equal(first.snapshots(), second.snapshots())


def test_killing_the_worker_changes_no_bit(make: Make) -> None:
    expected = drive(make(2), 30)
    survivor = make(2)
    rows = [drive(survivor, 10)]
    rng = np.random.default_rng(0)
    rng.uniform(size=20)  # as drive has drawn

    os.kill(survivor.pid, signal.SIGKILL)  # between two steps
    others = np.random.default_rng(99)
    others.uniform(-1, 1, (10, 2, 2))
    for step in range(20):
        actions = others.uniform(-1, 1, (2, 2))
        actions[0] = [rng.uniform(-0.2, 0.2), rng.uniform(-0.3, 1.0)]
        survivor.begin(actions)
        if step == 10:
            os.kill(survivor.pid, signal.SIGKILL)  # perhaps in the middle of one
        assert not survivor.finish().any()
        rows.append(survivor.states[:1].copy())
    np.testing.assert_array_equal(np.concatenate(rows), expected)
    assert 1 <= len(survivor.crashes) <= 2
    assert "SIGKILL" in survivor.crashes[0][1]


def test_a_worker_that_hangs_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator_under_test = make(1)
    real = Simulator._restart

    def restart(self: Simulator, lost: simulator.WorkerLost) -> None:
        monkeypatch.setattr(simulator, "PATIENCE", 60.0)  # the new one may take its time
        real(self, lost)

    monkeypatch.setattr(simulator, "PATIENCE", 0.5)
    monkeypatch.setattr(Simulator, "_restart", restart)
    os.kill(simulator_under_test.pid, signal.SIGSTOP)
    drive(simulator_under_test, 1)
    assert "did not answer" in simulator_under_test.crashes[0][1]


def test_a_worker_lost_between_two_requests_is_no_cars_fault(make: Make) -> None:
    field = make(3)
    field.step(np.zeros((3, 2)))
    os.kill(field.pid, signal.SIGKILL)
    field.reset([1], np.array([ROLLING]))
    assert field.crashes == [(-1, "it was ended by SIGKILL")]


def test_a_car_that_crashes_the_new_worker_as_well_is_left_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "PATIENCE", 600.0)  # a worker caught in a loop ends itself
    expected, field = drive(make(3), 5), make(3)
    bad = re.sub(r'(name="mu" val=")[^"]*', r"\g<1>1e30", describe(find_car("gt-01"), "racing-soft"))
    field.load(1, bad)  # TORCS turns its wheels back by full circles, for ever
    field.reset([1], np.array([ROLLING]))
    rng, others = np.random.default_rng(0), np.random.default_rng(99)
    rows, broken = [], np.zeros(3, bool)
    for _ in range(5):
        actions = others.uniform(-1, 1, (3, 2))
        actions[0] = [rng.uniform(-0.2, 0.2), rng.uniform(-0.3, 1.0)]
        broken |= field.step(actions, ~broken)
        assert broken.tolist() == [False, True, False]
        rows.append(field.states[0].copy())
    assert field.crashes == [(1, "it was caught in an endless loop")] * 2
    np.testing.assert_array_equal(rows, expected)


def test_a_step_that_was_interrupted_leaves_no_answer_behind(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, field = drive(make(2), 5), make(2)

    def interrupt(worker: simulator.Worker) -> None:
        raise KeyboardInterrupt

    for go_on in (lambda: None, lambda: field.load(1, field.car_in(1) or ""), lambda: field.restore(field.snapshots())):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(simulator.Worker, "wait", interrupt)
            field.step(np.zeros((2, 2)))
        go_on()
        field.reset([0, 1], np.array([ROLLING] * 2))
        np.testing.assert_array_equal(drive(field, 5), expected)
    assert field.crashes == [(-1, "a request was interrupted")] * 3


def test_damaged_snapshots_are_refused_and_the_cars_stay(make: Make) -> None:
    field, other = make(2), make(2)
    drive(field, 5)
    drive(other, 5)
    with pytest.raises(UserError, match="saved cars do not fit"):
        field.restore(np.full_like(field.snapshots(), 7))
    np.testing.assert_array_equal(drive(field, 5, seed=1), drive(other, 5, seed=1))


def test_a_worker_lost_while_restoring_or_measuring_is_replaced(make: Make) -> None:
    field = make(2)
    snapshots = field.snapshots()
    expected = drive(field, 5), field.describe_track(50)
    os.kill(field.pid, signal.SIGKILL)
    field.restore(snapshots)
    np.testing.assert_array_equal(drive(field, 5), expected[0])
    os.kill(field.pid, signal.SIGKILL)
    np.testing.assert_array_equal(field.describe_track(50), expected[1])
    assert [slot for slot, _ in field.crashes] == [-1, -1]


def test_a_worker_that_cannot_go_on_is_a_failure_in_one_line(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    field = make(1)
    monkeypatch.setitem(field._cars, 0, '<params name="kei-07 racing-soft"')
    os.kill(field.pid, signal.SIGKILL)
    with pytest.raises(
        RunFailure, match="g-track-1 cannot be started again with kei-07 racing-soft: TORCS cannot read"
    ):
        field.step(np.zeros((1, 2)))


def test_a_worker_whose_owner_is_killed_leaves_nothing(torcs: Installation, track: Path) -> None:
    code = f"""
from pathlib import Path
from sparc.envs.racing.torcs.installation import find_torcs
from sparc.envs.racing.torcs.simulator import Worker
worker = Worker(find_torcs(), Path({str(track)!r}), 1)
print(worker._log.parent, flush=True)
input()
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert (folder / "log").is_file()
        owner.kill()
    until = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_worker_that_cannot_be_started_leaves_nothing(
    torcs: Installation, track: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunFailure, match=r"worker cannot be started: .*No such file"):
        simulator.Worker(dataclasses.replace(torcs, worker=tmp_path / "none"), track, 1)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("distance", [0.0, 777.0, 2056.0])
@pytest.mark.parametrize("speed", [0.0, 25.0])
def test_a_car_can_be_put_anywhere(make: Make, distance: float, speed: float) -> None:
    field = make(1)
    field.reset([0], np.array([[distance, 2.0, 0.1, speed]]))
    assert value(field, "distance") == pytest.approx(distance % field.length, abs=0.01)
    assert value(field, "offset") == pytest.approx(2.0, abs=0.01)
    turned = value(field, "yaw") - value(field, "track_heading")
    assert np.angle(np.exp(1j * turned)) == pytest.approx(0.1, abs=1e-3)
    assert value(field, "vx") == pytest.approx(speed)
    assert (value(field, "laps"), value(field, "time"), value(field, "damage")) == (0, 0, 0)
    field.step(np.zeros((1, 2)))
    # It rolls on as it was put there: neither thrown up nor with wheels that have to be spun up first.
    assert value(field, "vx") == pytest.approx(speed, abs=0.6)
    assert abs(value(field, "vz")) < 0.5
    assert max(abs(value(field, f"wheel_speed_{wheel}") - value(field, "vx")) for wheel in columns.WHEELS) < 1.5


def test_assists_keep_wheels_from_locking_and_spinning(make: Make) -> None:
    field = make(2)
    for slot in range(2):  # whose brakes fit its tyres; those of TORCS's own cars lock the wheels at once
        field.load(slot, describe(find_car("gt-01"), "sports-medium"))
    field.reset([0, 1], np.array([[100.0, 0.0, 0.0, 40.0], [100.0, 0.0, 0.0, 5.0]]))
    slowest, gears = np.inf, set[float]()
    for _ in range(15):
        field.step(np.array([[0.0, -1.0], [0.0, 1.0]]))
        if value(field, "vx") > 10.0:
            slowest = min(
                slowest, *(value(field, f"wheel_speed_{wheel}") / value(field, "vx") for wheel in columns.WHEELS)
            )
        gears.add(value(field, "gear", 1))
    assert slowest > 0.6
    spin = value(field, "wheel_speed_rear_left", 1) - value(field, "vx", 1)
    assert value(field, "vx", 1) > 12.0 and spin < 6.0
    assert gears <= {1.0, 2.0, 3.0}


def test_steering_acts_at_once(make: Make) -> None:
    """Else the average over a step depends on the step before, and swinging from side to side is the best steering."""
    field = make(1)
    for wanted in (1.0, -1.0, 0.5):
        field.step(np.array([[wanted, 0.0]]))
        assert field.states[0, COLUMN["steer"]] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("speed", "reach"), [(25.0, 0.24), (50.0, 0.18)])
def test_at_speed_a_full_turn_of_the_wheel_steers_less(make: Make, car: str, speed: float, reach: float) -> None:
    field = make(1)
    (lock,) = field.load(0, car)["steer_lock"]
    field.reset([0], np.array([[300.0, 0.0, 0.0, speed]]))
    field.step(np.array([[1.0, 0.0]]))
    assert lock > 0.3 and field.states[0, COLUMN["steer"]] * lock == pytest.approx(reach, rel=0.02)


def test_off_course_and_walls_are_reported(make: Make) -> None:
    field = make(1)
    field.reset([0], np.array([[300.0, 0.0, 0.6, 25.0]]))
    off = wall = 0.0
    for _ in range(60):
        field.step(np.array([[0.0, 0.3]]))
        off, wall = off + value(field, "off_time"), wall + value(field, "wall_time")
    assert off > 0 and wall > 0 and value(field, "damage") > 0


def test_another_car_goes_on_where_the_first_was(make: Make, torcs: Installation) -> None:
    field = make(1)
    drive(field, 30)
    before = dict(zip(STATE, field.states[0].tolist(), strict=True))
    figures = field.exchange(0, stock_car(torcs.data, "p406"))
    after = dict(zip(STATE, field.states[0].tolist(), strict=True))
    assert figures["mass"] == [1500]
    for name in ("x", "y", "yaw", "vx", "vy", "yaw_rate", "distance", "time", "laps", "steer"):
        assert after[name] == pytest.approx(before[name], abs=1e-5), name
    drive(field, 30)
    assert np.isfinite(field.states).all()


def test_the_track_is_closed_and_as_long_as_it_says(make: Make) -> None:
    field = make(1)
    x, y, heading, half_width, *_ = field.describe_track(1000).T
    steps = np.hypot(np.diff(x, append=x[0]), np.diff(y, append=y[0]))
    assert steps.sum() == pytest.approx(field.length, rel=1e-3)
    assert steps.max() < 1.1 * field.length / 1000
    direction = np.arctan2(np.diff(y, append=y[0]), np.diff(x, append=x[0]))
    assert np.abs(np.angle(np.exp(1j * (direction - heading)))).max() < 0.1
    assert (half_width > 3).all()


def test_a_car_that_torcs_cannot_read_is_refused_by_name_and_the_others_stay(make: Make) -> None:
    field = make(2)
    expected = field.states.copy()
    broken = describe(find_car("kei-07"), "racing-soft")[:-20]
    with pytest.raises(RunFailure, match=r"^TORCS cannot load kei-07 racing-soft on g-track-1: TORCS cannot read"):
        field.load(0, broken)
    with pytest.raises(RunFailure, match=r"^TORCS cannot load this car on g-track-1: TORCS cannot read"):
        field.load(0, "<params")
    np.testing.assert_array_equal(field.states, expected)


def test_a_car_that_cannot_be_put_on_the_road_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    field = make(3)
    field.load(1, describe(dataclasses.replace(find_car("gt-01"), name='"one" & only'), "racing-soft"))
    real = simulator.Worker.ask

    def ask(worker: simulator.Worker, request: bytes) -> None:
        if request[:1] == b"R":
            raise simulator.WorkerLost("it was ended by SIGSEGV", 1)
        real(worker, request)

    monkeypatch.setattr(simulator.Worker, "ask", ask)
    with pytest.raises(RunFailure, match=r'^TORCS cannot put "one" & only racing-soft on the road on g-track-1: it'):
        field.reset([0, 1, 2], np.array([ROLLING] * 3))
    assert [slot for slot, _ in field.crashes] == [1, 1]


def test_no_fuel_is_burnt_unless_wanted(torcs: Installation, track: Path) -> None:
    """A car that gets lighter would be another context."""
    driven = []
    for fuel in ({}, {"fuel": 0.0}, {"fuel": 1.0}):
        field = Simulator(torcs, track, 1, **fuel)
        field.load(0, describe(find_car("gt-01"), "sports-medium"))
        field.reset([0], np.array([ROLLING]))
        driven.append(drive(field, 300))
        field.close()
    assert np.ptp(driven[0][:, COLUMN["distance"]]) > 100.0
    np.testing.assert_array_equal(driven[0], driven[1])
    assert (driven[0][-1] != driven[2][-1]).any()


# The file that both sides share


def test_a_full_memory_folder_is_stepped_around(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected, real, asked = drive(make(1), 5), os.posix_fallocate, []

    def allocate(file: int, start: int, size: int) -> None:
        asked.append(Path(f"/proc/self/fd/{file}").readlink().parent)
        if asked[-1] == Path("/dev/shm"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    np.testing.assert_array_equal(drive(make(1), 5), expected)
    assert asked[-1] == tmp_path


def test_no_room_anywhere_is_said_in_one_line(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunFailure, match=r"^no room in .*\(No space left on device\): make room, or set TMPDIR"):
        make(1)


def test_all_of_the_shared_file_has_its_room(make: Make) -> None:
    about = os.fstat(make(2)._file)
    assert 512 * about.st_blocks >= about.st_size > 0


# Finding TORCS and setting it up


@pytest.fixture
def anew() -> Iterator[None]:
    """Let TORCS be looked for again, and not be remembered as it was found."""
    installation.find_torcs.cache_clear()
    yield
    installation.find_torcs.cache_clear()


@pytest.mark.usefixtures("anew")
def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "package_version", lambda: None)
    with pytest.raises(UserError, match="not installed: run `sparc racing install`"):
        installation.find_torcs()
    monkeypatch.setattr(installation, "package_version", lambda: "1.3.8-1")
    monkeypatch.setattr(installation, "DATA", tmp_path)
    remedy = r"install Debian's packages of it: `apt-get install 'torcs=1\.3\.7\*' 'torcs-data=1\.3\.7\*'`\.$"
    with pytest.raises(UserError, match=rf"needs TORCS 1\.3\.7, and this machine has 1\.3\.8-1: {remedy}"):
        installation.find_torcs()


@pytest.mark.parametrize("changed", ["main.cpp", "road.h", "new.h"])
def test_a_worker_for_another_source_is_not_used(
    torcs: Installation, anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str
) -> None:
    source = tmp_path / "worker"
    shutil.copytree(installation.SOURCE, source)
    monkeypatch.setattr(installation, "SOURCE", source)
    assert installation.find_torcs() == torcs
    with (source / changed).open("a") as file:
        file.write("// another\n")
    assert installation.find_torcs() == torcs  # whoever has begun goes on
    installation.find_torcs.cache_clear()
    with pytest.raises(SparcError, match="not built: run `sparc racing install`"):
        installation.find_torcs()


def build_into(cache: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., None]) -> Path:
    """Build a worker into a cache of its own, by another compiler."""
    monkeypatch.setattr(install, "cache_folder", lambda: cache)
    monkeypatch.setattr(install, "_run", run)
    worker = cache / "worker-1"
    install.build("1.3.7", Path("/libraries"), worker)
    assert not [file for file in cache.iterdir() if file.name.startswith(".")]
    return worker


def test_two_builds_at_a_time_do_not_meet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "headers-1.3.7").mkdir()
    outputs: list[Path] = []

    def compiler(command: list[str], what: str) -> None:
        output = Path(command[command.index("-o") + 1])
        outputs.append(output)
        output.write_text("half")
        if len(outputs) == 1:  # another build begins and ends meanwhile
            install.build("1.3.7", Path("/libraries"), tmp_path / "worker-1")
            assert (tmp_path / "worker-1").read_text() == "whole" and output.read_text() == "half"
        output.write_text("whole")

    assert build_into(tmp_path, monkeypatch, compiler).read_text() == "whole"
    assert len(set(outputs)) == 2


def test_headers_that_another_build_fetched_first_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fetch(version: str, folder: Path, bar: install.Bar) -> None:
        for headers in (folder / "headers", tmp_path / "headers-1.3.7"):
            (headers / "src").mkdir(parents=True)

    def compiler(command: list[str], what: str) -> None:
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(install, "fetch_headers", fetch)
    assert build_into(tmp_path, monkeypatch, compiler).is_file()


def test_a_download_shows_its_megabytes_and_says_why_it_failed(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    write = "head -c 3000000 /dev/zero > part; sleep 0.8"
    install._fetch(["sh", "-c", write], "fetching", tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, install.SOURCE_MB)
    with pytest.raises(SparcError, match="fetching failed: no such package"):
        fail = "echo progress; echo no such package >&2; exit 3"
        install._fetch(["sh", "-c", fail], "fetching", tmp_path, lambda done, total: None)


@pytest.mark.usefixtures("torcs")
def test_the_command_and_the_module_install_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["racing", "install"]) == 0
    by_command = capsys.readouterr().out
    assert install.main() == 0
    assert capsys.readouterr().out == by_command
    assert re.search(r"^TORCS 1\.3\.7.* s, here and in the game$", by_command, re.MULTILINE)


def test_packages_that_cannot_be_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "_installed", lambda package: package != "torcs")
    monkeypatch.setenv("PATH", "")
    assert main(["racing", "install"]) == 2
    line = "sparc: racing needs the Debian packages torcs: install them as root, `apt-get install torcs`.\n"
    assert capsys.readouterr().err == line


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("missing", ["lib/libtgf.so", "modules/simu/simuv2.so", "drivers/inferno/inferno.so"])
def test_a_library_that_is_missing_is_named(
    torcs: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    monkeypatch.setattr(installation, "LIBRARIES", tmp_path)
    for name in (*installation.LINKED, "drivers/inferno/inferno.so"):
        (tmp_path / "here/torcs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here/torcs" / name).touch()
    (tmp_path / "here/torcs" / missing).unlink()
    with pytest.raises(UserError, match=f"not whole, .*{missing} is missing: `apt-get install --reinstall torcs`.$"):
        installation.find_torcs()


def test_a_file_that_a_track_includes_is_missed_before_torcs_crashes(
    torcs: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    track = TRACKS["g-track-1"]
    assert [file.name for file in track.files()] == ["g-track-1.xml", "surfaces.xml", "objects.xml"]
    folder = tmp_path / "tracks/road/g-track-1"
    folder.mkdir(parents=True)
    shutil.copy(track.file, folder)
    monkeypatch.setattr("sparc.envs.racing.tracks.DATA", tmp_path)
    with pytest.raises(UserError, match=r"surfaces\.xml is missing: `apt-get install --reinstall torcs-data`"):
        track.check()
