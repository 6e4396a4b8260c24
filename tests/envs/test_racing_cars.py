"""The cars: catalogue, split, descriptions, and what TORCS's physics makes of them."""

import dataclasses
import hashlib
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparc.envs.racing.cars import catalogue
from sparc.envs.racing.cars.car import FEATURES, LIMITS, Car, features, find_car, read_catalogue, scaled
from sparc.envs.racing.cars.description import describe, torque_curve
from sparc.envs.racing.cars.estimate import estimate_lap, find_line
from sparc.envs.racing.cars.outliers import outlier_table
from sparc.envs.racing.cars.physics import DRAWS, PHYSICS, SHARES, STIFFER, Physics, draw_physics
from sparc.envs.racing.cars.readback import differing_figures, expected_figures
from sparc.envs.racing.cars.tyres import COMPOUNDS, friction
from sparc.envs.racing.reference import race_reference
from sparc.envs.racing.torcs.columns import STATE
from sparc.envs.racing.torcs.installation import Installation
from sparc.envs.racing.torcs.simulator import Simulator
from sparc.envs.racing.tracks import TRACKS
from sparc.errors import UserError


@pytest.fixture(scope="module")
def simulator(torcs: Installation) -> Iterator[Simulator]:
    simulator = Simulator(torcs, TRACKS["g-track-1"].file, 32)
    yield simulator
    simulator.close()


# The catalogue


def test_515_cars_of_many_classes_split_into_412_and_103() -> None:
    cars = read_catalogue()
    assert len({car.name for car in cars}) == len(cars) == 515
    assert len({car.class_name for car in cars}) >= 14
    regions = {region: {car.name for car in cars if car.region == region} for region in ("ind", "ood")}
    assert (len(regions["ind"]), len(regions["ood"])) == (412, 103)
    assert not regions["ind"] & regions["ood"]
    assert min(car.anomaly for car in cars if car.region == "ood") >= max(
        car.anomaly for car in cars if car.region == "ind"
    )
    dirt = [car for car in cars if car.dirt]
    assert 180 <= len(dirt) <= 240
    assert 40 <= sum(car.region == "ood" for car in dirt) <= 60


def test_test_tyres_are_dealt_evenly() -> None:
    for region, spread in ((("ind", "ood"), 1), (("ind",), 12), (("ood",), 12)):
        counts = Counter(car.test_tyre for car in read_catalogue() if car.region in region)
        assert set(counts) == set(COMPOUNDS)
        assert max(counts.values()) - min(counts.values()) <= spread


def test_cars_differ_in_what_a_driver_feels() -> None:
    table = np.array([features(car, car.test_tyre) for car in read_catalogue()])
    names = [name for name, _ in FEATURES]
    for name in ("mass", "power", "torque", "brake_force"):
        column = table[:, names.index(name)]
        assert column.max() > 10 * column.min()
    assert {car.drive for car in read_catalogue()} == {"fwd", "rwd", "4wd"}
    assert {car.source for car in read_catalogue()} == {"combustion", "turbo", "electric"}
    correlation = np.corrcoef(np.log(table[:, [names.index("power"), names.index("torque")]]).T)[0, 1]
    assert correlation > 0.7


def test_every_car_can_be_drawn_again_to_the_bit() -> None:
    classes = catalogue.read_classes()
    for car in read_catalogue():
        again = catalogue.draw_car(car.class_name, classes[car.class_name], car.draw)
        kept = {name: getattr(car, name) for name in ("name", "test_tyre", "region", "anomaly")}
        assert dataclasses.replace(again, **kept) == car


def test_the_split_can_be_made_again() -> None:
    pytest.importorskip("sklearn")
    blank = [dataclasses.replace(car, region="ind", anomaly=0.0) for car in read_catalogue()]
    again = catalogue.split(blank)
    assert [car.region for car in again] == [car.region for car in read_catalogue()]
    np.testing.assert_allclose([car.anomaly for car in again], [car.anomaly for car in read_catalogue()], atol=1e-5)


