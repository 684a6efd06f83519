"""Quorum queues and streams are durable, and have a client-given name."""

from collections.abc import Callable
from typing import Any

import pytest
from fuzzing.sessions.client import Client
from tests.wire import Basic, ChannelClosed, Queue, WireChannel

from jumpmq.amqp import methods
from jumpmq.amqp.fields import Field
from jumpmq.testing import BrokerProcess


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durable": False}, "invalid property 'non-durable' for queue 'refused' in vhost '/'"),
        ({"exclusive": True}, "invalid property 'exclusive-owner' for queue 'refused' in vhost '/'"),
        ({"auto_delete": True}, "invalid property 'auto-delete' for queue 'refused' in vhost '/'"),
        ({"queue": ""}, "Cannot declare a server-named queue for type rabbit_{kind}_queue"),
    ],
)
def test_it_is_durable_and_named(channel: WireChannel, kind: str, options: dict[str, Any], text: str) -> None:
    declared = {"queue": "refused", "durable": True, "arguments": {"x-queue-type": kind}, **options}
    with pytest.raises(ChannelClosed) as refused:
        channel.call(Queue.Declare(**declared))
    assert (refused.value.code, refused.value.text) == (406, f"PRECONDITION_FAILED - {text.format(kind=kind)}")


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize("argument", [{"x-priority": 1}, {"x-cancel-on-ha-failover": 1}, {"x-stream-offset": "next"}])
def test_consumers_arguments_of_other_kinds_are_refused(
    channel: WireChannel, unique: Callable[[str], str], kind: str, argument: dict[str, Any]
) -> None:
    queue = channel.queue(unique(kind), durable=True, exclusive=False, arguments={"x-queue-type": kind})
    channel.call(Basic.Qos(prefetch_count=1))
    (name,) = argument
    taken = {("quorum", "x-priority"), ("stream", "x-stream-offset")}
    if (kind, name) in taken or name == "x-cancel-on-ha-failover":  # an argument of removed mirrors: ignored
        channel.consume(queue, arguments=argument)
        return
    with pytest.raises(ChannelClosed) as refused:
        channel.consume(queue, arguments=argument)
    place = f"for queue '{queue}' in vhost '/' of queue type rabbit_{kind}_queue"
    assert (refused.value.code, refused.value.text) == (406, f"PRECONDITION_FAILED - invalid arg '{name}' {place}")


@pytest.mark.parametrize("said", [[], [Field("x-queue-type", "S", "classic")]])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.usefixtures("since_4_0")
def test_of_several_arguments_that_a_queue_does_not_take_one_is_told(
    broker: BrokerProcess, said: list[Field], backwards: bool
) -> None:
    """The error names the first unsupported argument in alphabetical order, if the declaration lacks a kind of
    queue.
    """
    arguments = [Field("x-dead-letter-strategy", "S", "at-most-once"), Field("x-delivery-limit", "I", 0)]
    if backwards:
        arguments.reverse()
    client = Client(broker.port)
    client.send_method(1, methods.ChannelOpen())
    client.send_method(1, methods.QueueDeclare(queue="refused", arguments=arguments + said))
    closed = client.call(1, methods.ChannelClose)
    client.hang_up()
    assert isinstance(closed, methods.ChannelClose)
    told = arguments[0].name if said else "x-dead-letter-strategy"
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - invalid arg '{told}' for queue 'refused'")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_of_several_wrong_arguments_of_a_consumer_a_wrong_value_is_told(
    channel: WireChannel, unique: Callable[[str], str], kind: str
) -> None:
    queue = channel.queue(unique(kind), durable=True, exclusive=False, arguments={"x-queue-type": kind})
    arguments = {"x-stream-offset": "first", "x-priority": "a"}
    channel.call(Basic.Qos(prefetch_count=1))
    with pytest.raises(ChannelClosed) as refused:
        channel.consume(queue, arguments=arguments)
    place = f"for queue '{queue}' in vhost '/'"
    assert f"invalid arg 'x-priority' {place}: \"expected integer" in refused.value.text


@pytest.mark.parametrize("first", ["x-stream-offset", "x-stream-filter"])
def test_of_several_arguments_that_a_kind_does_not_take_the_first_is_told(
    broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str], first: str
) -> None:
    queue = channel.queue(unique("quorum"), durable=True, exclusive=False, arguments={"x-queue-type": "quorum"})
    arguments = [Field("x-stream-offset", "S", "first"), Field("x-stream-filter", "S", "a")]
    client = Client(broker.port)
    client.send_method(1, methods.ChannelOpen())
    client.send_method(
        1, methods.BasicConsume(queue=queue, arguments=sorted(arguments, key=lambda field: field.name != first))
    )
    closed = client.call(1, methods.ChannelClose)
    client.hang_up()
    assert isinstance(closed, methods.ChannelClose)
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - invalid arg '{first}' for queue '{queue}'")
