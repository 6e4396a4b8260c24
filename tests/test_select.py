import pytest

from sparc.select import best, pareto_front


@pytest.mark.parametrize(
    ("scores", "front"),
    [
        ({}, []),
        ({10: [1.0, 2.0]}, [10]),
        ({10: [1.0, 2.0], 20: [2.0, 3.0]}, [20]),  # dominated in both
        ({10: [2.0, 3.0], 20: [1.0, 2.0]}, [10]),  # a later one may be dominated too
        ({10: [1.0, 2.0], 20: [1.0, 3.0]}, [20]),  # equal in one, worse in the other
        ({10: [3.0, 1.0], 20: [1.0, 3.0], 30: [2.0, 2.0]}, [10, 20, 30]),  # each wins somewhere
        ({10: [3.0, 1.0], 20: [1.0, 3.0], 30: [1.0, 1.0]}, [10, 20]),
        ({10: [1.0, 2.0], 20: [1.0, 2.0], 30: [1.0, 2.0]}, [30]),  # of equals, the latest
        ({20: [1.0, 2.0], 10: [1.0, 2.0]}, [20]),  # the latest by updates, not by order
        ({10: [1.0, 2.0], 20: [1.0, 2.0], 30: [2.0, 2.0]}, [30]),  # equals, and both dominated
        ({10: [-5.0], 20: [-3.0], 30: [-4.0]}, [20]),  # one setting: the maximum
    ],
)
def test_pareto_front(scores: dict[int, list[float]], front: list[int]) -> None:
    assert pareto_front(scores) == front


def test_best_is_the_one_with_the_highest_mean() -> None:
    assert best({}) is None
    assert best({10: [9.0, 0.0], 20: [4.0, 6.0], 30: [0.0, 8.0]}) == 20
    assert best({10: [1.0, 3.0], 20: [3.0, 1.0]}) == 20  # the same mean: the latest
    assert best({10: [1.0, 3.0], 20: [1.0, 3.0]}) == 20


def test_best_is_always_on_the_front() -> None:
    scores = {n: [float((n * 7) % 5), float((n * 3) % 4), float((n * 11) % 6)] for n in range(1, 40)}
    chosen = best(scores)
    assert chosen in pareto_front(scores)
    assert sum(scores[chosen]) == max(map(sum, scores.values()))  # type: ignore[index]
