"""What tests of pages share: looking things up, and the size of the screen."""

from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By


def find(browser: webdriver.Chrome, selector: str) -> Any:
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(browser: webdriver.Chrome, selector: str) -> list[Any]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def resize(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    """Make the screen as large; one that is higher than wide is a phone's."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < size[1]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
