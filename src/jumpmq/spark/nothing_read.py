"""What a user is told who would wait for rows that do not come: on stderr, and in a streaming query's progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions

AHEAD = 60.0
"""Seconds by which the clock of another machine may be ahead: a time within these is not called a future one."""


class Warnings:
    """Sentences that are said once each, and shown for as long as they hold."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self.now: list[str] = []

    def hold(self, sentences: list[str]) -> None:
        """These hold now, and no others."""
        for sentence in sentences:
            if sentence not in self._said:
                warn(sentence)
        self._said.update(sentences)
        self.now = sentences


def warn(sentence: str) -> None:
    """Say it on stderr, which Spark hands on to the driver's."""
    print(f"jumpmq: warning: {sentence}", file=sys.stderr, flush=True)


def without_queues(options: SourceOptions) -> str:
    """What to say where there is no queue to read."""
    if options.pattern is not None:
        return f"no queue's whole name matches the pattern '{options.pattern}', so that nothing is read"
    return (
        f"no queue is bound to exchange '{options.exchange}', so that nothing is read: bind queues to it, which hold "
        "what is published from then on"
    )


def beyond_the_end(starts: Mapping[str, int], found: Mapping[str, dict[str, Any]]) -> list[str]:
    """What to say of streams that end before reading begins.

    Args:
        starts: the first offset that is to be read, by stream.
        found: what the broker says of each.
    """
    return [
        f"reading of stream '{name}' begins with offset {first}, and its next message has offset "
        f"{found[name]['last_seq'] + 1}: those before {first} are not read"
        for name, first in starts.items()
        if first > found[name]["last_seq"] + 1
    ]


def require_past(timestamp: float | None) -> None:
    """Refuse to begin at a time that has not come: the broker gives no offset for it.

    Raises:
        JumpMQError: it has not.
    """
    if timestamp is not None and timestamp > time.time() + AHEAD:
        raise JumpMQError(
            "option 'startingOffsets' is a time in the future, and no message has been published then: give a time "
            "that has been, or latest"
        )
