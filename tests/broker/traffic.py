"""Publishers and a consumer with records of all their events, until the broker dies."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tests.wire import Basic, Closed, Content, Hangup, WireChannel, login

from jumpmq.testing import JumpMQ

BURST = 20
PAUSE = 0.015
"""Seconds between bursts: the load must not be more than the test can look through."""
WINDOW = 200
"""Maximum number of unconfirmed publishes."""
PREFETCH = 300
KEYS = [f"key-{number}" for number in range(60)]

Letter = tuple[int, int]
"""Publisher and number: every message is unique, and a publisher's numbers count up."""


def letter_of(message: Content) -> Letter:
    publisher, number, _ = message.body.split()
    return int(publisher), int(number)


def key_of(message: Content) -> str:
    return message.body.split()[2].decode()


class Client(threading.Thread):
    """A client in a thread, which ends with the broker."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.port = 0

    def run(self) -> None:
        with suppress(Hangup, Closed, OSError), login(self.port) as connection:
            self.work(connection.channel())

    def work(self, channel: WireChannel) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Publishes persistent messages in bursts, and waits for their confirms.

    Attributes:
        sent: number of published messages, including earlier lives.
        confirmed: numbers of confirmed messages.
    """

    def __init__(self, number: int, exchange: str, sent: int = 0) -> None:
        super().__init__()
        self.number = number
        self.exchange = exchange
        self.before = self.sent = sent
        self.confirmed: set[int] = set()
        self._waiting: set[int] = set()

    def work(self, channel: WireChannel) -> None:
        chance = random.Random(self.number)
        channel.confirm_select()
        while True:
            channel.connection.send(b"".join(self._burst(channel, chance)))
            time.sleep(PAUSE)
            while len(self._waiting) > WINDOW - BURST:
                self._confirm(channel.next())

    def _burst(self, channel: WireChannel, chance: random.Random) -> Iterator[bytes]:
        for _ in range(BURST):
            self.sent += 1
            self._waiting.add(self.sent)
            key = chance.choice(KEYS)
            body = f"{self.number} {self.sent} {key}".encode()
            yield channel.publication(self.exchange, key, body, Basic.Properties(delivery_mode=2))

    def _confirm(self, ack: Basic.Ack) -> None:
        assert isinstance(ack, Basic.Ack)
        last = self.before + ack.delivery_tag
        done = {number for number in self._waiting if number <= last} if ack.multiple else {last}
        self._waiting -= done
        self.confirmed |= done


class Consumer(Client):
    """Acknowledges most deliveries, out of order, and some never.

    Attributes:
        delivered: delivered messages.
        acknowledged: time by which the broker had the acknowledgement, by message.
    """

    def __init__(self, queues: list[str]) -> None:
        super().__init__()
        self.queues = queues
        self.delivered: set[Letter] = set()
        self.acknowledged: dict[Letter, float] = {}
        self.maybe_acknowledged: set[Letter] = set()

    def work(self, channel: WireChannel) -> None:
        chance = random.Random(len(self.queues))
        channel.call(Basic.Qos(prefetch_count=PREFETCH))
        for queue in self.queues:
            channel.consume(queue)
        while True:
            batch = [channel.next() for _ in range(20)]
            self.delivered |= {letter_of(message) for message in batch}
            chance.shuffle(batch)
            acknowledged = batch[: len(batch) - (chance.random() < 0.3)]
            self.maybe_acknowledged |= {letter_of(message) for message in acknowledged}
            for message in acknowledged:
                channel.send(Basic.Ack(delivery_tag=message.method.delivery_tag))
            channel.call(Basic.Qos(prefetch_count=PREFETCH))
            now = time.monotonic()
            self.acknowledged |= {letter_of(message): now for message in acknowledged}


def kill_under(broker: JumpMQ, clients: Sequence[Client], seconds: float) -> float:
    """Run clients on a broker for about so long, and kill it meanwhile; return the time of the kill."""
    for client in clients:
        client.port = broker.port
        client.start()
    time.sleep(seconds * random.uniform(0.8, 1.2))
    killed_at = time.monotonic()
    broker.kill()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    return killed_at


def contents(port: int, queues: list[str], *, acknowledge: bool = False) -> dict[str, list[Content]]:
    """Return the messages of the queues, in order; unacknowledged messages return to their place."""
    found: dict[str, list[Content]] = {}
    with login(port) as connection:
        for queue in queues:
            channel = connection.channel()
            count = channel.ready(queue)
            channel.consume(queue)
            found[queue] = channel.take(count)
            assert channel.is_silent(0.02)
            if acknowledge and count:
                channel.send(Basic.Ack(delivery_tag=0, multiple=True))
        connection.close()
    return found
