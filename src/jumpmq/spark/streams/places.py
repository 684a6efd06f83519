"""Start and end positions in streams, as given by options."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jumpmq.spark.errors import JumpMQError


@dataclass(frozen=True)
class StreamsPlace:
    """A position in all streams to read.

    Attributes:
        offset: the offset; None for a position by other means.
        timestamp: position of the first message published then or later, in seconds since the epoch; None for a
            position by other means.
        latest: True for the position after the last message. Without offset and timestamp, False means the position of
            the first message.
        by_stream: positions in single streams, which take precedence.
    """

    offset: int | None = None
    timestamp: float | None = None
    latest: bool = False
    by_stream: tuple[tuple[str, StreamsPlace], ...] = ()

    @classmethod
    def parse(cls, name: str, value: str) -> StreamsPlace:
        """Parse the value of an option.

        A value is ``earliest``, ``latest``, an offset, or a time in ISO 8601, in UTC by default; or a JSON object with
        an offset, ``earliest`` or ``latest`` by stream. Streams that the object does not name are read from the
        beginning, or to the end.

        Args:
            name: the option's name.
            value: the option's value.

        Raises:
            JumpMQError: the value is something else.
        """
        text = value.strip()
        if text.startswith("{"):
            return cls(latest=name.startswith("ending"), by_stream=_by_stream(name, text))
        if text.lower() in ("earliest", "latest"):
            return cls(latest=text.lower() == "latest")
        if text.isascii() and text.isdigit() and len(text) < 19:
            return cls(offset=int(text))
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise JumpMQError(
                f"option '{name}' must be earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z, "
                f"not '{value}'"
            ) from None
        return cls(timestamp=(found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())

    def require_read(self, streams: Iterable[str]) -> None:
        """Refuse positions in unread streams.

        Raises:
            JumpMQError: a position is of a stream that the query does not read.
        """
        unknown = {name for name, _ in self.by_stream} - set(streams)
        if unknown:
            raise JumpMQError(f"there are offsets for stream '{min(unknown)}', which is not read")

    def offset_in(self, stream: str, found: dict[str, Any]) -> int:
        """Return the offset in a stream.

        Args:
            stream: the stream's name.
            found: the broker's description of the stream, with ``seq_at`` for this position's ``timestamp``.
        """
        for name, place in self.by_stream:
            if name == stream:
                return place.offset_in(stream, found)
        if self.offset is not None:
            return self.offset
        if self.timestamp is not None:
            return int(found["seq_at"])
        return int(found["last_seq"]) + 1 if self.latest else int(found["first_seq"])


def _by_stream(name: str, text: str) -> tuple[tuple[str, StreamsPlace], ...]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise JumpMQError(f"option '{name}' is no JSON object: {error}") from None
    return tuple((stream, _place(name, stream, value)) for stream, value in found.items())


def _place(name: str, stream: str, value: Any) -> StreamsPlace:
    if value in ("earliest", "latest"):
        return StreamsPlace(latest=value == "latest")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise JumpMQError(f"option '{name}' of '{stream}' must be an offset, earliest or latest, not {value!r}")
    return StreamsPlace(offset=value)


EARLIEST = StreamsPlace()
LATEST = StreamsPlace(latest=True)
