"""Where reading a stream begins and ends, as options name it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jumpmq.spark.errors import JumpMQError


@dataclass(frozen=True)
class Place:
    """A place in every stream that is read.

    Attributes:
        offset: this one; None where the place is told otherwise.
        timestamp: the first message published then or later, in seconds since the epoch.
        latest: behind the last message, else before the first one that is there.
    """

    offset: int | None = None
    timestamp: float | None = None
    latest: bool = False

    @classmethod
    def parse(cls, name: str, value: str) -> Place:
        """``earliest``, ``latest``, an offset, or a time in ISO 8601, of UTC where it names no zone.

        Raises:
            JumpMQError: it is something else.
        """
        text = value.strip()
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

    def offset_in(self, found: dict[str, Any]) -> int:
        """The offset in one stream.

        Args:
            found: what the broker says of it, asked with this place's ``timestamp``.
        """
        if self.offset is not None:
            return self.offset
        if self.timestamp is not None:
            return int(found["seq_at"])
        return int(found["last_seq"]) + 1 if self.latest else int(found["first_seq"])


EARLIEST = Place()
LATEST = Place(latest=True)
