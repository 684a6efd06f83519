"""State of one message of a queue: ready, unacknowledged, or gone."""

from __future__ import annotations

import time

from jumpmq.amqp.messages import Message
from jumpmq.broker.broker import Broker
from jumpmq.broker.figures.values import DeliveryHolder
from jumpmq.queues import Queue
from jumpmq.queues.group_offsets import GroupOffset, GroupOffsets

SHOWN_GROUPS = 20
"""Maximum number of groups named for a stream."""


async def where_it_is(broker: Broker, queue: Queue, number: int) -> str | Message:
    """Return the message if ready; otherwise a sentence on the message's state.

    Args:
        number: number of the message in its queue; its offset in a stream.
    """
    end = queue.next_seq
    if number >= end:
        last = (
            f"the latest message has number {end - 1}"
            if queue.published or queue.ready_count
            else "the queue has not received a message"
        )
        return f"no message of the queue has number {number}: {last}"
    if queue.offsets is not None:
        return _in_stream(queue, queue.offsets, number)
    if queue.retries is not None and (message := queue.retries.resting.held.get(number)) is not None:
        return f"message {number} {rests(queue, message)}"
    if found := queue.peek(number, number, 1):
        return found[0]
    holder = await broker.home_figures.delivery_holder(queue, number)
    if holder is not None:
        return _held_by(holder, number)
    return (
        f"message {number} is no longer in the queue: it was acknowledged, rejected, dropped, dead-lettered or "
        "purged, or has expired"
    )


def rests(queue: Queue, message: Message) -> str:
    """Explain the wait of a message that rests, or is behind a resting message of equal key."""
    if queue.retries is None:
        return "is about to return to its place"
    resting, keys = queue.retries.resting, queue.retries.keys_of([message])
    found = resting.waiting_for(keys[0]) if keys is not None else (message.seq, resting.due_of(message.seq))
    if found is None or not found[1]:
        return "is about to return to its place"
    first, due = found
    retry = "its retry" if first == message.seq else f"a retry of message {first}, which has the same key,"
    return f"waits for {retry} at {formatted(due)}"


def formatted(due: float) -> str:
    """Format a time for operators."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(due))


def _held_by(holder: DeliveryHolder, number: int) -> str:
    consumer = "a basic.get" if holder.tag is None else f"consumer '{holder.tag}'"
    place = f"connection {holder.connection}, channel {holder.channel}"
    under = f" (owner epoch {holder.epoch})" if holder.epoch else ""
    return f"message {number} was delivered to {consumer} of {place}{under}, which has not settled it"


def _in_stream(queue: Queue, offsets: GroupOffsets, number: int) -> str:
    first, _ = queue.view.ready_range()
    if number < first:
        return f"message {number} was removed by the stream's retention: the first message is {first}"
    told = [_of_group(one, number) for _, one in zip(range(SHOWN_GROUPS), offsets, strict=False)]
    more = f" (and {len(offsets) - len(told)} more)" if len(offsets) > len(told) else ""
    return f"message {number} is in the stream; {'; '.join(told)}{more}" if told else (
        f"message {number} is in the stream, and no consumer group reads it: each consumer gets the message at "
        "its own offset"
    )  # fmt: skip


def _of_group(position: GroupOffset, number: int) -> str:
    subject = f"consumer group '{position.group}'"
    if number >= position.next:
        return f"{subject} has {number - position.next} messages before it"
    return f"{subject} {position.state_of(number)}"
