"""Messages got over HTTP: in slices, interleaved with other clients, up to the size limit of an answer."""

import threading

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.http.plumbing import rendering
from jumpmq.http.resources import queue_contents

COUNT = 2_000


def get(api: API, ackmode: str, count: int = COUNT) -> list[str]:
    wanted = {"count": count, "ackmode": ackmode, "encoding": "auto"}
    return [message["payload"] for message in api.post("queues", "/", "q", "get", body=wanted)]


def fill(channel: BlockingChannel) -> list[str]:
    channel.queue_declare("q", durable=True)
    for number in range(COUNT):
        channel.basic_publish("", "q", b"%d" % number)
    until(lambda: channel.queue_declare("q", passive=True).method.message_count == COUNT)
    return [str(number) for number in range(COUNT)]


def test_others_are_served_while_many_messages_are_got(
    api: API, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, answered = [], threading.Event()
    take_some = queue_contents._Getting.take_some

    def one_message_a_step(getting: queue_contents._Getting, most: int) -> bool:
        steps.append(len(getting._taken))
        if len(steps) > 2 and not answered.is_set():
            return True  # continues after an answer to another client
        return take_some(getting, most)

    monkeypatch.setattr(queue_contents, "SLICE", 0)
    monkeypatch.setattr(queue_contents._Getting, "take_some", one_message_a_step)
    bodies, found = fill(channel), []
    getting = threading.Thread(target=lambda: found.extend(get(api, "ack_requeue_true")))
    getting.start()
    until(lambda: len(steps) > 3)
    channel.queue_declare("served meanwhile", exclusive=True)
    answered.set()
    getting.join()
    assert found == bodies
    assert api.counts("q") == (COUNT, 0)
    assert [channel.basic_get("q", auto_ack=True)[2].decode() for _ in bodies] == bodies


@pytest.mark.parametrize("ackmode", ["ack_requeue_true", "ack_requeue_false", "reject_requeue_false"])
@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "quorum"}], ids=["classic", "quorum"])
def test_what_becomes_of_them(api: API, channel: BlockingChannel, ackmode: str, arguments: dict[str, str]) -> None:
    channel.queue_declare("grave")
    to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    channel.queue_declare("q", durable=True, arguments=arguments | to_grave)
    bodies = [b"%d" % number for number in range(1_200)]
    for body in bodies:
        channel.basic_publish("", "q", body)
    until(lambda: api.counts("q") == (1_200, 0))
    assert get(api, ackmode) == [body.decode() for body in bodies]
    queue = {"ack_requeue_true": "q", "reject_requeue_false": "grave"}.get(ackmode)
    until(lambda: api.counts("q") == (1_200 if queue == "q" else 0, 0))
    if queue is not None:
        until(lambda: api.counts(queue) == (1_200, 0))
        assert [channel.basic_get(queue, auto_ack=True)[2] for _ in bodies] == bodies


def many_headers(number: int) -> pika.BasicProperties:
    """More than a hundred kilobytes of headers."""
    return pika.BasicProperties(headers={f"{number}-{name}": True for name in range(12_000)})


def test_headers_count_in_what_an_answer_may_hold(
    api: API, channel: BlockingChannel, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "MAX_OCTETS", 500_000)
    channel.queue_declare("q", durable=True)
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number, many_headers(number))
    until(lambda: api.counts("q") == (5, 0))
    assert get(api, "ack_requeue_true") == ["0", "1", "2"]
    first = api.get("queues", "/", "q", "browse")
    following = api.get("queues", "/", "q", "browse", **{"from": first["next"]})
    assert [one["payload"] for one in first["messages"] + following["messages"]] == ["0", "1", "2", "3", "4"]
    assert first["messages"][2]["properties"]["headers"]["2-0"] is True
    assert following["next"] is None
    until(lambda: 'jumpmq_memory_bytes{held_for="answers"} 0.0' in requests.get(f"{broker.http_url}/metrics").text)


def test_an_answer_has_no_more_than_it_may_hold(
    api: API, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "MAX_OCTETS", 2_500)
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"x" * 1_000] * 5)
    assert len(get(api, "ack_requeue_true")) == 3
    assert len(get(api, "ack_requeue_false")) == 3
    assert len(get(api, "ack_requeue_false")) == 2
