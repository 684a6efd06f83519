"""Pearson's chi-squared test: do counts follow weights?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ChiSquared:
    """Result of a chi-squared test: statistic, degrees of freedom, and the probability of a larger
    statistic by chance.
    """

    statistic: float
    degrees: int
    p_value: float


def chi_squared_test(counts: Sequence[int], weights: Sequence[float]) -> ChiSquared:
    """Compare counts with the expected counts: the total, divided in proportion to the weights."""
    total, share = sum(counts), sum(weights)
    expected = [total * weight / share for weight in weights]
    statistic = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True))
    return ChiSquared(statistic, len(counts) - 1, survival(statistic, len(counts) - 1))


def survival(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-squared variable exceeds `statistic`: Q(degrees / 2, statistic / 2).

    Q is the regularised upper incomplete gamma function, which for halves of integers is a finite sum:
    Q(a + 1, x) = Q(a, x) + x**a * exp(-x) / gamma(a + 1), from Q(1, x) = exp(-x) and Q(1/2, x) = erfc(sqrt(x))
    (Abramowitz and Stegun, 26.4.4 and 26.4.5).
    """
    if statistic <= 0:
        return 1.0
    x = statistic / 2
    a, probability = (1.0, math.exp(-x)) if degrees % 2 == 0 else (0.5, math.erfc(math.sqrt(x)))
    while a < degrees / 2:
        probability += math.exp(a * math.log(x) - x - math.lgamma(a + 1))
        a += 1
    return probability


def critical_value(p_value: float, degrees: int) -> float:
    """Return the chi-squared statistic exceeded with probability ``p_value`` by counts in proportion to the weights."""
    low, high = 0.0, 10.0 + 4.0 * degrees
    while survival(high, degrees) > p_value:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(middle, degrees) > p_value else (low, middle)
    return (low + high) / 2
