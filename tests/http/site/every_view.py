"""The addresses of all views of the page, and objects for each view."""

import pika
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish

VIEWS = {
    "overview": (),
    "queues": ("queues",),
    "queue": ("queues", "/", "orders-1"),
    "messages": ("messages", "/", "orders-2"),
    "exchanges": ("exchanges",),
    "exchange": ("exchanges", "/", "orders"),
    "rings": ("rings",),
    "ring": ("rings", "/", "orders"),
    "what-if": ("what-if", "/", "orders"),
    "flow": ("flow",),
    "flow-of": ("flow", "/", "orders"),
    "shards": ("shards",),
    "shards-of": ("shards", "/", "clicks"),
    "connections": ("connections",),
    "channels": ("channels",),
    "consumers": ("consumers",),
    "groups": ("groups",),
    "group": ("groups", "/", "queue", "orders-3", "billing"),
    "why": ("why", "/", "orders-1"),
    "why-fenced": ("why", "/", "orders-5"),
    "readers": ("readers",),
    "vhosts": ("vhosts",),
    "users": ("users",),
    "permissions": ("permissions",),
    "policies": ("policies",),
    "limits": ("limits",),
    "definitions": ("definitions",),
    "log": ("log",),
    "nodes": ("nodes",),
    "help": ("help",),
}


def views(api: API) -> dict[str, tuple[str, ...]]:
    """Addresses of all views by name, with a live connection and channel."""
    (channel, *_) = api.get("channels")
    first = {  # as its client does not answer heartbeats meanwhile
        "connection": ("connections", channel["connection_details"]["name"]),
        "channel": ("channels", channel["name"]),
    }
    return first | VIEWS | {"node": ("nodes", channel["node"])}


def fill(api: API, channel: BlockingChannel) -> None:
    """Make objects for every view."""
    arguments = {"hash-header": "customer", "ordered-scaling": True}
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments=arguments)
    for number in range(1, 5):
        channel.queue_declare(f"orders-{number}", durable=True)
        channel.queue_bind(f"orders-{number}", "orders", str(number))
    channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    channel.queue_declare("read", durable=True)
    body = {"pattern": "^clicks$", "definition": {"shards-per-node": 3}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "shard-clicks", json=body)
    api.request("PUT", "vhost-limits", "/", "max-queues", json={"value": 1000})
    for number in range(300):
        headers = {"customer": f"customer-{number % 90}"} if number % 20 else {}
        channel.basic_publish("orders", "", b"order", pika.BasicProperties(headers=headers))
    publish(channel, "read", [b"row"] * 10)
    channel.queue_declare("orders-5", durable=True)
    channel.queue_bind("orders-5", "orders", "5")
    channel.basic_consume("orders-3", lambda *_: None, arguments={"x-consumer-group": "billing"})
    api.post("readers", "/", "nightly", "reserve", body={"queues": {"read": None}, "max_messages": 5, "lease": 600})
    channel.basic_consume("orders-1", lambda *_: None)
    channel.basic_consume("clicks", lambda *_: None)
