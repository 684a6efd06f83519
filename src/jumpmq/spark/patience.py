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
    """Pauses between attempts, with exponential backoff from 0.1 s, for a limited time.

    Args:
        seconds: the time limit of all pauses.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._next = 0.1

    def pause(self, error: JumpMQError) -> None:
        """Wait before the next attempt.

        Raises:
            JumpMQError: ``error``, once the time limit is reached.
        """
        if time.monotonic() + self._next > self._until:
            raise error
        time.sleep(self._next)
        self._next = min(LONGEST_PAUSE, 2 * self._next)


def retried(seconds: float, attempt: Callable[[], T]) -> T:
    """Return the result of ``attempt``, repeated while the broker is away.

    Raises:
        BrokerAway: no attempt within ``seconds`` had an answer.
    """
    patience = Patience(seconds)
    while True:
        try:
            return attempt()
        except BrokerAway as error:
            patience.pause(error)


def taken_up(seconds: float, rest: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of an answer; a broken answer is requested again, until no batch comes for ``seconds``.

    Args:
        rest: requests the batches not yet received.

    Raises:
        BrokerAway: no batch came for ``seconds``.
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
