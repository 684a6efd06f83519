"""Warnings about reads without rows: on stderr, and in a streaming query's progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from jumpmq.spark.errors import JumpMQError, one_line
from jumpmq.spark.options import SourceOptions

AHEAD = 60.0
"""Tolerated difference between clocks, in seconds: a time up to this far ahead does not count as future."""


class Warnings:
    """Warnings, each printed once, and part of the progress for as long as the cause lasts."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self.now: list[str] = []

    def hold(self, sentences: list[str]) -> None:
        """Set the current sentences."""
        for sentence in sentences:
            if sentence not in self._said:
                warn(sentence)
        self._said.update(sentences)
        self.now = sentences


def warn(sentence: str) -> None:
    """Print a warning on stderr, which Spark passes to the driver."""
    print(f"jumpmq: warning: {one_line(sentence)}", file=sys.stderr, flush=True)


def without_queues(options: SourceOptions) -> str:
    """Return the warning for a read without queues."""
    if options.pattern is not None:
        return f"no queue's whole name matches the pattern '{options.pattern}', so that nothing is read"
    return (
        f"no queue is bound to exchange '{options.exchange}', so that nothing is read: bind queues to the exchange; a "
        "queue gets the messages published after its binding"
    )


def beyond_the_end(starts: Mapping[str, int], found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the warnings for streams that end before the first offset to read.

    Args:
        starts: the first offset to read, by stream.
        found: the broker's description of each stream.
    """
    return [
        f"reading of stream '{name}' begins with offset {first}, and its next message has offset "
        f"{found[name]['last_seq'] + 1}: those before {first} are not read"
        for name, first in starts.items()
        if first > found[name]["last_seq"] + 1
    ]


def require_past(timestamp: float | None) -> None:
    """Refuse a future start time: the broker has no offset for it.

    Raises:
        JumpMQError: the time is in the future.
    """
    if timestamp is not None and timestamp > time.time() + AHEAD:
        raise JumpMQError(
            "option 'startingOffsets' is a time in the future, for which the broker has no offset: give a past time, "
            "or latest"
        )
