"""The options of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jumpmq.spark.errors import JumpMQError


@dataclass(frozen=True)
class Options:
    """What ``.option(...)`` sets; names are not case-sensitive.

    Attributes:
        url: the broker's management URL with user and password, such as ``http://guest:guest@localhost:15672``.
        vhost: the virtual host, ``/`` unless given.
        exchange: read all queues that are bound to this exchange, directly or through other exchanges.
        queue: read this queue. Either this or ``exchange``.
        group: the name under which a streaming query reserves messages. Unless given, each query invents one and keeps
            it in its checkpoint. Queries with checkpoints of their own must not share a group.
        max_messages: ``maxMessagesPerTrigger``, the most messages of a micro-batch, over all queues; they are held in
            the broker's memory while the batch lasts.
        lease: seconds that the broker waits for a streaming query that has fallen silent, before what the query
            reserved goes back to the queues.
    """

    url: str
    vhost: str = "/"
    exchange: str | None = None
    queue: str | None = None
    group: str | None = None
    max_messages: int = 1_000_000
    lease: float = 60.0

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Check the options of a read.

        Raises:
            JumpMQError: one is missing, unknown, or makes no sense.
        """
        given = {name.lower(): value for name, value in options.items()}
        unknown = set(given) - set(_NAMES)
        if unknown:
            raise JumpMQError(f"unknown option '{min(unknown)}'; there are {', '.join(_NAMES.values())}")
        if "url" not in given:
            raise JumpMQError("option 'url' is missing: the management URL, such as http://guest:guest@localhost:15672")
        if ("exchange" in given) == ("queue" in given):
            raise JumpMQError("give either option 'exchange', to read all queues bound to it, or option 'queue'")
        return cls(
            url=given["url"],
            vhost=given.get("vhost", cls.vhost),
            exchange=given.get("exchange"),
            queue=given.get("queue"),
            group=given.get("group"),
            max_messages=_count(given.get("maxmessagespertrigger", str(cls.max_messages))),
            lease=_seconds(given.get("lease", str(cls.lease))),
        )


_NAMES = {
    name.lower(): name for name in ("url", "vhost", "exchange", "queue", "group", "maxMessagesPerTrigger", "lease")
}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text)):
        raise JumpMQError(f"option 'maxMessagesPerTrigger' must be a whole number from 1, not '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86400:
        raise JumpMQError(f"option 'lease' must be a number of seconds from 1 to 86400, not '{text}'")
    return seconds
