"""Evaluations during training keep their environments, and nothing passes from one evaluation to the next."""

from typing import Any

import numpy as np
import pytest

from sparc.acting.evaluate import Evaluation
from sparc.training import evaluations
from sparc.training.evaluations import Evaluator

WALKER = "WindWalker2d-v5"  # its episodes end at different times, and some rows are stepped on after their end
SHORT = {"max_episode_steps": 40}


class Swing:
    """A policy that pushes to and fro, so hard, without a memory."""

    reads = "nothing"

    def __init__(self, size: int, strength: float) -> None:
        self.size, self.strength, self.steps = size, strength, 0

    def reset(self) -> None:
        self.steps = 0

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        self.steps += 1
        return np.full((len(obs), self.size), self.strength * np.sin(self.steps), np.float32)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All vector environments that evaluations make."""
    found: list[Any] = []
    real = evaluations.make_vector_env
    monkeypatch.setattr(evaluations, "make_vector_env", lambda *a, **k: found.append(real(*a, **k)) or found[-1])
    return found


def numbers(evaluation: Evaluation) -> dict[str, Any]:
    return {name: getattr(evaluation, name) for name in ("contexts", "returns", "lengths", "terminated", "measures")}


@pytest.mark.parametrize(("env", "size"), [("DriftingBoat-v0", 2), (WALKER, 6)])
def test_an_evaluation_does_not_depend_on_those_before_it(env: str, size: int, made: list[Any]) -> None:
    gentle, wild = Swing(size, 0.1), Swing(size, 1.0)
    kept = Evaluator(env, SHORT)
    first = kept.run_all(gentle)  # type: ignore[arg-type]
    other = kept.run_all(wild)  # type: ignore[arg-type]
    assert (other.returns != first.returns).any()
    again = kept.run_all(gentle)  # type: ignore[arg-type]
    assert len(made) == 1
    anew = Evaluator(env, SHORT).run_all(wild)  # type: ignore[arg-type]
    assert len(made) == 2
    np.testing.assert_equal(numbers(again), numbers(first))
    np.testing.assert_equal(numbers(anew), numbers(other))


def test_there_is_an_environment_per_number_of_rows_until_they_are_closed(made: list[Any]) -> None:
    evaluator, policy = Evaluator("DriftingBoat-v0", SHORT), Swing(2, 0.5)
    whole = evaluator.run_all(policy)  # type: ignore[arg-type]
    rows = np.array([3, 1])
    for _ in range(2):
        some = evaluator.run(policy, rows)  # type: ignore[arg-type]
        np.testing.assert_array_equal(some.returns, whole.returns[rows])  # the same starts, whichever others there are
    assert [venv.num_envs for venv in made] == [len(whole.returns), 2]
    evaluator.close()
    assert not evaluator.venvs and all(venv.closed for venv in made)
