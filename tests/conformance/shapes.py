"""One of everything that the management API shows, in a virtual host of its own, and the shape of what it answers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.brokers import BrokerProcess
from tests.conformance.operator import Operator, until
from tests.wire import Basic, WireConnection, login

VHOST = "shapes"
TABLE = Path(__file__).with_name("management_shapes.txt")

PATHS = (
    "overview", "cluster-name", "nodes/NODE", "nodes/NODE/memory", "extensions", "whoami", "definitions/shapes",
    "vhosts/shapes", "vhosts/shapes/connections", "vhosts/shapes/channels", "vhosts/shapes/permissions",
    "vhosts/shapes/topic-permissions", "connections/CONNECTION", "connections/CONNECTION/channels", "channels/CHANNEL",
    "consumers/shapes", "exchanges/shapes", "exchanges/shapes/e", "exchanges/shapes/e/bindings/source",
    "exchanges/shapes/e/bindings/destination", "queues/shapes", "queues/shapes/q", "queues/shapes/x",
    "queues/shapes/q/bindings", "bindings/shapes", "bindings/shapes/e/e/q/q", "users/shapes",
    "users/shapes/permissions",    "users/shapes/topic-permissions", "user-limits/shapes", "permissions/shapes/shapes",
    "topic-permissions/shapes/shapes", "policies/shapes", "policies/shapes/p", "operator-policies/shapes",
    "operator-policies/shapes/p", "vhost-limits/shapes", "aliveness-test/shapes", "health/checks/alarms",
    "health/checks/local-alarms", "health/checks/virtual-hosts", "health/checks/node-is-mirror-sync-critical",
    "health/checks/node-is-quorum-critical", "health/checks/protocol-listener/amqp",
    "overview/", "vhosts/shapes/connections/", "connections/CONNECTION/",
    "queues/shapes?page=1", "queues/shapes?columns=name,messages", "exchanges/shapes?page=1",
)  # fmt: skip
"""What is asked for; NODE, CONNECTION and CHANNEL stand for the names of those."""

Shape = dict[str, set[str]]
"""Paths into an answer, such as ``[].policy``, and the JSON types that are found there."""


@contextlib.contextmanager
def one_of_everything(broker: BrokerProcess, operator: Operator) -> Iterator[None]:
    """A virtual host with one of everything in it, and a client at work there."""
    operator.ask("PUT", "vhosts", VHOST)
    operator.ask("PUT", "permissions", VHOST, "guest", json={"configure": ".*", "write": ".*", "read": ".*"})
    operator.ask("PUT", "users", VHOST, json={"password": "secret", "tags": "monitoring"})
    operator.ask("PUT", "permissions", VHOST, VHOST, json={"configure": "", "write": "", "read": ".*"})
    operator.ask("PUT", "topic-permissions", VHOST, VHOST, json={"exchange": "amq.topic", "write": "a", "read": "b"})
    operator.ask("PUT", "vhost-limits", VHOST, "max-queues", json={"value": 100})
    operator.ask("PUT", "user-limits", VHOST, "max-channels", json={"value": 10})
    for kind in ("policies", "operator-policies"):
        body = {"pattern": "^q$", "definition": {"max-length": 5}, "apply-to": "queues"}
        operator.ask("PUT", kind, VHOST, "p", json=body)
    with login(broker.port, vhost=VHOST) as connection:
        _work(connection)
        try:
            yield
        finally:
            operator.ask("DELETE", "vhosts", VHOST)
            operator.ask("DELETE", "users", VHOST)


def _work(connection: WireConnection) -> None:
    channel = connection.channel()
    channel.call(Basic.Qos(prefetch_count=5))
    channel.queue("q", exclusive=False, durable=True, arguments={"x-max-length": 10})
    channel.queue("x", exclusive=True)
    channel.exchange("e", "topic", auto_delete=False, arguments={"alternate-exchange": "amq.fanout"})
    channel.bind("q", "e", "a.#", {"k": 1})
    channel.publish("e", "a.b", b"ready")
    channel.consume("x", "reader")
    channel.publish("", "x", b"unacknowledged")
    channel.next()


def answers(operator: Operator) -> dict[str, Shape]:
    """The shape of the answer to each of PATHS."""
    names = {"NODE": operator.node}
    until(lambda: bool([one for one in operator.see("vhosts", VHOST, "connections") if "name" in one]))
    until(lambda: bool(operator.see("vhosts", VHOST, "channels")))
    names["CONNECTION"] = operator.see("vhosts", VHOST, "connections")[0]["name"]
    names["CHANNEL"] = operator.see("vhosts", VHOST, "channels")[0]["name"]
    shapes = {}
    for path in PATHS:
        asked, _, query = path.partition("?")
        response = operator.ask("GET", *(names.get(part, part) for part in asked.split("/")), params=query)
        assert response.status_code == 200, f"{path}: {response.status_code}"
        assert response.headers["Content-Type"] == "application/json", path
        _walk(response.json(), "", shapes.setdefault(path, {}), names["NODE"])
    return shapes


def _walk(value: Any, at: str, shape: Shape, node: str) -> None:
    shape.setdefault(at or ".", set()).add(_type(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            _walk(inner, f"{at}.{'NODE' if key == node else key}", shape, node)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, f"{at}[]", shape, node)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "number", float: "number", str: "string", dict: "object", list: "array"}.get(type(value), "null")


def outermost(keys: Iterator[str] | set[str]) -> list[str]:
    """The keys that are in no other of them."""
    return sorted(key for key in keys if not any(key.startswith((f"{other}.", f"{other}[")) for other in keys))


def expected() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What the table says: for each path the keys that both brokers show, and those that RabbitMQ alone does."""
    both: dict[str, set[str]] = {}
    theirs: dict[str, set[str]] = {}
    path = ""
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            path = line
            both[path], theirs[path] = set(), set()
        elif line.startswith("  - "):
            theirs[path].update(line[4:].split())
        elif line.startswith("  "):
            both[path].update(line.split())
    return both, theirs
