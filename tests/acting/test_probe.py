"""The linear probe: made-up encodings of which it is known what they say, and how far φ(h) is off."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparc.acting import probe
from sparc.acting.probe import SETTLED, Probe, fit_readout, fitted_contexts, make_probe
from sparc.contexts import ContextSpace, Finite

RNG = np.random.default_rng(0)
MAP = RNG.normal(size=(2, 8))  # ψ(c) = c · MAP, and something that has nothing to do with it
SPACE = ContextSpace.box(grip=("", (0.5, 1.5), (0.0, 2.0)), mass=("", (0.5, 1.5), (0.0, 2.0)))
QUANTITIES = {"grip": lambda contexts: contexts[:, 0], "load": lambda contexts: 2 * contexts[:, 1] + 1}
BIAS = 0.2  # φ(h) takes every grip for so much more


@pytest.fixture(autouse=True)
def _linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "encode", lambda psi, contexts: contexts @ MAP)


def step(running: np.ndarray) -> Any:
    return SimpleNamespace(running=running)


def test_a_linear_quantity_is_read_exactly_and_a_constant_encoding_says_the_mean() -> None:
    contexts = RNG.uniform(size=(300, 2))
    values = np.stack([contexts[:, 0], 3 - contexts[:, 1]], axis=1)
    readout = fit_readout(contexts @ MAP, values)
    np.testing.assert_allclose(readout.read(contexts @ MAP), values, atol=5e-3)
    same = fit_readout(np.ones((300, 8)), values)
    np.testing.assert_allclose(same.read(np.ones((4, 8))), np.tile(values.mean(axis=0), (4, 1)))


def test_what_psi_does_not_vary_in_cannot_mislead() -> None:
    """φ may differ from ψ in units that ψ hardly uses: a plain regression would believe these."""
    contexts = RNG.uniform(size=(300, 2))
    quiet = 1e-6 * contexts[:, :1] + 1e-7 * RNG.normal(size=(300, 1))
    latents = np.concatenate([contexts @ MAP, quiet], axis=1)
    readout = fit_readout(latents, contexts[:, :1])
    noise = np.concatenate([np.zeros((1, 8)), np.full((1, 1), 0.1)], axis=1)
    assert abs((readout.read(latents[:1] + noise) - readout.read(latents[:1])).item()) < 1e-3


def test_a_known_bias_of_phi_is_read_after_settling_from_the_episodes_that_still_run() -> None:
    contexts = np.array([[0.6, 0.7], [1.2, 0.9], [1.9, 0.1]])
    policy = SimpleNamespace(latent=np.zeros((3, 8)))
    watched = Probe(policy, None, SPACE, QUANTITIES)  # type: ignore[arg-type]
    shift = np.array([[BIAS, 0.0]]) @ MAP
    for number in range(SETTLED + 40):
        policy.latent = contexts @ MAP + shift if number >= SETTLED else np.full((3, 8), 1e3)  # nonsense before
        running = np.array([True, number < SETTLED + 20, number < SETTLED])
        if number >= SETTLED + 20:
            policy.latent[1] = 1e3  # of an episode that is over
        watched.watch(step(running))
    found = watched.columns(contexts)
    assert list(found) == ["grip_true", "grip_psi", "grip_phi", "load_true", "load_psi", "load_phi"]
    np.testing.assert_allclose(found["grip_true"], contexts[:, 0])
    np.testing.assert_allclose(found["grip_psi"], contexts[:, 0], atol=5e-3)
    np.testing.assert_allclose(found["grip_phi"][:2], contexts[:2, 0] + BIAS, atol=5e-3)
    np.testing.assert_allclose(found["load_phi"][:2], 2 * contexts[:2, 1] + 1, atol=1e-2)  # the other is not off
    assert np.isnan([found["grip_phi"][2], found["load_phi"][2]]).all()  # over before it was read


def test_episodes_that_are_all_short_have_no_reading() -> None:
    watched = Probe(SimpleNamespace(latent=np.zeros((2, 8))), None, SPACE, QUANTITIES)  # type: ignore[arg-type]
    for _ in range(SETTLED):
        watched.watch(step(np.ones(2, bool)))
    assert np.isnan(watched.columns(SPACE.grid(2)[:2])["grip_phi"]).all()


def test_it_is_fitted_on_contexts_that_are_trained_on_and_not_tested() -> None:
    rows = RNG.uniform(0.5, 1.5, (20, 2))
    cars = ContextSpace(("a", "b"), ("", ""), Finite(rows[:15]), Finite(rows), tested=rows[::5])
    fitted = {row.tobytes() for row in fitted_contexts(cars)}
    assert fitted == {row.tobytes() for number, row in enumerate(rows[:15]) if number % 5}
    every = ContextSpace(("a", "b"), ("", ""), Finite(rows[:15]), Finite(rows))  # all are tested: nothing else is left
    assert len(fitted_contexts(every)) == 15
    assert SPACE.is_train(fitted_contexts(SPACE)).all()


def test_a_policy_without_an_adapter_or_an_environment_without_quantities_has_no_probe() -> None:
    policy: Any = SimpleNamespace()
    assert make_probe(policy, None, SPACE, QUANTITIES) is None
    assert make_probe(policy, SimpleNamespace(), SPACE, {}) is None  # type: ignore[arg-type]
