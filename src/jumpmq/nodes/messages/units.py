"""Batches of messages for several queues of a home, as sent over a link. A batch has each message once."""

import struct
from functools import cached_property
from itertools import chain
from time import time

from jumpmq.amqp.messages import Message
from jumpmq.nodes.transport.records import UNIT_HEAD, UNIT_INDEX, UNIT_QUEUE
from jumpmq.queues import Queue, clock
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.runs import pack, unpack
from jumpmq.store.definitions import AHEAD, PARTS
from jumpmq.topology import Topology
from jumpmq.topology.declared import DeclaredQueue


class NotKnownYet(Exception):
    """A message names a queue that a change of definitions, not applied here yet, has moved to this home."""


class Ahead:
    """The front of a queue: messages from the queue's previous home enter it ahead of the messages already waiting."""

    def __init__(self, queue: ClassicQueue) -> None:
        self.id = queue.id | AHEAD
        self.source = queue.source
        self.expect_expiry = queue.expect_expiry
        self._queue = queue

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        """Add messages; none is refused."""
        self._queue.push_ahead(messages)
        return []


class Unit:
    """A batch: the messages sent to one home together.

    Args:
        shares: the messages of each queue.
        messages: all messages, each once; derived from ``shares`` by default.
    """

    def __init__(
        self, shares: list[tuple[DeclaredQueue, list[Message]]], messages: list[Message] | None = None
    ) -> None:
        self.messages = list(chain.from_iterable(share for _, share in shares)) if messages is None else messages
        self._shares = shares  # of each queue
        self._side_by_side = len(shares) <= 1 or len(set(map(id, self.messages))) == len(self.messages)
        if not self._side_by_side:  # a message may go to several queues
            self.messages = list({id(message): message for message in self.messages}.values())

    @cached_property
    def places(self) -> dict[int, int]:
        """Index of every message, by the message's ``id``."""
        return {id(message): place for place, message in enumerate(self.messages)}

    def encoded(self, number: int, flags: int) -> list[bytes]:
        """Return the encoded batch.

        Args:
            flags: the property flags of all messages, combined by "or".
        """
        buffers = [UNIT_HEAD.pack(number, flags, len(self.messages), len(self._shares))]
        buffers += pack(self.messages, clock.now())
        first = 0
        for queue, share in self._shares:
            host, name = queue.vhost.encode(errors="surrogateescape"), queue.name.encode(errors="surrogateescape")
            buffers += (UNIT_QUEUE.pack(queue.id, len(host), len(name), len(share), self._side_by_side), host, name)
            if self._side_by_side:
                buffers.append(UNIT_INDEX.pack(first))
                first += len(share)
            else:
                buffers.append(struct.pack(f"!{len(share)}I", *(self.places[id(message)] for message in share)))
        return buffers


def decoded(payload: memoryview) -> tuple[int, int, list[Message], int, int]:
    """Return the batch's number, flags and messages, the number of queues, and the position of the first queue."""
    unit, flags, count, queues = UNIT_HEAD.unpack_from(payload)
    messages, at = unpack(payload, UNIT_HEAD.size, count, time(), clock.now())
    return unit, flags, messages, queues, at


def destination(
    topology: Topology, payload: memoryview, at: int
) -> tuple[Queue | Ahead | None, tuple[int, ...] | slice, int]:
    """Return a queue of a batch, the indexes of the queue's messages, and the position of the next queue in the
    payload.

    The queue is None if it is unknown, for example deleted. For a queue that has moved away, it is the part left behind
    here. For an id with :data:`~jumpmq.store.definitions.AHEAD`, it is the front of the queue (:class:`Ahead`).

    Raises:
        NotKnownYet: the queue has moved here by a change that is not applied here yet.
    """
    number, host_octets, name_octets, count, side_by_side = UNIT_QUEUE.unpack_from(payload, at)
    at += UNIT_QUEUE.size
    vhost = bytes(payload[at : at + host_octets]).decode(errors="surrogateescape")
    at += host_octets
    name = bytes(payload[at : at + name_octets]).decode(errors="surrogateescape")
    at += name_octets
    chosen: tuple[int, ...] | slice
    if side_by_side:
        first = UNIT_INDEX.unpack_from(payload, at)[0]
        chosen = slice(first, first + count)
        at += UNIT_INDEX.size
    else:
        chosen = struct.unpack_from(f"!{count}I", payload, at)
        at += 4 * count
    host = topology.vhosts.get(vhost)
    queue = None if host is None else host.queues.get(name)
    if queue is None or queue.id != number:
        if queue is not None and queue.id | AHEAD == number:
            assert isinstance(queue, ClassicQueue), "a stream moves by its files"
            return Ahead(queue), chosen, at
        departed = None if host is None else host.departed.get(name)
        if topology.is_to_come(number & ~PARTS):
            raise NotKnownYet
        return (departed if departed is not None and departed.id == number else None), chosen, at
    return queue, chosen, at
