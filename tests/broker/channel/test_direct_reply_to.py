"""Requests and answers without a reply queue, as a pika user writes them."""

from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from jumpmq import RunningBroker

REPLY_TO = "amq.rabbitmq.reply-to"
Name = Callable[[str], str]


@pytest.fixture
def channels(broker: RunningBroker) -> Iterator[tuple[BlockingChannel, BlockingChannel]]:
    """The channels of a client and a server, on separate connections."""
    connections = [pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) for _ in range(2)]
    yield connections[0].channel(), connections[1].channel()
    for connection in connections:
        if connection.is_open:
            connection.close()


def test_a_remote_procedure_call(channels: tuple[BlockingChannel, BlockingChannel], unique: Name) -> None:
    client, server = channels
    requests = unique("requests")
    server.queue_declare(requests, auto_delete=True)
    answers: list[tuple[str, bytes]] = []
    client.basic_consume(REPLY_TO, lambda *got: answers.append((got[2].correlation_id, got[3])), auto_ack=True)

    def serve(channel: BlockingChannel, method: object, properties: pika.BasicProperties, body: bytes) -> None:
        answer = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), answer)

    server.basic_consume(requests, serve, auto_ack=True)
    server.confirm_delivery()
    for number, question in enumerate(("one", "two", "three")):
        properties = pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(number))
        client.basic_publish("", requests, question, properties)
    while len(answers) < 3:
        server.connection.process_data_events(0.05)
        client.connection.process_data_events(0.05)
    assert answers == [("0", b"ONE"), ("1", b"TWO"), ("2", b"THREE")]


def test_an_answer_to_a_client_that_is_gone_is_unroutable(
    channels: tuple[BlockingChannel, BlockingChannel], unique: Name
) -> None:
    client, server = channels
    requests = unique("requests")
    server.queue_declare(requests, exclusive=True)
    client.basic_consume(REPLY_TO, print, auto_ack=True)
    client.basic_publish("", requests, "question", pika.BasicProperties(reply_to=REPLY_TO))
    client.close()
    method, properties, _ = server.basic_get(requests, auto_ack=True)
    assert method is not None
    server.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        server.basic_publish("", properties.reply_to, "answer", mandatory=True)


def refusal(channel: BlockingChannel, act: Callable[[], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        act()
        channel.connection.process_data_events(2)
    assert closed.value.reply_code == 406
    return str(closed.value.reply_text)


def test_answers_cannot_be_acknowledged(channels: tuple[BlockingChannel, BlockingChannel]) -> None:
    text = refusal(channels[0], lambda: channels[0].basic_consume(REPLY_TO, print))
    assert text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_one_consumer_of_answers_a_channel(channels: tuple[BlockingChannel, BlockingChannel]) -> None:
    channels[0].basic_consume(REPLY_TO, print, auto_ack=True)
    text = refusal(channels[0], lambda: channels[0].basic_consume(REPLY_TO, print, auto_ack=True))
    assert text == "PRECONDITION_FAILED - reply consumer already set"


def test_asking_without_listening(channels: tuple[BlockingChannel, BlockingChannel]) -> None:
    channel = channels[0]
    channel.confirm_delivery()
    properties = pika.BasicProperties(reply_to=REPLY_TO)
    text = refusal(channel, lambda: channel.basic_publish("", "anybody", "question", properties))
    assert text == "PRECONDITION_FAILED - fast reply consumer does not exist"
