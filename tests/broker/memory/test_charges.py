"""Memory held by connections is counted, and released."""

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.http.api import API
from tests.waiting import until
from tests.wire import BODY, HEADER, METHOD, Basic, Tx, WireChannel, content_header, frame, login

from jumpmq import RunningBroker
from jumpmq.broker.memory.charges import CHANNEL, CONSUMER

Name = Callable[[str], str]


def held(broker: RunningBroker, kind: str) -> int:
    """Return the octets that the API shows for a kind."""
    api = API(broker.http_url)
    octets: int = api.get("nodes", api.get("nodes")[0]["name"], "memory")["memory"][kind]
    return octets


def test_publishes_of_a_transaction_until_its_end(broker: RunningBroker, channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("queue"))
    channel.call(Tx.Select())
    for end in (Tx.Rollback(), Tx.Commit()):
        for _ in range(10):
            channel.publish("", queue, bytes(10_000))
        channel.call(Basic.Qos())
        assert 100_000 <= held(broker, "transactions") <= 110_000
        channel.call(end)
        assert held(broker, "transactions") == 0
    channel.publish("", queue, bytes(10_000))
    channel.close()
    assert held(broker, "transactions") == 0


def test_a_body_until_it_is_whole(broker: RunningBroker) -> None:
    with login(broker.port) as connection:
        channel = connection.channel()
        channel.send_frame(METHOD, b"\0\x3c\0\x28\0\0\0\x05ghost\0")
        channel.send_frame(HEADER, content_header(150_000))
        connection.send(frame(BODY, channel.number, bytes(100_000))[:80_007])
        until(lambda: held(broker, "unfinished") == 2 + 80_000)  # the properties, too
        connection.send(frame(BODY, channel.number, bytes(100_000))[80_007:])
        until(lambda: held(broker, "unfinished") == 2 + 100_000)
        channel.send_frame(BODY, bytes(50_000))
        until(lambda: held(broker, "unfinished") == 0)


def test_a_request_until_it_was_read(broker: RunningBroker) -> None:
    where = urlsplit(broker.http_url)
    head = (
        "PUT /api/policies/%2F/long HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port)) as client:
        client.sendall(head.encode() + b"{" + bytes(79_999))
        until(lambda: held(broker, "unfinished") == 80_000)
        client.sendall(bytes(20_000))
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert held(broker, "unfinished") == 0


def test_deliveries_until_they_are_read(broker: RunningBroker, channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("queue"), exclusive=False, auto_delete=True)
    for _ in range(300):
        channel.publish("", queue, bytes(100_000))
    with login(broker.port) as connection:
        connection.channel().send(Basic.Consume(queue=queue, no_ack=True))
        until(lambda: held(broker, "unsent") > 500_000)
    until(lambda: held(broker, "unsent") == 0)


def test_channels_and_consumers_while_they_are_open(broker: RunningBroker, unique: Name) -> None:
    before = held(broker, "channels")
    with login(broker.port) as connection:
        channels = [connection.channel() for _ in range(100)]
        queue = channels[0].queue(unique("queue"))
        assert held(broker, "channels") == before + 100 * CHANNEL
        for number in range(50):
            channels[0].consume(queue, f"consumer-{number}")
        assert held(broker, "channels") == before + 100 * CHANNEL + 50 * CONSUMER
        channels[0].call(Basic.Cancel(consumer_tag="consumer-7"))
        for channel in channels[50:]:
            channel.close()
        assert held(broker, "channels") == before + 50 * CHANNEL + 49 * CONSUMER
    until(lambda: held(broker, "channels") == before)
