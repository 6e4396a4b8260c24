"""The page of `sparc live` in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import find, find_all, resize, text, until
from selenium import webdriver
from selenium.webdriver import ActionChains
from serving import BRITTLE, serving

from sparc.watch.live.server import Server

LAPTOP, PHONE = (1366, 768), (390, 844)
Visit = Callable[..., webdriver.Chrome]


@pytest.fixture
def visit(browser: webdriver.Chrome) -> Iterator[Visit]:
    """Open the page of a server; at the end the console must be silent, and nothing come from elsewhere."""
    addresses = []
    browser.get_log("browser")

    def visit(server: Server, size: tuple[int, int] = LAPTOP) -> webdriver.Chrome:
        addresses.append(server.address)
        resize(browser, size)
        browser.get(server.address)
        until(browser, lambda: find_all(browser, ".card .view > .scene"))
        return browser

    yield visit
    if browser.current_url in addresses:
        check_quiet(browser)
    browser.get("about:blank")


def check_quiet(browser: webdriver.Chrome) -> None:
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded and [name for name in loaded if not name.startswith((browser.current_url, "data:"))] == []


@pytest.fixture
def pair(tiny_run: Callable[..., Path]) -> Iterator[Server]:
    """SPARC and Only Obs on the boat."""
    with serving([tiny_run("sparc"), tiny_run("only-obs")]) as server:
        yield server


def slide(browser: webdriver.Chrome, feature: int, value: float) -> None:
    script = "const bar = arguments[0]; bar.value = arguments[1]; bar.dispatchEvent(new Event('input'))"
    browser.execute_script(script, find(browser, f"#slider-{feature}"), value)


def ink(browser: webdriver.Chrome, selector: str) -> int:
    """How many different colours a canvas has: one that is not drawn has one."""
    script = """const canvas = document.querySelector(arguments[0]);
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size"""
    return int(browser.execute_script(script, selector))


@pytest.mark.parametrize("id, title", [("WindWalker2d-v5", "The wind"), ("MotorWalker2d-v5", "The context")])
def test_a_robot_is_drawn_with_and_without_wind(
    tiny_run: Callable[..., Path], visit: Visit, id: str, title: str
) -> None:
    with serving([tiny_run("oracle", id)]) as server:
        page = visit(server)
        until(page, lambda: text(page, "#what") == title)
        until(page, lambda: ink(page, ".card .scene") > 50)
        check_quiet(page)
        page.get("about:blank")


def test_a_slider_moves_the_context_and_phi_follows(pair: Server, visit: Visit) -> None:
    page = visit(pair)
    until(page, lambda: "φ believes" in text(page, ".card .belief"))
    assert "IND" in text(page, "#region")
    before = page.execute_script("return samples.at(-1).policies[0].phi")
    slide(page, 0, 0.9)
    until(page, lambda: pair.session.context.tolist() == [0.9, 0.0])
    until(page, lambda: "OOD" in text(page, "#region") and text(page, ".slider output") == "0.90 m/s")
    until(page, lambda: page.execute_script("return samples.some(({ mark }) => mark === 'context')"))
    until(page, lambda: page.execute_script("return samples.at(-1).policies[0].phi") != before)
    for canvas in (".card .scene", ".card .compass", "#pad", "#lines", "#latents canvas"):
        assert ink(page, canvas) > 8, canvas


def test_two_policies_stand_side_by_side(pair: Server, visit: Visit) -> None:
    page = visit(pair)
    assert [card.find_element("css selector", "h2").text for card in find_all(page, ".card")] == ["SPARC", "Only Obs"]
    boxes = [card.rect for card in find_all(page, ".card")]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert len(find_all(page, "#latents canvas")) == 1  # Only Obs has no φ


def test_the_arrow_can_be_dragged(pair: Server, visit: Visit) -> None:
    page = visit(pair)
    pad = find(page, "#pad")
    quarter = page.execute_script("return pads[0].place([0.5, -0.5])")
    middle = [pad.rect["width"] / 2, pad.rect["height"] / 2]
    chain = ActionChains(page, duration=50).move_to_element(pad).click_and_hold()
    chain.move_to_element_with_offset(pad, quarter[0] - middle[0], quarter[1] - middle[1]).release().perform()
    until(page, lambda: np.allclose(pair.session.context, [0.5, -0.5], atol=0.02))


def test_pause_reset_push_and_speed(pair: Server, visit: Visit) -> None:
    page = visit(pair)
    find(page, "#play").click()
    until(page, lambda: pair.session.paused and text(page, "#play") == "Play" and text(page, "#pace") == "paused")
    steps = page.execute_script("return frame.policies[0].steps")
    before = page.execute_script("return frame.policies[0].scene.boat")
    find(page, "#push").click()
    until(page, lambda: page.execute_script("return frame.policies[0].scene.boat") != before)
    assert page.execute_script("return frame.policies[0].steps") == steps
    find(page, "#reset").click()
    until(page, lambda: page.execute_script("return frame.policies[0].steps") == 0)
    find(page, "body").send_keys(" ")
    until(page, lambda: not pair.session.paused)
    page.execute_script("document.querySelector('#speeds input[value=\"4\"]').click()")
    until(page, lambda: pair.session.speed == 4.0)


def test_a_phone_shows_everything_without_scrolling_sideways(pair: Server, visit: Visit) -> None:
    page = visit(pair, PHONE)
    until(page, lambda: "φ believes" in text(page, ".card .belief"))
    assert page.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    for element in find_all(page, ".card, .panel, #transport button, .choice label"):
        assert element.rect["x"] >= 0 and element.rect["x"] + element.rect["width"] <= PHONE[0] + 1
    assert all(button.rect["height"] >= 36 for button in find_all(page, "#transport button"))
    boxes = [card.rect for card in find_all(page, ".card")]
    assert boxes[0]["y"] < boxes[1]["y"]  # one above the other


def test_a_second_tab_shows_the_same_and_closing_one_does_no_harm(pair: Server, visit: Visit) -> None:
    page = visit(pair)
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    page.get(pair.address)
    until(page, lambda: find_all(page, ".card .scene"))
    assert pair.session.watchers == 2

    def moved() -> bool:  # the first try may come before the page is ready for it
        slide(page, 1, -0.75)
        return bool(abs(pair.session.context[1] + 0.75) < 1e-6)

    until(page, moved)
    page.switch_to.window(first)
    until(page, lambda: text(page, ".slider:nth-child(2) output") == "−0.75 m/s")
    page.switch_to.window(next(handle for handle in page.window_handles if handle != first))
    page.close()
    page.switch_to.window(first)
    until(page, lambda: pair.session.watchers == 1)
    tick = page.execute_script("return samples.at(-1).t")
    until(page, lambda: page.execute_script("return samples.at(-1).t") > tick)


def test_a_crash_is_shown_and_restarted(tiny_run: Callable[..., Path], visit: Visit, capfd: Any) -> None:
    with serving([tiny_run("sparc", BRITTLE)]) as server:
        page = visit(server)
        assert find(page, ".card img.scene").get_attribute("src").startswith("data:image/jpeg")
        assert find(page, "#pad").is_displayed() is False  # one feature: a slider is enough
        slide(page, 0, 0.9)
        until(page, lambda: "with load=0.9: too heavy" in text(page, "#why"))
        server.session.tell({"context": [0.2]})
        find(page, "#restart").click()
        until(page, lambda: not find(page, "#failure").is_displayed())
        until(page, lambda: page.execute_script("return samples.at(-1)?.context[0]") == 0.2)
        check_quiet(page)
    until(page, lambda: "sparc live has ended" in text(page, "#notice"))
    page.get("about:blank")
    page.get_log("browser")  # that nobody answers
    assert "too heavy" in capfd.readouterr().err
