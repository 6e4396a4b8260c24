import pytest

from sparc.runs.select import best, pareto_front


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


@pytest.mark.parametrize(
    ("choice", "span", "chosen"),
    [
        ({}, (0, 90), None),
        ({30: 9.0, 60: 8.0, 70: 1.0, 80: 3.0, 90: 2.0}, (0, 90), 80),  # 60 is where the last third begins
        ({30: 5.0, 61: 1.0}, (0, 90), 61),
        ({70: 3.0, 80: 3.0, 90: 1.0}, (0, 90), 80),  # of equals, the latest
        ({80: 3.0, 70: 3.0}, (0, 90), 80),  # by updates, not by order
        ({10: 1.0, 20: 4.0, 30: 2.0}, (0, 90), 20),  # none in the last third yet: of all
        ({10: 4.0, 20: 4.0}, (0, 90), 20),
        ({110: 9.0, 120: 7.0, 125: 2.0, 130: 1.0}, (100, 130), 125),  # of a second phase, after 120
        ({70: -1.5, 80: -1.2, 90: -1.3}, (0, 90), 80),
    ],
)
def test_best_is_the_highest_of_the_last_third(
    choice: dict[int, float], span: tuple[int, int], chosen: int | None
) -> None:
    assert best(choice, *span) == chosen