def test_the_page_says_why_outliers_are_outliers() -> None:
    page = (Path(__file__).parents[2] / "docs/environments/racing-cars.md").read_text()
    table = outlier_table()
    assert sum(int(line.split("|")[2]) for line in table.splitlines()[2:]) == 103
    assert table in page
    electric = sum(car.source == "electric" for car in read_catalogue() if car.region == "ind")
    assert f"of the IND cars {electric} of 412 are" in page


def test_the_table_reads_back_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.write(read_catalogue(), tmp_path / "cars.csv")
    assert (tmp_path / "cars.csv").read_bytes() == catalogue.CATALOGUE.read_bytes()
    assert "mass [kg]" in (tmp_path / "cars.csv").read_text().splitlines()[0]


def test_a_class_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CLASSES", tmp_path)
    text = (Path(catalogue.__file__).parent / "classes" / "kei.yaml").read_text()
    (tmp_path / "limousine.yaml").write_text(text.replace("length: [3.2, 3.5]", "length: [6.0, 6.5]"))
    car = catalogue.draw_car("limousine", catalogue.read_classes()["limousine"], 1)
    assert car.class_name == "limousine" and 6.0 <= car.length <= 6.5
    (tmp_path / "limousine.yaml").write_text(text.replace("mass:", "weight:"))
    with pytest.raises(UserError, match=r"limousine.yaml: 'mass' is missing"):
        catalogue.read_classes()


def test_a_missing_catalogue_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sparc.envs.racing.cars.car.CATALOGUE", tmp_path / "cars.csv")
    with pytest.raises(UserError, match=r"cars\.csv is missing: install sparc again\.$"):
        read_catalogue.__wrapped__()


def test_names_that_do_not_exist() -> None:
    with pytest.raises(UserError, match=r"unknown car 'kei-7': did you mean 'kei-07'\?"):
        find_car("kei-7")
    with pytest.raises(UserError, match=r"unknown tyre 'racing-sof': did you mean 'racing-soft'\?"):
        describe(find_car("kei-07"), "racing-sof")
    with pytest.raises(UserError, match=r"unknown physics 'update': did you mean 'updated'\?"):
        describe(find_car("kei-07"), "racing-soft", "update")


# Features


def test_features_are_the_figures_and_the_tyre() -> None:
    car = find_car("kei-07")
    row = dict(zip([name for name, _ in FEATURES], features(car, "racing-soft"), strict=True))
    assert row["mass"] == car.mass and row["tyre"] == 1.4
    assert row["turbo"] == (car.source == "turbo") and row["electric"] == (car.source == "electric")
    assert features(dataclasses.replace(car, drive="4wd"), "racing-soft")[13] == 0.5
    assert list(COMPOUNDS.values()) == sorted(COMPOUNDS.values()) and friction("comfort-hard") == 0.7


def test_no_two_cars_share_a_context() -> None:
    rows = {features(car, tyre).tobytes() for car in read_catalogue() for tyre in COMPOUNDS}
    assert len(rows) == 515 * 9


# Descriptions


@pytest.mark.parametrize("figure", LIMITS)
def test_a_figure_out_of_its_limits_is_named(figure: str) -> None:
    _, low, high = LIMITS[figure]
    for value in (low - 0.01 * abs(low) - 0.01, 1.01 * high, math.nan):
        with pytest.raises(
            UserError, match=f"car 'gt-01': {figure} = .* is not in {re.escape(f'[{low:g}, {high:g}]')}"
        ):
            dataclasses.replace(find_car("gt-01"), **{figure: value})


