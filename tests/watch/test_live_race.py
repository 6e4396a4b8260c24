"""`sparc live` with the racing simulator: pictures, another car on the way, the end of a lap, and the page itself."""

import json
import os
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from browsing import find, find_all, resize, text
from browsing import until as wait_until
from conftest import TINY
from PIL import Image
from selenium import webdriver
from serving import serving
from test_live import receive, talk, until

from sparc.config import make_config
from sparc.envs.racing.torcs.installation import Installation
from sparc.runs.run import Run
from sparc.training.loop import Trainer
from sparc.watch.live.server import Server

CARS, POWER_MASS = "RaceCars-g-track-1-v0", "RacePowerMass-g-track-1-v0"


def begin(env: str, folder: Path) -> Path:
    """Make a run that has only begun, as if it had been told to race: a test is a flying lap all the same."""
    run = Run.create(make_config({"method": "sparc", "env": env, "env_options": {"setting": "race"}, **TINY}), folder)
    Trainer(run, lambda record: None).close()
    run.close()
    return run.path


@pytest.fixture(scope="module")
def cars(torcs: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([begin(CARS, tmp_path_factory.mktemp("cars") / "run")]) as server:
        yield server
        (pid,) = simulators(server)
    assert not is_running(pid)  # the simulator ends with the page


def simulators(server: Server) -> list[int]:
    return [pid for one in server.session._simulations for pid in one.env.unwrapped._one._field.pids]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def test_a_race_is_driven_on_its_flying_lap_and_takes_another_car(cars: Server) -> None:
    with talk(cars) as tab:
        hello = receive(tab)["hello"]
        assert (hello["env"], hello["rate"], hello["can_push"], hello["restarts"]) == (CARS, 10.0, False, False)
        labels = [choice["label"] for choice in hello["choices"]]
        assert len(labels) > 100 and {ind for choice in hello["choices"] for ind in choice["ind"]} == {True, False}
        frame = until(tab, lambda message: message["samples"])["frame"]
        assert all(frame["ind"]) and all(hello["choices"][frame["choice"]]["ind"])  # the list shows what it drives
        picture = Image.open(BytesIO(b64decode(frame["policies"][0]["picture"])))
        assert picture.size == (640, 480) and len(picture.getcolors(1 << 20)) > 50
        (simulation,) = cars.session._simulations
        assert simulation.env.unwrapped.most_steps is not None  # only a lap ends at the latest
        choice = labels.index("kart-01") if "kart-01" in labels else 0
        tab.send(json.dumps({"choice": choice}))
        message = until(tab, lambda message: any(sample["mark"] == "context" for sample in message["samples"]))
        assert message["frame"]["choice"] == choice and not message["frame"]["error"]
        tab.send(json.dumps({"speed": 4.0}))
        message = until(tab, lambda message: message["frame"]["policies"][0]["ended"])
        assert message["frame"]["policies"][0]["ended"].startswith(("gave up at step ", "lap "))
        until(tab, lambda message: message["frame"]["policies"][0]["episode"] > 1)


def wait_for_another_picture(browser: webdriver.Chrome) -> None:
    first = find(browser, ".card img.scene").get_attribute("src")
    wait_until(browser, lambda: find(browser, ".card img.scene").get_attribute("src") != first)


def test_the_page_shows_the_race_at_both_widths(cars: Server, browser: webdriver.Chrome) -> None:
    browser.get_log("browser")
    for size in ((1280, 800), (390, 844)):
        resize(browser, size)
        browser.get(cars.address)
        wait_until(browser, lambda: find_all(browser, ".card img.scene"))
        shown = find(browser, ".card img.scene")
        wait_for_another_picture(browser)
        assert browser.execute_script("return arguments[0].naturalWidth", shown) == 640
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
        assert find(browser, "#choice").is_displayed() and not find(browser, "#pad").is_displayed()
    options = find_all(browser, "#choice option")
    ood = next(index for index, option in enumerate(options) if option.text.endswith("(OOD)"))
    browser.execute_script(
        "const list = arguments[0]; list.selectedIndex = arguments[1]; list.dispatchEvent(new Event('change'))",
        find(browser, "#choice"), ood,
    )  # fmt: skip
    wait_until(browser, lambda: "OOD" in text(browser, "#region"))
    assert browser.get_log("browser") == []
    browser.get("about:blank")


def test_power_and_mass_are_dragged_while_it_drives(torcs: Installation, tmp_path: Path) -> None:
    with serving([begin(POWER_MASS, tmp_path / "run")]) as server, talk(server) as tab:
        hello = receive(tab)["hello"]
        assert hello["choices"] is None and hello["names"] == ["power", "mass"]
        until(tab, lambda message: message["samples"])
        tab.send(json.dumps({"context": [1.5, 0.5]}))
        frame = until(tab, lambda message: message["frame"]["context"] == [1.5, 0.5])["frame"]
        assert not frame["error"] and not any(frame["ind"])
