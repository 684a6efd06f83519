"""From an exchange to the queues: the only place for routing, pushing and counting messages, for all publishers."""

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
        queues: how many queues they were routed to.
        copies: how many messages these were pushed together.
        refused: the messages that a queue refused, once a queue.
        unroutable: those that reached no queue.
        routes: the messages of each queue here.
        sent: what went to queues of other homes; None where nothing did.
        error: why routing stopped at a malformed message; those published after it went nowhere.
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
    """Route a run of messages and push every queue its share.

    Args:
        messages: in published order.
        flags: the property flags of all messages, or-ed.
        tally: counts what clients publish; None where the broker publishes for itself.
        mandatory: whether the client gets back those that reach no queue.
        sender: sends to queues of other homes.

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
        exchange: None where they named queues.
        messages, copies, unroutable: as in :class:`Pushed`.
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
