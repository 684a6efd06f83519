"""Uniformity of traffic on a hash ring: test of counts against weights."""

from __future__ import annotations

from collections.abc import Mapping

from jumpmq.hashing.chi_squared import ChiSquared, chi_squared_test, survival
from jumpmq.topology.exchanges.traffic import STANDARD_ERROR, CountedKeys


def spread_of_messages(weights: Mapping[str, int], counted: CountedKeys) -> ChiSquared | None:
    """Return the test of message counts against the weights; None for too few messages."""
    if _too_few(sum(counted.messages), weights):
        return None
    return chi_squared_test(counted.messages, list(weights.values()))


def spread_of_keys(weights: Mapping[str, int], keys: Mapping[str, int]) -> ChiSquared | None:
    """Return the test of distinct keys against the weights; None for too few keys. The numbers of keys are estimates:
    the test adds the variance of the estimate.
    """
    total, buckets = sum(keys.values()), sum(weights.values())
    if _too_few(total, weights):
        return None
    statistic = 0.0
    for name, weight in weights.items():
        expected = total * weight / buckets
        statistic += (keys.get(name, 0) - expected) ** 2 / (expected + (STANDARD_ERROR * expected) ** 2)
    return ChiSquared(statistic, len(weights) - 1, survival(statistic, len(weights) - 1))


def _too_few(total: int, weights: Mapping[str, int]) -> bool:
    """Return True if the total is too small for the test: below five expected at a destination, the usual bound of the
    chi-squared approximation.
    """
    return len(weights) < 2 or total * min(weights.values()) / sum(weights.values()) < 5
