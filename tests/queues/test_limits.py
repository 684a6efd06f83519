"""Limits changed by policies while a queue is in use; the single active consumer."""

import time

import pytest
from tests.queues.consumers import Taker, message, push, ready

from jumpmq.amqp.errors import AccessRefused
from jumpmq.queues import QUEUE_TYPES, Queue, make_queue
from jumpmq.queues.arguments import BY_ARGUMENT, Limits
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.store.stream_files import StreamFiles


@pytest.mark.parametrize(
    ("kind", "arguments", "policy", "limits"),
    [
        ("classic", {}, {}, Limits()),
        ("classic", {"x-max-length": 4}, {"max-length": 6}, Limits(max_length=4)),
        ("classic", {"x-max-length": 6}, {"max-length": 4}, Limits(max_length=4)),
        ("classic", {"x-expires": 6}, {"message-ttl": 0}, Limits(expires=6, message_ttl=0)),
        ("classic", {"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, Limits()),
        ("classic", {"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b"}, Limits(dead_letter_exchange="a")),
        ("classic", {}, {"single-active-consumer": True, "shards-per-node": 3}, Limits()),
        ("quorum", {"x-delivery-limit": 5}, {"delivery-limit": -1}, Limits(delivery_limit=5)),
        ("quorum", {"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, Limits(overflow="reject-publish")),
        ("quorum", {"x-overflow": "drop-head"}, {"max-length": 1}, Limits(max_length=1)),
        ("quorum", {"x-max-length-bytes": 5}, {"max-length-bytes": 7}, Limits(max_length_bytes=5)),
        ("stream", {"x-max-length-bytes": 5}, {"max-length-bytes": 7}, Limits(max_length_bytes=7)),
        ("stream", {"x-max-age": "1h"}, {"max-age": "1D"}, Limits(max_age=86_400)),
    ],
)
def test_arguments_and_policies(
    kind: str, arguments: dict[str, object], policy: dict[str, object], limits: Limits
) -> None:
    assert Limits.of(arguments, policy, kind) == limits


@pytest.mark.parametrize("kind", QUEUE_TYPES.values())
def test_an_argument_without_a_check_has_no_effect(kind: type[Queue]) -> None:
    """A kind of queue without a check for an argument ignores the argument."""
    arguments = {
        "x-queue-type": kind.type,
        **dict.fromkeys(BY_ARGUMENT.keys() - kind.argument_checks.keys(), "unchecked"),
    }
    made = make_queue("/", "q", id=1, arguments=arguments, context=QueueContext(streams=StreamFiles(None)))
    assert made.limits == Limits()
    assert made.arguments == {"x-queue-type": kind.type}


@pytest.fixture
def queue() -> ClassicQueue:
    """An empty queue without limits."""
    return ClassicQueue("/", "q", id=1)


def test_what_is_too_much_goes_at_once(queue: ClassicQueue) -> None:
    push(queue, b"1", b"2", b"3")
    queue.set_limits(Limits(max_length=1))
    assert ready(queue) == [b"3"]
    push(queue, b"4")
    assert ready(queue) == [b"4"]
    queue.set_limits(Limits())
    push(queue, b"5")
    assert ready(queue) == [b"4", b"5"]


def test_messages_keep_the_expiry_that_they_came_with(queue: ClassicQueue) -> None:
    push(queue, b"stays")
    queue.set_limits(Limits(message_ttl=1))
    push(queue, b"goes")
    queue.set_limits(Limits())
    queue.trim(time.time() + 3600)
    assert ready(queue) == [b"stays", b"goes"]
    queue.take(1)
    queue.trim(time.time() + 3600)
    assert ready(queue) == []


def test_the_first_to_come_is_served_until_it_leaves(queue: ClassicQueue) -> None:
    queue.set_limits(Limits(single_active_consumer=True))
    low, middle, high = [Taker(queue, priority=priority).start() for priority in (0, 5, 10)]
    push(queue, b"1")
    assert (queue.active_consumer, low.bodies) == (low, [b"1"])
    low.give_back()
    assert (queue.active_consumer, high.bodies) == (high, [b"1"])
    high.give_back()
    middle.give_back()
    assert queue.active_consumer is None


def test_a_busy_active_consumer_is_waited_for(queue: ClassicQueue) -> None:
    queue.set_limits(Limits(single_active_consumer=True))
    first, second = Taker(queue, prefetch=1).start(), Taker(queue).start()
    push(queue, b"1", b"2")
    assert (first.bodies, second.bodies) == ([b"1"], [])
    queue.set_limits(Limits())
    assert second.bodies == [b"2"]


def test_no_consumer_may_be_exclusive_where_one_is_active(queue: ClassicQueue) -> None:
    queue.set_limits(Limits(single_active_consumer=True))
    with pytest.raises(AccessRefused, match=r"in exclusive use$"):
        queue.subscribe(Taker(queue, exclusive=True))


def test_messages_of_a_size_are_let_go(queue: ClassicQueue) -> None:
    queue.push([message(b"x" * size) for size in (10, 20, 30)])
    queue.set_limits(Limits(max_length_bytes=50))
    assert [len(body) for body in ready(queue)] == [20, 30]
