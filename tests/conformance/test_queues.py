"""Declaring, naming, purging and deleting queues, and auto-deletion."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.wire import Basic, ChannelClosed, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]


def exists(channel: WireChannel, queue: str) -> bool:
    """Return true if a queue exists, checked on a new channel."""
    try:
        channel.connection.channel().ready(queue)
    except ChannelClosed as closed:
        assert closed.code == 404
        return False
    return True


def test_a_server_named_queue(channel: WireChannel) -> None:
    first, second = channel.queue(), channel.queue()
    assert first.startswith("amq.gen-")
    assert first != second


def test_the_empty_name_is_the_last_queue_declared(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("queue"))
    channel.bind("", "amq.direct", queue)
    channel.publish("amq.direct", queue, b"for the last one")
    assert channel.bodies("") == [b"for the last one"]
    assert channel.call(Queue.Delete(queue="")).message_count == 0
    assert not exists(channel, queue)


def test_declaring_again_answers_with_the_counts(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    for _ in range(3):
        channel.publish("", queue)
    channel.wait_for_confirms()
    channel.consume(channel.queue(), "elsewhere")
    answer = channel.call(Queue.Declare(queue=queue, exclusive=True))
    assert (answer.queue, answer.message_count, answer.consumer_count) == (queue, 3, 0)


def test_unacknowledged_messages_are_not_counted(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    for _ in range(3):
        channel.publish("", queue)
    channel.wait_for_confirms()
    channel.get(queue, no_ack=False)
    assert channel.ready(queue) == 2


def test_arguments_of_another_integer_type_are_the_same(channel: WireChannel, unique: Name) -> None:
    name = unique("queue")
    channel.queue(name, arguments={"x-max-length": 10})
    channel.queue(name, arguments={"x-max-length": 10})


def test_purge_counts_what_it_removed(channel: WireChannel, queue: str) -> None:
    for _ in range(3):
        channel.publish("", queue)
    assert channel.call(Queue.Purge(queue=queue)).message_count == 3
    assert channel.get(queue) is None


def test_delete_counts_what_it_removed(channel: WireChannel, queue: str) -> None:
    for _ in range(3):
        channel.publish("", queue)
    assert channel.call(Queue.Delete(queue=queue)).message_count == 3


def test_deleting_a_missing_queue_is_answered(channel: WireChannel) -> None:
    assert channel.call(Queue.Delete(queue="ghost")).message_count == 0


def test_unbinding_what_is_not_there_is_answered(channel: WireChannel, queue: str) -> None:
    wrong = [("ghost", "amq.direct", "key"), (queue, "ghost", "key"), (queue, "amq.direct", "never")]
    for name, exchange, key in wrong:
        channel.call(Queue.Unbind(queue=name, exchange=exchange, routing_key=key))


def test_binding_twice_is_binding_once(channel: WireChannel, queue: str) -> None:
    for _ in range(2):
        channel.bind(queue, "amq.direct", queue)
    channel.call(Queue.Unbind(queue=queue, exchange="amq.direct", routing_key=queue))
    channel.publish("amq.direct", queue)
    assert channel.get(queue) is None


def test_every_queue_is_bound_to_the_default_exchange(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue, b"by name")
    assert channel.bodies(queue) == [b"by name"]


def test_deleting_a_queue_removes_its_bindings(channel: WireChannel, queue: str) -> None:
    channel.bind(queue, "amq.fanout")
    channel.call(Queue.Delete(queue=queue))
    channel.queue(queue)
    channel.publish("amq.fanout", "")
    assert channel.get(queue) is None


def test_an_exclusive_queue_goes_with_its_connection(broker: BrokerProcess, channel: WireChannel, unique: Name) -> None:
    name = unique("exclusive")
    owner = login(broker.port)
    owner.channel().queue(name)
    owner.close()
    assert not exists(channel, name)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: WireChannel, unique: Name) -> None:
    name = channel.queue(unique("auto"), exclusive=False, auto_delete=True)
    channel.consume(name, "first")
    channel.consume(name, "last")
    channel.call(Basic.Cancel(consumer_tag="first"))
    assert exists(channel, name)
    channel.call(Basic.Cancel(consumer_tag="last"))
    assert not exists(channel, name)


@pytest.mark.usefixtures("in_one_process")
def test_an_auto_delete_queue_goes_when_its_consumers_connection_is_lost(
    broker: BrokerProcess, channel: WireChannel, unique: Name
) -> None:
    name = channel.queue(unique("auto"), exclusive=False, auto_delete=True)
    with login(broker.port) as reader:
        reader.channel().consume(name)
        reader.close()
    assert not exists(channel, name)


def test_no_answer_when_none_is_wanted(channel: WireChannel, unique: Name) -> None:
    name = unique("queue")
    channel.send(Queue.Declare(queue=name, exclusive=True, nowait=True))
    channel.send(Queue.Bind(queue=name, exchange="amq.direct", routing_key=name, nowait=True))
    channel.send(Queue.Purge(queue=name, nowait=True))
    channel.send(Basic.Consume(queue=name, consumer_tag="t", nowait=True))
    channel.send(Basic.Cancel(consumer_tag="t", nowait=True))
    channel.send(Queue.Delete(queue=name, nowait=True))
    assert channel.is_silent()


def test_a_name_may_have_255_octets(channel: WireChannel) -> None:
    name = channel.queue("q" * 255)
    channel.publish("", name, b"found")
    assert channel.bodies(name) == [b"found"]


def test_declaring_again_compares_the_arguments_of_the_queues_kind(channel: WireChannel, unique: Name) -> None:
    name = channel.queue(unique("queue"))
    channel.queue(name, arguments={"x-delivery-limit": 3, "x-max-age": "1h", "x-other": 1})


LOCATOR = "x-queue-leader-locator"


@pytest.mark.parametrize("value", ["client-local", "balanced", "random", "least-leaders", "min-masters"])
def test_a_leader_locator_is_an_argument_of_a_classic_queue(channel: WireChannel, unique: Name, value: str) -> None:
    name = channel.queue(unique("queue"), arguments={LOCATOR: value})
    assert channel.queue(name, arguments={LOCATOR: value}) == name


@pytest.mark.parametrize(
    ("declared", "again", "text"),
    [
        (
            {LOCATOR: "client-local"},
            {LOCATOR: "balanced"},
            "inequivalent arg '{}' for {}: received 'balanced' but current is 'client-local'",
        ),
        (
            {LOCATOR: "client-local"},
            {},
            "inequivalent arg '{}' for {}: received none but current is the value 'client-local' of type 'longstr'",
        ),
        (
            {},
            {LOCATOR: "balanced"},
            "inequivalent arg '{}' for {}: received the value 'balanced' of type 'longstr' but current is none",
        ),
        ({LOCATOR: "x"}, {}, "invalid arg '{}' for {}: invalid_queue_locator_arg"),
        ({LOCATOR: True}, {}, "invalid arg '{}' for {}: {{unacceptable_type,bool}}"),
    ],
)
def test_a_classic_queues_leader_locator_is_checked_and_compared(
    channel: WireChannel, unique: Name, declared: dict[str, Any], again: dict[str, Any], text: str
) -> None:
    name = unique("queue")
    with pytest.raises(ChannelClosed) as refused:
        channel.queue(name, arguments=declared)
        channel.queue(name, arguments=again)
    expected = text.format(LOCATOR, f"queue '{name}' in vhost '/'")
    assert (refused.value.code, refused.value.text) == (406, f"PRECONDITION_FAILED - {expected}")


def test_the_former_master_locator_may_be_anything(channel: WireChannel, unique: Name) -> None:
    channel.queue(unique("queue"), arguments={"x-queue-master-locator": "x"})


WRONG: dict[str, Any] = {
    "x-expires": "a", "x-message-ttl": "a", "x-dead-letter-exchange": 1, "x-dead-letter-routing-key": 1,
    "x-dead-letter-strategy": 1, "x-max-length": "a", "x-max-length-bytes": "a", "x-max-in-memory-length": "a",
    "x-max-in-memory-bytes": "a", "x-max-priority": "a", "x-overflow": "a", "x-queue-mode": "a", "x-queue-version": "a",
    "x-single-active-consumer": "a", "x-quorum-initial-group-size": "a", "x-max-age": "1h",
    "x-stream-max-segment-size-bytes": "a", "x-stream-filter-size-bytes": "a", "x-initial-cluster-size": "a",
    LOCATOR: "a",
}  # fmt: skip
"""Invalid values of queue arguments, except `x-max-age`, on which RabbitMQ 4.0 fails."""

COMPLAINTS = {
    "classic": [
        "x-dead-letter-exchange", "x-expires", "x-message-ttl", "x-dead-letter-routing-key", "x-max-length",
        "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
        "x-single-active-consumer", LOCATOR, "x-dead-letter-strategy", "x-initial-cluster-size",
    ],
    "quorum": [
        "x-dead-letter-exchange", "x-expires", "x-message-ttl", "x-dead-letter-routing-key",
        "x-dead-letter-strategy", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length",
        "x-max-in-memory-bytes", "x-overflow", "x-single-active-consumer", "x-quorum-initial-group-size", LOCATOR,
        "x-initial-cluster-size", "x-max-age",
    ],
    "stream": [
        "x-dead-letter-exchange", "x-max-length-bytes", "x-stream-max-segment-size-bytes", "x-initial-cluster-size",
        LOCATOR, "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires",
    ],
}  # fmt: skip
"""Order of errors by kind of queue: the first invalid argument is reported."""


def _refused(channel: WireChannel, arguments: dict[str, Any]) -> None:
    """Declare a queue; where a version without the argument accepts the declaration, delete the queue."""
    channel.queue("refused", exclusive=False, durable=True, arguments=arguments)
    channel.call(Queue.Delete(queue="refused"))


@pytest.mark.parametrize("kind", COMPLAINTS)
def test_of_several_wrong_arguments_the_same_is_told_first(broker: BrokerProcess, kind: str) -> None:
    left = dict(sorted(WRONG.items(), reverse=True))
    told: list[str] = []
    with login(broker.port) as connection:
        while len(told) < len(COMPLAINTS[kind]):
            with pytest.raises(ChannelClosed) as refused:
                _refused(connection.channel(), {"x-queue-type": kind, **left})
            told += re.findall("'(x-[a-z-]+)'", refused.value.text)
            del left[told[-1]]
    assert told == COMPLAINTS[kind]


def test_the_size_of_a_streams_filters_is_within_limits(channel: WireChannel) -> None:
    with pytest.raises(ChannelClosed) as refused:
        _refused(channel, {"x-queue-type": "stream", "x-stream-filter-size-bytes": 15})
    assert refused.value.text == "PRECONDITION_FAILED - Invalid value for  x-stream-filter-size-bytes"


def test_an_exclusive_queue_is_not_durable_whatever_is_asked_for(channel: WireChannel, unique: Name) -> None:
    name = channel.queue(unique("queue"), durable=True)
    assert channel.queue(name, durable=False) == name
