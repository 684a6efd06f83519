"""Retries of requests to a broker that is away: duration and intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from jumpmq.spark.errors import BrokerAway, JumpMQError

T = TypeVar("T")

LONGEST_PAUSE = 2.0
"""Maximum pause between two attempts to reach a broker, in seconds."""


class Patience:
    """Pauses between attempts, ever longer, until some seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._next = 0.1

    def pause(self, error: JumpMQError) -> None:
        """Wait before the next attempt.

        Raises:
            JumpMQError: the error of the last one, as there has been enough waiting.
        """
        if time.monotonic() + self._next > self._until:
            raise error
        time.sleep(self._next)
        self._next = min(LONGEST_PAUSE, 2 * self._next)


def retried(seconds: float, attempt: Callable[[], T]) -> T:
    """Return the result of ``attempt``, repeated while the broker is away.

    Raises:
        BrokerAway: the broker stays away.
    """
    patience = Patience(seconds)
    while True:
        try:
            return attempt()
        except BrokerAway as error:
            patience.pause(error)


def taken_up(seconds: float, rest: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of an answer that is requested again after a break, until no batch comes for ``seconds``.

    Args:
        rest: asks for what has not come yet.

    Raises:
        BrokerAway: the broker stays away.
    """
    patience = Patience(seconds)
    while True:
        try:
            for batch in rest():
                patience = Patience(seconds)
                yield batch
        except BrokerAway as error:
            patience.pause(error)
        else:
            return
