"""Slots as clients see them: refusals, fair turns, order per key over nacks and crashes."""

import random
import threading
import time
from pathlib import Path

import pytest
from tests.broker.ordering import Ordering
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Queue, WireChannel, login

import jumpmq
from jumpmq.testing import JumpMQ

pika = pytest.importorskip("pika", reason="pika is not installed (pip install pika)")

SLOTS = {"x-slots": 16, "x-in-flight-per-slot": 1}
KEYS = [f"key {number}" for number in range(12)]


@pytest.fixture
def channel(broker: jumpmq.RunningBroker) -> WireChannel:
    return login(broker.port).channel()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"x-slots": 0}, "'x-slots' for queue 'q' in vhost '/': {value_zero,0}"),
        ({"x-slots": -1}, "'x-slots' for queue 'q' in vhost '/': {value_negative,-1}"),
        ({"x-slots": 1025}, "'x-slots' for queue 'q' in vhost '/': {max_value_exceeded,1025}"),
        ({"x-slots": "4"}, "'x-slots' for queue 'q' in vhost '/': \"expected integer, got longstr\""),
        (
            {"x-slots": 4, "x-slot-key": "body"},
            '"expected routing-key, message-id, correlation-id or header:NAME, NAME of 1 to 128 octets"',
        ),
        ({"x-slots": 4, "x-slot-key": "header:"}, "\"expected routing-key, message-id, correlation-id or"),
        ({"x-slots": 4, "x-slot-key": 1}, "'x-slot-key' for queue 'q' in vhost '/': {unacceptable_type,"),
        ({"x-slot-key": "routing-key"}, "'x-slot-key' for queue 'q' in vhost '/': \"x-slots is missing\""),
        ({"x-in-flight-per-slot": 1}, "'x-in-flight-per-slot' for queue 'q' in vhost '/': \"x-slots is missing\""),
        ({"x-slots": 4, "x-in-flight-per-slot": 0}, "'x-in-flight-per-slot' for queue 'q' in vhost '/': {value_zero"),
        ({"x-slots": 4, "x-max-priority": 5}, "\"a queue has slots or priorities, not both"),
        ({"x-slots": 4, "x-queue-type": "stream"}, "'x-slots' for queue 'q' in vhost '/' of queue type rabbit_stream"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(channel: WireChannel, arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ChannelClosed) as error:
        channel.queue("q", durable=True, exclusive=False, arguments=arguments)
    assert error.value.code == 406
    assert problem in error.value.text


def test_a_queue_is_declared_again_with_the_same_slots_only(channel: WireChannel) -> None:
    channel.queue("same", arguments={"x-slots": 4})
    channel.queue("same", arguments={"x-slots": 4})
    with pytest.raises(ChannelClosed, match="inequivalent arg 'x-slots'"):
        channel.queue("same", arguments={"x-slots": 8})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_is_dead_lettered_makes_way_for_the_next_of_its_key(channel: WireChannel, kind: str) -> None:
    """A message dead-lettered by a rejection or a delivery limit makes way for the next of its key."""
    dead = channel.queue()
    arguments = SLOTS | {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = channel.queue(f"dead-{kind}", durable=True, exclusive=False,
                          arguments=arguments | ({"x-delivery-limit": 2} if kind == "quorum" else {}))  # fmt: skip
    channel.bind(queue, "amq.topic", f"{kind}.#")
    for body in (b"1", b"2", b"3"):
        channel.publish("amq.topic", f"{kind}.key", body)
    channel.consume(queue)
    for _ in range(3 if kind == "quorum" else 1):
        delivery = channel.next()
        assert delivery.body == b"1"
        assert channel.is_silent(0.05)
        channel.send(Basic.Reject(delivery.method.delivery_tag, requeue=kind == "quorum"))
    delivery = channel.next()
    assert delivery.body == b"2"
    channel.send(Basic.Reject(delivery.method.delivery_tag, requeue=False))
    assert channel.next().body == b"3"
    until(lambda: channel.ready(dead) == 2)
    assert channel.bodies(dead) == [b"1", b"2"]
    channel.call(Queue.Delete(queue=queue))


class Worker(threading.Thread):
    """A consumer over pika that acknowledges, requeues and crashes at random, and reconnects."""

    def __init__(self, name: str, broker: JumpMQ, log: Ordering, over: threading.Event, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._broker, self._log, self._over, self._random = broker, log, over, random.Random(seed)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._consume()
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.02)
            self._log.gone(self.name)

    def _consume(self) -> None:
        log, chance = self._log, self._random.random
        url = f"amqp://guest:guest@127.0.0.1:{self._broker.port}/%2F?connection_attempts=1"
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=5)
            for method, _, body in channel.consume("q", inactivity_timeout=0.02):
                if self._over.is_set():
                    return
                if method is None:
                    continue
                key, number = method.routing_key, int(body)
                log.delivered(self.name, key, number, method.redelivered)
                if chance() < 0.1:
                    log.returned(self.name, key, number)
                    channel.basic_nack(method.delivery_tag)
                elif chance() < 0.01:
                    log.gone(self.name)  # pika has fetched more messages, which return, too
                    return
                else:
                    log.acknowledged(self.name, key, number)
                    channel.basic_ack(method.delivery_tag)


def publish(broker: JumpMQ, numbers: range) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for number in numbers:
            for key in KEYS:
                channel.basic_publish("amq.topic", key, str(number), persistent)


def consume(broker: JumpMQ, log: Ordering, round: int, enough: int) -> None:
    """Four workers, until so many messages are acknowledged."""
    over = threading.Event()
    workers = [Worker(f"{round}.{place}", broker, log, over, seed=10 * round + place) for place in range(4)]
    for worker in workers:
        worker.start()
    try:
        until(lambda: len(log.done) >= enough)
    finally:
        over.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_keys_stay_in_order_over_nacks_and_crashes(tmp_path: Path, kind: str) -> None:
    log = Ordering()
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        channel.queue("q", durable=True, exclusive=False, arguments=SLOTS | {"x-queue-type": kind})
        channel.bind("q", "amq.topic", "#")
        publish(broker, range(8))
        consume(broker, log, 1, 4 * len(KEYS))
        broker.kill()
        broker.start()
        publish(broker, range(8, 12))
        consume(broker, log, 2, 12 * len(KEYS))
    assert not log.problems(dict.fromkeys(KEYS, 12))
