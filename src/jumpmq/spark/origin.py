"""Identity of a broker and its queues, as message numbers of a plan are valid for these only.

Between planning and reading, a queue may be deleted, and another one declared by the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """A broker and some of its queues.

    Attributes:
        broker: identity of the broker; None if unknown.
        ids: identities of the queues, different for a later queue with the same name.
    """

    broker: str | None
    ids: dict[str, int]

    @classmethod
    def of(cls, broker: str | None, found: Mapping[str, Mapping[str, Any]]) -> Origin:
        """Return the origin of queues, from a broker's answer."""
        return cls(broker, {name: at["id"] for name, at in found.items()})

    def only(self, names: set[str]) -> Origin:
        """Return the origin restricted to the given queues."""
        return Origin(self.broker, {name: id for name, id in self.ids.items() if name in names})

    def said(self) -> dict[str, Any]:
        """Return the origin as part of a request for messages."""
        return {"identity": self.broker, "ids": self.ids}


ANY = Origin(None, {})
"""Any broker and queues with the given names."""
