"""A mixed load on 71 queues in three virtual hosts, with a problem of every kind.

    python scripts/mixed_load.py AMQP_URL HTTP_URL [--minutes 40]

About 600 messages per second. The problems are a hot key, a missing header, a shard without a consumer, consumers that
are slow or do not acknowledge, logs without a consumer, dead letters, a full queue and, in the last quarter, a ring
that has grown while its consumers lag. The rest is healthy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pika
import requests

Channel = pika.adapters.blocking_connection.BlockingChannel
HEALTHY = ("mail", "images", "search", "thumbnails", "webhooks", "exports", "reports", "backups")
LOGS = ("app", "web", "audit", "billing", "cron", "edge", "auth", "api", "jobs", "mail", "cdn", "dns")
OTHER_HOSTS = {
    "shop": ("carts", "checkout", "stock", "prices", "reviews", "returns"),
    "telemetry": ("gauges", "traces", "spans", "alerts", "probes", "beacons", "metrics", "heartbeats"),
}
UNPACED = 1000.0


class Load:
    """Publishers and consumers, a connection each, until the end of the program."""

    def __init__(self, amqp_url: str, http_url: str, seconds: float) -> None:
        self.amqp_url, self.http_url, self.seconds = amqp_url, http_url, seconds
        self.random = random.Random(27)
        self.channel = self.connect("setup")

    def connect(self, name: str, vhost: str = "/") -> Channel:
        parameters = pika.URLParameters(self.amqp_url)
        parameters.virtual_host, parameters.heartbeat = vhost, 0
        parameters.client_properties = {"connection_name": name, "product": "pika"}
        return pika.BlockingConnection(parameters).channel()

    def put(self, *path: str, **body: object) -> None:
        url = f"{self.http_url}/api/{'/'.join(path)}"
        requests.put(url, json=body, auth=("guest", "guest"), timeout=30).raise_for_status()

    def declare(self, *names: str, at: Channel | None = None, **arguments: object) -> tuple[str, ...]:
        for name in names:
            (at or self.channel).queue_declare(name, durable=True, arguments=_arguments(arguments))
        return names

    def ring(self, exchange: str, *queues: str, **arguments: object) -> None:
        self.channel.exchange_declare(exchange, "x-consistent-hash", durable=True, arguments=_plain(arguments))
        for queue in queues:
            self.channel.queue_bind(queue, exchange, "1")

    def publish(self, name: str, rate: float, message: Callable[[], tuple[Any, ...]], vhost: str = "/") -> None:
        """Publish at a rate in messages per second: an exchange, a routing key and, optionally, headers."""

        def work() -> None:
            channel, began = self.connect(name, vhost), time.monotonic()
            for sent in itertools.count(1):
                exchange, key, headers = (*message(), {})[:3]
                body = json.dumps({"key": key, **headers, "items": [{"sku": "A-17", "count": 2}] * 3}).encode()
                channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers, delivery_mode=2))
                if (ahead := began + sent / rate - time.monotonic()) > 0.1:
                    channel.connection.sleep(ahead)

        threading.Thread(target=work, daemon=True).start()

    def consume(
        self,
        name: str,
        queue: str,
        rate: float = UNPACED,
        *,
        vhost: str = "/",
        prefetch: int = 50,
        settle: Callable[[Channel, int], None] = lambda channel, tag: channel.basic_ack(tag),
        **arguments: object,
    ) -> None:
        """Consume at a maximum rate in messages per second."""

        def work() -> None:
            channel = self.connect(name, vhost)
            channel.basic_qos(prefetch_count=prefetch)

            def take(_: object, method: pika.spec.Basic.Deliver, *__: object) -> None:
                settle(channel, method.delivery_tag)
                if rate < UNPACED:
                    channel.connection.process_data_events(0)
                    time.sleep(1 / rate)

            channel.basic_consume(queue, take, arguments=_arguments(arguments))
            channel.start_consuming()

        threading.Thread(target=work, daemon=True).start()

    def any_of(self, names: Iterable[str], exchange: str = "") -> Callable[[], tuple[str, str]]:
        known = list(names)
        return lambda: (exchange, self.random.choice(known))


def _plain(arguments: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "-"): value for name, value in arguments.items()}


def _arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    return {f"x-{name}": value for name, value in _plain(arguments).items()}


def begin(load: Load) -> None:
    """Declare all objects, and start publishers and consumers."""
    for part in (hot_key, missing_header, shards, slow_consumers, logs_and_letters, what_is_well, growing_ring):
        part(load)


def hot_key(load: Load) -> None:
    parts = load.declare(*(f"orders.part-{number}" for number in range(1, 9)), max_length=200_000)
    load.ring("orders.by-customer", *parts, hash_header="customer")

    def order() -> tuple[str, str, dict[str, str]]:
        customer = "acme" if load.random.random() < 0.4 else f"customer-{load.random.randrange(4000)}"
        return "orders.by-customer", "order", {"customer": customer}

    load.publish("web shop", 100, order)
    for number, part in enumerate(parts, 1):
        load.consume(f"fulfilment-{number}", part, 40, prefetch=20)


def missing_header(load: Load) -> None:
    *parts, _ = load.declare(*(f"payments.part-{number}" for number in range(1, 6)))
    load.ring("payments.by-account", *parts, hash_header="account")

    def payment() -> tuple[str, str, dict[str, str]]:
        account = {"account": f"a-{load.random.randrange(9000)}"} if load.random.random() > 0.2 else {}
        return "payments.by-account", "paid", account

    load.publish("payment gateway", 60, payment)
    for number, part in enumerate(parts, 1):
        load.consume(f"ledger-{number}", part, 100)


def shards(load: Load) -> None:
    load.channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    policy = {"pattern": "^clicks$", "definition": {"shards-per-node": 4}, "apply-to": "exchanges"}
    load.put("policies", "%2F", "shard-clicks", **policy)
    for number in range(1, 4):
        load.consume(f"clickstream-{number}", "clicks")
    load.publish("tracking pixel", 60, lambda: ("clicks", f"visitor-{load.random.randrange(9000)}"))


def slow_consumers(load: Load) -> None:
    load.declare("invoices", max_length=100_000)
    for name, rate in (("invoice-printer-1", 12), ("invoice-printer-2", 12), ("invoice-printer-old", 1)):
        load.consume(name, "invoices", rate)
    load.publish("billing", 28, lambda: ("", "invoices"))
    load.declare("notifications")
    load.consume("notifier", "notifications", prefetch=200, settle=lambda channel, tag: None)
    load.publish("notification service", 2, lambda: ("", "notifications"))
    load.declare("uploads", max_length=5000)
    load.consume("virus-scanner", "uploads", 3)
    load.publish("upload service", 12, lambda: ("", "uploads"))


def logs_and_letters(load: Load) -> None:
    load.channel.exchange_declare("log", "topic", durable=True)
    for name in load.declare(*(f"log.{name}" for name in LOGS)):
        load.channel.queue_bind(name, "log", name.removeprefix("log."))
    load.publish("log shipper", 40, load.any_of(LOGS, "log"))
    load.declare("emails.dead")
    load.declare("emails", dead_letter_exchange="", dead_letter_routing_key="emails.dead")
    load.consume("mailer", "emails", settle=lambda channel, tag: channel.basic_reject(tag, requeue=False))
    load.publish("crm", 1, lambda: ("", "emails"))


def what_is_well(load: Load) -> None:
    for name in load.declare(*HEALTHY, *(f"{name}.retry" for name in HEALTHY)):
        load.consume(f"{name}-worker", name)
    load.publish("back end", 100, load.any_of(HEALTHY))
    load.declare("events.audit", "events.metrics", queue_type="stream")
    load.publish("event bus", 30, load.any_of(("events.audit", "events.metrics")))
    load.consume("dashboards", "events.metrics", prefetch=100, consumer_group="dashboards")
    load.declare("jobs", slots=64)
    load.channel.queue_bind("jobs", "amq.topic", "job.#")
    for number in (1, 2, 3):
        load.consume(f"job-runner-{number}", "jobs", prefetch=10, consumer_group="runners")
    load.publish("scheduler", 20, lambda: ("amq.topic", f"job.{load.random.randrange(500)}"))
    for vhost, names in OTHER_HOSTS.items():
        load.put("vhosts", vhost)
        load.put("permissions", vhost, "guest", configure=".*", write=".*", read=".*")
        for name in load.declare(*names, at=load.connect("setup", vhost)):
            load.consume(f"{name}-worker", name, 4 if name == "stock" else UNPACED, vhost=vhost)
        load.publish(f"{vhost} front end", 50, load.any_of(names), vhost)


def growing_ring(load: Load) -> None:
    parts = load.declare(*(f"tasks-{number}" for number in range(1, 5)))
    load.ring("tasks", *parts[:3], ordered_scaling=True)
    for number, part in enumerate(parts, 1):
        load.consume(f"task-runner-{number}", part, 4, prefetch=5)
    load.publish("planner", 16, lambda: ("tasks", f"task-{load.random.randrange(300)}"))

    def grow() -> None:
        load.connect("operator").queue_bind(parts[3], "tasks", "1")

    grown = threading.Timer(0.75 * load.seconds, grow)
    grown.daemon = True
    grown.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("amqp_url")
    parser.add_argument("http_url")
    parser.add_argument("--minutes", type=float, default=40)
    given = parser.parse_args()
    begin(Load(given.amqp_url, given.http_url, 60 * given.minutes))
    time.sleep(60 * given.minutes)


if __name__ == "__main__":
    main()
