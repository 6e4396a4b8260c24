"""Which tests are races."""

from __future__ import annotations

from sparc.envs.racing.measures import MEASURES
from sparc.suites.results import Results


def races(results: Results) -> list[str]:
    """Return the tests whose laps are judged; one without any results is taken for what all the others are."""
    tests = results.tests
    found = {test: set(MEASURES) <= set(part.measure_names) for test, part in tests.items() if part.returns}
    rest = bool(found) and all(found.values())
    return [test for test in tests if found.get(test, rest)]
