"""Groups of readers in the live broker: reservations are durable before they are promised, and lapse in silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.queues import Queue
from jumpmq.queues.reader import LEASE, Reader

if TYPE_CHECKING:
    from jumpmq.broker.broker import Broker
    from jumpmq.topology import VirtualHost

RECORD = "reservation"
"""The kind of definition that a reader's record is stored as."""

LEASE_CHECK = 0.25
"""Seconds between two looks at the leases."""


@dataclass(frozen=True)
class ReservationRequest:
    """What a group asks to reserve.

    Attributes:
        offsets: per queue, the reservation up to which everything is done; None where the group does not know.
        max_messages: over all queues, outstanding ones included; None for all there are.
        last_seqs: per queue, the last message to reserve, for those that have a limit.
        lease: seconds of silence after which the reservations lapse.
    """

    offsets: Mapping[str, int | None]
    max_messages: int | None = None
    last_seqs: Mapping[str, int] | None = None
    lease: float = LEASE


class ReaderGroups:
    """The operations on groups of readers: those of one group follow one another, groups do not wait for each other."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._deadlines: dict[Reader, float] = {}
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Mind the leases, also of what was reserved before the broker was started."""
        for host in self._broker.topology.vhosts.values():
            for queue in host.queues.values():
                for reader in queue.readers.values():
                    self._renew(reader)
        self._watch = asyncio.create_task(self._watch_leases(), name="leases")

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    async def reserve(self, host: VirtualHost, group: str, wanted: ReservationRequest) -> dict[str, tuple[int, int]]:
        """Acknowledge what is done and reserve more.

        Returns:
            per queue, the highest reservation and how many messages are outstanding.

        Raises:
            NotFound: no such queue; nothing has changed then.
        """
        queues = [host.queue(name) for name in wanted.offsets]
        async with self._turns[host.name, group]:
            readers = {queue.name: self._reader(queue, group, wanted.lease) for queue in queues}
            for name, reader in readers.items():
                await self._acknowledge(reader, wanted.offsets[name])
                await _steps(reader.reinstate())
                reader.give_up_lapsed()
            last_seqs = wanted.last_seqs or {}
            available = {name: reader.available(last_seqs.get(name)) for name, reader in readers.items()}
            outstanding = sum(reader.outstanding for reader in readers.values())
            room = sum(available.values()) if wanted.max_messages is None else max(0, wanted.max_messages - outstanding)
            for name, count in shares(room, available).items():
                await _steps(readers[name].reserve(count, last_seqs.get(name)))
                self._record(readers[name])
            await self._broker.committed()
            return {name: (reader.latest, reader.outstanding) for name, reader in readers.items()}

    async def acknowledge(self, host: VirtualHost, group: str, offsets: Mapping[str, int]) -> None:
        """Settle reservations for good.

        Raises:
            NotFound: no such queue, or no such group there; nothing has changed then.
            PreconditionFailed: there is no reservation of that number; nothing has changed then.
        """
        readers = {name: self._known(host.queue(name), group) for name in offsets}
        for name, reader in readers.items():
            if offsets[name] > reader.latest:
                raise PreconditionFailed(
                    f"no reservation {offsets[name]} of group '{group}' in queue '{name}': the last is {reader.latest}"
                )
        async with self._turns[host.name, group]:
            for name, reader in readers.items():
                await self._acknowledge(reader, offsets[name])
                self._record(reader)
            await self._broker.committed()

    async def held(self, queue: Queue, group: str, after: int | None, upto: int) -> list[list[Message]]:
        """The messages of some reservations, as :meth:`Reader.held`; what has lapsed is held again if it can be.

        Raises:
            ReservationGone: it cannot, or they are acknowledged, or the group has nothing in this queue.
        """
        async with self._turns[queue.vhost, group]:
            reader = queue.readers.get(group) or Reader(queue, group)
            if reader.lapsed:
                await _steps(reader.reinstate())
            found = reader.held(after, upto)
            self._renew(reader)
            return found

    def renew(self, host: VirtualHost, group: str) -> None:
        """The group is alive."""
        for reader in self.readers(host, group):
            self._renew(reader)

    async def release(self, host: VirtualHost, group: str) -> None:
        """Give everything back and forget the group.

        Raises:
            NotFound: it has no place in any queue of this virtual host.
        """
        readers = self.readers(host, group)
        if not readers:
            raise NotFound(f"no reader group '{group}' in vhost '{host.name}'")
        async with self._turns[host.name, group]:
            for reader in readers:
                reader.lapse()
                reader.queue.readers.pop(group, None)
                self._deadlines.pop(reader, None)
                if self._broker.store is not None:
                    self._broker.store.delete(RECORD, reader.key)
            await self._broker.committed()
        self._turns.pop((host.name, group), None)

    def readers(self, host: VirtualHost, group: str) -> list[Reader]:
        """The group's readers, one a queue that it has a place in."""
        return [queue.readers[group] for queue in host.queues.values() if group in queue.readers]

    # -- parts

    def _reader(self, queue: Queue, group: str, lease: float) -> Reader:
        reader = queue.readers.get(group)
        if reader is None:
            reader = queue.readers[group] = Reader(queue, group)
        reader.lease = lease
        self._renew(reader)
        return reader

    def _known(self, queue: Queue, group: str) -> Reader:
        reader = queue.readers.get(group)
        if reader is None:
            raise NotFound(f"no reader group '{group}' in queue '{queue.name}' in vhost '{queue.vhost}'")
        self._renew(reader)
        return reader

    async def _acknowledge(self, reader: Reader, upto: int | None) -> None:
        if upto is None or upto <= reader.acknowledged:
            return
        steps = reader.acknowledge(upto)
        next(steps)
        self._record(reader)
        await _steps(steps)
        if self._broker.store is not None:
            self._broker.store.note_settled()

    def _record(self, reader: Reader) -> None:
        if self._broker.store is not None and reader.queue.durable and not reader.queue.deleted:
            self._broker.store.put(RECORD, reader.key, reader.record())

    def _renew(self, reader: Reader) -> None:
        self._deadlines[reader] = asyncio.get_running_loop().time() + reader.lease

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_CHECK)
            now = asyncio.get_running_loop().time()
            for reader in [reader for reader, deadline in self._deadlines.items() if deadline <= now]:
                async with self._turns[reader.queue.vhost, reader.group]:
                    if self._deadlines.get(reader, now) <= now:
                        del self._deadlines[reader]
                        with self._broker.turns.turn():
                            reader.lapse()


def shares(total: int, available: Mapping[str, int]) -> dict[str, int]:
    """Divide ``total`` evenly over those who can take something, none more than it can take."""
    result = {}
    for place, (name, count) in enumerate(sorted(available.items(), key=lambda item: item[1])):
        result[name] = min(count, total // (len(available) - place))
        total -= result[name]
    return result


async def _steps(steps: Iterator[None]) -> None:
    """Take the steps of an operation, serving others in between."""
    for _ in steps:
        await asyncio.sleep(0)
