"""Routing, pushing and counting of messages, in one place for all publishers."""

from typing import NamedTuple, Protocol

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import EXPIRATION, HEADERS
from jumpmq.broker.routing.sending import NOWHERE, Sender, Sent
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.tally import Tally


class Pushed(NamedTuple):
    """Outcome of a run of messages.

    Attributes:
        queues: number of destination queues.
        copies: number of messages pushed to all queues together.
        refused: refused messages, an entry for each refusing queue.
        unroutable: messages that reached no queue.
        routes: the messages of each local queue.
        sent: messages sent to queues of other homes; None without any.
        error: error of a malformed message; this message and all later ones are not routed.
    """

    queues: int
    copies: int
    refused: list[Message]
    unroutable: list[Message]
    routes: dict[Queue, list[Message]]
    error: AMQPError | None
    sent: Sent | None = None


def push(
    vhost: VirtualHost,
    exchange: str | Exchange,
    messages: list[Message],
    flags: int,
    tally: Tally | None = None,
    mandatory: bool = False,
    sender: Sender = NOWHERE,
) -> Pushed:
    """Route a run of messages and push each queue's share.

    Args:
        messages: in published order.
        flags: the property flags of all messages, or-ed.
        tally: counts the messages of clients; None for messages of the broker itself.
        mandatory: True if messages that reach no queue are returned to the client.
        sender: sends messages to queues of other homes.

    Raises:
        NotFound, AccessRefused: as :meth:`VirtualHost.publishable`.
    """
    routed = vhost.route(exchange, messages, plain=not flags & HEADERS)
    if routed.stripped:
        routed.strip()
    source = vhost.exchanges[exchange] if isinstance(exchange, str) else exchange
    source.received += len(messages)
    refused: list[Message] = []
    queues, copies, sent = len(routed.queues), 0, None
    for queue, share in routed.queues.items():
        copies += len(share)
        refused += push_to(queue, share, flags)
    if routed.remote is not None:
        sent = sender.send(routed.remote, flags)
        queues, copies = queues + sent.queues, copies + sent.copies
    if tally is not None:
        count(tally, source, len(messages), copies, len(routed.unroutable), mandatory)
    return Pushed(queues, copies, refused, routed.unroutable, routed.queues, routed.error, sent)


def count(
    tally: Tally, exchange: Exchange | None, messages: int, copies: int, unroutable: int, mandatory: bool = False
) -> None:
    """Count messages published by clients.

    Args:
        exchange: the exchange; None for messages published directly to queues.
        messages: number of messages.
        copies, unroutable: numbers of pushed copies and of unroutable messages.
    """
    if exchange is not None:
        exchange.published_in += messages
        exchange.published_out += copies
    tally.publish += messages
    tally.routed += copies
    if mandatory:
        tally.return_unroutable += unroutable
    else:
        tally.drop_unroutable += unroutable


class Pushable(Protocol):
    """Destination of pushed messages: usually a queue."""

    def expect_expiry(self) -> None: ...
    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]: ...


def push_to(queue: Pushable, messages: list[Message], flags: int, *, fitting: bool = False) -> list[Message]:
    """Push messages to a queue; return the refused messages: none if found ``fitting``."""
    if flags & EXPIRATION:
        queue.expect_expiry()
    return queue.push(messages, fitting=fitting)
