"""A virtual host with an object of every kind of the management API, and the shapes of the answers."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, Exchange, WireConnection, login

from jumpmq.testing import BrokerProcess

VHOST = "shapes"
TABLE = Path(__file__).with_name("management_shapes.txt")

PATHS = (
    "overview", "cluster-name", "nodes", "nodes/NODE", "nodes/NODE/memory", "extensions", "whoami",
    "definitions/shapes", "vhosts", "vhosts/shapes", "vhosts/shapes/connections", "vhosts/shapes/channels",
    "vhosts/shapes/permissions", "vhosts/shapes/topic-permissions", "connections/CONNECTION",
    "connections/CONNECTION/channels", "connections/username/guest", "channels/CHANNEL", "consumers/shapes",
    "exchanges/shapes", "exchanges/shapes/e", "exchanges/shapes/e/bindings/source",
    "exchanges/shapes/e/bindings/destination", "queues/shapes", "queues/shapes/q", "queues/shapes/x",
    "queues/shapes/s", "queues/shapes/k", "queues/shapes/t", "queues/shapes/q/bindings", "bindings/shapes",
    "bindings/shapes/e/e/q/q", "bindings/shapes/e/e/q/q/PROPS", "bindings/shapes/e/e/e/f",
    "bindings/shapes/e/e/e/f/b", "users/shapes", "users/without-permissions", "users/shapes/permissions",
    "users/shapes/topic-permissions", "user-limits/shapes", "permissions/shapes/shapes",
    "topic-permissions/shapes/shapes", "parameters/policy/shapes", "parameters/policy/shapes/p",
    "parameters/operator_policy/shapes", "parameters/operator_policy/shapes/p",
    "parameters/vhost-limits/shapes/limits", "parameters/nothing", "policies/shapes", "policies/shapes/p",
    "operator-policies/shapes", "operator-policies/shapes/p", "global-parameters/shapes", "vhost-limits/shapes",
    "aliveness-test/shapes", "health/checks/alarms", "health/checks/local-alarms", "health/checks/virtual-hosts",
    "health/checks/node-is-mirror-sync-critical", "health/checks/node-is-quorum-critical",
    "health/checks/protocol-listener/amqp", "health/checks/port-listener/PORT",
    "health/checks/certificate-expiration/1/weeks", "auth", "auth/attempts/NODE", "auth/attempts/NODE/source",
    "overview/", "vhosts/shapes/connections/", "connections/CONNECTION/", "queues/shapes?page=1",
    "queues/shapes?columns=name,messages", "exchanges/shapes?page=1",
)  # fmt: skip
"""Paths without traces of other tests; words in capitals stand for a name or number."""

EVERYWHERE = {
    "definitions": "definitions", "all-configuration": "definitions", "connections": "vhosts/shapes/connections",
    "channels": "vhosts/shapes/channels", "consumers": "consumers/shapes", "exchanges": "exchanges/shapes",
    "queues": "queues/shapes", "bindings": "bindings/shapes", "users": "users", "user-limits": "user-limits/shapes",
    "permissions": "vhosts/shapes/permissions", "topic-permissions": "vhosts/shapes/topic-permissions",
    "parameters": "parameters", "parameters/policy": "parameters/policy/shapes",
    "parameters/operator_policy": "parameters/operator_policy/shapes",
    "parameters/vhost-limits": "parameters/vhost-limits", "global-parameters": "global-parameters",
    "policies": "policies/shapes", "operator-policies": "operator-policies/shapes",
    "vhost-limits": "vhost-limits/shapes",
}  # fmt: skip
"""Paths that include objects of other tests, which are left out; with the path of the same shape."""

WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}

Shape = dict[str, set[str]]
"""Paths into an answer, such as ``[].policy``, with their JSON types."""


@contextlib.contextmanager
def one_of_everything(broker: BrokerProcess, operator: Operator) -> Iterator[None]:
    """A virtual host with an object of every kind, and an active client."""
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
    operator.ask("PUT", "global-parameters", VHOST, json={"value": {"key": 1}})
    operator.ask("PUT", "users", "idle", json={"password": "secret", "tags": ""})
    with login(broker.port, vhost=VHOST) as connection:
        _work(connection)
        try:
            yield
        finally:
            operator.ask("DELETE", "vhosts", VHOST)
            operator.ask("DELETE", "users", VHOST)
            operator.ask("DELETE", "global-parameters", VHOST)
            operator.ask("DELETE", "users", "idle")


def _work(connection: WireConnection) -> None:
    channel = connection.channel()
    channel.call(Basic.Qos(prefetch_count=5))
    channel.queue("q", exclusive=False, durable=True, arguments={"x-max-length": 10})
    channel.queue("x", exclusive=True)
    channel.queue("s", exclusive=False, arguments={"x-single-active-consumer": True})
    channel.queue("k", exclusive=False, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue("t", exclusive=False, durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange("e", "topic", auto_delete=False, arguments={"alternate-exchange": "amq.fanout"})
    channel.exchange("f", "fanout", auto_delete=False)
    channel.bind("q", "e", "a.#", {"k": 1})
    channel.call(Exchange.Bind(source="e", destination="f", routing_key="b"))
    channel.publish("e", "a.b", b"ready", Basic.Properties(timestamp=datetime(2017, 7, 14, tzinfo=UTC)))
    channel.consume("x", "reader")
    channel.consume("s", "active")
    channel.publish("", "x", b"unacknowledged")
    channel.next()


def answers(operator: Operator, port: int) -> dict[str, Shape]:
    """The shapes of the answers to PATHS and EVERYWHERE; ``port`` is the AMQP port."""
    names = {"NODE": operator.node, "PORT": str(port)}
    until(lambda: bool([one for one in operator.see("vhosts", VHOST, "connections") if "name" in one]))
    until(lambda: bool(operator.see("vhosts", VHOST, "channels")))
    names["CONNECTION"] = operator.see("vhosts", VHOST, "connections")[0]["name"]
    names["CHANNEL"] = operator.see("vhosts", VHOST, "channels")[0]["name"]
    names["PROPS"] = operator.see("bindings", VHOST, "e", "e", "q", "q")[0]["properties_key"]
    nodes = {one["name"] for one in operator.see("nodes")}
    shapes: dict[str, Shape] = {}
    for path in (*PATHS, *EVERYWHERE):
        asked, _, query = path.partition("?")
        response = operator.ask("GET", *(names.get(part, part) for part in asked.split("/")), params=query)
        assert response.status_code == 200, f"{path}: {response.status_code}"
        assert response.headers["Content-Type"] == "application/json", path
        answer = _own(response.json()) if path in EVERYWHERE else response.json()
        _walk(answer, "", shapes.setdefault(path, {}), nodes)
    return shapes


_OWNERS = ("vhost", "user", "name")


def _own(value: Any) -> Any:
    """A list without objects of other virtual hosts and users; an object with such lists."""
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [one for one in value if VHOST in (*map(one.get, _OWNERS), one.get("queue", {}).get("vhost"))]
    return value


def _walk(value: Any, at: str, shape: Shape, nodes: set[str]) -> None:
    shape.setdefault(at or ".", set()).add(_type(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            _walk(inner, f"{at}.{'NODE' if key in nodes else key}", shape, nodes)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, f"{at}[]", shape, nodes)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "number", float: "number", str: "string", dict: "object", list: "array"}.get(type(value), "null")


def outermost(keys: Iterator[str] | set[str]) -> list[str]:
    """The keys not contained in another key."""
    return sorted(key for key in keys if not any(key.startswith((f"{other}.", f"{other}[")) for other in keys))


def expected() -> tuple[dict[str, Shape], dict[str, set[str]]]:
    """Parse the table.

    Returns:
        for each path the keys of both brokers with their types, and the keys of RabbitMQ alone.
    """
    both: dict[str, Shape] = {}
    theirs: dict[str, set[str]] = {}
    path = ""
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            path = line
            both[path], theirs[path] = {}, set()
        elif line.startswith("  - "):
            theirs[path].update(line[4:].split())
        elif line.startswith("  "):
            for word in line.split():
                key, _, types = word.rpartition(":")
                both[path][key] = set(types.split("|"))
    return both, theirs


def written(reference: dict[str, Shape], ours: dict[str, Shape]) -> str:
    """The table of the keys of both brokers."""
    lines = []
    for path, shown in ours.items():
        lines.append(path)
        keys = sorted((set(shown) & set(reference[path])) - {"."})
        words = [f"{key}:{'|'.join(sorted(shown[key] | reference[path][key]))}" for key in keys]
        missing = outermost(set(reference[path]) - set(shown) - {"."})
        lines += wrap(" ".join(words), 118, initial_indent="  ", subsequent_indent="  ", **WHOLE)
        lines += wrap(" ".join(missing), 118, initial_indent="  - ", subsequent_indent="  - ", **WHOLE)
    return "\n".join(lines) + "\n"
