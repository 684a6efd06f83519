"""Returning writers: the broker remembers the published rows per writer, so that a retry publishes nothing twice.

A *writer* is of one user in one virtual host: the same name is another writer for another user. It may publish in
several *parts* at once, each of which publishes the rows of numbered *batches*, a chunk of rows at a time. After a
failure a part asks where it is, and goes on behind the rows that are published. The memory is durable in the commit of
the chunk itself. It has a digest of all rows of the batch so far, by which the writer sees whether it has come back
with the same rows.

A writer whose batch is repeated may come back with its rows divided into other parts. So a batch is *begun* by an
*attempt*, which is told what was published by earlier ones; their chunks are refused from then on. Once the batch is
*complete*, all chunks of it are.

A writer that is *opened* can be closed for good: attempts that say it is open are refused afterwards, however late they
come.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker.security.accounts import Principal
from jumpmq.store.kinds import WRITER
from jumpmq.topology import Asker, Change, DeleteUser, DeleteVirtualHost

if TYPE_CHECKING:
    from jumpmq.store import Store

REMEMBERED = 30 * 86400
"""Seconds after which an absent part is forgotten, at a start of the broker or when room is needed."""

MAX_PLACES = 50_000
"""Parts of all writers of a user: some 20 MB of memory."""

MAX_BATCH = (1 << 53) - 1
"""The highest number of a batch: JSON has no exact numbers beyond."""

WHOLE = ""
"""Part of a writer with a single publishing place, also the record of an open writer."""

ATTEMPT = "\0attempt"
"""Part recording the attempt of a begun batch and, as digest, the batch's origin; has rows when the batch is complete:
:data:`COMPLETE` more than the batch, or one if an earlier version has completed the batch."""

COMPLETE = 2
"""Rows of :data:`ATTEMPT` for a complete batch without rows."""

ANOTHER_TARGET = (
    "is complete, and its rows went to another exchange or queue: these would be passed over, and be lost. Give each "
    "write a name of its own (option 'txnAppId')"
)

NUMBERED_ANEW = (
    "rows of a published number are skipped, and would be lost where numbers begin anew, as those of a "
    "query do whose checkpoint was deleted. Give the writer another name (option 'txnAppId'), or use the old checkpoint"
)

Owner = str | tuple[str, ...]
"""A user's name; for a user with a token ``("token", NAME)``, distinct from a stored user of that name."""


class WriterId(NamedTuple):
    """Identity of a writer."""

    vhost: str
    name: str
    owner: Owner

    @classmethod
    def of(cls, vhost: str, name: str, user: Principal) -> WriterId:
        """Return the identity of a user's writer."""
        return cls(vhost, name, ("token", user.name) if user.granted is not None else user.name)

    def key(self, part: str) -> str:
        """Return the storage key of a part's progress."""
        return json.dumps([self.vhost, self.name, part, self.owner])


class WriterPlace(NamedTuple):
    """Progress of a part: number of rows of a batch, and their digest; no batch if nothing was published.

    Attributes:
        attempt: which attempt knows of it; empty where attempts are not told apart.
    """

    batch: int | None = None
    rows: int = 0
    digest: str = ""
    attempt: str = ""


@dataclass(frozen=True)
class BatchRows:
    """Some rows of a batch.

    Attributes:
        writer, part: whose.
        first: how many rows of the batch come before.
        place: where the part is once the chunk is published.
        opened: whether the writer has been opened, and must still be.
    """

    writer: WriterId
    part: str
    first: int
    place: WriterPlace
    opened: bool = False


