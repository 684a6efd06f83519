"""Transactions of a channel (AMQP 0-9-1, class tx): publishes and settlements that wait for ``tx.commit``."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.broker import publishing
from jumpmq.broker.settling import Settlement

if TYPE_CHECKING:
    from jumpmq.broker.channel import Channel


@dataclass(slots=True)
class Transaction:
    """What a transactional channel did since its last commit.

    Attributes:
        publishes: runs of messages, in order.
        settlements: deliveries by delivery tag, taken off the channel's list, and what becomes of them.
    """

    publishes: list[Publish] = field(default_factory=list)
    settlements: list[tuple[dict[int, Message], Settlement]] = field(default_factory=list)

    def claim(self, settlement: Settlement) -> dict[int, Message]:
        """Begin a settlement; the deliveries are to be put into what is returned."""
        claimed: dict[int, Message] = {}
        self.settlements.append((claimed, settlement))
        return claimed

    @property
    def claimed(self) -> dict[int, Message]:
        """All deliveries that wait for the commit."""
        return {tag: message for messages, _ in self.settlements for tag, message in messages.items()}


def tx_select(channel: "Channel", method: m.TxSelect) -> None:
    if channel.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction()
    channel.send(m.TxSelectOk())


def tx_commit(channel: "Channel", method: m.TxCommit) -> None:
    transaction = _transaction(channel)
    now = time.time()
    while transaction.publishes:
        run = transaction.publishes.pop(0)
        for message in run.messages:
            message.published_at = now  # it is published now, and what it may live counts from here
        publishing.publish(channel, run)
    while transaction.settlements:
        messages, settlement = transaction.settlements.pop(0)
        settlement(channel, list(messages.values()))
    channel.connection.defer_answers()
    channel.send(m.TxCommitOk())


def tx_rollback(channel: "Channel", method: m.TxRollback) -> None:
    _transaction(channel)
    unclaim(channel)
    channel.transaction = Transaction()
    channel.send(m.TxRollbackOk())


def unclaim(channel: "Channel") -> None:
    """Return what waits for a commit to the channel's list of deliveries."""
    if channel.transaction is not None and (claimed := channel.transaction.claimed):
        channel.unacknowledged = dict(sorted((channel.unacknowledged | claimed).items()))


def _transaction(channel: "Channel") -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
