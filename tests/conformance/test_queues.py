"""Declaring, naming, emptying and deleting queues, and those that go by themselves."""

from collections.abc import Callable

from tests.wire import Basic, ChannelClosed, Queue, WireChannel, login

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]


def exists(channel: WireChannel, queue: str) -> bool:
    """Whether a queue exists, asked on a channel of its own."""
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
    for names in ({"queue": "ghost"}, {"exchange": "ghost"}, {"routing_key": "never"}):
        channel.call(Queue.Unbind(**{"queue": queue, "exchange": "amq.direct", "routing_key": "key", **names}))


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
    channel.queue(name, arguments={"x-delivery-limit": 3, "x-queue-leader-locator": "balanced", "x-other": 1})


def test_an_exclusive_queue_is_not_durable_whatever_is_asked_for(channel: WireChannel, unique: Name) -> None:
    name = channel.queue(unique("queue"), durable=True)
    assert channel.queue(name, durable=False) == name
