"""Groups of readers in the live broker. Reservations are durable before the answer, and lapse with their lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.broker.bulk.reader_group import LEASE, QueueHasReader, ReaderGroup
from jumpmq.broker.bulk.starts import Fingerprint, Starts
from jumpmq.broker.bulk.with_bodies import HeldPiece
from jumpmq.broker.upkeep.slices import Sliced, in_turns
from jumpmq.broker.upkeep.ticks import Ticks
from jumpmq.queues.reservations import OWNED, Piece, Reservations
from jumpmq.store.kinds import READER_GROUP, RESERVATION

if TYPE_CHECKING:
    from jumpmq.queues import Queue
    from jumpmq.store import Store
    from jumpmq.topology import Topology, VirtualHost

T = TypeVar("T")

LEASE_CHECK = 0.25
"""Seconds between checks of the leases."""

NO_CONNECTION = ""
"""Connection identity of groups: none, so that groups cannot read exclusive queues."""

MAX_GROUPS = 1000
"""Maximum number of groups of a user."""

MAX_MESSAGES = 4_000_000
"""Maximum number of messages held by a group, also for a request without a limit."""


class Home(Sliced, Protocol):
    """Broker interface required by the groups."""

    topology: Topology

    @property
    def store(self) -> Store | None:
        """Store of durable state; None for a broker in memory."""

    @property
    def starts(self) -> Starts:
        """Starts recorded for the data directory."""

    async def committed(self) -> None:
        """Wait until all changes are complete."""


@dataclass(frozen=True)
class ReservationRequest:
    """A group's reservation request.

    Attributes:
        offsets: per queue, the last finished reservation; None if the group does not know.
        max_messages: maximum number of messages over all queues, outstanding ones included; None for all messages, up
            to ``MAX_MESSAGES``.
        max_octets: maximum octets of newly reserved bodies, over all queues; None without a limit. A larger message is
            reserved alone.
        last_seqs: per queue with a limit, the last message to reserve.
        lease: seconds without a request after which the reservations lapse.
        accept_loss: True if missing queues, and an older data directory, are not errors.
        shares: True if queries of other groups with the same setting may read the same queues.
        seen: the group's fingerprints of data directories.
    """

    offsets: Mapping[str, int | None]
    max_messages: int | None = None
    max_octets: int | None = None
    last_seqs: Mapping[str, int] = field(default_factory=dict)
    lease: float = LEASE
    accept_loss: bool = False
    shares: bool = True
    seen: Fingerprint = field(default_factory=dict)


@dataclass(frozen=True)
class Reserved:
    """Answer to a reservation request.

    Attributes:
        places: the group's reservations in the requested queues.
        lost: deleted queues, with the number of messages lost with each; None if unknown.
        owner_epoch: the owner epoch (:mod:`jumpmq.queues.epochs`) of the query: higher than the epochs of all earlier
            owners of the queues.
    """

    places: dict[str, Reservations]
    lost: dict[str, int | None]
    owner_epoch: int


@dataclass(frozen=True)
class Slice:
    """Part of a group's reservation in a queue.

    Attributes:
        after, upto: the reservations after ``after`` (None: after the acknowledged ones), up to and with ``upto``.
        first, count: range of their messages, by position; all further messages if ``count`` is None.
    """

    queue: str
    after: int | None
    upto: int
    first: int = 0
    count: int | None = None


class ReaderGroups:
    """The operations on groups of readers: operations on a group run in sequence, operations on different groups in
    parallel.
    """

    def __init__(self, broker: Home) -> None:
        self._broker = broker
        self._groups: dict[tuple[str, str], ReaderGroup] = {}
        self._watch: Ticks | None = None  # of leases
        self._lapsing: asyncio.Task[None] | None = None  # returns the reservations of silent groups

    # --- life ---

    def restore(self, definitions: list[tuple[str, str, Any]], queues: Mapping[int, Queue]) -> None:
        """Restore the positions of groups, before any consumer starts.

        Args:
            definitions: all stored definitions, as (kind, key, value).
            queues: the restored queues by ``id``.
        """
        for kind, _, record in definitions:
            if kind == READER_GROUP:
                group = ReaderGroup.restore(record)
                self._groups[group.vhost, group.name] = group
        for kind, key, record in definitions:
            if kind == RESERVATION:
                queue = queues.get(record["queue"])
                if queue is None:
                    self._forget_record(RESERVATION, key)
                else:
                    group = self._made(queue.vhost, record["group"])
                    group.places[queue.name] = Reservations.restore(queue, record)
                    self._follow(group, queue)

    def start(self) -> None:
        """Begin to check leases. Reservations from before the start of the broker get a new lease."""
        for group in self._groups.values():
            group.renew(_now())
        self._watch = Ticks(LEASE_CHECK, self._check_leases)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if (lapsing := self._lapsing) is not None:
            lapsing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await lapsing

    # --- sessions ---

    async def open(self, vhost: str, name: str, query: str, lease: float) -> str:
        """Begin a query's session, as :meth:`ReaderGroup.open`; durable on return.

        Raises:
            ReaderGroupInUse: another query's session is alive.
        """
        self._require_room(vhost, name)
        group = self._made(vhost, name)
        session = group.open(query, lease, _now())
        group.owner_epoch = self._broker.topology.epochs.draw()
        self._record_group(group)
        await self._broker.committed()
        return session

    def renew(self, vhost: str, name: str, session: str | None = None) -> None:
        """Extend the lease of a group after a request.

        Raises:
            ReaderGroupInUse, UnknownSession: the group has another session.
        """
        group = self._groups.get((vhost, name))
        if group is not None:
            group.require_session(session, _now())
            group.renew(_now())

    def touch(self, vhost: str, name: str) -> None:
        """Extend the lease of a group while reserved messages are being read."""
        group = self._groups.get((vhost, name))
        if group is not None:
            group.touch(_now())

    def detach(self, vhost: str, name: str, session: str) -> None:
        """Handle the loss of a session's attending connection."""
        group = self._groups.get((vhost, name))
        if group is not None:
            group.detach(session, _now())

    # --- reservations ---

    async def reserve(
        self, host: VirtualHost, name: str, wanted: ReservationRequest, session: str | None = None
    ) -> Reserved:
        """Acknowledge finished messages and reserve more.

        Raises:
            NotFound: no such queue; nothing has changed.
            OlderDirectory: the data directory is older than the group's fingerprint; nothing has changed.
            ReaderGroupInUse, UnknownSession: another query reads for the group.
            QueueHasReader: a consumer group takes the messages of one of the queues, or a query of another group reads
                one, and one of the two groups does not share.
        """
        if self._broker.store is not None and not wanted.accept_loss:
            self._broker.starts.require_seen(wanted.seen)
        queues, lost = self._queues_of(host, name, wanted)
        self._require_room(host.name, name)
        group = self._made(host.name, name)
        group.require_session(session, _now())
        async with group.turn:
            group.shares = wanted.shares
            if group.lease != wanted.lease:  # recorded, because a reader without a session does not open one again
                group.lease = wanted.lease
                self._record_group(group)
            group.renew(_now())
            self._require_unread(group, [queue.name for queue in queues if queue.name not in group.places])
            places = {queue.name: self._place(group, queue) for queue in queues}
            # In this order: acknowledged messages leave, lapsed reservations are held again, and only then new messages
            # are reserved.
            for queue, place in places.items():
                await self._acknowledge(place, wanted.offsets[queue])
                await self._broker.slices.between(place.reinstate())
                place.give_up_lapsed()
            counts = await self._shares(places, wanted)
            for queue, count in counts.items():
                await self._broker.slices.between(places[queue].reserve(count, wanted.last_seqs.get(queue)))
                self._record_place(places[queue])
            unread = _interleaved([places[queue].on_disk() for queue in counts])
            if unread and self._broker.store is not None:
                # Beside the reader, which plans meanwhile; the tasks then need not wait for the disk.
                asyncio.get_running_loop().run_in_executor(None, self._broker.store.prefetching(unread))
            group.require_session(session, _now())  # else a superseded query would get its successor's number
            owner_epoch = self._own(group, queues)
            # The reader gets the numbers of reservations only when the reservations survive a crash.
            await self._broker.committed()
        self._free(places)
        return Reserved(places, lost, owner_epoch)

    def fingerprint(self) -> dict[str, tuple[str, int]]:
        """Fingerprint of the data directory on disk; empty without a store."""
        store = self._broker.store
        return {} if store is None else self._broker.starts.fingerprint(store)

    async def acknowledge(
        self, host: VirtualHost, name: str, offsets: Mapping[str, int], session: str | None = None
    ) -> None:
        """Settle reservations for good.

        Raises:
            NotFound: no such queue, or the group has no reservations in it; nothing has changed.
            PreconditionFailed: no reservation of that number; nothing has changed.
            ReaderGroupInUse, UnknownSession: another query reads for the group.
        """
        group = self._known(host, name)
        group.require_session(session, _now())
        places = {queue: self._known_place(host, group, queue) for queue in offsets}
        for queue, place in places.items():
            if offsets[queue] > place.latest:
                where = f"group '{group.shown_name}' in queue '{queue}'"
                raise PreconditionFailed(f"no reservation {offsets[queue]} of {where}: the last is {place.latest}")
        async with group.turn:
            group.renew(_now())
            for queue, place in places.items():
                await self._acknowledge(place, offsets[queue])
                self._record_place(place)
            await self._broker.committed()
        self._free(places)

    async def held(
        self, host: VirtualHost, name: str, slices: list[Slice], accept_loss: bool = False
    ) -> list[HeldPiece]:
        """Return the messages of parts of reservations, as :meth:`Reservations.held`.

        Lapsed reservations are reserved again if possible.

        Args:
            accept_loss: True to read the remaining messages if others are gone.

        Raises:
            ReservationGone: messages of a reservation are gone or acknowledged, or the group has no reservations in the
                queue.
            ReservationRests: messages of a lapsed reservation rest until their next retry.
            QueueHasReader: a reservation has lapsed, and a consumer group takes the messages of the queue.
            NotFound: no such queue.
        """
        group = self._groups.get((host.name, name)) or ReaderGroup(host.name, name)
        found: list[HeldPiece] = []
        was_lapsed = False
        async with group.turn:
            group.touch(_now())
            for one in slices:
                place = group.places.get(one.queue)
                if place is None:
                    if accept_loss:
                        continue
                    place = Reservations(host.queue(one.queue, NO_CONNECTION), name)
                if place.lapsed:
                    _require_unshared(place.queue)
                    await self._broker.slices.between(place.reinstate(partly=accept_loss))
                    self._record_place(place)
                    was_lapsed = True
                pieces = place.held(one.after, one.upto, accept_loss=accept_loss)
                found += [HeldPiece(place, part) for part in _sliced(pieces, one.first, one.count)]
            if was_lapsed:
                await self._broker.committed()
        return found

    async def release(self, host: VirtualHost, name: str) -> None:
        """Return all reserved messages to their queues, and remove the group.

        Raises:
            NotFound: no such group in this virtual host.
        """
        group = self._known(host, name)
        async with group.turn:
            for place in list(group.places.values()):
                await in_turns(self._broker, place.lapse())
                self._forget_place(group, place)
            self._forget(group)
            await self._broker.committed()

    def places(self) -> list[Reservations]:
        """Return the reservations of all groups, one per queue and group."""
        return [place for group in self._groups.values() for place in group.places.values()]

    def group(self, vhost: str, name: str) -> ReaderGroup | None:
        """Return a group by name; None if unknown."""
        return self._groups.get((vhost, name))

    def groups(self, vhost: str) -> list[ReaderGroup]:
        """Return the groups of a virtual host."""
        return [group for (host, _), group in self._groups.items() if host == vhost]

    # --- steps of the operations ---

    def reader_of(self, queue: Queue) -> ReaderGroup | None:
        """Return a group that takes messages from a queue or holds some; None without any. Lapsed reservations belong
        to the queue again."""
        now = _now()
        for group in self.groups(queue.vhost):
            place = group.places.get(queue.name)
            if place is not None and (group.attended(now) or place.holds):
                return group
        return None

    def _queues_of(
        self, host: VirtualHost, name: str, wanted: ReservationRequest
    ) -> tuple[list[Queue], dict[str, int | None]]:
        """Return the requested queues, and the known state of deleted queues."""
        known = self._groups.get((host.name, name))
        deleted = known.lost if known is not None else {}
        queues, lost = [], dict[str, int | None]()
        for queue in wanted.offsets:
            if queue in host.queues:
                queues.append(host.queue(queue, NO_CONNECTION))
                _require_unshared(queues[-1])
                queues[-1].require_reservable()
            elif queue in deleted or wanted.accept_loss:
                lost[queue] = deleted.get(queue)
            else:
                host.queue(queue, NO_CONNECTION)  # raises
        if known is not None and (stale := set(deleted) - set(wanted.offsets)):
            known.lost = {queue: count for queue, count in deleted.items() if queue not in stale}
            self._record_group(known)
        return queues, lost

    def _require_unread(self, group: ReaderGroup, queues: list[str]) -> None:
        """Refuse queues, new to a group, read by a query of a different group, unless both share."""
        now = _now()
        for other in self.groups(group.vhost) if queues else ():
            if other is not group and not (group.shares and other.shares) and other.attended(now):
                found = next((queue for queue in queues if queue in other.places), None)
                if found is not None:
                    raise QueueHasReader(f"queue '{found}' is read by {other}, the query '{other.query}'")

    def _own(self, group: ReaderGroup, queues: list[Queue]) -> int:
        """Return the group's owner epoch, renewed if one of the queues has had a different owner since."""
        if not group.owner_epoch or any(queue.last_epoch > group.owner_epoch for queue in queues):
            group.owner_epoch = self._broker.topology.epochs.draw()
        for queue in queues:
            queue.last_epoch = group.owner_epoch
        return group.owner_epoch

    async def _shares(self, places: Mapping[str, Reservations], wanted: ReservationRequest) -> dict[str, int]:
        """Return the number of messages to reserve per queue, without queues of zero."""
        available = {queue: place.available(wanted.last_seqs.get(queue)) for queue, place in places.items()}
        available = {queue: count for queue, count in available.items() if count}
        outstanding = sum(place.outstanding for place in places.values())
        limit = MAX_MESSAGES if wanted.max_messages is None else min(wanted.max_messages, MAX_MESSAGES)
        found = shares(max(0, limit - outstanding), available)
        if wanted.max_octets is not None:
            found = await self._fitting(found, wanted.max_octets, places, wanted.last_seqs)
        return {queue: count for queue, count in found.items() if count}

    async def _fitting(
        self, counts: Mapping[str, int], octets: int, places: Mapping[str, Reservations], last_seqs: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the number of messages per queue within ``octets`` of bodies, evenly; at least one, if available."""
        result = {}
        wanting = sorted(((count, name) for name, count in counts.items() if count))
        for done, (count, name) in enumerate(wanting):
            steps = places[name].fitting(count, octets // (len(wanting) - done), last_seqs.get(name))
            result[name], size = await self._broker.slices.between(steps)
            octets -= size
        # At least one message: a reader would never get a message above its limit of octets.
        if wanting and not any(result.values()):
            result[wanting[0][1]] = 1
        return result

    async def _acknowledge(self, place: Reservations, upto: int | None) -> None:
        if upto is None or upto <= place.acknowledged:
            return
        steps = place.acknowledge(upto)
        next(steps)
        self._record_place(place)
        await self._broker.slices.between(steps)

    def _free(self, places: Mapping[str, Reservations]) -> None:
        """Release acknowledged messages later; the answer need not wait."""
        steps = chain.from_iterable(place.free() for place in places.values())
        self._broker.topology.later("freeing what readers have acknowledged", steps)

    # --- groups and reservations by name ---

    def _made(self, vhost: str, name: str) -> ReaderGroup:
        """Return the group, created if missing."""
        group = self._groups.get((vhost, name))
        if group is None:
            group = self._groups[vhost, name] = ReaderGroup(vhost, name)
        return group

    def _require_room(self, vhost: str, name: str) -> None:
        """Refuse a further group to a user with many groups.

        Raises:
            PreconditionFailed: the user has too many groups.
        """
        owner = name.partition(OWNED)[2]
        if (vhost, name) not in self._groups:
            count = sum(other.partition(OWNED)[2] == owner for _, other in self._groups)
            if count >= MAX_GROUPS:
                raise PreconditionFailed(f"the user has {MAX_GROUPS} reader groups: release unused groups")

    def _known(self, host: VirtualHost, name: str) -> ReaderGroup:
        group = self._groups.get((host.name, name))
        if group is None:
            raise NotFound(f"no reader group '{name.partition(OWNED)[0]}' in vhost '{host.name}'")
        return group

    def _known_place(self, host: VirtualHost, group: ReaderGroup, queue: str) -> Reservations:
        place = group.places.get(host.queue(queue, NO_CONNECTION).name)
        if place is None:
            raise NotFound(f"no reader group '{group.shown_name}' in queue '{queue}' in vhost '{host.name}'")
        return place

    def _place(self, group: ReaderGroup, queue: Queue) -> Reservations:
        if queue.name not in group.places:
            self._follow(group, queue)
        return group.place_in(queue)

    def _follow(self, group: ReaderGroup, queue: Queue) -> None:
        """Subscribe to the queue's deletion."""
        queue.on_gone += (partial(self._on_gone, group),)

    def _on_gone(self, group: ReaderGroup, queue: Queue) -> None:
        place = group.places.pop(queue.name, None)
        if place is not None:
            self._forget_record(RESERVATION, place.key)
            self._broker.topology.later(f"dropping what was reserved of {queue!r}", place.drop())
            group.lost[queue.name] = queue.message_count
            self._record_group(group)

    # --- durable records ---

    def _record_place(self, place: Reservations) -> None:
        if self._broker.store is not None and place.queue.durable and not place.queue.deleted:
            self._broker.store.put(RESERVATION, place.key, place.record())

    def _record_group(self, group: ReaderGroup) -> None:
        if self._broker.store is not None:
            self._broker.store.put(READER_GROUP, group.key, group.record())

    def _forget_record(self, kind: str, key: str) -> None:
        if self._broker.store is not None:
            self._broker.store.delete(kind, key)

    def _forget_place(self, group: ReaderGroup, place: Reservations) -> None:
        if group.places.get(place.queue.name) is place:
            del group.places[place.queue.name]
        place.queue.on_gone = tuple(
            callback
            for callback in place.queue.on_gone
            if not (isinstance(callback, partial) and callback.args == (group,))
        )
        self._forget_record(RESERVATION, place.key)

    def _forget(self, group: ReaderGroup) -> None:
        self._groups.pop((group.vhost, group.name), None)
        self._forget_record(READER_GROUP, group.key)

    # --- leases ---

    def _check_leases(self) -> None:
        now = _now()
        if self._lapsing is None and any(group.deadline <= now for group in self._groups.values()):
            self._lapsing = asyncio.create_task(self._lapse_due(now), name="leases")

    async def _lapse_due(self, now: float) -> None:
        try:
            for group in [group for group in self._groups.values() if group.deadline <= now]:
                async with group.turn:
                    # A request may have extended the lease while this task waited for the group's turn.
                    if group.deadline <= now:
                        await self._lapse(group)
        finally:
            self._lapsing = None

    async def _lapse(self, group: ReaderGroup) -> None:
        """Return a silent group's reservations to the queues. Queues without outstanding messages are removed from the
        group: the numbers of reservations continue without a record.
        """
        group.deadline = float("inf")
        for place in list(group.places.values()):
            if place.holds:
                steps = place.lapse()
                next(steps)
                self._record_place(place)
                await in_turns(self._broker, steps)
            if not place.outstanding:
                self._forget_place(group, place)
        if not group.places and not group.lost:
            self._forget(group)


def _interleaved(lists: list[list[T]]) -> list[T]:
    """Return the items of all lists, first items first: several tasks read the queues from their beginnings."""
    return [item for items in zip_longest(*lists) for item in items if item is not None]


def _require_unshared(queue: Queue) -> None:
    """Refuse a queue read by a consumer group.

    Raises:
        QueueHasReader: a consumer group reads the queue.
    """
    if queue.consumer_group is not None:
        raise QueueHasReader(f"queue '{queue.name}' is read by consumer group '{queue.consumer_group.name}'")


def shares(total: int, available: Mapping[str, int]) -> dict[str, int]:
    """Divide ``total`` evenly over the names, up to the available number of each name."""
    result = {}
    # The smallest first: the unused part of a small share is divided among the larger ones.
    for place, (name, count) in enumerate(sorted(available.items(), key=lambda item: item[1])):
        result[name] = min(count, total // (len(available) - place))
        total -= result[name]
    return result


def _sliced(pieces: list[Piece], first: int, count: int | None) -> Iterator[Piece]:
    """Yield the messages at a range of positions, counted over all pieces."""
    left = count if count is not None else sum(map(len, pieces))
    for piece in pieces:
        if first == 0 and len(piece) <= left:
            left -= len(piece)
            yield piece
        elif left > 0 and first < len(piece):
            part = piece[first : first + left] if isinstance(piece, list) else piece.cut(first, first + left)
            left -= len(part)
            yield part
        first = max(0, first - len(piece))


def _now() -> float:
    return asyncio.get_running_loop().time()
