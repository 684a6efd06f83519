"""Uses a live broker in every way at once, and verifies a bystander's confirms.

    python -m fuzzing.soak --seconds 600
    python -m fuzzing.soak --seconds 600 --workers 2
    python -m fuzzing.soak --connections 100000

The broker is one or several separate processes, with a data directory. Clients, a process each, share a few queues of
every kind: they declare, bind, publish, get, consume, purge, delete, in transactions and with confirms, and every now
and then a client is killed. Meanwhile a bystander publishes a persistent message every 10 ms and waits for its confirm.
Failures are: a missing confirm, an error without a cause in the client's own requests, an error in the log, an ended
broker. The exit status is then 1.

With `--connections` the given number of TLS connections is opened and closed instead, of clients, HTTPS and unknown
peers at a node's link port; the broker's memory must not be more than 10 MB above the value after a twentieth of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

from fuzzing.ports import COMPLAINT
from fuzzing.tls_memory import KINDS as KINDS_OF_CONNECTIONS
from fuzzing.tls_memory import LINKS, growth
from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import is_installed

CLIENTS = 4
INTERVAL = 0.01
"""Seconds between the bystander's messages."""

PATIENCE = 60.0
"""Timeout of a confirm in seconds."""

GROWTH = 10_000_000
"""Maximum growth in octets after all connections are closed."""

PERSISTENT = pika.BasicProperties(delivery_mode=2)

LIFETIME = 3.0
"""Mean lifetime of a client in seconds."""

KINDS: list[dict[str, Any]] = [
    {},
    {"x-max-length": 20, "x-overflow": "reject-publish"},
    {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "soak-2"},
    {"x-max-priority": 5},
    {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "soak-0"},
    {"x-queue-type": "stream", "x-max-length-bytes": 1_000_000, "x-stream-max-segment-size-bytes": 100_000},
    {"x-max-length": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "soak-5"},
    {"x-queue-type": "stream"},
]  # fmt: skip
"""Arguments of the queues ``soak-0``, ``soak-1``…"""

EXCHANGES = {"soak.fanout": "fanout", "soak.topic": "topic", "soak.hash": "x-consistent-hash"}

EARNED = {404, 405, 406}
"""Reply codes of a channel closed because another client has deleted an object."""

NOT_IMPLEMENTED = 540
"""Reply code of a connection closed because pika returns unprocessed messages of a stream."""


class Client:
    """A client with random operations, until its end."""

    def __init__(self, port: int, seed: str) -> None:
        self._chance = random.Random(seed)
        self._port = port
        self._steps: list[Callable[[Any], object]] = [
            *[self._publish] * 6, *[self._get] * 3, *[self._declare] * 4, self._bind, self._unbind, self._delete,
            self._delete_exchange, self._purge, self._consume,
        ]  # fmt: skip

    def go(self) -> None:
        """Use connection after connection.

        Raises:
            AMQPError: the broker closed a connection without reason.
        """
        while True:
            parameters = pika.ConnectionParameters("127.0.0.1", self._port, blocked_connection_timeout=PATIENCE)
            try:
                with pika.BlockingConnection(parameters) as connection:
                    for _ in range(self._chance.randrange(1, 20)):
                        self._use(connection.channel())
            except ConnectionClosedByBroker as error:
                if error.reply_code != NOT_IMPLEMENTED:
                    raise

    def _use(self, channel: Any) -> None:
        mode = self._chance.choice(("plain", "confirms", "transactions"))
        try:
            if mode == "confirms":
                channel.confirm_delivery()
            elif mode == "transactions":
                channel.tx_select()
            for _ in range(self._chance.randrange(1, 30)):
                with suppress(UnroutableError, NackError):
                    self._chance.choice(self._steps)(channel)
                if mode == "transactions" and self._chance.random() < 0.3:
                    self._chance.choice((channel.tx_commit, channel.tx_commit, channel.tx_rollback))()
            channel.close()
        except ChannelClosedByBroker as error:
            if error.reply_code not in EARNED:
                raise

    def _number(self) -> int:
        return self._chance.randrange(len(KINDS))

    def _declare(self, channel: Any) -> None:
        number = self._number()
        channel.queue_declare(f"soak-{number}", durable=True, arguments=KINDS[number])
        exchange = self._chance.choice(list(EXCHANGES))
        channel.exchange_declare(exchange, EXCHANGES[exchange], durable=True)

    def _bind(self, channel: Any) -> None:
        channel.queue_bind(f"soak-{self._number()}", self._chance.choice(list(EXCHANGES)), "1")

    def _unbind(self, channel: Any) -> None:
        channel.queue_unbind(f"soak-{self._number()}", self._chance.choice(list(EXCHANGES)), "1")

    def _delete(self, channel: Any) -> None:
        channel.queue_delete(f"soak-{self._number()}")

    def _delete_exchange(self, channel: Any) -> None:
        channel.exchange_delete(self._chance.choice(list(EXCHANGES)))

    def _purge(self, channel: Any) -> None:
        number = self._number()
        if KINDS[number].get("x-queue-type") != "stream":
            channel.queue_purge(f"soak-{number}")

    def _publish(self, channel: Any) -> None:
        exchange = self._chance.choice(("", "", *EXCHANGES))
        properties = pika.BasicProperties(delivery_mode=self._chance.choice((1, 2)), priority=self._chance.randrange(6))
        for _ in range(self._chance.choice((1, 10, 100))):
            body = bytes(self._chance.choice((0, 10, 1000, 100_000 if self._chance.random() < 0.1 else 10)))
            key = "1" if exchange else f"soak-{self._number()}"
            channel.basic_publish(exchange, key, body, properties, mandatory=self._chance.random() < 0.1)

    def _get(self, channel: Any) -> None:
        number = self._number()
        if KINDS[number].get("x-queue-type") == "stream":
            return
        for _ in range(self._chance.randrange(10)):
            method, _, _ = channel.basic_get(f"soak-{number}")
            if method is None:
                return
            match self._chance.randrange(5):
                case 0:
                    channel.basic_nack(method.delivery_tag, requeue=True)
                case 1:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                case 2 | 3:
                    channel.basic_ack(method.delivery_tag)

    def _consume(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=10)
        arguments = {"x-stream-offset": "first"}
        for method, _, _ in channel.consume(f"soak-{self._number()}", inactivity_timeout=0.1, arguments=arguments):
            if method is None or self._chance.random() < 0.05:
                break
            channel.basic_ack(method.delivery_tag)
        channel.cancel()


