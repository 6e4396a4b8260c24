"""The race replay: what is written, and how it behaves in a real browser. The laps are made up, on an ellipse."""

import base64
import json
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import AGENT, find, find_all, on_map, pixels, resize, seek, settle, text, until
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from sparc.envs.racing.torcs.columns import TRACE
from sparc.watch.lap_page import AT, LAP, Column, Course, LapPair, from_line_to_line, packed, write_replay

LAPTOP, PHONE = (1280, 800), (390, 844)
COLUMN = {name: index for index, name in enumerate(TRACE)}


def ellipse() -> Course:
    """A track of 2 km, of which the first third is loose."""
    angle = np.linspace(0, 2 * np.pi, 4001)
    x, y = 400 * np.sin(angle), -220 * np.cos(angle)
    distance = np.concatenate([[0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    places = np.linspace(0, distance[-1], 400, endpoint=False)
    angle = np.interp(places, distance, angle)
    heading = np.arctan2(220 * np.sin(angle), 400 * np.cos(angle))
    friction = np.where(places < distance[-1] / 3, 0.9, 1.2)
    line = [400 * np.sin(angle), -220 * np.cos(angle), heading, np.full(400, 6.0), friction]
    return Course("ellipse", float(distance[-1]), np.stack(line, axis=1))


COURSE = ellipse()


def lap_of(time: float, first: float = 0.04, off: tuple[float, float] | None = None, until: float = 1.0) -> np.ndarray:
    """A lap that is slower at its end than at its beginning; `off` and `until` are shares of it."""
    times = np.arange(first, time * until, 0.1)
    share = times / time
    distance = COURSE.length * (share + 0.05 * np.sin(2 * np.pi * share))
    turn = np.linspace(0, COURSE.length, 401)
    x, y = (np.interp(distance, turn, np.append(COURSE.line[:, i], COURSE.line[0, i])) for i in (0, 1))
    yaw = np.interp(distance, turn, np.append(np.unwrap(COURSE.line[:, 2]), 2 * np.pi))
    trace = np.zeros((len(times), len(TRACE)))
    for name, values in {
        "time": times,
        "x": x,
        "y": y,
        "yaw": (yaw + np.pi) % (2 * np.pi) - np.pi,
        "speed": COURSE.length / time * (1 + 0.1 * np.pi * np.cos(2 * np.pi * share)),
        "distance": distance,
        "steer": 0.1 + 0.05 * np.sin(9 * share),
        "throttle": (share < 0.7).astype(float),
        "brake": 0.4 * (share >= 0.7),
        "gear": np.where(share < 0.5, 4, 3),
        "wheels_out": 4 * ((share >= off[0]) & (share < off[1])) if off else 0,
    }.items():
        trace[:, COLUMN[name]] = values
    return trace


def drive_of(car: str, time: float | None, ai: float = 41.0, region: str = "ood", **other: Any) -> LapPair:
    agent = other.pop("agent", None)
    fields = {"class_name": "touring", "tyre": "sports medium", "clean": time is not None} | other
    trace = lap_of(50.0, until=0.4) if time is None else lap_of(time)
    return LapPair(car, region=region, agent=trace if agent is None else agent, ai=lap_of(ai, 0.0), lap_time=time,
                 ai_time=ai, **fields)  # fmt: skip


DRIVES = (
    drive_of("Middle", 42.0),
    drive_of("Fast", 40.0, region="ind", tyre="racing soft", class_name="formula"),
    drive_of("Wide", 44.0, clean=False, agent=lap_of(44.0, off=(0.4, 0.5))),
    drive_of("Toucher", 43.0, region="ind", clean=False),
    drive_of("Stuck", None, class_name="van"),
    drive_of("Never moved", None, agent=lap_of(50.0)[:0]),
    *(drive_of(f"Other {number}", 42 + 0.01 * number, region="ind") for number in range(1, 6)),
    drive_of("Power ×0.50", 42.06, region="ind", class_name="", tyre=""),
)


def read(text: str, columns: Sequence[Column]) -> np.ndarray:
    """Undo `packed`, as laps.js does."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    table = np.ascontiguousarray(planes.T).view("<i4").reshape(len(columns), -1).astype(float)
    for values, column in zip(table, columns, strict=True):
        for _ in range(column.order):
            values[:] = np.cumsum(values)
        values *= column.step
    return table.T


# What is written


def test_a_lap_is_packed_to_half_a_step() -> None:
    lap = from_line_to_line(lap_of(42.0), 42.0, COURSE.length)
    error = np.abs(read(packed(lap, LAP), LAP) - lap).max(axis=0)
    assert (error <= [column.step / 2 + 1e-9 for column in LAP]).all()


@pytest.mark.parametrize("first", [-0.26, 0.0, 0.04])
def test_a_completed_lap_goes_from_the_line_to_the_line(first: float) -> None:
    lap = from_line_to_line(lap_of(42.0, first), 42.0, COURSE.length)
    time, distance, yaw = (lap[:, AT[name]] for name in ("time", "distance", "yaw"))
    assert (time[0], time[-1]) == (0.0, 42.0) and (np.diff(time) > 0).all()
    np.testing.assert_allclose(distance[[0, -1]], [0, COURSE.length], atol=0.1)
    np.testing.assert_allclose(yaw[-1] - yaw[0], 2 * np.pi, atol=0.05)
    np.testing.assert_allclose(lap[0, [AT["x"], AT["y"]]], lap[-1, [AT["x"], AT["y"]]], atol=0.2)


def test_distance_and_speed_that_jump_are_put_right() -> None:
    trace = lap_of(42.0, -0.26)
    trace[:, COLUMN["distance"]] %= COURSE.length
    trace[9, COLUMN["speed"]] *= -1
    kept = trace.copy()
    lap = from_line_to_line(trace, 42.0, COURSE.length)
    assert (np.diff(lap[:, AT["distance"]]) > 0).all() and (lap[:, AT["speed"]] > 0).all()
    np.testing.assert_array_equal(trace, kept)


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    broken = lap_of(42.0)
    broken[3, COLUMN["x"]] = np.nan
    for drives, message in (
        ([], "no lap"),
        ([drive_of("Sick", 42.0, agent=broken)], "cannot replay Sick: not all of its numbers are finite"),
        ([drive_of("Odd", 60.0, agent=lap_of(42.0))], r"cannot replay Odd: its lap takes 60 s, .* to 41\.9"),
    ):
        with pytest.raises(ValueError, match=message):
            write_replay(tmp_path / "replay.html", COURSE, drives, "Race")
    assert list(tmp_path.iterdir()) == []


def test_100_cars_of_100_s_stay_below_3_mb(tmp_path: Path) -> None:
    rng, drives = np.random.default_rng(0), []
    for number in range(20):
        agent, ai = lap_of(100.0), lap_of(101.0)
        for trace in (agent, ai):  # as restless as a policy of 10 Hz is
            trace[:, COLUMN["steer"]] += rng.normal(0, 0.1, len(trace))
            trace[:, COLUMN["throttle"]] = rng.uniform(size=len(trace))
            trace[:, [COLUMN["x"], COLUMN["y"]]] += rng.normal(0, 0.03, (len(trace), 2))
            trace[:, COLUMN["speed"]] += rng.normal(0, 0.2, len(trace))
        drives.append(LapPair(f"Car {number}", "touring", "soft", "ood", agent, ai, 100.0, 101.0, True))
    write_replay(tmp_path / "new" / "replay.html", COURSE, drives, "Race")
    assert 5 * (tmp_path / "new" / "replay.html").stat().st_size < 3_000_000
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_text_from_data_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>'\"&"
    course = Course(evil, COURSE.length, COURSE.line)
    write_replay(tmp_path / "replay.html", course, [drive_of(evil, 42.0, class_name=evil, tyre=evil)], evil)
    html = (tmp_path / "replay.html").read_text()
    assert "<script>alert" not in html and html.count("<script") == 2  # the data and ours
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["pairs"][0]["car"] == evil == data["course"]["name"]


# In a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "replay.html"
    write_replay(path, COURSE, DRIVES, "A race on an ellipse")
    return path


@pytest.fixture
def visit(quiet: webdriver.Chrome, page: Path) -> Callable[..., webdriver.Chrome]:
    """Open the page."""

    def visit(size: tuple[int, int] = LAPTOP, scheme: str = "light", motion: str = "reduce", at: str = "") -> Any:
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        media = {"features": [{"name": name, "value": value} for name, value in features.items()]}
        resize(quiet, size)
        quiet.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        quiet.get("about:blank")  # else another part of the same page is not loaded anew
        quiet.get(page.as_uri() + at)
        until(quiet, lambda: not find_all(quiet, "#wait") and text(quiet, "#clock"))
        return quiet

    return visit


def seconds(browser: webdriver.Chrome) -> float:
    minutes, rest = text(browser, "#clock").split(":")
    return 60 * float(minutes) + float(rest)


def click(browser: webdriver.Chrome, group: str, value: str) -> None:
    find(browser, f"#{group} label:has([value='{value}'])").click()
    settle(browser)


def pick(browser: webdriver.Chrome, car: str) -> None:
    index = [drive.car for drive in DRIVES].index(car)
    find(browser, f".row:has([value='{index}'])").click()
    until(browser, lambda: text(browser, "#car") == car)
    settle(browser)


def cars(browser: webdriver.Chrome) -> list[str]:
    """The cars that the list shows, in its order."""
    script = "return [...document.querySelectorAll('.row:not([hidden]) .name b')].map((name) => name.textContent)"
    return list(browser.execute_script(script))


def agent_on_map(browser: webdriver.Chrome, around: int = 10_000) -> tuple[float, float, int]:
    return on_map(browser, AGENT, around)


def test_the_page_says_what_it_shows(visit: Any) -> None:
    browser = visit()
    assert text(browser, "h1") == "A race on an ellipse"
    assert "TORCS is not Gran Turismo" in text(browser, "header") and "Track ellipse, 1.9" in text(browser, "header")
    assert text(browser, "#car") == "Middle" and text(browser, "#about").split("\n") == [
        "OOD",
        "touring · sports medium tyre",
    ]
    result = text(browser, "#result").replace("\n", " ")
    assert result == "Agent 0:42.000 AI 0:41.000 Ratio 1.024 ✓ clean"
    assert "loose surface" in text(browser, ".legend") and not find(browser, "#off-key").is_displayed()


def test_a_car_of_no_class_has_its_region_alone(visit: Any) -> None:
    browser = visit()
    pick(browser, "Power ×0.50")
    assert text(browser, "#about") == "IND" and "·" not in text(browser, ".row:has(input:checked)")


def test_the_race_starts_by_itself_unless_motion_is_unwanted(visit: Any) -> None:
    browser = visit(motion="no-preference")
    until(browser, lambda: seconds(browser) > 0.1)
    assert find(browser, "#play").get_attribute("aria-label") == "Pause"
    browser = visit(motion="reduce")
    assert find(browser, "#play").get_attribute("aria-label") == "Play" and seconds(browser) == 0


def test_play_moves_the_cars_and_pause_stops_them(visit: Any) -> None:
    browser = visit()
    x, y, _ = agent_on_map(browser)
    click(browser, "rate", "5")  # a quarter of the lap lasts 2 s: a busy machine must not miss it
    find(browser, "#play").click()
    until(browser, lambda: seconds(browser) > 3)
    find(browser, "#play").click()
    settle(browser)
    time, (later_x, later_y, _) = seconds(browser), agent_on_map(browser)
    assert later_x > x + 20 and later_y < y  # from the lowest point of the ellipse to the right, and up
    settle(browser)
    assert seconds(browser) == time and agent_on_map(browser)[:2] == (later_x, later_y)
    seek(browser, 41.5)
    find(browser, "#play").click()
    until(browser, lambda: find(browser, "#play").get_attribute("aria-label") == "Play")  # the end
    assert seconds(browser) == 42 and text(browser, ".driver.agent .state") == "lap 0:42.000"
    find(browser, "#play").click()  # once more from the start
    until(browser, lambda: 0 < seconds(browser) < 40)


def test_readings_are_those_of_the_laps(visit: Any) -> None:
    browser = visit()
    agent, ai = lap_of(42.0), lap_of(41.0, 0.0)
    for time in (10.3, 25.64):
        seek(browser, time)
        for name, trace in (("agent", agent), ("ai", ai)):
            times, value = trace[:, COLUMN["time"]], lambda key, trace=trace: trace[:, COLUMN[key]]
            speed = 3.6 * np.interp(time, times, value("speed"))
            assert abs(float(text(browser, f".driver.{name} .speed")) - speed) < 1
            assert text(browser, f".driver.{name} .gear") == f"{value('gear')[np.searchsorted(times, time) - 1]:.0f}"
        bars = {bar: find(browser, f".driver.agent .{bar} i").get_attribute("style") for bar in ("throttle", "brake")}
        assert "scaleX(1)" in bars["throttle"] and "scaleX(0)" in bars["brake"]
        place = np.interp(time, agent[:, COLUMN["time"]], agent[:, COLUMN["distance"]])
        gap = time - np.interp(place, ai[:, COLUMN["distance"]], ai[:, COLUMN["time"]])
        assert abs(float(text(browser, "#gap-value").removesuffix(" s")) - gap) < 0.011
        assert text(browser, "#gap-text") == "behind"
    seek(browser, 42)
    assert text(browser, "#gap-value") == "1.00 s"
    pick(browser, "Fast")
    seek(browser, 41)
    assert (text(browser, "#gap-value"), text(browser, "#gap-text")) == ("1.00 s", "ahead")


def test_the_car_is_where_the_lap_says(visit: Any) -> None:
    browser = visit()
    low, high = COURSE.line[:, :2].min(axis=0), COURSE.line[:, :2].max(axis=0)
    trace, found, wanted = lap_of(42.0), [], []
    for time in (5.04, 13.04, 22.04, 34.04):
        seek(browser, time)
        found.append(agent_on_map(browser)[:2])
        row = np.argmin(np.abs(trace[:, 0] - time))
        wanted.append((trace[row, [COLUMN["x"], COLUMN["y"]]] - (low + high) / 2) * [1, -1])
    seen, true = (np.array(places) - np.mean(places, axis=0) for places in (found, wanted))
    scale = (seen * true).sum() / (true * true).sum()
    np.testing.assert_allclose(seen, scale * true, atol=4)


def test_keys_play_jump_restart_and_follow(visit: Any) -> None:
    browser = visit()
    body = find(browser, "body")
    body.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.SHIFT + Keys.ARROW_RIGHT + Keys.NULL, Keys.ARROW_LEFT)
    settle(browser)
    assert seconds(browser) == 6
    body.send_keys(Keys.SPACE)
    until(browser, lambda: seconds(browser) > 6)
    body.send_keys(Keys.SPACE)
    assert find(browser, "#play").get_attribute("aria-label") == "Play"
    body.send_keys(Keys.HOME)
    settle(browser)
    assert seconds(browser) == 0
    body.send_keys("f")
    assert find(browser, "#camera :checked").get_attribute("value") == "follow"
    search = find(browser, "#search")
    search.send_keys("of a", Keys.ARROW_LEFT, Keys.SPACE)  # in the box they are letters
    assert (
        search.get_attribute("value") == "of  a"
        and find(browser, "#camera :checked").get_attribute("value") == "follow"
    )
    assert seconds(browser) == 0


def test_the_camera_follows_with_cars_to_scale(visit: Any) -> None:
    browser = visit()
    seek(browser, 8)
    small = agent_on_map(browser)[2]
    click(browser, "camera", "follow")
    x, y, large = agent_on_map(browser, around=60)
    assert large > 1.5 * small and abs(x) < 3 and abs(y) < 3
    browser = visit(motion="no-preference")  # now the camera flies there
    click(browser, "camera", "follow")
    until(browser, lambda: agent_on_map(browser, around=60)[2] > 1.5 * small)


def test_the_whole_line_can_be_coloured_by_speed(visit: Any) -> None:
    browser = visit()

    def greens() -> int:
        image = pixels(browser)
        return int((image[..., 1] - image[..., 0] > 60).sum())

    seen = {}
    for choice in ("trails", "agent", "ai"):
        click(browser, "lines", choice)
        seen[choice] = greens()
    assert seen["agent"] > 500 and seen["ai"] > 500 and seen["trails"] < 100


def test_a_click_on_the_traces_jumps_there(visit: Any) -> None:
    browser = visit()
    for share in (0.25, 0.75):
        chart = find(browser, "#charts").rect
        left, right = 112, 14  # as charts.js leaves them
        x = left + share * (chart["width"] - left - right) - chart["width"] / 2
        ActionChains(browser).move_to_element_with_offset(find(browser, "#charts"), round(x), 0).click().perform()
        settle(browser)
        trace = lap_of(42.0)
        wanted = np.interp(share * COURSE.length, trace[:, COLUMN["distance"]], trace[:, COLUMN["time"]])
        assert abs(seconds(browser) - wanted) < 0.1
        cursor = find(browser, ".cursor.agent").rect["x"] - chart["x"]
        assert abs(cursor - (x + chart["width"] / 2)) < 3


def test_cars_are_found_sorted_and_picked(visit: Any) -> None:
    browser = visit()
    assert cars(browser)[:2] == ["Fast", "Middle"] and cars(browser)[-2:] == ["Stuck", "Never moved"]
    assert text(browser, "#count") == "12 cars."
    Select(find(browser, "#order")).select_by_value("worst")
    assert cars(browser)[:3] == ["Stuck", "Never moved", "Wide"] and cars(browser)[-1] == "Fast"
    Select(find(browser, "#order")).select_by_value("name")
    assert cars(browser) == sorted(drive.car for drive in DRIVES)
    click(browser, "region", "ind")
    assert set(cars(browser)) == {drive.car for drive in DRIVES if drive.region == "ind"}
    click(browser, "region", "")
    find(browser, "#search").send_keys("FORM soft")
    assert cars(browser) == ["Fast"] and text(browser, "#count") == "1 of 12 cars."
    seek(browser, 9)
    pick(browser, "Fast")
    assert seconds(browser) == 0 and find(browser, "#scrub").get_attribute("max") == "41"  # the AI needs longer
    assert "racing soft" in text(browser, "#about") and "IND" in text(browser, "#about")
    find(browser, "#search").send_keys(Keys.CONTROL + "a" + Keys.NULL, Keys.DELETE)
    find(browser, "#rows [value='1']").send_keys(Keys.ARROW_DOWN)
    until(browser, lambda: text(browser, "#car") == "Middle")


def test_marks_tell_clean_from_off_course_and_not_completed(visit: Any) -> None:
    browser = visit()
    script = "return [...document.querySelectorAll('.row')].map((row) => row.innerText)"
    marks = {row.split("\n")[0]: row for row in browser.execute_script(script)}
    for car, words in {
        "Middle": "✓ 1.024",
        "Wide": "△ 1.073",
        "Toucher": "△ 1.049",
        "Stuck": "✕ not completed",
    }.items():
        assert all(word in marks[car] for word in words.split(" ", 1)), marks[car]
    assert "OOD" in marks["Stuck"] and "0:" not in marks["Stuck"] and "0:44.000" in marks["Wide"]
    pick(browser, "Stuck")
    assert text(browser, "#result").replace("\n", " ") == "Agent – AI 0:41.000 Ratio – ✕ not completed"
    seek(browser, 30)
    assert re.fullmatch(r"✕ stopped at 0\.\d\d km", text(browser, ".driver.agent .state"))
    assert text(browser, ".driver.ai .state") == "" and float(find(browser, "#scrub").get_attribute("max")) == 41
    pick(browser, "Never moved")
    seek(browser, 20)
    assert text(browser, ".driver.agent .state") == "no lap to show" and text(browser, "#gap-value") == "–"
    assert not find(browser, ".cursor.agent").is_displayed() and find(browser, ".cursor.ai").is_displayed()
    click(browser, "camera", "follow")  # then the AI
    pick(browser, "Toucher")
    assert "△ not clean" in text(browser, "#result") and not find(browser, "#off-key").is_displayed()


def test_off_course_stretches_are_on_the_map(visit: Any) -> None:
    browser = visit()
    plain = agent_on_map(browser)[2]
    pick(browser, "Wide")
    assert agent_on_map(browser)[2] > plain + 100 and find(browser, "#off-key").is_displayed()
    assert "△ off course" in text(browser, "#result")
    seek(browser, 0.45 * 44)
    assert text(browser, ".driver.agent .state") == "△ off course"
    seek(browser, 0.6 * 44)
    assert text(browser, ".driver.agent .state") == ""


def test_a_link_leads_to_a_car(visit: Any) -> None:
    browser = visit(at="#Never%20moved")
    assert text(browser, "#car") == "Never moved"
    pick(browser, "Wide")
    assert browser.current_url.endswith("#Wide")
    for other in ("#unknown", "#50%", "#%E0%A4%A"):  # of a car that is not there, and what no link can be
        assert text(visit(at=other), "#car") == "Middle"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_the_page_fits_the_screen_in_both_schemes(visit: Any, size: tuple[int, int], scheme: str) -> None:
    browser = visit(size, scheme)
    width, height, inner = browser.execute_script(
        "const page = document.scrollingElement; return [page.scrollWidth, page.scrollHeight, innerWidth]"
    )
    assert width <= inner == size[0] and (size == PHONE or height <= size[1])
    assert agent_on_map(browser)[2] > 20
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
    for selector in ("#map", "#play", "#scrub", "#rate", ".driver.agent", ".driver.ai", "#charts"):
        box = find(browser, selector).rect
        assert box["width"] > 30 and box["x"] >= 0 and box["x"] + box["width"] <= size[0]


def test_on_a_phone_the_list_opens_and_closes(visit: Any) -> None:
    browser = visit(PHONE)
    assert not find(browser, "#cars").is_displayed()
    find(browser, "#open").click()
    assert find(browser, "#cars").is_displayed() and find(browser, "#open").get_attribute("aria-expanded") == "true"
    pick(browser, "Wide")
    assert not find(browser, "#cars").is_displayed()
    find(browser, "#open").click()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not find(browser, "#cars").is_displayed() and browser.switch_to.active_element == find(browser, "#open")


def test_everything_that_can_be_used_has_a_name_and_shows_its_focus(visit: Any) -> None:
    browser = visit()
    unnamed = """const named = (one) => one.ariaLabel || one.textContent.trim() || one.labels?.[0]?.textContent.trim();
        return [...document.querySelectorAll('button, input, select, canvas, fieldset')].filter((one) => !named(one))
            .map((one) => one.outerHTML)"""
    assert browser.execute_script(unnamed) == []
    find(browser, "#search").send_keys(Keys.TAB)
    for _ in range(8):
        active = browser.switch_to.active_element
        script = "const one = arguments[0]; return getComputedStyle(one.closest('label') ?? one).outlineStyle"
        assert browser.execute_script(script, active) != "none", active.get_attribute("outerHTML")
        active.send_keys(Keys.TAB)


def test_the_page_asks_nothing_of_the_network(visit: Any, page: Path) -> None:
    links = re.findall(r"(?:src|href)=[\"']([^\"']*)", page.read_text())
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    browser = visit()
    script = "const done = arguments[0]; fetch('data:,x').then(() => done('loaded'), () => done('refused'))"
    assert browser.execute_async_script(script) == "refused"  # by the page's own policy
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]
