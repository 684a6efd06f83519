"""What becomes of deliveries: acknowledged, rejected or given back (AMQP 0-9-1, class basic; RabbitMQ's basic.nack)."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.broker.returning import AT_ONCE, give_back, pop_last
from jumpmq.queues import Outcome
from jumpmq.queues.runs import by_holder

if TYPE_CHECKING:
    from jumpmq.broker.channel import Channel

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
    waiting, channel.unacknowledged = channel.unacknowledged, {}
    give_back(channel.upkeep, waiting, Outcome.REQUEUED)
    if isinstance(method, m.BasicRecover):
        channel.send(m.BasicRecoverOk())
    channel.serve()


def acknowledge(channel: "Channel", messages: list[Message]) -> None:
    """They are done with."""
    channel.tally.ack += len(messages)
    _settle(channel, messages, Outcome.ACKNOWLEDGED)


def reject(channel: "Channel", messages: list[Message]) -> None:
    """They are dropped, or dead-lettered."""
    _settle(channel, messages, Outcome.REJECTED)


def requeue(channel: "Channel", messages: list[Message]) -> None:
    """They return to their places."""
    give_back(channel.upkeep, dict(enumerate(messages)), Outcome.REQUEUED)
    channel.serve()


def _decide(channel: "Channel", tags: list[int], multiple: bool, settlement: Settlement) -> None:
    if channel.transaction is not None:
        _claim_for_commit(channel, channel.transaction.claim(settlement), tags, multiple)
    elif multiple and len(channel.unacknowledged) > AT_ONCE and _means_all(channel, tags[0]):
        _decide_in_steps(channel, settlement)
    else:
        settlement(channel, _claim(channel, tags, multiple))


def _means_all(channel: "Channel", tag: int) -> bool:
    return tag in (0, channel.next_delivery_tag - 1)


def _decide_in_steps(channel: "Channel", settlement: Settlement) -> None:
    """Settle all deliveries of a channel, many: they are off its list now, and what becomes of them follows."""
    waiting, channel.unacknowledged = channel.unacknowledged, {}
    if settlement is requeue:
        give_back(channel.upkeep, waiting, Outcome.REQUEUED)
    else:
        channel.upkeep.work("settling deliveries", _settling(channel, waiting, settlement))


def _settling(channel: "Channel", waiting: dict[int, Message], settlement: Settlement) -> Iterator[None]:
    if settlement is acknowledge:
        while waiting:
            settlement(channel, pop_last(waiting, AT_ONCE))
            yield
    else:  # dead letters are to keep their order
        messages = list(waiting.values())[::-1]
        waiting.clear()
        while messages:
            share = messages[: -AT_ONCE - 1 : -1]
            del messages[-AT_ONCE:]
            settlement(channel, share)
            yield


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
    if _means_all(channel, tags[0]):
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
