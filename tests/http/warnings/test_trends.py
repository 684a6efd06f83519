"""The forecast of a backlog is stable against fluctuations of traffic."""

import random

import pytest

from jumpmq.http.warnings.trends import Trends


def test_growth_is_that_of_minutes_and_not_of_the_last_seconds() -> None:
    trends, chosen, ready = Trends(), random.Random(1), 0
    told: list[float] = []
    for second in range(0, 600, 5):
        ready += 50 + chosen.choice((-45, 45))  # 10 a second on average, 1 to 19 between two samples
        trends.note([(7, ready)], float(second))
        if second > 300:
            growth = trends.growth(7)
            assert growth is not None
            told.append(growth)
    assert min(told) == pytest.approx(10, rel=0.25) and max(told) == pytest.approx(10, rel=0.25)


def test_of_a_queue_that_is_new_nothing_is_foretold() -> None:
    trends = Trends()
    trends.note([(7, 100)], 0.0)
    trends.note([(7, 200)], 10.0)
    assert trends.growth(7) is None and trends.growth(8) is None
    trends.note([], 20.0)
    trends.note([(7, 100)], 100.0)
    assert trends.growth(7) is None, "what is not among the fullest is forgotten"
