"""TORCS in a process of its own: the game's laps, the same bits however many cars there are, and crashes survived."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sparc.envs.racing import install, simulator
from sparc.envs.racing.cars import describe, find_car
from sparc.envs.racing.install import Installation, game_laps, stock_car, worker_laps
from sparc.envs.racing.simulator import COLUMN, STATE, Simulator, WorkerLost
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
    """Drive one slot by random commands, and the others differently; give the slot's rows, (steps, S)."""
    rng, others = np.random.default_rng(seed), np.random.default_rng(99)
    rows = []
    for _ in range(steps):
        actions = others.uniform(-1, 1, (simulator.slots, 2))
        actions[slot] = [rng.uniform(-0.2, 0.2), rng.uniform(-0.3, 1.0)]
        simulator.step(actions)
        rows.append(simulator.states[slot].copy())
    return np.array(rows)


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
    monkeypatch.setattr(simulator, "PATIENCE", 0.5)
    os.kill(simulator_under_test.pid, signal.SIGSTOP)
    drive(simulator_under_test, 1)
    assert "did not answer" in simulator_under_test.crashes[0][1]


def test_a_car_that_crashes_the_new_worker_as_well_is_left_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    field = make(3)
    waits = iter([WorkerLost("it was ended by SIGSEGV", 1), WorkerLost("it was ended by SIGSEGV", 1)])
    real = simulator.Worker.wait

    def wait(worker: simulator.Worker) -> None:
        lost = next(waits, None) if field._chosen[1] and worker.turn is not None and asked else None
        real(worker)
        if lost is not None:
            raise lost

    asked = True
    monkeypatch.setattr(simulator.Worker, "wait", wait)
    monkeypatch.setattr(field, "_restart", lambda lost: field.crashes.append((lost.slot, str(lost))))
    before = field.states[1].copy()
    assert field.step(np.zeros((3, 2))).tolist() == [False, True, False]
    assert len(field.crashes) == 2
    asked = False
    assert not field.step(np.zeros((3, 2)), np.array([True, False, True])).any()
    assert not np.array_equal(field.states[0], before)


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
    assert max(abs(value(field, f"wheel_speed_{wheel}") - value(field, "vx")) for wheel in simulator.WHEELS) < 1.5


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
                slowest, *(value(field, f"wheel_speed_{wheel}") / value(field, "vx") for wheel in simulator.WHEELS)
            )
        gears.add(value(field, "gear", 1))
    assert slowest > 0.6
    spin = value(field, "wheel_speed_rear_left", 1) - value(field, "vx", 1)
    assert value(field, "vx", 1) > 12.0 and spin < 6.0
    assert gears <= {1.0, 2.0, 3.0}


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
    assert figures["mass"] == 1500
    for name in ("x", "y", "yaw", "vx", "vy", "yaw_rate", "distance", "time", "laps", "steer"):
        assert after[name] == pytest.approx(before[name], abs=1e-5), name
    drive(field, 30)
    assert np.isfinite(field.states).all()


def test_the_track_is_closed_and_as_long_as_it_says(make: Make) -> None:
    field = make(1)
    x, y, _, heading, half_width, *_ = field.describe_track(1000).T
    steps = np.hypot(np.diff(x, append=x[0]), np.diff(y, append=y[0]))
    assert steps.sum() == pytest.approx(field.length, rel=1e-3)
    assert steps.max() < 1.1 * field.length / 1000
    direction = np.arctan2(np.diff(y, append=y[0]), np.diff(x, append=x[0]))
    assert np.abs(np.angle(np.exp(1j * (direction - heading)))).max() < 0.1
    assert (half_width > 3).all()


def test_a_car_that_torcs_cannot_read_is_refused_and_the_others_stay(make: Make) -> None:
    field = make(2)
    expected = field.states.copy()
    with pytest.raises(RunFailure, match="cannot load this car"):
        field.load(0, "<params")
    np.testing.assert_array_equal(field.states, expected)


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "package_version", lambda: None)
    with pytest.raises(UserError, match="not installed: run `make torcs`"):
        install.find_torcs()
    monkeypatch.setattr(install, "package_version", lambda: "1.3.8-1")
    monkeypatch.setattr(install, "DATA", tmp_path)
    with pytest.raises(UserError, match=r"needs TORCS 1\.3\.7, and this machine has 1\.3\.8-1"):
        install.find_torcs()


def test_a_worker_for_another_source_is_not_used(
    torcs: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = tmp_path / "worker.cpp"
    changed.write_text("int main() {}")
    monkeypatch.setattr(install, "SOURCE", changed)
    with pytest.raises(SparcError, match="not built: run `make torcs`"):
        install.find_torcs()
