"""Transactions of a channel (AMQP 0-9-1, class tx): publishes and settlements that wait for ``tx.commit``.

A large commit takes several event-loop iterations, and other connections are served in between. On disk it is one
commit: until its last iteration, no part of the transaction is written, and no change of other connections.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.broker.channel import publishing
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.channel.consumers import Subscription
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.group_consumer import GROUP
from jumpmq.broker.channel.settling import Settlement, SettlingChannel, acknowledge, settling
from jumpmq.broker.channel.waiting import Waiting, in_steps
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.routing.sending import Sent
from jumpmq.queues.memory import held_octets

TURN = 0.005
"""Seconds of a commit's work in the first event-loop iteration; maintenance does the rest in steps."""


@dataclass(slots=True)
class Transaction:
    """Work of a transactional channel since its last commit.

    Attributes:
        publishes: runs of messages, in order.
        settlements: deliveries taken from the channel's list, with their settlement.
        committing: the remaining steps of a begun commit.
        sent: messages sent to queues of other homes, one entry per push.
    """

    publishes: deque[Publish] = field(default_factory=deque)
    settlements: deque[tuple[Deliveries, Settlement]] = field(default_factory=deque)
    committing: Iterator[None] | None = None
    sent: list[Sent] = field(default_factory=list)

    def claim(self, settlement: Settlement) -> Deliveries:
        """Begin a settlement. The caller adds the deliveries to the returned object."""
        if not (self.settlements and settlement is acknowledge is self.settlements[-1][1]):
            self.settlements.append((Deliveries(), settlement))
        return self.settlements[-1][0]

    @property
    def published(self) -> int:
        """Number of messages waiting for the commit."""
        return sum(len(run.messages) for run in self.publishes)

    @property
    def claimed(self) -> int:
        """Number of deliveries waiting for the commit."""
        return sum(len(deliveries) for deliveries, _ in self.settlements)


class TransactionalChannel(publishing.PublishingChannel, SettlingChannel, Protocol):
    """A channel, from the point of view of its transactions."""

    confirms: Confirms | None
    consumers: dict[str, Subscription]
    name: str
    transaction: Transaction | None
    turns: Turns


def tx_select(channel: TransactionalChannel, method: m.TxSelect) -> None:
    if channel.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if any(field.name == GROUP for one in channel.consumers.values() for field in one.arguments):
        raise NotImplementedByServer("transactions on channels with members of consumer groups")
    if channel.transaction is None:
        channel.transaction = Transaction()
    channel.send(m.TxSelectOk())


def tx_commit(channel: TransactionalChannel, method: m.TxCommit) -> Waiting | None:
    """Commit the transaction: steps for :data:`TURN` at once, the remaining steps in maintenance."""
    transaction = _transaction(channel)
    transaction.committing = _steps(channel, transaction)
    until = time.perf_counter() + TURN
    for _ in transaction.committing:
        if time.perf_counter() > until:
            commit = f"the commit of a transaction of channel {channel.name}"
            return in_steps(channel.upkeep, commit, transaction.committing, lambda: _committed(channel, transaction))
    return _committed(channel, transaction)


def _committed(channel: TransactionalChannel, transaction: Transaction) -> Waiting | None:
    transaction.committing = None
    sent, transaction.sent = transaction.sent, []
    if not sent:
        _answer(channel)
        return None

    def go_on() -> None:
        if any(one.was_refused(message) for one in sent for message in one.sources):
            raise PreconditionFailed("partial tx completion")
        _answer(channel)

    waiting, left = Waiting(go_on), len(sent)

    def answered() -> None:
        nonlocal left
        left -= 1
        if not left:
            waiting.end()

    for one in sent:
        channel.sender.when_answered(one, answered)
    return waiting


def _answer(channel: TransactionalChannel) -> None:
    # After tx.commit-ok, no crash undoes the transaction.
    channel.connection.defer_answers()
    channel.send(m.TxCommitOk())


def _steps(channel: TransactionalChannel, transaction: Transaction) -> Iterator[None]:
    with channel.turns.together():
        now = time.time()
        while transaction.publishes:
            run = transaction.publishes.popleft()
            _charge(channel, run, -1)
            for message in run.messages:
                message.published_at = now  # the message is published by the commit: its TTL begins here
            pushed = publishing.publish(channel, run)
            if pushed.sent is not None:
                transaction.sent.append(pushed.sent)
            yield
        # Behind the publishes: after an error of a publish, the deliveries are unsettled, and return to their queues.
        while transaction.settlements:
            yield from settling(channel, *transaction.settlements.popleft())


def tx_rollback(channel: TransactionalChannel, method: m.TxRollback) -> None:
    _transaction(channel)
    forget(channel)
    channel.transaction = Transaction()
    channel.send(m.TxRollbackOk())


def keep(channel: TransactionalChannel, transaction: Transaction, run: Publish) -> None:
    """Keep a run of publishes for the commit."""
    transaction.publishes.append(run)
    _charge(channel, run, 1)


def forget(channel: TransactionalChannel) -> None:
    """Drop the publishes that wait for a commit, and return the settlements to the channel's list of deliveries."""
    transaction = channel.transaction
    if transaction is None:
        return
    if transaction.committing is not None:  # a begun commit is completed
        with contextlib.suppress(AMQPError):
            for _ in transaction.committing:
                pass
    while transaction.publishes:
        _charge(channel, transaction.publishes.popleft(), -1)
    for deliveries, _ in transaction.settlements:
        channel.unacknowledged.put_back(deliveries)
    transaction.settlements.clear()


def _charge(channel: TransactionalChannel, run: Publish, sign: int) -> None:
    channel.connection.charges.add("transactions", sign * held_octets(run.messages))


def _transaction(channel: TransactionalChannel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
