"""Settlement of deliveries: acknowledged, rejected or requeued (AMQP 0-9-1, class basic; RabbitMQ's basic.nack)."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.consumers import Subscription
from jumpmq.broker.channel.deliveries import BITS, Deliveries
from jumpmq.broker.channel.returning import give_back
from jumpmq.broker.channel.revoked import Revoked
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Outcome
from jumpmq.queues.runs import by_holder
from jumpmq.topology.tally import Tally


class Claiming(Protocol):
    """A transaction: collects settled deliveries of the client."""

    def claim(self, settlement: "Settlement") -> Deliveries: ...


class SettlingChannel(Protocol):
    """A channel, from the point of view of settlements; see :class:`~jumpmq.broker.channel.channel.Channel`."""

    revoked: Revoked | None
    tally: Tally
    unacknowledged: Deliveries
    upkeep: Upkeep
    waiting: OrderedDict[Subscription, None]

    @property
    def transaction(self) -> Claiming | None: ...
    def send(self, method: m.Method) -> None: ...
    def serve(self) -> None: ...


Settlement = Callable[[SettlingChannel, list[Message]], None]
"""Settles claimed deliveries."""


def basic_ack(channel: SettlingChannel, tags: list[int], multiple: bool) -> None:
    """``basic.ack`` of individual tags or, with ``multiple``, of all tags up to one.

    Raises:
        PreconditionFailed: a tag is unknown.
    """
    _decide(channel, tags, multiple, acknowledge)


def basic_nack(channel: SettlingChannel, method: m.BasicNack) -> None:
    _decide(channel, [method.delivery_tag], method.multiple, requeue if method.requeue else reject)


def basic_reject(channel: SettlingChannel, method: m.BasicReject) -> None:
    _decide(channel, [method.delivery_tag], False, fail if method.requeue else reject)


def basic_recover(channel: SettlingChannel, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
    # AMQP 0-9-1, basic.recover: redelivery to the original recipient. RabbitMQ does not implement it either.
    if not method.requeue:
        raise NotImplementedByServer("requeue=false")
    give_back(channel.upkeep, channel.unacknowledged.take_upto(0), Outcome.REQUEUED)
    # AMQP 0-9-1: basic.recover-async has no answer.
    if isinstance(method, m.BasicRecover):
        channel.send(m.BasicRecoverOk())
    channel.serve()


def acknowledge(channel: SettlingChannel, messages: list[Message]) -> None:
    """Acknowledge the messages."""
    channel.tally.ack += len(messages)
    _settle(channel, messages, Outcome.ACKNOWLEDGED)


def reject(channel: SettlingChannel, messages: list[Message]) -> None:
    """Reject the messages: dropped, or dead-lettered."""
    _settle(channel, messages, Outcome.REJECTED)


def fail(channel: SettlingChannel, messages: list[Message]) -> None:
    """Return messages to their positions as failed: ``basic.reject``, with a single message per method, means a failure
    to handle the message.
    """
    _settle(channel, messages, Outcome.FAILED)


def requeue(channel: SettlingChannel, messages: list[Message]) -> None:
    """Requeue the messages to their positions."""
    if len(messages) == 1:
        _settle(channel, messages, Outcome.REQUEUED)
        return
    waiting = Deliveries()
    waiting.add(0, messages)
    give_back(channel.upkeep, waiting, Outcome.REQUEUED)
    channel.serve()


def _decide(channel: SettlingChannel, tags: list[int], multiple: bool, settlement: Settlement) -> None:
    if channel.transaction is not None:
        _claim_for_commit(channel, channel.transaction.claim(settlement), tags, multiple)
    elif multiple:
        _decide_upto(channel, tags[0], settlement)
    else:
        messages = channel.unacknowledged.claim(tags)
        if len(messages) == len(tags):
            settlement(channel, messages)
        else:
            _decide_known(channel, tags, messages, settlement)


def _decide_known(channel: SettlingChannel, tags: list[int], claimed: list[Message], settlement: Settlement) -> None:
    """Settle a list with unknown tags. Revoked tags are skipped.

    Args:
        claimed: the deliveries of the tags before the first unknown tag.
    """
    place = len(claimed)
    while place < len(tags):
        if channel.revoked is None or not channel.revoked.settled(tags[place]):
            # Several methods of the client are gathered in the list: those before the wrong one count.
            acknowledge(channel, claimed)
            raise _unknown(tags[place])
        more = channel.unacknowledged.claim(tags[place + 1 :])
        claimed += more
        place += 1 + len(more)
    if claimed:
        settlement(channel, claimed)


def _decide_upto(channel: SettlingChannel, tag: int, settlement: Settlement) -> None:
    """Settle all deliveries up to a tag: removed at once, settled in steps if many."""
    _check_tag(channel, tag)
    waiting = channel.unacknowledged.take_upto(tag)
    if settlement is acknowledge and len(waiting) <= 1 << BITS:
        acknowledge(channel, waiting.messages())
        return
    steps = settling(channel, waiting, settlement)
    next(steps, None)
    if waiting:
        channel.upkeep.work("settling deliveries", steps)


def settling(channel: SettlingChannel, waiting: Deliveries, settlement: Settlement) -> Iterator[None]:
    """Settle many deliveries in steps; requeued ones return in separate steps."""
    if settlement is requeue:
        give_back(channel.upkeep, waiting, Outcome.REQUEUED)
        channel.serve()
        return
    for messages in waiting.forwards():
        settlement(channel, messages)
        yield


def _settle(channel: SettlingChannel, messages: list[Message], outcome: Outcome) -> None:
    released = {}
    for consumer, queue, share in by_holder(messages):
        if consumer is not None:
            consumer.release(len(share))
            released[consumer] = queue
        queue.settle(share, outcome)
    for consumer, queue in released.items():
        if queue.ready_count and consumer.capacity() > 0:
            queue.serve(consumer)
    if channel.waiting:
        channel.serve()


def _claim_for_commit(channel: SettlingChannel, claimed: Deliveries, tags: list[int], multiple: bool) -> None:
    """Move deliveries to the transaction's ``claimed``, with tags for a rollback.

    Raises:
        PreconditionFailed: a tag is unknown.
    """
    waiting = channel.unacknowledged
    if multiple:
        _check_tag(channel, tags[0])
        claimed.put_back(waiting.take_upto(tags[0]))
        return
    messages = waiting.claim(tags)
    # Before the error: the close of the channel then returns these deliveries.
    claimed.put(tags, messages)
    if len(messages) < len(tags):
        raise _unknown(tags[len(messages)])


def _check_tag(channel: SettlingChannel, tag: int) -> None:
    """Refuse an unknown tag for multiple settlement; 0 means all, possibly none."""
    if tag and tag not in channel.unacknowledged and not (channel.revoked and channel.revoked.settled(tag)):
        raise _unknown(tag)


def _unknown(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")
