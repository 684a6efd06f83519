"""Interface for sending messages to queues of other workers or nodes.

Each link is a source of receipts (:mod:`~jumpmq.broker.commit.receipts`): a message sent to two homes is complete when
both homes have it on disk.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.commit.receipts import REFUSED, Part, ReceiptParts
from jumpmq.topology import VirtualHost
from jumpmq.topology.declared import DeclaredQueue

REFUSALS = frozenset({"reject-publish", "reject-publish-dlx"})


def may_refuse(vhost: VirtualHost, queue: DeclaredQueue) -> bool:
    """Return True if a queue may refuse a single message, because the queue is full."""
    if queue.definition.arguments.plain().get("x-overflow") in REFUSALS:
        return True
    return vhost.in_force.of(queue).definition.get("overflow") in REFUSALS


class Sent:
    """Messages sent to other homes.

    Args:
        shares: for each home the bit of its source, and the messages sent there.

    Attributes:
        queues, copies: number of queues, and of messages sent to all queues together.
        parts: own receipt parts of messages that may be refused singly, by the ``id`` of the message.
        by_source: for each source, the receipt part of all messages.
        source: the bit of the only source, if each message went to one queue of one home; otherwise 0.
    """

    def __init__(
        self,
        queues: int,
        copies: int,
        shares: list[tuple[int, list[Message]]],
        parts: dict[int, tuple[Part, ...]],
        by_source: dict[int, Part],
    ) -> None:
        self.queues = queues
        self.copies = copies
        self.parts = parts
        self.by_source = by_source
        self.source = shares[0][0] if len(shares) == 1 and len(shares[0][1]) == copies else 0
        self._shares = shares  # messages sent, by home

    @cached_property
    def sources(self) -> dict[int, int]:
        """Sources of receipts per message ``id``, as or-ed bits."""
        found: dict[int, int] = {}
        for source, messages in self._shares:
            for message in messages:
                found[id(message)] = found.get(id(message), 0) | source
        return found

    def was_refused(self, message: int) -> bool:
        """Return True if a message, by ``id``, was refused: by a queue, or because of a failed home."""
        return ReceiptParts((*self._covering(message), *self.parts.get(message, ()))).state is REFUSED

    def was_lost(self, message: int) -> bool:
        """Return True if the message may not have arrived because a home is down; refusal by a queue does not count."""
        return ReceiptParts(tuple(self._covering(message))).state is REFUSED

    def _covering(self, message: int) -> list[Part]:
        sources = self.sources.get(message, 0)
        return [part for source, part in self.by_source.items() if source & sources]


class Sender(Protocol):
    """Sends messages to other homes.

    Attributes:
        reply_prefix: prefix of the random part of this home's direct reply-to addresses, which identifies the home;
            empty in a broker of one process.
    """

    @property
    def reply_prefix(self) -> bytes: ...

    def send(self, routes: dict[DeclaredQueue, list[Message]], flags: int) -> Sent:
        """Send messages to queues of other homes; messages for a failed home are refused.

        Args:
            flags: the property flags of all messages, or-ed.
        """

    def send_reply(self, home: int, message: Message) -> bool:
        """Send an answer to the direct reply-to address in its routing key; return True if the home is up."""

    def when_answered(self, sent: Sent, then: Callable[[], None]) -> None:
        """Call a function, within an event-loop iteration of the broker, when the outcome of all sent messages is
        known.
        """


class _Nowhere:
    """Sender of a single-process broker: no queue is remote, and no address belongs to another home."""

    reply_prefix = b""

    def send(self, routes: dict[DeclaredQueue, list[Message]], flags: int) -> Sent:
        return Sent(0, 0, [], {}, {})

    def send_reply(self, home: int, message: Message) -> bool:
        return False

    def when_answered(self, sent: Sent, then: Callable[[], None]) -> None:
        then()


NOWHERE: Sender = _Nowhere()
