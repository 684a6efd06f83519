"""Kills and stops the processes of a broker under load, and counts every message.

``python -m fuzzing.workers --seconds 60 --workers 3``: publishers with confirms and consumers with acknowledgements use
durable queues of all homes (classic, quorum, and a stream read by a consumer group), which move from home to home,
while processes are killed (SIGKILL) and stopped (SIGSTOP) at random: workers, the supervisor, all at once, also during
the start. Some messages are rejected, and consumed as dead letters. No confirmed message may be missing, messages of a
queue arrive in the order of publishing, and duplicates have ``redelivered`` or were published again; the number of
unmarked dead letters does not exceed the number of rejections.
"""

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from fuzzing.clients import GONE, ReconnectingClient
from jumpmq.management import ManagementClient, ManagementError
from jumpmq.testing import BrokerError, JumpMQ, children, free_ports

QUEUES = 9
QUORUM, STREAM, DEAD = "q7", "q8", "dead"
"""The quorum queue, the stream, and the target of dead letters."""

REJECTED = 7
"""Interval of rejected messages."""

PATIENCE = 60.0
"""Seconds without progress until a run counts as stalled."""

SHOWN = {
    "queues": ("name", "node", "messages", "messages_ready", "messages_unacknowledged", "consumers", "moving_from"),
    "consumers": ("queue", "consumer_tag", "channel_details", "active"),
    "channels": ("name", "consumer_count", "messages_unacknowledged", "prefetch_count", "state"),
}
"""Diagnostics of a stalled run: columns, by path of the API."""

PACE = 0.003
"""Seconds between two messages of a publisher, so that other work proceeds also on two cores."""


