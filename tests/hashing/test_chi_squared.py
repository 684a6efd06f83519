"""The chi-squared test agrees with printed tables and with a textbook example."""

import math

import pytest

from jumpmq.hashing.chi_squared import chi_squared_test, survival

# Critical values to two decimals, as in RabbitMQ's document on the consistent hash exchange, where the value for four
# degrees of freedom is misprinted as 3.49.
CRITICAL_005 = [3.84, 5.99, 7.81, 9.49, 11.07, 12.59, 14.07, 15.51, 16.92, 18.31]
CRITICAL_005 += [19.68, 21.03, 22.36, 23.68, 25.00, 26.30, 27.59, 28.87, 30.14]
CRITICAL_001 = [6.63, 9.21, 11.34, 13.28, 15.09, 16.81, 18.48, 20.09, 21.67, 23.21]
CRITICAL_001 += [24.72, 26.22, 27.69, 29.14, 30.58, 32.00, 33.41, 34.81, 36.19]


@pytest.mark.parametrize(("degrees", "critical"), list(enumerate(CRITICAL_005, start=1)))
def test_critical_values_for_a_p_value_of_005(degrees: int, critical: float) -> None:
    assert survival(critical, degrees) == pytest.approx(0.05, rel=0.005)


@pytest.mark.parametrize(("degrees", "critical"), list(enumerate(CRITICAL_001, start=1)))
def test_critical_values_for_a_p_value_of_001(degrees: int, critical: float) -> None:
    assert survival(critical, degrees) == pytest.approx(0.01, rel=0.005)


def test_two_degrees_of_freedom_are_an_exponential() -> None:
    assert survival(3.0, 2) == pytest.approx(math.exp(-1.5), rel=1e-12)


def test_no_deviation_is_certain_and_a_huge_one_impossible() -> None:
    assert survival(0.0, 3) == 1.0
    assert survival(1e5, 3) == 0.0


def test_counts_that_follow_the_weights_exactly() -> None:
    test = chi_squared_test([100, 100, 200, 200], [1, 1, 2, 2])
    assert (test.statistic, test.degrees, test.p_value) == (0.0, 3, 1.0)


def test_a_die_thrown_sixty_times() -> None:
    test = chi_squared_test([5, 8, 9, 8, 10, 20], [1] * 6)
    assert test.statistic == pytest.approx(13.4)
    assert test.p_value == pytest.approx(0.0199, abs=0.0001)