def _be_client(port: int, seed: str, found: Any) -> None:
    try:
        Client(port, seed).go()
    except (AMQPError, OSError) as error:
        found.put(f"a client was ended: {error!r}")


class Run:
    """A run on a broker.

    Attributes:
        found: failures, in words.
        confirmed: number of the bystander's confirmed messages.
        slowest: maximum latency of a confirm in seconds.
        killed: number of killed clients.
    """

    def __init__(self, broker: JumpMQ, seed: int) -> None:
        self.found: list[str] = []
        self.confirmed = self.killed = 0
        self.slowest = 0.0
        self._broker = broker
        self._seed = seed
        self._chance = random.Random(seed)
        self._fork = multiprocessing.get_context("fork")
        self._complaints = self._fork.SimpleQueue()
        self._clients: list[Any] = []
        self._started = 0

    def go(self, seconds: float) -> None:
        """Use the broker for the given seconds."""
        for _ in range(CLIENTS):
            self._start_client()
        try:
            self._stand_by(time.monotonic() + seconds)
        except (AMQPError, OSError) as error:
            self.found.append(f"the bystander was not served: {error!r}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for client in self._clients:
                client.kill()
                client.join()
        while not self._complaints.empty():
            self.found.append(self._complaints.get())
        log = self._broker.log.read_text(errors="replace")
        if complaint := COMPLAINT.search(log):
            self.found.append(f"the log says:\n{log[complaint.start() : complaint.start() + 8000]}")

    def _start_client(self) -> None:
        seed = f"{self._seed}/{self._started}"
        self._started += 1
        client = self._fork.Process(target=_be_client, args=(self._broker.port, seed, self._complaints), daemon=True)
        client.start()
        self._clients.append(client)

    def _stand_by(self, until: float) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", self._broker.port, socket_timeout=PATIENCE)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("bystander", durable=True, arguments={"x-max-length": 100})
            while (began := time.monotonic()) < until and self._complaints.empty():
                with _patience():
                    channel.basic_publish("", "bystander", b"still here", PERSISTENT, mandatory=True)
                took = time.monotonic() - began
                self.confirmed += 1
                self.slowest = max(self.slowest, took)
                if self._chance.random() < INTERVAL * CLIENTS / LIFETIME:
                    self._replace_client()
                time.sleep(max(0.0, INTERVAL - took))

    def _replace_client(self) -> None:
        client = self._clients.pop(self._chance.randrange(len(self._clients)))
        client.kill()
        client.join()
        self.killed += 1
        self._start_client()


@contextmanager
def _patience() -> Iterator[None]:
    """Limit the time of the block and of its cleanup.

    Raises:
        TimeoutError: after ``PATIENCE`` seconds.
    """

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"no confirm came within {PATIENCE:.0f} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 1.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def soak(seconds: float, seed: int, workers: int = 1) -> Run:
    """Use a new broker of the given number of processes, for the given seconds."""
    with JumpMQ(arguments=["--workers", str(workers)]) as broker:
        run = Run(broker, seed)
        run.go(seconds)
        return run


def connect(count: int, workers: int) -> int:
    """Open and close connections, and measure the growth of memory. Return the exit status."""
    links = is_installed() and workers == 1
    each = count // len(KINDS_OF_CONNECTIONS | (LINKS if links else {}))
    grown = growth(each // 20, each, ("--workers", str(workers)), links)
    print(f"{count} connections left {grown / 1e6:.1f} MB")
    return 1 if grown > GROWTH else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Use a broker in every way at once.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--workers", type=int, default=1, help="processes of the broker")
    parser.add_argument("--connections", type=int, default=0, help="with TLS, to come and go")
    arguments = parser.parse_args()
    if arguments.connections:
        return connect(arguments.connections, arguments.workers)
    run = soak(arguments.seconds, arguments.seed, arguments.workers)
    print(
        f"{run.confirmed} confirms, the slowest after {run.slowest:.2f} s; {run.killed} clients killed "
        f"(seed {arguments.seed})"
    )
    print("\n".join(run.found) or "nothing found")
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
