"""Carriage returns and line feeds are stripped from names in declarations, deletions and bindings."""

from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.wire import ChannelClosed, WireChannel, content_header

from jumpmq.amqp import methods as m
from jumpmq.testing import BrokerProcess

METHOD, HEADER, BODY = 1, 2, 3


def call(channel: WireChannel, method: m.Method) -> Any:
    """Send a method with names refused by the client library. Return the answer."""
    channel.send_frame(METHOD, method.encode())
    return channel.next()


def test_what_changes_definitions_strips_names(channel: WireChannel) -> None:
    assert call(channel, m.QueueDeclare(queue="na\r\nmed\n\r", exclusive=True)).queue == "named"
    assert call(channel, m.QueueDeclare(queue="named\n", passive=True)).queue == "named"
    call(channel, m.ExchangeDeclare(exchange="na\r\nmed\n", type="direct"))
    call(channel, m.ExchangeDeclare(exchange="\nnamed", passive=True))
    call(channel, m.QueueBind(queue="named\n", exchange="named\r", routing_key=b"key\n"))
    call(channel, m.ExchangeBind(source="\nnamed", destination="amq.fanout\r", routing_key=b"key"))
    channel.publish("named", "key\n", b"bound")
    assert channel.bodies("named") == [b"bound"]
    call(channel, m.ExchangeUnbind(source="named\n", destination="amq.fanout\n", routing_key=b"key"))
    call(channel, m.QueueUnbind(queue="named\n", exchange="named\n", routing_key=b"key\n"))
    call(channel, m.QueueDelete(queue="named\n"))
    call(channel, m.ExchangeDelete(exchange="named\n"))
    with pytest.raises(ChannelClosed) as closed:
        channel.ready("named")
    assert closed.value.code == 404


@pytest.mark.parametrize(
    "method",
    [
        m.BasicGet(queue="plain\n"),
        m.BasicConsume(queue="plain\n"),
        m.QueuePurge(queue="plain\n"),
        m.BasicPublish(exchange="plain\n", routing_key=b"key"),
    ],
    ids=["get", "consume", "purge", "publish"],
)
def test_what_uses_them_does_not(channel: WireChannel, method: m.Method) -> None:
    channel.queue("plain")
    with pytest.raises(ChannelClosed) as closed:
        channel.send_frame(METHOD, method.encode())
        if isinstance(method, m.BasicPublish):
            channel.send_frame(HEADER, content_header(1))
            channel.send_frame(BODY, b"x")
        channel.next()
    assert closed.value.code == 404


def test_a_name_of_line_feeds_is_none(channel: WireChannel) -> None:
    assert call(channel, m.QueueDeclare(queue="\r\n", exclusive=True)).queue.startswith("amq.gen-")
    with pytest.raises(ChannelClosed) as closed:
        call(channel, m.QueueDeclare(queue="a\nmq.x", exclusive=True))
    assert closed.value.text == "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"


def test_over_http(broker: BrokerProcess, operator: Operator) -> None:
    for kind, body in (("queues", {}), ("exchanges", {"type": "direct"})):
        assert operator.ask("PUT", kind, "/", "of\nhttp\r", json=body).status_code == 201
        assert operator.see(kind, "/", "ofhttp")["name"] == "ofhttp"
        assert operator.ask("DELETE", kind, "/", "ofhttp").status_code == 204
