"""What tests of pages share: looking things up, the size of the screen, and where cars are on the map of a replay."""

import base64
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

AGENT, AI = (0xFF, 0x9D, 0x3C), (0x6D, 0xB5, 0xFA)  # their cars, on the map


def find(browser: webdriver.Chrome, selector: str) -> Any:
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(browser: webdriver.Chrome, selector: str) -> list[Any]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def resize(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    """Make the screen as large; one that is higher than wide is a phone's."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < size[1]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def text(browser: webdriver.Chrome, selector: str) -> str:
    return str(find(browser, selector).text)


def until(browser: webdriver.Chrome, is_so: Callable[[], Any]) -> None:
    WebDriverWait(browser, 10, poll_frequency=0.03).until(lambda _: is_so())


def settle(browser: webdriver.Chrome) -> None:
    """Wait until what was asked for is drawn."""
    script = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
    browser.execute_async_script(script)


def seek(browser: webdriver.Chrome, time: float) -> None:
    script = "const bar = arguments[0]; bar.value = arguments[1]; bar.dispatchEvent(new Event('input'))"
    browser.execute_script(script, find(browser, "#scrub"), time)
    settle(browser)


def pixels(browser: webdriver.Chrome) -> np.ndarray:
    """The map as it is drawn, (height, width, 4)."""
    script = """const map = document.querySelector('#map');
        const copy = Object.assign(document.createElement('canvas'), { width: map.width, height: map.height });
        copy.getContext('2d').drawImage(map, 0, 0);
        return copy.toDataURL()"""
    return np.asarray(Image.open(BytesIO(base64.b64decode(browser.execute_script(script).split(",")[1]))), int)


def on_map(browser: webdriver.Chrome, colour: tuple[int, int, int], around: int = 10_000) -> tuple[float, float, int]:
    """The middle of a car of this colour, in pixels from that of the map, and of how many it is made."""
    image = pixels(browser)
    y, x = np.nonzero((np.abs(image[..., :3] - colour) < 6).all(axis=2) & (image[..., 3] == 255))
    x, y = x - image.shape[1] / 2, y - image.shape[0] / 2
    near = (np.abs(x) < around) & (np.abs(y) < around)
    count = int(near.sum())
    return float(x[near].sum()) / max(count, 1), float(y[near].sum()) / max(count, 1), count
