"""Costly routing of one connection's publishes does not hold up other connections."""

from collections.abc import Callable

import pytest
from tests.waiting import TRIALS
from tests.wire import Basic, Exchange, WireChannel, login

from jumpmq import RunningBroker

Name = Callable[[str], str]


def costly_headers(channel: WireChannel, exchange: str, queue: str) -> bytes:
    """Each message is compared with a hundred bindings."""
    channel.exchange(exchange, "headers")
    for number in range(100):
        channel.bind(queue, exchange, arguments={"x-match": "any", f"n{number}": number})
    headers = Basic.Properties(headers={"n99": 99, "other": "x"})
    return channel.publication(exchange, "", b"", headers)


def costly_fanout(channel: WireChannel, exchange: str, queue: str) -> bytes:
    """Each message reaches a hundred queues."""
    channel.exchange(exchange, "fanout")
    for _ in range(100):
        channel.bind(channel.queue(), exchange)
    channel.bind(queue, exchange)
    return channel.publication(exchange, "", b"")


@pytest.mark.parametrize("prepare", [costly_headers, costly_fanout])
def test_others_are_served_while_a_long_run_is_routed(
    broker: RunningBroker, channel: WireChannel, unique: Name, prepare: Callable[[WireChannel, str, str], bytes]
) -> None:
    count = 20_000

    def is_served() -> bool:
        queue = channel.queue(unique("costly"), exclusive=False, auto_delete=True)
        publication = prepare(channel, unique("costly"), queue)
        with login(broker.port) as connection:
            bystander = connection.channel()
            channel.connection.send(publication * count)
            counts = [bystander.ready(queue)]
            while counts[-1] < count:
                counts.append(bystander.ready(queue))
        assert channel.ready(queue) == count
        return len(set(counts) - {0, count}) >= 8  # five at most if each read is routed as a whole

    assert any(is_served() for _ in range(TRIALS))  # on a busy machine the bystander asks too late


def test_a_run_in_pieces_is_confirmed_and_ends_where_it_fails(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("pieces"))
    channel.call(Exchange.Declare(exchange=unique("x"), exchange_type="fanout", auto_delete=True))
    channel.confirm_select()
    good = channel.publication("", queue, b"good")
    bad = channel.publication("", queue, b"bad", Basic.Properties(user_id="somebody else"))
    channel.connection.send(good * 1000)
    confirmed = 0
    while confirmed < 1000:
        confirmed = channel.next().delivery_tag
    other = channel.connection.channel()
    channel.connection.send(good * 20 + bad + good * 5000)
    assert other.call(Basic.Qos(prefetch_count=1)).name == "Basic.QosOk"
    assert 1000 <= other.ready(queue) < 6000