class Writers:
    """Remembered progress of writers."""

    def __init__(self) -> None:
        self._store: Store | None = None
        # The places of each writer by part, with when they were noted, in seconds since the epoch.
        self._places: dict[WriterId, dict[str, tuple[float, WriterPlace]]] = {}
        # How many places each user has.
        self._counts: Counter[Owner] = Counter()
        # Places that an earlier version has noted by virtual host and name, without a user: they are only read.
        self._unowned: dict[tuple[str, str], WriterPlace] = {}
        # Held while a part publishes, and how many hold or wait for it.
        self._publishing: dict[tuple[WriterId, str], tuple[asyncio.Lock, int]] = {}

    def restore(self, definitions: list[tuple[str, str, Any]], store: Store) -> None:
        """Restore the progress from the store.

        Args:
            definitions: all that the store kept, as (kind, key, value).
        """
        self._store = store
        for kind, key, (written_at, *place) in (one for one in definitions if one[0] == WRITER):
            if time.time() - written_at >= REMEMBERED:
                store.delete(kind, key)
                continue
            vhost, name, *owned = json.loads(key)
            if owned:
                part, owner = owned
                writer = WriterId(vhost, name, owner if isinstance(owner, str) else tuple(owner))
                self._put(writer, part, written_at, WriterPlace(*place))
            else:
                self._unowned[vhost, name] = WriterPlace(*place)

    def follow(self, change: Change, asker: Asker) -> None:
        """Forget the writers of a deleted user or virtual host: a successor of the name begins with none."""
        match change:
            case DeleteVirtualHost(name):
                for writer in [writer for writer in self._places if writer.vhost == name]:
                    self.forget(writer)
                for vhost, unowned in [key for key in self._unowned if key[0] == name]:
                    self._forget_unowned(vhost, unowned)
            case DeleteUser(name):
                for writer in [writer for writer in self._places if writer.owner == name]:
                    self.forget(writer)

    def place(self, writer: WriterId, part: str) -> WriterPlace:
        """Return the progress of a part."""
        found = self._places.get(writer, {}).get(part)
        if found is not None:
            return found[1]
        return self._unowned.get((writer.vhost, f"{writer.name} {part}" if part else writer.name), WriterPlace())

    @contextlib.asynccontextmanager
    async def publishing(self, chunk: BatchRows) -> AsyncIterator[None]:
        """Serialize attempts to check, publish and record a chunk, retries and abandoned but still running attempts
        included."""
        key = chunk.writer, chunk.part
        lock, waiting = self._publishing.get(key, (asyncio.Lock(), 0))
        self._publishing[key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            waiting = self._publishing[key][1] - 1
            if waiting:
                self._publishing[key] = lock, waiting
            else:
                del self._publishing[key]

    def has_published(self, chunk: BatchRows) -> bool:
        """Return True if exactly the given chunk is published already, as when the answer was lost.

        Raises:
            PreconditionFailed: it does not follow what is published, its writer is not open any more, another attempt
                has begun the batch, or the user has too many.
        """
        if chunk.place.attempt:
            self._require_begun(chunk)
        if chunk.opened and WHOLE not in self._places.get(chunk.writer, {}):
            raise PreconditionFailed(
                f"writer '{chunk.writer.name}' of this user is not open: it was closed, or never opened"
            )
        known = self.place(chunk.writer, chunk.part)
        if known[:3] == chunk.place[:3]:
            return True
        reached = known.rows if known.batch == chunk.place.batch else 0
        if chunk.first != reached or (known.batch is not None and known.batch > (chunk.place.batch or 0)):
            raise PreconditionFailed(
                f"{chunk.first} rows are said to be published of batch {chunk.place.batch}, not {reached}"
            )
        self._require_room(chunk.writer, chunk.part)
        return False

    def note(self, chunk: BatchRows) -> None:
        """Record the chunk as published, within the publishing event-loop iteration."""
        self._note(chunk.writer, chunk.part, chunk.place)

    def is_known(self, chunk: BatchRows) -> bool:
        """Return True if the chunk was recorded by its own attempt."""
        return self.place(chunk.writer, chunk.part) == chunk.place

    def begin(self, writer: WriterId, batch: int, attempt: str, origin: str = "") -> bool:
        """Begin a batch, possibly again; return False if the batch is complete.

        Args:
            origin: source of the batch numbers, such as a streaming query, and after a space the target of the rows;
                an unknown source or target is empty.

        Raises:
            PreconditionFailed: a later batch was begun, or something else has begun this one, so that the numbers were
                begun again from the lowest one, and the rows are others; or the batch is complete, and its rows went
                elsewhere; or the user has too many.
        """
        query, _, target = origin.partition(" ")
        known = self.place(writer, ATTEMPT)
        if known.batch is not None and known.batch > batch:
            raise PreconditionFailed(
                f"batch {batch} of writer '{writer.name}' comes behind batch {known.batch}: {NUMBERED_ANEW}"
            )
        if known.batch == batch:
            begun_by, _, went_to = known.digest.partition(" ")
            if query and begun_by not in ("", query):
                raise PreconditionFailed(
                    f"batch {batch} of writer '{writer.name}' was begun by another query: {NUMBERED_ANEW}"
                )
            if known.rows:
                if target and went_to not in ("", target):
                    raise PreconditionFailed(f"batch {batch} of writer '{writer.name}' {ANOTHER_TARGET}")
                return False
        if (known.batch, known.attempt) != (batch, attempt):
            self._require_room(writer, ATTEMPT)
            self._note(writer, ATTEMPT, WriterPlace(batch, 0, origin, attempt))
        return True

    def begun(self, writer: WriterId, batch: int) -> tuple[str, dict[str, WriterPlace]]:
        """Return the attempt of a batch, empty if not begun, and the published rows by part."""
        known = self.place(writer, ATTEMPT)
        parts = {part: place for part, (_, place) in self._places.get(writer, {}).items() if place.batch == batch}
        parts.pop(ATTEMPT, None)
        return known.attempt if known.batch == batch else "", parts

    def rows_of_complete(self, writer: WriterId, batch: int) -> int | None:
        """Return the number of rows of a complete batch; None if unknown, or not complete."""
        known = self.place(writer, ATTEMPT)
        return known.rows - COMPLETE if known.batch == batch and known.rows >= COMPLETE else None

    def complete(self, writer: WriterId, batch: int) -> None:
        """Complete a batch: forget its parts, except for the sum of their rows; nothing more of the batch is
        published.
        """
        known = self.place(writer, ATTEMPT)
        if known.batch == batch and not known.rows:
            rows = sum(place.rows for place in self.begun(writer, batch)[1].values())
            self._note(writer, ATTEMPT, known._replace(rows=COMPLETE + rows))
            for part in [part for part in self._places[writer] if part not in (ATTEMPT, WHOLE)]:
                del self._places[writer][part]
                self._counts[writer.owner] -= 1
                self._delete(writer.key(part))

    def _require_begun(self, chunk: BatchRows) -> None:
        known, place = self.place(chunk.writer, ATTEMPT), chunk.place
        if (known.batch, known.rows, known.attempt) != (place.batch, 0, place.attempt):
            raise PreconditionFailed(
                f"batch {place.batch} of writer '{chunk.writer.name}' is complete, or another attempt has begun it"
            )

    def open(self, writer: WriterId) -> None:
        """Record a writer as open, unless already open.

        Raises:
            PreconditionFailed: the user has too many.
        """
        if WHOLE not in self._places.get(writer, {}):
            self._require_room(writer, WHOLE)
            self._note(writer, WHOLE, WriterPlace())

    def forget(self, writer: WriterId, *, also_unowned: bool = False) -> None:
        """Forget a writer with all its parts, and close the writer.

        Args:
            also_unowned: whether what an earlier version has noted of that name is forgotten too.
        """
        for part in self._places.pop(writer, ()):
            self._counts[writer.owner] -= 1
            self._delete(writer.key(part))
        if also_unowned:
            for vhost, name in [key for key in self._unowned if key[0] == writer.vhost]:
                if name == writer.name or name.rpartition(" ")[0] == writer.name:
                    self._forget_unowned(vhost, name)

    def _note(self, writer: WriterId, part: str, place: WriterPlace) -> None:
        now = time.time()
        self._put(writer, part, now, place)
        if self._store is not None:
            self._store.put(WRITER, writer.key(part), [now, *place])

    def _put(self, writer: WriterId, part: str, written_at: float, place: WriterPlace) -> None:
        parts = self._places.setdefault(writer, {})
        self._counts[writer.owner] += part not in parts
        parts[part] = written_at, place

    def _require_room(self, writer: WriterId, part: str) -> None:
        if part in self._places.get(writer, {}) or self._counts[writer.owner] < MAX_PLACES:
            return
        self._forget_old(writer.owner)
        if self._counts[writer.owner] >= MAX_PLACES:
            raise PreconditionFailed(f"the user has {MAX_PLACES} parts of writers: delete those that are done")

    def _forget_old(self, owner: Owner) -> None:
        oldest = time.time() - REMEMBERED
        for writer, parts in list(self._places.items()):
            if writer.owner == owner and all(written_at < oldest for written_at, _ in parts.values()):
                self.forget(writer)

    def _forget_unowned(self, vhost: str, name: str) -> None:
        del self._unowned[vhost, name]
        self._delete(json.dumps([vhost, name]))

    def _delete(self, key: str) -> None:
        if self._store is not None:
            self._store.delete(WRITER, key)
