"""Transactions of a channel (AMQP 0-9-1, class tx): publishes and settlements that wait for ``tx.commit``."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.broker import publishing
from jumpmq.broker.settling import Settlement
from jumpmq.queues.memory import OVERHEAD

if TYPE_CHECKING:
    from jumpmq.broker.channel import Channel


@dataclass(slots=True)
class Transaction:
    """What a transactional channel did since its last commit.

    Attributes:
        publishes: runs of messages, in order.
        settlements: deliveries by delivery tag, taken off the channel's list, and what becomes of them.
    """

    publishes: deque[Publish] = field(default_factory=deque)
    settlements: deque[tuple[dict[int, Message], Settlement]] = field(default_factory=deque)

    def claim(self, settlement: Settlement) -> dict[int, Message]:
        """Begin a settlement; the deliveries are to be put into what is returned."""
        claimed: dict[int, Message] = {}
        self.settlements.append((claimed, settlement))
        return claimed

    @property
    def published(self) -> int:
        """How many messages wait for the commit."""
        return sum(len(run.messages) for run in self.publishes)

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
        run = transaction.publishes.popleft()
        _charge(channel, run, -1)
        for message in run.messages:
            message.published_at = now  # it is published now, and what it may live counts from here
        publishing.publish(channel, run)
    while transaction.settlements:
        messages, settlement = transaction.settlements.popleft()
        settlement(channel, list(messages.values()))
    channel.connection.defer_answers()
    channel.send(m.TxCommitOk())


def tx_rollback(channel: "Channel", method: m.TxRollback) -> None:
    _transaction(channel)
    forget(channel)
    channel.transaction = Transaction()
    channel.send(m.TxRollbackOk())


def keep(channel: "Channel", transaction: Transaction, run: Publish) -> None:
    """Keep a run of publishes for the commit."""
    transaction.publishes.append(run)
    _charge(channel, run, 1)


def forget(channel: "Channel") -> None:
    """Drop the publishes that wait for a commit, and return the settlements to the channel's list of deliveries."""
    transaction = channel.transaction
    if transaction is None:
        return
    while transaction.publishes:
        _charge(channel, transaction.publishes.popleft(), -1)
    if claimed := transaction.claimed:
        channel.unacknowledged.put_back(claimed.items())


def _charge(channel: "Channel", run: Publish, sign: int) -> None:
    channel.connection.charges.add("transactions", sign * (run.size + OVERHEAD * len(run.messages)))


def _transaction(channel: "Channel") -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