def test_figures_that_do_not_go_together_are_named() -> None:
    car = find_car("gt-01")
    for change, message in (
        ({"torque": 3 * car.torque}, "torque = .* is not in .* engine of its power and rev limit can have"),
        ({"downforce": 4.0, "drag_area": 1.0}, "drag_area = 1 m² is not above 1.55, its wings' own"),
        ({"centre_height": 0.12, "ride_height": 0.12}, r"centre_height = 0.12 m is not in \[0.14, 0.8\]"),
        ({"mass": "12"}, "mass = '12' is not a number"),
        ({"gears": 5.5}, r"gears = 5\.5 is not a whole number"),
        ({"drive": "awd"}, "drive 'awd' is none of rwd, fwd, 4wd"),
        ({"source": "steam"}, "source 'steam' is none of combustion, turbo, electric"),
    ):
        with pytest.raises(UserError, match=message):
            changed: dict[str, Any] = change
            describe(dataclasses.replace(car, **changed), "racing-soft")


def test_the_description_is_whole() -> None:
    for name in ("kart-01", "electric-01", "formula-01", "suv-01"):
        root = ElementTree.fromstring(describe(find_car(name), "sports-hard").encode())
        sections = {section.get("name") for section in root.iter("section")}
        assert {f"{where} Differential" for where in ("Front", "Rear", "Central")} <= sections
        assert len([name for name in sections if name and name.endswith(("Wheel", "Brake", "Suspension"))]) == 12
        assert not [e for e in root.iter("attnum") if e.get("min") or e.get("max")]
        assert all(math.isfinite(float(e.get("val", "nan"))) for e in root.iter("attnum"))


def test_torque_curves_have_the_same_peaks_in_every_physics() -> None:
    for car in read_catalogue():
        for physics in PHYSICS.values():
            revs, torque = np.array(torque_curve(car, physics)).T
            assert (np.diff(revs) > 0).all() and revs[-1] > 1.1 * car.rev_limit
            fine = np.linspace(0, car.rev_limit, 2000)
            between = np.interp(fine, revs, torque)
            assert torque.max() == pytest.approx(car.torque)
            assert (torque * revs)[revs < car.rev_limit].max() == pytest.approx(car.power)
            assert (fine * between).max() < 1.005 * car.power


@pytest.mark.parametrize("physics", ["updated", "draw-1", "draw-8"])
def test_the_update_changes_only_what_no_context_tells(physics: str) -> None:
    car = find_car("gt-01")
    standard, updated = (expected_figures(car, "racing-soft", version) for version in ("standard", physics))
    tyres = {"stiffness", "sliding", "slip_shape", "light_load", "heavy_load"}
    springs = {"spring", "spring_travel", "slow_bump", "fast_bump", "slow_rebound", "fast_rebound"}
    others = {"anti_roll_bar", "roll_centre", "wing", "curve_torque"}
    assert differing_figures(standard, updated).keys() == tyres | springs | others
    assert sum(standard["wing"]) == pytest.approx(sum(updated["wing"]))
    assert describe(car, "racing-soft") != describe(car, "racing-soft", physics)


def test_stiffer_and_softer_tyres_differ_in_nothing_else() -> None:
    car = find_car("gt-01")
    standard, stiffer, softer = (
        expected_figures(car, "racing-soft", physics) for physics in ("standard", "stiffer", "softer")
    )
    for other, factor in ((stiffer, STIFFER), (softer, 1 / STIFFER)):
        assert differing_figures(standard, other).keys() == {"stiffness"}
        np.testing.assert_allclose(other["stiffness"], factor * np.array(standard["stiffness"]), rtol=2e-3)


def test_draws_are_fixed_and_differ_and_stay_in_range() -> None:
    names = [field.name for field in dataclasses.fields(Physics)]
    drawn = [PHYSICS[f"draw-{number}"] for number in range(1, DRAWS + 1)]
    assert drawn == [draw_physics(number) for number in range(1, DRAWS + 1)]
    for name in names:
        values = [getattr(version, name) for version in drawn]
        assert len(set(values)) >= DRAWS - 1, name  # each field by itself, not all by one number
        one = 1.0 if name in SHARES else 0.0
        standard, updated = (getattr(PHYSICS[version], name) - one for version in ("standard", "updated"))
        places = np.log((np.array(values) - one) / standard) / math.log(updated / standard)
        assert (np.abs(places) <= 1.03).all() and np.ptp(places) > 0.8, name  # 1.03: values are rounded


