"""Whose messages numbers are of: between planning and reading, another broker or queue may get the name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """A broker and queues of it.

    Attributes:
        broker: its identity; None where that is not known.
        ids: what tells each queue from others that have its name later.
    """

    broker: str | None
    ids: dict[str, int]

    @classmethod
    def of(cls, broker: str | None, found: Mapping[str, Mapping[str, Any]]) -> Origin:
        """That of queues of which a broker says this."""
        return cls(broker, {name: at["id"] for name, at in found.items()})

    def only(self, names: set[str]) -> Origin:
        """The broker, and these queues of it."""
        return Origin(self.broker, {name: id for name, id in self.ids.items() if name in names})

    def said(self) -> dict[str, Any]:
        """As a request for messages says it."""
        return {"identity": self.broker, "ids": self.ids}


ANY = Origin(None, {})
"""Of whatever has the names when it is read."""
