"""Lag of a query, under the names of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

LAGS = (
    "minOffsetsBehindLatest",
    "maxOffsetsBehindLatest",
    "avgOffsetsBehindLatest",
    "estimatedTotalBytesBehindLatest",
)


def behind(waiting: Mapping[str, int], octets: int | None) -> dict[str, float | None]:
    """Return minimum, maximum and mean number of waiting messages per queue, and the octets of all.

    Args:
        waiting: messages after the last micro-batch, by queue or stream; not empty.
        octets: octets of the bodies; None if unknown, for example for streams.
    """
    counts = waiting.values()
    return dict(zip(LAGS, (min(counts), max(counts), sum(counts) / len(counts), octets), strict=True))