def test_the_page_shows_every_physics_as_it_is_simulated() -> None:
    page = (Path(__file__).parents[2] / "docs/environments/racing-cars.md").read_text()
    table = page[page.index("| field |") :].split("\n\n")[0].splitlines()
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table if "---" not in line)
    assert head[1:] == list(PHYSICS)
    written = {row[0].strip("`"): [float(cell.replace("−", "-")) for cell in row[1:]] for row in rows}
    assert written == {
        field.name: [getattr(version, field.name) for version in PHYSICS.values()]
        for field in dataclasses.fields(Physics)
    }


def test_what_the_updated_physics_is_never_changes() -> None:
    """The keys of its reference laps are made of the description: another one would need all laps anew."""
    described = describe(find_car("gt-01"), "racing-soft", "updated") + describe(find_car("kei-07"), "comfort-hard")
    assert hashlib.sha256(described.encode()).hexdigest()[:32] == "401abb28819f1da1dd224cc12d12a033"


def test_scaled_cars_keep_the_rest() -> None:
    car = find_car("touring-07")
    heavy = scaled(car, 0.5, 1.5)
    assert (heavy.power, heavy.torque, heavy.mass) == (0.5 * car.power, 0.5 * car.torque, 1.5 * car.mass)
    same = ("brake_force", "grip", "drag_area", "rev_limit", "gears", "wheelbase")
    assert all(getattr(heavy, name) == getattr(car, name) for name in same)


# In TORCS


def test_the_physics_holds_every_figure_of_every_car(simulator: Simulator) -> None:
    for car in read_catalogue():
        for physics in PHYSICS:
            held = simulator.load(0, describe(car, car.test_tyre, physics))
            wrong = differing_figures(held, expected_figures(car, car.test_tyre, physics))
            assert not wrong, (car.name, physics)
            wings = zip(held["wing"], held["wing_angle"], strict=True)
            drag = held["drag"][0] + sum(wing * math.sin(angle) for wing, angle in wings)
            assert drag == pytest.approx(0.645 * car.drag_area, rel=1e-5)
            assert sum(held["brake"]) / car.wheel_radius == pytest.approx(car.brake_force, rel=1e-5)


def test_nothing_is_written_that_the_physics_does_not_read(torcs: Installation) -> None:
    """A name that TORCS does not know, it passes over in silence: each number changed must change what it holds."""
    car = next(car for car in read_catalogue() if car.drive == "4wd" and car.source == "turbo")
    root = ElementTree.fromstring(describe(car, "racing-soft").encode())
    sections = (section for section in root if section.get("name") != "berniw private")  # that is TORCS's driver's
    changed = [number for section in sections for number in section.iter("attnum")]
    thirsty = Simulator(torcs, TRACKS["g-track-1"].file, 1, fuel=1.0)  # else nobody asks what fuel it needs
    try:
        held = thirsty.load(0, ElementTree.tostring(root, encoding="unicode"))
        unread = []
        for number in changed:
            before = number.get("val", "")
            number.set("val", f"{0.99 * float(before) or 0.01:.9g}")
            if thirsty.load(0, ElementTree.tostring(root, encoding="unicode")) == held:
                unread.append((number.get("name"), before))
            number.set("val", before)
    finally:
        thirsty.close()
    assert len(changed) > 150 and unread == []


def test_a_figure_that_differs_is_named() -> None:
    expected = expected_figures(find_car("gt-01"), "racing-soft")
    assert not differing_figures(expected, expected)
    held = expected | {
        "ratios": expected["ratios"][:-1],
        "spring": [1.001 * expected["spring"][0], *expected["spring"][1:]],
    }
    del held["grip"]
    assert differing_figures(held, expected).keys() == {"ratios", "spring", "grip"}


