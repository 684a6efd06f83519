"""Errors that close their channel, and nothing else: reply code and text."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire import Basic, ChannelClosed, Confirm, Exchange, Queue, Tx, WireChannel, WireConnection, login

from jumpmq.testing import BrokerProcess

pytestmark = pytest.mark.usefixtures("bystander")

Mistake = tuple[Callable[[WireChannel, str], Any], int, str]
"""The operation on a channel and a queue of the test; the reply code; the text with {queue} in it."""


def _publish_to_an_internal_exchange(channel: WireChannel, queue: str) -> None:
    channel.exchange(queue, "fanout", internal=True)
    channel.publish(queue, "key")


def _acknowledge_twice(channel: WireChannel, queue: str) -> None:
    channel.publish("", queue)
    channel.get(queue, no_ack=False)
    for _ in range(2):
        channel.send(Basic.Ack(delivery_tag=1))


def _delete_although_not_empty(channel: WireChannel, queue: str) -> None:
    channel.confirm_select()
    channel.publish("", queue)
    channel.wait_for_confirms()
    channel.call(Queue.Delete(queue=queue, if_empty=True))


def _delete_although_bound(channel: WireChannel, queue: str) -> None:
    channel.exchange(queue, "fanout")
    channel.bind(queue, queue)
    channel.call(Exchange.Delete(exchange=queue, if_unused=True))


MISSING: dict[str, Mistake] = {
    "passive declare of a queue": (
        lambda channel, _: channel.call(Queue.Declare(queue="ghost", passive=True)),
        404, "NOT_FOUND - no queue 'ghost' in vhost '/'",
    ),
    "passive declare of an exchange": (
        lambda channel, _: channel.call(Exchange.Declare(exchange="ghost", passive=True)),
        404, "NOT_FOUND - no exchange 'ghost' in vhost '/'",
    ),
    "bind to an exchange": (
        lambda channel, queue: channel.bind(queue, "ghost"),
        404, "NOT_FOUND - no exchange 'ghost' in vhost '/'",
    ),
    "bind of a queue": (
        lambda channel, _: channel.bind("ghost", "amq.direct"),
        404, "NOT_FOUND - no queue 'ghost' in vhost '/'",
    ),
    "bind of an exchange": (
        lambda channel, _: channel.call(Exchange.Bind(source="amq.direct", destination="ghost")),
        404, "NOT_FOUND - no exchange 'ghost' in vhost '/'",
    ),
    "consume": (
        lambda channel, _: channel.consume("ghost"),
        404, "NOT_FOUND - no queue 'ghost' in vhost '/'",
    ),
    "get": (
        lambda channel, _: channel.get("ghost"),
        404, "NOT_FOUND - no queue 'ghost' in vhost '/'",
    ),
    "purge": (
        lambda channel, _: channel.call(Queue.Purge(queue="ghost")),
        404, "NOT_FOUND - no queue 'ghost' in vhost '/'",
    ),
    "publish": (
        lambda channel, _: channel.publish("ghost", "key"),
        404, "NOT_FOUND - no exchange 'ghost' in vhost '/'",
    ),
    "passive declare of no name, which is not the last queue": (
        lambda channel, _: channel.call(Queue.Declare(passive=True)),
        404, "NOT_FOUND - no queue '' in vhost '/'",
    ),
    "the last queue, before any was declared": (
        lambda channel, _: channel.connection.channel(77).consume(""),
        404, "NOT_FOUND - no previously declared queue",
    ),
}  # fmt: skip

DIFFERENT: dict[str, Mistake] = {
    "queue, durable": (
        lambda channel, queue: [
            channel.queue(queue + "-shared", exclusive=False, auto_delete=True),
            channel.queue(queue + "-shared", exclusive=False, auto_delete=True, durable=True),
        ],
        406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}-shared' in vhost '/': "
             "received 'true' but current is 'false'",
    ),
    "queue, auto-delete": (
        lambda channel, queue: channel.queue(queue, auto_delete=True),
        406, "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{queue}' in vhost '/': "
             "received 'true' but current is 'false'",
    ),
    "queue, exclusive": (
        lambda channel, queue: channel.queue(queue, exclusive=False),
        405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. "
             "It could be originally declared on another connection or the exclusive property value does not "
             "match that of the original declaration.",
    ),
    "queue, argument added": (
        lambda channel, queue: channel.queue(queue, arguments={"x-max-length": 100_000}),
        406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{queue}' in vhost '/': "
             "received the value '100000' of type 'signedint' but current is none",
    ),
    "queue, argument changed": (
        lambda channel, queue: [
            channel.queue(queue + "-limited", arguments={"x-message-ttl": 100_000}),
            channel.queue(queue + "-limited", arguments={"x-message-ttl": 200_000}),
        ],
        406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{queue}-limited' in vhost '/': "
             "received '200000' but current is '100000'",
    ),
    "queue, argument dropped": (
        lambda channel, queue: [
            channel.queue(queue + "-limited", arguments={"x-message-ttl": 100_000}),
            channel.queue(queue + "-limited"),
        ],
        406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{queue}-limited' in vhost '/': "
             "received none but current is the value '100000' of type 'signedint'",
    ),
    "exchange, type": (
        lambda channel, _: channel.exchange("amq.direct", "topic", durable=True, auto_delete=False),
        406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
             "received 'topic' but current is 'direct'",
    ),
    "exchange, a type that Erlang quotes": (
        lambda channel, _: channel.exchange("amq.direct", "x-modulus-hash", durable=True, auto_delete=False),
        406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
             "received ''x-modulus-hash'' but current is 'direct'",
    ),
    "exchange, durable": (
        lambda channel, _: channel.exchange("amq.direct", "direct", auto_delete=False),
        406, "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'amq.direct' in vhost '/': "
             "received 'false' but current is 'true'",
    ),
    "exchange, auto-delete": (
        lambda channel, _: channel.exchange("amq.direct", "direct", durable=True),
        406, "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange 'amq.direct' in vhost '/': "
             "received 'true' but current is 'false'",
    ),
    "exchange, internal": (
        lambda channel, _: channel.exchange("amq.direct", "direct", durable=True, auto_delete=False, internal=True),
        406, "PRECONDITION_FAILED - inequivalent arg 'internal' for exchange 'amq.direct' in vhost '/': "
             "received 'true' but current is 'false'",
    ),
}  # fmt: skip

FORBIDDEN: dict[str, Mistake] = {
    "a queue of the reserved prefix": (
        lambda channel, _: channel.queue("amq.mine"),
        403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    "an exchange of the reserved prefix": (
        lambda channel, _: channel.exchange("amq.mine", "direct"),
        403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    "deleting a predeclared exchange": (
        lambda channel, _: channel.call(Exchange.Delete(exchange="amq.direct")),
        403, "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    "declaring the default exchange": (
        lambda channel, _: channel.exchange("", "direct"),
        403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "deleting the default exchange": (
        lambda channel, _: channel.call(Exchange.Delete(exchange="")),
        403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "binding to the default exchange": (
        lambda channel, queue: channel.bind(queue, "", "key"),
        403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "unbinding from the default exchange": (
        lambda channel, queue: channel.call(Queue.Unbind(queue=queue, exchange="", routing_key=queue)),
        403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "binding the default exchange to another": (
        lambda channel, _: channel.call(Exchange.Bind(source="amq.direct", destination="")),
        403, "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "publishing to an internal exchange": (
        _publish_to_an_internal_exchange,
        403, "ACCESS_REFUSED - cannot publish to internal exchange '{queue}' in vhost '/'",
    ),
}  # fmt: skip

UNTIMELY: dict[str, Mistake] = {
    "ack of a tag that was never given out": (
        lambda channel, _: channel.send(Basic.Ack(delivery_tag=82)),
        406, "PRECONDITION_FAILED - unknown delivery tag 82",
    ),
    "ack of one tag twice": (
        _acknowledge_twice,
        406, "PRECONDITION_FAILED - unknown delivery tag 1",
    ),
    "nack of an unknown tag": (
        lambda channel, _: channel.send(Basic.Nack(delivery_tag=5)),
        406, "PRECONDITION_FAILED - unknown delivery tag 5",
    ),
    "reject of an unknown tag": (
        lambda channel, _: channel.send(Basic.Reject(delivery_tag=6)),
        406, "PRECONDITION_FAILED - unknown delivery tag 6",
    ),
    "deleting a queue that is not empty": (
        _delete_although_not_empty,
        406, "PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty",
    ),
    "deleting a queue that is in use": (
        lambda channel, queue: [channel.consume(queue), channel.call(Queue.Delete(queue=queue, if_unused=True))],
        406, "PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use",
    ),
    "deleting an exchange that is in use": (
        _delete_although_bound,
        406, "PRECONDITION_FAILED - exchange '{queue}' in vhost '/' in use",
    ),
    "a second consumer where one is exclusive": (
        lambda channel, queue: [channel.consume(queue, exclusive=True), channel.consume(queue)],
        403, "ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use",
    ),
    "an exclusive consumer where there is one": (
        lambda channel, queue: [channel.consume(queue), channel.consume(queue, exclusive=True)],
        403, "ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use",
    ),
    "transactions on a channel with confirms": (
        lambda channel, _: [channel.call(Confirm.Select()), channel.call(Tx.Select())],
        406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    ),
    "confirms on a channel with transactions": (
        lambda channel, _: [channel.call(Tx.Select()), channel.call(Confirm.Select())],
        406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    ),
    "commit without a transaction": (
        lambda channel, _: channel.call(Tx.Commit()),
        406, "PRECONDITION_FAILED - channel is not transactional",
    ),
    "rollback without a transaction": (
        lambda channel, _: channel.call(Tx.Rollback()),
        406, "PRECONDITION_FAILED - channel is not transactional",
    ),
    "an expiration that is no number": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(expiration="abc")),
        406, "PRECONDITION_FAILED - invalid expiration 'abc': no_integer",
    ),
    "an expiration in more than ten years": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(expiration="315360000001")),
        406, "PRECONDITION_FAILED - invalid expiration '315360000001': {{value_too_large,315360000001}}",
    ),
    "an expiration with a unit": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(expiration="10ms")),
        406, "PRECONDITION_FAILED - invalid expiration '10ms': {{leftover_string,\"ms\"}}",
    ),
    "a copy to what is no list": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(headers={"CC": "orders"})),
        406, "PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,\"CC\",longstr}}",
    ),
    "a priority of a consumer that is no number": (
        lambda channel, queue: channel.consume(queue, arguments={"x-priority": "high"}),
        406, "PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{queue}' in vhost '/': "
             "\"expected integer, got longstr\"",
    ),
    "an offset in a classic queue": (
        lambda channel, queue: channel.consume(queue, arguments={"x-stream-offset": "first"}),
        406, "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue '{queue}' in vhost '/' "
             "of queue type rabbit_classic_queue",
    ),
    "headers to match in an unknown way": (
        lambda channel, queue: channel.bind(queue, "amq.headers", arguments={"x-match": "some"}),
        406, "PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; "
             "expected all, any, all-with-x, or any-with-x",
    ),
    "an alternate exchange that is no name": (
        lambda channel, queue: channel.exchange(queue, "direct", arguments={"alternate-exchange": True}),
        406, "PRECONDITION_FAILED - invalid type 'bool' for arg 'alternate-exchange' in exchange '{queue}' "
             "in vhost '/'",
    ),
    "answers without anybody to hear them": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(reply_to="amq.rabbitmq.reply-to")),
        406, "PRECONDITION_FAILED - fast reply consumer does not exist",
    ),
    "a negative expiration": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(expiration="-1")),
        406, "PRECONDITION_FAILED - invalid expiration '-1': {{value_negative,-1}}",
    ),
    "a user id that is not the user's, and an expiration that is none": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(user_id="root", expiration="-1")),
        406, "PRECONDITION_FAILED - invalid expiration '-1': {{value_negative,-1}}",
    ),
    "an unknown exchange type": (
        lambda channel, queue: channel.exchange("orders", "x-nonsense"),
        406, "PRECONDITION_FAILED - unknown exchange type 'x-nonsense'",
    ),
    "an exchange type without a name": (
        lambda channel, queue: channel.exchange("orders", ""),
        406, "PRECONDITION_FAILED - invalid exchange type ''",
    ),
    "an unknown exchange type for the default exchange": (
        lambda channel, queue: channel.exchange("", "x-nonsense"),
        406, "PRECONDITION_FAILED - unknown exchange type 'x-nonsense'",
    ),
    "a user id that is not the user's": (
        lambda channel, queue: channel.publish("", queue, b"", Basic.Properties(user_id="root")),
        406, "PRECONDITION_FAILED - user_id property set to 'root' but authenticated user was 'guest'",
    ),
}  # fmt: skip

MISTAKES = {
    f"{title}: {name}": mistake
    for title, mistakes in (
        ("missing", MISSING), ("different", DIFFERENT), ("forbidden", FORBIDDEN), ("untimely", UNTIMELY),
    )
    for name, mistake in mistakes.items()
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_closes_the_channel(connection: WireConnection, channel: WireChannel, queue: str, mistake: Mistake) -> None:
    provoke, code, text = mistake
    with pytest.raises(ChannelClosed) as closed:
        provoke(channel, queue)
        channel.next()
    assert (closed.value.code, closed.value.text) == (code, text.format(queue=queue))
    assert connection.channel().ready(queue) is not None, "the connection and its queues remain"


LOCKED: dict[str, Callable[[WireChannel, str], Any]] = {
    "declare": lambda channel, queue: channel.queue(queue),
    "passive declare": lambda channel, queue: channel.ready(queue),
    "bind": lambda channel, queue: channel.bind(queue, "amq.direct"),
    "unbind": lambda channel, queue: channel.call(Queue.Unbind(queue=queue, exchange="amq.direct")),
    "consume": lambda channel, queue: channel.consume(queue),
    "get": lambda channel, queue: channel.get(queue),
    "purge": lambda channel, queue: channel.call(Queue.Purge(queue=queue)),
    "delete": lambda channel, queue: channel.call(Queue.Delete(queue=queue)),
}


@pytest.mark.parametrize("operation", LOCKED.values(), ids=LOCKED.keys())
def test_an_exclusive_queue_is_locked_for_other_connections(
    broker: BrokerProcess, channel: WireChannel, queue: str, operation: Callable[[WireChannel, str], Any]
) -> None:
    channel.bind(queue, "amq.direct")
    with login(broker.port) as other, pytest.raises(ChannelClosed) as closed:
        operation(other.channel(), queue)
    text = f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'"
    assert closed.value.code == 405
    assert closed.value.text.startswith(text)


def test_the_close_names_the_method(channel: WireChannel) -> None:
    with pytest.raises(ChannelClosed) as closed:
        channel.call(Queue.Declare(queue="ghost", passive=True))
    assert closed.value.method == (50, 10)
