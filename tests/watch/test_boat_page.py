"""docs/boat.html in a real browser: its physics and its policies against the Python ones, and what a visitor can do."""

import base64
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import find, resize, settle, text, until
from selenium import webdriver
from selenium.webdriver import ActionChains

import sparc
from sparc.acting.policy import Policy
from sparc.envs.boat.env import reward_of
from sparc.errors import UserError
from sparc.methods.build import build_policy
from sparc.methods.nets import Inputs
from sparc.methods.spec import Spec
from sparc.runs import checkpoint

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "boat.html"
METHODS = ("sparc", "only-obs")
MOST_BYTES = 1_000_000
CURRENTS = ((0.0, 0.0), (0.8, -0.6), (-1.0, 1.0))


def load_tool() -> Any:
    spec = importlib.util.spec_from_file_location("make_boat_page", ROOT / "tools" / "make_boat_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.fixture
def page(quiet: webdriver.Chrome) -> webdriver.Chrome:
    """The page, still."""
    resize(quiet, (1366, 768))
    quiet.get(PAGE.as_uri())
    until(quiet, lambda: text(quiet, "#sparc-far") != "–")
    quiet.execute_script("paused = true")
    return quiet


def reference(name: str) -> tuple[Policy, Any]:
    """The policy in the page and its ψ, on JAX."""
    found = tool.policies_of(PAGE.read_text())[name]
    fields = {field: value for field, value in found["spec"].items() if field != "min_std"}
    spec = Spec.from_dict(fields)
    arrays = {
        field: np.frombuffer(base64.b64decode(array["data"]), "<f4").reshape(array["shape"])
        for field, array in found["arrays"].items()
    }
    arrays["policy.norm.count"] = np.zeros((), np.float32)  # of no use after training
    actor, psi = build_policy(spec, np.random.default_rng(0))
    encoder = checkpoint.unflatten(psi, arrays, "psi") if psi is not None else None
    return Policy(checkpoint.unflatten(actor, arrays, "policy"), spec), encoder


def test_the_page_is_small_and_made_from_its_sources() -> None:
    content = PAGE.read_text()
    assert len(content.encode()) <= MOST_BYTES
    assert tool.render(tool.policies_of(content)) == content, "make it anew: python tools/make_boat_page.py"
    assert "http:" not in content.replace("http-equiv", "") and "https:" not in content


@pytest.mark.parametrize("current", CURRENTS)
def test_physics_is_that_of_the_environment(page: webdriver.Chrome, current: tuple[float, float]) -> None:
    env = sparc.make_env("DriftingBoat-v0", max_episode_steps=300)
    obs, _ = env.reset(seed=3, options={"context": current})
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.3, 1.3, (200, 2)).astype(np.float32)
    actions[100:] += np.float32(0.9)  # as far as the limit
    script = """const [start, actions, current] = arguments;
        let offset = start;
        return actions.map((action) => {
          offset = drift(world, offset, action, current);
          return [...offset, rewardOf(world, offset)];
        })"""
    theirs = page.execute_script(script, obs.tolist(), actions.astype(float).tolist(), list(current))
    for action, (x, y, reward) in zip(actions, theirs, strict=True):
        obs, expected, *_ = env.step(action)
        assert (x, y) == tuple(obs)
        assert reward == pytest.approx(expected, abs=1e-12)
    assert np.abs(obs).max() == 10.0
    assert reward == pytest.approx(float(reward_of(obs[None])[0]), abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_policies_are_those_of_jax(page: webdriver.Chrome, name: str) -> None:
    policy, _ = reference(name)
    rng = np.random.default_rng(1)
    observations = np.clip(np.cumsum(rng.normal(0, 0.8, (80, 2)), axis=0), -10, 10)
    observations[60:] = rng.uniform(-10, 10, (20, 2))
    script = """const policy = new Policy(policies[arguments[0]]);
        return arguments[1].map((obs, at) => {
          if (at === 40) policy.reset();
          return [[...policy.act(obs)], [...policy.latent]];
        })"""
    theirs = page.execute_script(script, name, observations.tolist())
    for at, (obs, (action, latent)) in enumerate(zip(observations, theirs, strict=True)):
        if at == 40:
            policy.reset()
        if policy.history is None:
            policy.start(1)
        assert policy.history is not None
        inputs = Inputs(obs[None].astype(np.float32), history=policy.history.array)
        expected = np.asarray(policy.actor.latent(inputs))[0]
        assert np.abs(np.array(latent) - expected).max(initial=0.0) <= 1e-5 * max(
            1.0, np.abs(expected).max(initial=0.0)
        )
        assert np.abs(np.array(action) - policy.act(obs)).max() <= 1e-5


def test_beliefs_are_the_nearest_psi(page: webdriver.Chrome) -> None:
    _, psi = reference("sparc")
    contexts = np.random.default_rng(2).uniform(-1, 1, (30, 2)).astype(np.float32)
    expected = np.asarray(psi(Inputs(None, context=contexts)))
    script = (
        "return arguments[0].map((c) => [[...boats[0].policy.encode(c)], beliefs.estimate(boats[0].policy.encode(c))])"
    )
    for context, (latent, estimate), known in zip(
        contexts, page.execute_script(script, contexts.astype(float).tolist()), expected, strict=True
    ):
        assert np.abs(np.array(latent) - known).max() <= 1e-5 * max(1.0, np.abs(known).max())
        assert np.abs(np.array(estimate) - context).max() < 0.06


def test_sparc_holds_the_buoy_in_a_current_never_seen_and_only_obs_does_not(page: webdriver.Chrome) -> None:
    script = """flow([0.8, 0.6]);
        for (let at = 0; at < 40; at += 1) step();
        return [boats.map(({ offset }) => Math.hypot(...offset)), estimate]"""
    (ours, theirs), estimate = page.execute_script(script)
    assert ours < 0.5 * theirs
    assert np.abs(np.subtract(estimate, [0.8, 0.6])).max() < 0.2


def test_the_current_can_be_dragged(page: webdriver.Chrome) -> None:
    target = page.execute_script("return pad.place([-0.5, 0.5])")
    canvas = find(page, "#pad")
    middle = canvas.rect["width"] / 2, canvas.rect["height"] / 2
    drag = ActionChains(page, duration=50).move_to_element(canvas).click_and_hold()
    drag.move_to_element_with_offset(canvas, target[0] - middle[0], target[1] - middle[1]).release().perform()
    assert np.allclose(page.execute_script("return current"), [-0.5, 0.5], atol=0.02)
    water = find(page, "#only-obs")
    ActionChains(page, duration=50).move_to_element(water).click_and_hold().move_by_offset(88, 0).release().perform()
    assert np.allclose(page.execute_script("return current"), [0.8, 0.0], atol=0.02)
    settle(page)
    assert text(page, "#region") == "never seen in training"


def test_a_phone_shows_it_without_scrolling_sideways(page: webdriver.Chrome) -> None:
    resize(page, (390, 844))
    settle(page)
    assert page.execute_script("return document.documentElement.scrollWidth") == 390
    assert find(page, "#pad").rect["y"] + find(page, "#pad").rect["height"] < 844  # boats and current on one screen
    resize(page, (1366, 768))


def test_the_tool_makes_a_page_of_two_runs(tiny_run: Callable[..., Path]) -> None:
    policies = {name: tool.describe(tiny_run(name), name) for name in METHODS}
    made = tool.render(policies)
    assert tool.policies_of(made) == json.loads(json.dumps(policies))
    with pytest.raises(UserError, match="give a run of sparc"):
        tool.describe(tiny_run("only-obs"), "sparc")