def changes(car: Car) -> dict[str, Car]:
    """Give, for each feature, the car with that feature changed."""
    some: dict[str, dict[str, Any]] = {
        "length": {"length": car.length + 0.3},
        "height": {"height": car.height + 0.2},
        "turbo": {"source": "turbo"},
        "electric": {"source": "electric"},
        "front_drive": {"drive": "4wd"},
        "downforce": {"downforce": car.downforce + 0.1},
    }
    return {
        name: dataclasses.replace(car, **some.get(name, {name: 1.06 * getattr(car, name, 0.0)}))
        for name, _ in FEATURES
        if name != "tyre"
    }


def test_each_feature_changes_the_trajectory(simulator: Simulator) -> None:
    car = find_car("sports-01")
    power = 1.2 * car.power / (0.92 * car.rev_limit)  # torque that all three sources may have
    car = dataclasses.replace(car, drive="rwd", source="combustion", torque=power, downforce=0.1, drag_area=0.7)
    cars = changes(car)
    descriptions = {name: describe(changed, "sports-soft") for name, changed in cars.items()}
    descriptions |= {"tyre": describe(car, "racing-hard"), "none": describe(car, "sports-soft")}
    assert len(descriptions) == len(FEATURES) + 1
    for slot, text in enumerate(descriptions.values()):
        simulator.load(slot, text)
    slots = list(range(len(descriptions)))
    simulator.reset(slots, np.tile([100.0, 0.0, 0.0, 25.0], (len(slots), 1)))
    chosen = np.arange(simulator.slots) < len(slots)
    # a bend at full throttle, then one on the brakes, and one so slow that the wheels turn up to the lock
    for action in [(0.06, 1.0)] * 20 + [(-0.06, -0.6)] * 20 + [(0.0, -1.0)] * 15 + [(1.0, 0.1)] * 5:
        assert not simulator.step(np.tile(action, (simulator.slots, 1)), chosen).any()
    place = simulator.states[: len(slots), [STATE.index("x"), STATE.index("y"), STATE.index("yaw")]]
    distance = dict(zip(descriptions, np.linalg.norm(place - place[-1], axis=1), strict=True))
    assert distance.pop("none") == 0.0
    assert [name for name, moved in distance.items() if moved < 1e-3] == []


def test_laps_fall_with_power_and_rise_with_mass(torcs: Installation) -> None:
    car = find_car("touring-07")

    def lap(power: float, mass: float) -> float:
        text = describe(scaled(car, power, mass), "sports-medium")
        return float(race_reference(torcs, TRACKS["g-track-1"], text).times[-1])

    base = lap(1.0, 1.0)
    assert lap(0.75, 1.0) > base + 0.3 and lap(1.25, 1.0) < base - 0.3
    assert lap(1.0, 0.8) < base - 0.3 and lap(1.0, 1.2) > base + 0.3


def test_the_ai_is_quicker_on_softer_tyres(torcs: Installation) -> None:
    for name in ("kei-07", "gt-07"):
        laps = [race_reference(torcs, TRACKS["g-track-1"], describe(find_car(name), tyre)) for tyre in COMPOUNDS]
        assert all(lap.off[-1] == lap.wall[-1] == lap.damage[-1] == 0.0 for lap in laps)
        times = [float(lap.times[-1]) for lap in laps]
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("physics", PHYSICS)
def test_the_ai_drives_every_physics_as_the_catalogue_asks(torcs: Installation, physics: str) -> None:
    """By the catalogue's own check, on the track that these physics are raced on: each needs laps to compare with."""
    track = TRACKS["forza"]
    simulator = Simulator(torcs, track.file, 1)
    try:
        course = simulator.describe_track(round(simulator.length))
    finally:
        simulator.close()
    line = find_line(race_reference(torcs, track, describe(find_car("kei-07"), catalogue.HARDEST)).trace, course)
    for name in ("kei-07", "gt-07", "rally-07"):
        car = find_car(name)
        laps = race_reference(torcs, track, describe(car, car.test_tyre, physics))
        assert catalogue.fault_of(laps, estimate_lap(line, car, COMPOUNDS[car.test_tyre])) is None
