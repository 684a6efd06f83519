"""What becomes of deliveries: acknowledged, rejected or given back (AMQP 0-9-1, class basic; RabbitMQ's basic.nack)."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.broker.upkeep import Upkeep
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.runs import by_holder

if TYPE_CHECKING:
    from jumpmq.broker.channel import Channel

AT_ONCE = 4096
"""Deliveries that return to a queue in one step; a millisecond or two."""

Settlement = Callable[["Channel", list[Message]], None]
"""What becomes of deliveries that were claimed."""


def basic_ack(channel: "Channel", tags: list[int], multiple: bool) -> None:
    """``basic.ack``, each tag for itself or, ``multiple``, the one tag for all up to it.

    Raises:
        PreconditionFailed: a tag is unknown.
    """
    _decide(channel, tags, multiple, acknowledge)


def basic_nack(channel: "Channel", method: m.BasicNack) -> None:
    _decide(channel, [method.delivery_tag], method.multiple, requeue if method.requeue else reject)


def basic_reject(channel: "Channel", method: m.BasicReject) -> None:
    _decide(channel, [method.delivery_tag], False, requeue if method.requeue else reject)


def basic_recover(channel: "Channel", method: m.BasicRecover | m.BasicRecoverAsync) -> None:
    if not method.requeue:
        raise NotImplementedByServer("requeue=false")
    messages = list(channel.unacknowledged.values())
    channel.unacknowledged.clear()
    return_to_queues(channel, messages, Outcome.REQUEUED)
    if isinstance(method, m.BasicRecover):
        channel.send(m.BasicRecoverOk())
    channel.serve()


def acknowledge(channel: "Channel", messages: list[Message]) -> None:
    """They are done with."""
    _settle(channel, messages, Outcome.ACKNOWLEDGED)


def reject(channel: "Channel", messages: list[Message]) -> None:
    """They are dropped, or dead-lettered."""
    _settle(channel, messages, Outcome.REJECTED)


def requeue(channel: "Channel", messages: list[Message]) -> None:
    """They return to their places."""
    return_to_queues(channel, messages, Outcome.REQUEUED)
    channel.serve()


def return_to_queues(channel: "Channel", messages: list[Message], outcome: Outcome = Outcome.RETURNED) -> None:
    """Return deliveries to their queues, each queue's at once or, where they are many, in steps."""
    groups: dict[Queue, list[Message]] = {}
    for _, queue, share in by_holder(messages):
        groups.setdefault(queue, []).extend(share)
    for queue, share in groups.items():
        if len(share) > AT_ONCE and queue.requeues_in_place:
            Return(queue, share, outcome).begin(channel.upkeep)
        else:
            _return(queue, share, outcome)


def _return(queue: Queue, messages: list[Message], outcome: Outcome) -> None:
    for consumer, _, share in by_holder(messages):
        if consumer is not None:
            consumer.unacknowledged -= len(share)
    queue.settle(messages, outcome)


class Return:
    """Deliveries on their way back to their queue, the last first; it delivers nothing until all are there.

    So it is always the front that is missing, and nobody gets a message before those that came before it.
    """

    def __init__(self, queue: Queue, messages: list[Message], outcome: Outcome) -> None:
        self._queue = queue
        self._messages = messages
        self._outcome = outcome

    def begin(self, upkeep: Upkeep) -> None:
        """Give back some now, and the others by and by."""
        self._queue.begin_return(self.finish)
        upkeep.work(f"returning messages to {self._queue!r}", self._steps())

    def finish(self) -> None:
        """Give back all that are left."""
        while self._messages:
            self._step()

    def _steps(self) -> Iterator[None]:
        try:
            while self._messages:
                self._step()
                yield
        finally:
            self._queue.end_return(self.finish)

    def _step(self) -> None:
        messages = self._messages[-AT_ONCE:]
        del self._messages[-AT_ONCE:]
        _return(self._queue, messages, self._outcome)


def _decide(channel: "Channel", tags: list[int], multiple: bool, settlement: Settlement) -> None:
    if channel.transaction is not None:
        _claim_for_commit(channel, channel.transaction.claim(settlement), tags, multiple)
    else:
        settlement(channel, _claim(channel, tags, multiple))


def _settle(channel: "Channel", messages: list[Message], outcome: Outcome) -> None:
    for consumer, queue, share in by_holder(messages):
        if consumer is not None:
            consumer.unacknowledged -= len(share)
        queue.settle(share, outcome)
    if messages:
        channel.serve()


def _claim(channel: "Channel", tags: list[int], multiple: bool) -> list[Message]:
    """Take the deliveries with these tags off the channel's list.

    Raises:
        PreconditionFailed: a tag is unknown.
    """
    waiting = channel.unacknowledged
    if not multiple:
        messages: list[Message] = []
        for tag in tags:
            message = waiting.pop(tag, None)
            if message is None:
                acknowledge(channel, messages)
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            messages.append(message)
        return messages
    _check_tags(channel, tags, multiple)
    if tags[0] in (0, channel.next_delivery_tag - 1):
        messages = list(waiting.values())
        waiting.clear()
        return messages
    claimed = list(itertools.takewhile(tags[0].__ge__, waiting))
    return [waiting.pop(one) for one in claimed]


def _claim_for_commit(channel: "Channel", claimed: dict[int, Message], tags: list[int], multiple: bool) -> None:
    """As :func:`_claim`, into what the transaction has ``claimed``; the tags are kept, as it may be rolled back.

    Raises:
        PreconditionFailed: a tag is unknown.
    """
    waiting = channel.unacknowledged
    if multiple:
        _check_tags(channel, tags, multiple)
        last = tags[0] or channel.next_delivery_tag
        tags = list(itertools.takewhile(last.__ge__, waiting))
    for tag in tags:
        _check_tags(channel, [tag], False)
        claimed[tag] = waiting.pop(tag)


def _check_tags(channel: "Channel", tags: Iterable[int], multiple: bool) -> None:
    for tag in tags:
        if tag not in channel.unacknowledged and not (multiple and tag == 0):
            raise PreconditionFailed(f"unknown delivery tag {tag}")
