"""Writers that come back: the broker remembers what each has published, so that a retry publishes nothing twice.

A *writer* publishes the rows of numbered *batches*, a chunk of rows at a time. After a failure it asks where it is, and
goes on behind the rows that are published. The memory is durable in the commit of the chunk itself. It has a digest of
all rows of the batch so far, by which the writer sees whether it has come back with the same rows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jumpmq.amqp.errors import PreconditionFailed

if TYPE_CHECKING:
    from jumpmq.store import Store

KIND = "writer"
"""The kind of definition that a writer's place is stored as."""

REMEMBERED = 30 * 86400
"""Seconds after which a writer that has not come back is forgotten, at the next start of the broker."""


class Place(NamedTuple):
    """How far a writer has got: so many rows of a batch, and their digest."""

    batch: int
    rows: int
    digest: str


@dataclass(frozen=True)
class Chunk:
    """Some rows of a writer's batch.

    Attributes:
        vhost, writer: whose; a writer that publishes from several places at once has a name for each.
        first: how many rows of the batch come before.
        place: where the writer is once the chunk is published.
    """

    vhost: str
    writer: str
    first: int
    place: Place

    @property
    def key(self) -> str:
        """Under which name the writer's place is stored."""
        return _key(self.vhost, self.writer)


class Writers:
    """What is remembered of writers."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def restore(self, definitions: list[tuple[str, str, Any]], store: Store) -> None:
        """Continue with what the store kept.

        Args:
            definitions: all that the store kept, as (kind, key, value).
        """
        for kind, key, (written_at, *place) in (one for one in definitions if one[0] == KIND):
            if time.time() - written_at < REMEMBERED:
                self._places[key] = Place(*place)
            else:
                store.delete(kind, key)

    def place(self, vhost: str, writer: str) -> Place | None:
        """How far a writer has got, None where it is not known."""
        return self._places.get(_key(vhost, writer))

    def has_published(self, chunk: Chunk) -> bool:
        """Whether this very chunk is published already, as when its answer was lost.

        Raises:
            PreconditionFailed: it does not follow what is published.
        """
        known = self._places.get(chunk.key)
        if known == chunk.place:
            return True
        reached = known.rows if known is not None and known.batch == chunk.place.batch else 0
        if chunk.first != reached or (known is not None and known.batch > chunk.place.batch):
            raise PreconditionFailed(
                f"{chunk.first} rows are said to be published of batch {chunk.place.batch}, not {reached}"
            )
        return False

    def note(self, chunk: Chunk, store: Store | None) -> None:
        """The chunk has been published, in this turn."""
        self._places[chunk.key] = chunk.place
        if store is not None:
            store.put(KIND, chunk.key, [time.time(), *chunk.place])

    def forget(self, vhost: str, prefix: str, store: Store | None) -> None:
        """Forget the writers of a virtual host whose names begin so."""
        for key in [key for key in self._places if _is_named(key, vhost, prefix)]:
            del self._places[key]
            if store is not None:
                store.delete(KIND, key)


def _key(vhost: str, writer: str) -> str:
    return json.dumps([vhost, writer])


def _is_named(key: str, vhost: str, prefix: str) -> bool:
    host, writer = json.loads(key)
    return bool(host == vhost and writer.startswith(prefix))
