"""A group of readers: reservations per queue, the reading query, and the lease.

A group has one *session* at a time: that of the reading query. Another query is refused while the session is alive.
When the session is not alive, another query takes over, and the first query is *fenced*: its requests are refused for
good. A query that is restarted from its checkpoint has the same name and takes over at once. A session is alive until
its lease has passed since the last request of the query. The query holds a connection open during its session; after
the loss of this connection the session lives for :data:`GRACE` at most.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from typing import TYPE_CHECKING, Any

from jumpmq.broker.security.accounts import Principal
from jumpmq.queues.reservations import OWNED, Reservations

if TYPE_CHECKING:
    from jumpmq.queues import Queue

LEASE = 60.0
"""Default lease of a silent group, in seconds."""

GRACE = 2.0
"""Seconds for a query to return after its attending connection broke."""


class ReaderGroupInUse(Exception):
    """A different query reads for the group, or has taken over."""


class QueueHasReader(Exception):
    """A consumer group takes the queue's messages; or a query of a different group reads the queue, and one of the two
    requires exclusive use."""


class UnknownSession(Exception):
    """Unknown session: the broker has removed the group, or was restarted without a store."""


def owned(name: str, user: Principal) -> str:
    """Return the user-qualified name of a group: groups of the same name of different users are distinct.

    A user with a token is distinct from a stored user of the same name.
    """
    return f"{name}{OWNED}{'token' if user.granted is not None else 'user'} {user}"


class ReaderGroup:
    """A group of readers in a virtual host.

    Attributes:
        name: name and user of the group, joined by :func:`owned`.
        places: reservations by queue.
        lost: deleted queues with reservations of the group, and the number of messages deleted with each.
        turn: held while an operation changes the group's reservations.
        lease: seconds without a request after which the reservations lapse.
        deadline: time at which the reservations lapse, by the event loop's clock.
        shares: True if queries of other groups may read the same queues.
        owner_epoch: the owner epoch (:mod:`jumpmq.queues.epochs`) of the reading query; 0 before the first.
    """

    def __init__(self, vhost: str, name: str) -> None:
        self.vhost = vhost
        self.name = name
        self.places: dict[str, Reservations] = {}
        self.lost: dict[str, int] = {}
        self.turn = asyncio.Lock()
        self.lease = LEASE
        self.deadline = math.inf
        self.shares = True
        self.owner_epoch = 0
        self._attended = False
        self._query: str | None = None
        self._session: str | None = None
        self._alive_until = 0.0

    @property
    def key(self) -> str:
        """Name of the stored record."""
        return json.dumps([self.vhost, self.name])

    @property
    def shown_name(self) -> str:
        """Name of the group as given by the user."""
        return self.name.partition(OWNED)[0]

    @property
    def user(self) -> str | None:
        """Owner of the group; None for a group made by an earlier version."""
        return self.name.partition(OWNED)[2].partition(" ")[2] or None

    @property
    def outstanding(self) -> int:
        """Number of messages reserved and not acknowledged."""
        return sum(place.outstanding for place in self.places.values())

    @property
    def query(self) -> str | None:
        """Name of the last reading query, chosen by the query."""
        return self._query

    def alive(self, now: float) -> bool:
        """Return True if a query reads for the group."""
        return self._session is not None and now < self._alive_until

    def attended(self, now: float) -> bool:
        """Return True if a query reads for the group, and its connection is alive."""
        return self._attended and self.alive(now)

    def open(self, query: str, lease: float, now: float) -> str:
        """Begin a session.

        Args:
            query: name of the query, the same after a restart from its checkpoint.

        Raises:
            ReaderGroupInUse: another query's session is alive.
        """
        if query != self._query and self.alive(now):
            raise ReaderGroupInUse(
                f"{self} is in use by another query; give each query its own group, or stop the other query"
            )
        self._query, self._session, self.lease = query, secrets.token_hex(8), lease
        self._attended = True
        self.renew(now)
        return self._session

    def require_session(self, session: str | None, now: float) -> None:
        """Refuse unless the session is the group's session, or the group has none.

        Raises:
            ReaderGroupInUse: another session has taken over, or is alive.
            UnknownSession: the group has no session.
        """
        if session == self._session or (session is None and not self.alive(now)):
            return
        if self._session is None:
            raise UnknownSession(f"{self} has no such session")
        raise ReaderGroupInUse(f"{self} is in use by another query, which has taken over")

    def renew(self, now: float) -> None:
        """Extend the session and the deadline after a request of the query."""
        self.deadline = self._alive_until = now + self.lease

    def touch(self, now: float) -> None:
        """Extend the group's deadline: reserved messages are being read."""
        self.deadline = max(self.deadline, now + self.lease) if math.isfinite(self.deadline) else now + self.lease

    def detach(self, session: str, now: float) -> None:
        """Handle the loss of the session's attending connection."""
        if session == self._session:
            self._attended = False
            self._alive_until = min(self._alive_until, now + GRACE)

    def place_in(self, queue: Queue) -> Reservations:
        """Return the group's position in a queue, created if missing."""
        place = self.places.get(queue.name)
        if place is None or place.queue is not queue:
            place = self.places[queue.name] = Reservations(queue, self.name)
        return place

    def record(self) -> dict[str, Any]:
        """Return the durable state, as JSON."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "query": self._query,
            "session": self._session,
            "lease": self.lease,
            "lost": self.lost,
        }

    @classmethod
    def restore(cls, record: dict[str, Any]) -> ReaderGroup:
        """Return a group with the state of :meth:`record`."""
        group = cls(record["vhost"], record["name"])
        group._query, group._session = record["query"], record["session"]
        group.lease, group.lost = record["lease"], record["lost"]
        return group

    def __str__(self) -> str:
        return f"reader group '{self.shown_name}' in vhost '{self.vhost}'"