class Ledger:
    """Published, confirmed and received messages, by queue."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.confirmed: dict[str, int] = defaultdict(int)  # numbers below are confirmed
        self.again: dict[str, set[int]] = defaultdict(set)  # numbers published more than once
        self.seen: dict[str, list[tuple[int, bool]]] = defaultdict(list)  # number and redelivered, by arrival
        self.letters: dict[str, Counter[int]] = defaultdict(Counter)  # number of unmarked dead letters, by message
        self.acknowledged: dict[str, set[int]] = defaultdict(set)

    def problems(self) -> list[str]:
        """Found defects, a sentence per defect."""
        found = [] if sum(self.confirmed.values()) else ["no message was confirmed"]
        for queue, count in sorted(self.confirmed.items()):
            missing = set(range(count)) - self.acknowledged[queue]
            if missing:
                found.append(
                    f"{queue}: {len(missing)} of {count} confirmed messages are missing: {sorted(missing)[:9]}"
                )
            latest, before = -1, set[int]()
            for number, redelivered in self.seen[queue]:
                if not redelivered and number not in self.again[queue]:
                    if number in before:
                        found.append(f"{queue}: {number} came twice, and is not marked")
                    elif number < latest:
                        found.append(f"{queue}: {number} came after {latest}")
                before.add(number)
                latest = max(latest, number)
            rejected = Counter(number for number, _ in self.seen[queue])
            for number, letters in self.letters[queue].items():
                if letters > rejected[number]:
                    found.append(f"{queue}: the dead letter of {number} came {letters} times, and is not marked")
        return found


class Client(ReconnectingClient):
    """Notes its operations in a ledger."""

    def __init__(self, port: Callable[[], int], ledger: Ledger, queues: list[str], stop: threading.Event) -> None:
        super().__init__(port, stop)
        self.ledger, self.queues = ledger, queues


class Publisher(Client):
    """Publishes to its queues in turn; an unconfirmed message is repeated before the next message of its queue."""

    def work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        while not self.stop.is_set():
            for queue in self.queues:
                number = self.ledger.confirmed[queue]
                try:
                    channel.basic_publish("", queue, b"%d" % number, persistent)
                except pika.exceptions.NackError:
                    self.ledger.again[queue].add(number)
                    time.sleep(0.01)
                except GONE:
                    self.ledger.again[queue].add(number)
                    raise
                else:
                    self.ledger.confirmed[queue] = number + 1
                time.sleep(PACE)


class Consumer(Client):
    """Consumes from its queues, and acknowledges every message."""

    def work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        cancelled = threading.Event()
        channel.add_on_cancel_callback(lambda frame: cancelled.set())
        for queue in self.queues:
            channel.basic_consume(queue, self.take, arguments=self.arguments(queue))
        while not (self.stop.is_set() or cancelled.is_set()):
            connection.process_data_events(0.1)

    def arguments(self, queue: str) -> dict[str, Any] | None:
        """Arguments of `basic.consume`."""
        return None

    def take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        with self.ledger.lock:
            self.ledger.seen[method.routing_key].append((int(body), method.redelivered))
            self.ledger.acknowledged[method.routing_key].add(int(body))
        channel.basic_ack(method.delivery_tag)


class RejectingConsumer(Consumer):
    """Consumes from queues of all kinds, and rejects a fixed fraction of the messages of classic queues at first."""

    def arguments(self, queue: str) -> dict[str, Any] | None:
        return {"x-consumer-group": "g", "x-stream-offset": "first"} if queue == STREAM else None

    def take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        queue, number = method.routing_key, int(body)
        is_dead = method.exchange == DEAD
        is_rejected = not is_dead and queue not in (QUORUM, STREAM) and number % REJECTED == 0
        with self.ledger.lock:
            if is_dead:
                self.ledger.letters[queue][number] += not method.redelivered
            else:
                self.ledger.seen[queue].append((number, method.redelivered))
            if not is_rejected:
                self.ledger.acknowledged[queue].add(number)
        if is_rejected:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)


class Mover(threading.Thread):
    """Moves the queues in turn to other homes, until stopped.

    Attributes:
        count: number of moves.
    """

    def __init__(self, url: Callable[[], str], queues: list[str], seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self._url = url  # returns the URL of a request
        self._queues, self._choose, self._stop_moving = queues, random.Random(seed), stop

    def run(self) -> None:
        while not self._stop_moving.wait(self._choose.uniform(0.05, 0.5)):
            with contextlib.suppress(ManagementError, OSError):  # already moving, or the home is down
                queue = self._choose.choice(self._queues)
                ManagementClient(self._url(), 5.0).post("queues", "/", queue, "actions", body={"action": "move"})
                self.count += 1


FRESH = 3
"""Maximum consecutive failures of restarted processes: repeated ends soon after the start end the broker."""


SUPERVISOR = 0.25
"""Fraction of failures of the supervisor, or of all processes."""

STARTING = 0.2
"""Fraction of these repeated while the broker restarts."""


def served(workers: int, data_dir: Path) -> JumpMQ:
    """A broker of several processes with fixed ports."""
    port, http_port = map(str, free_ports(2))
    arguments = ("--workers", str(workers), "--port", port, "--http-port", http_port, "--log-level", "error")
    return JumpMQ(data_dir, arguments=arguments)


class Striking:
    """Kills and stops the processes of a broker."""

    def __init__(self, choose: random.Random, broker: JumpMQ) -> None:
        self._choose = choose
        self._broker = broker
        self._known: set[int] = set()  # the processes at the last failure
        self._fresh = 0  # consecutive victims outside of this set

    def strike(self) -> str:
        """Kill or stop one process, or all. Return a description.

        Raises:
            BrokerError: the broker has ended, or does not restart.
        """
        if self._choose.random() < SUPERVISOR:
            return self._strike_supervisor()
        victims = children(self._broker.pid)
        known = [one for one in victims if one in self._known]
        victim = self._choose.choice(known if known and self._fresh >= FRESH else victims)
        self._fresh = 0 if victim in known else self._fresh + 1
        self._known = set(victims)
        if self._choose.random() < 0.6:
            os.kill(victim, signal.SIGKILL)
            return "SIGKILL"
        return self._stop(victim)

    def _strike_supervisor(self) -> str:
        what = self._choose.choice(["supervisor", "supervisor", "everything"])
        if self._choose.random() < STARTING:
            return self._kill_while_it_starts(alone=what == "supervisor")
        if self._choose.random() < 0.6:
            self._broker.kill(alone=what == "supervisor")
            self._broker.start()
            return f"SIGKILL of {what}"
        group = [self._broker.pid, *(children(self._broker.pid) if what == "everything" else ())]
        return f"{self._stop(*group)} of {what}"

    def _kill_while_it_starts(self, *, alone: bool) -> str:
        self._broker.kill(alone=alone)

        def start() -> None:
            with contextlib.suppress(BrokerError):
                self._broker.start()

        starting, seconds = threading.Thread(target=start), self._choose.uniform(0.2, 2.0)
        starting.start()
        time.sleep(seconds)
        self._broker.kill(alone=alone)
        starting.join()
        self._broker.start()
        return f"SIGKILL, and again after {seconds:.1f} s"

    def _stop(self, *victims: int) -> str:
        seconds = self._choose.choice([0.2, 1.0, 7.0])
        for victim in victims:
            os.kill(victim, signal.SIGSTOP)
        time.sleep(seconds)
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)
        return f"SIGSTOP {seconds:g} s"


def tell(url: str) -> None:
    """Print diagnostics of a stalled run: the clients' stacks, and the broker's queues, consumers and channels."""
    faulthandler.dump_traceback(all_threads=True)
    api = ManagementClient(url, 5.0)
    for path, names in SHOWN.items():
        for one in api.get(path):
            print(path, {name: one.get(name) for name in names}, file=sys.stderr)


def declare(port: int, queue: str) -> None:
    """Declare a queue with its dead-letter queue."""
    arguments: dict[str, Any] = {"x-dead-letter-exchange": DEAD}
    if queue in (QUORUM, STREAM):
        arguments = {"x-queue-type": "quorum" if queue == QUORUM else "stream"}
    parameters = pika.ConnectionParameters("127.0.0.1", port, connection_attempts=5, socket_timeout=30)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare(DEAD, "fanout", durable=True)
        channel.queue_declare(queue, durable=True, arguments=None if queue == DEAD else arguments)
        if queue == DEAD:
            channel.queue_bind(DEAD, DEAD)


def run(seconds: float, count: int, seed: int) -> list[str]:
    """Run the fuzzer once. Return the failures."""
    choose = random.Random(seed)
    ledger, stop_publishing, stop = Ledger(), threading.Event(), threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="jumpmq-fuzzing-") as directory,
        served(count, Path(directory)) as broker,
    ):
        queues = [f"q{number}" for number in range(QUEUES)]
        for queue in [DEAD, *queues]:  # a connection per queue, to spread them over homes
            declare(broker.port, queue)
        publishers = [Publisher(lambda: broker.port, ledger, queues[place::3], stop_publishing) for place in range(3)]
        consumed = [[*queues[0::2], DEAD], queues[1::2]]
        consumers = [RejectingConsumer(lambda: broker.port, ledger, some, stop) for some in consumed]
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        mover = Mover(lambda: url, queues, seed, stop_publishing)
        for client in (*publishers, *consumers, mover):
            client.start()
        end, blows, striking = time.monotonic() + seconds, 0, Striking(choose, broker)
        while time.monotonic() < end:
            time.sleep(choose.uniform(0.5, 3.0))
            blow = striking.strike()
            blows += 1
            print(f"{blow}; {sum(ledger.confirmed.values())} confirmed", file=sys.stderr, flush=True)
        time.sleep(5)
        stop_publishing.set()
        for client in (*publishers, mover):
            client.join(30)
        before, until = -1, time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with ledger.lock:
                if all(len(ledger.acknowledged[queue]) >= count for queue, count in ledger.confirmed.items()):
                    break
                done = sum(map(len, ledger.acknowledged.values()))
            if done > before:
                before, until = done, time.monotonic() + PATIENCE
            time.sleep(0.2)
        else:
            tell(url)
        stop.set()
        for client in consumers:
            client.join(30)
    print(f"{sum(ledger.confirmed.values())} messages confirmed, {blows} blows, {mover.count} moves")
    return ledger.problems()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    problems = run(arguments.seconds, arguments.workers, arguments.seed)
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
