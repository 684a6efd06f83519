"""Write amplification: octets written to the disk per received octet, with few messages for many queues.

    python -m benchmarks.written [--seconds SECONDS]

Persistent messages of 500 octets with confirms to 100 durable queues, at a steady rate, each confirmed before the next
of its publisher; consumers acknowledge each delivery. A commit writes whole pages, so that the ratio is large at low
rates, and falls with larger commits. LavinMQ writes 30 to 200 times the received octets in this case
(cloudamqp/lavinmq, issue 2176).
"""

from __future__ import annotations

import argparse
import threading
import time
from itertools import count

import pika
from rich.console import Console
from rich.table import Table

from jumpmq.testing import BrokerProcess, installed

QUEUES = 100
BODY = bytes(500)
PUBLISHERS = {300: 1, 3000: 30}
"""Number of publishers, by the messages per second of all publishers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=10, help="how long each rate is published at")
    options = parser.parse_args()
    shown = Table("messages a second", "broker", "published", "octets received", "octets written", "written for each")
    for rate, publishers in PUBLISHERS.items():
        for kind in installed():
            with kind() as broker:
                messages, written = measure(broker, rate / publishers, publishers, options.seconds)
            received = messages * len(BODY)
            cells = (f"{rate:,}", broker.name, f"{messages:,}", f"{received:,}", f"{written:,}")
            shown.add_row(*cells, f"{written / received:.1f}")
    Console().print(shown)


def measure(broker: BrokerProcess, rate: float, publishers: int, seconds: float) -> tuple[int, int]:
    """Number of confirmed messages, and octets written meanwhile.

    Args:
        rate: messages per second of each publisher.
    """
    names = [f"queue.{number}" for number in range(QUEUES)]
    ended = threading.Event()
    consumer = threading.Thread(target=_consume, args=(broker.port, names, ended))
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True)
    consumer.start()
    time.sleep(2)  # declarations are on disk
    before = broker.written()
    counts: list[int] = []
    threads = [
        threading.Thread(target=_publish, args=(broker.port, names, rate, seconds, counts)) for _ in range(publishers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(2)  # acknowledgements are on disk
    written = broker.written() - before
    ended.set()
    consumer.join()
    return sum(counts), written


def _publish(port: int, names: list[str], rate: float, seconds: float, counts: list[int]) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        began = time.monotonic()
        for number in count():
            late = time.monotonic() - began
            if late > seconds:
                counts.append(number)
                return
            time.sleep(max(0.0, number / rate - late))
            channel.basic_publish("", names[number % len(names)], BODY, properties)


def _consume(port: int, names: list[str], ended: threading.Event) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        for name in names:
            channel.basic_consume(name, lambda its, deliver, *_: its.basic_ack(deliver.delivery_tag))
        while not ended.is_set():
            connection.process_data_events(0.1)


if __name__ == "__main__":
    main()
