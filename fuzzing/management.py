"""Malformed and unusual requests to the management API.

Requests are generated from the API's own description: a described path and method, with existing and missing names,
bodies that are valid, nearly valid, deep, long or not JSON, users of every kind, and now and then half a request. The
page and the metrics are requested, too. No answer may be a server error.
"""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

USERS = {
    "guest": "administrator",
    "watcher": "monitoring",
    "member": "management",
    "maker": "policymaker",
    "nobody": "",
}
"""Users by name, with their tag; the password is the name."""

NAMES = (
    "fuzzed",
    "amq.topic",
    "amq.default",
    "/",
    "",
    "*",
    "\r\n",
    "%",
    "é" * 40,
    "x" * 300,
    "\0",
    "..",
    "sharding: a - b - 0",
)
STREAM = "fuzzed stream"
APT: dict[str, tuple[str, ...]] = {
    "vhost": ("/",),
    "node": ("jumpmq@localhost",),
    "queue": ("fuzzed", STREAM),
    "exchange": ("fuzzed", "fuzzed", "amq.topic", "amq.default"),
    "limit": ("max-connections", "max-channels", "max-queues", "max-bindings", "max-publish-rate"),
    "component": ("policy", "operator_policy", "vhost-limits", "user-limits"),
    "parameter": ("fuzzed", "limits", "cluster_name"),
    "protocol": ("amqp", "http"),
    "unit": ("days", "weeks"),
    "within": ("1",),
    "version": ("0",),
    "path": ("main.js", "views/queues.js", "../broker/broker.py"),
}
"""Values of the names in a path."""
VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 1 << 70, 1e308, "", "/", ".*", "(.|.)*!", "x" * 5000, [], {}, [[]], {"a": {"b": []}},
    "classic", "x-consistent-hash", "lazy", "\ud800", "fuzzed", "queues",
)  # fmt: skip
QUERIES = (
    "page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "msg_rates_age", "if-unused", "upto",
    "after", "limit", "group", "pagination", "disable_stats", "type", "from", "to", "since", "text", "seconds",
    "family", "vhost", "writer", "batch", "rows", "first", "digest", "persistent", "msg_rates_incr", "lengths_age",
)  # fmt: skip
SPARED = ("/api/stop", "/api/users/guest", "/api/vhosts/%2F", "/api/permissions/%2F/guest", "/api/whoami")
"""Paths whose change would end the run or lock it out. They are only read."""

HINDRANCES = ("/api/nodes/", "/api/vhost-limits/", "/api/user-limits/", "/api/parameters/vhost-limits/")
"""Paths whose change may block other clients: :func:`put_right` follows."""

OTHER_PATHS = ("/", "/assets/{version}/{path}", "/favicon.ico", "/metrics", "/metrics/per-object", "/metrics/detailed")
"""Paths outside of the description."""

_POLICY = {"pattern": "^fuzzed", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
RIGHT: dict[str, tuple[dict[str, object], ...]] = {
    "PUT /api/queues/{vhost}/{queue}": (
        {"durable": True, "arguments": {"x-queue-type": "stream", "x-max-length-bytes": 100_000}},
        {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}},
        {"durable": True, "arguments": {"x-max-length": 50, "x-expires": 60_000}},
    ),
    "PUT /api/exchanges/{vhost}/{exchange}": (
        {"type": "x-consistent-hash", "durable": True, "arguments": {"hash-header": "device"}},
        {"type": "x-modulus-hash"},
    ),
    "POST /api/exchanges/{vhost}/{exchange}/publish": tuple(
        {"routing_key": name, "payload": "x" * 100, "payload_encoding": "string", "properties": {"headers": {"a": 1}}}
        for name in ("fuzzed", STREAM)
    ),
    "POST /api/queues/{vhost}/{queue}/get": (
        {"count": 3, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 10},
    ),
    "POST /api/queues/{vhost}/{queue}/contents/move": (
        {"queue": STREAM, "count": 10},
        {"exchange": "fuzzed", "routing_key": "fuzzed", "count": 10},
        {"origin": True},
    ),
    "POST /api/queues/{vhost}/{queue}/contents/delete": ({"numbers": [1, 2, 3, 50]},),
    "POST /api/queues/{vhost}/{queue}/actions": ({"action": "move"}, {"action": "move", "home": 2}),
    "PUT /api/group-offsets/{vhost}/{queue}/{group}": ({"offset": "first"}, {"offset": "2h"}, {"timestamp": 1.5e9}),
    "POST /api/bindings/{vhost}/e/{exchange}/q/{queue}": ({"routing_key": "3", "arguments": {"x-match": "any"}},),
    "POST /api/exchanges/{vhost}/{exchange}/ring/what-if": (
        {"changes": [{"destination": "fuzzed", "weight": 2}, {"destination": "another", "weight": 0}]},
        {"shards": 4},
    ),
    "POST /api/messages/{vhost}": (
        {"slices": [["fuzzed", 1, None], [STREAM, 0, 5]], "columns": ["queue", "seq", "body"], "whole": False},
    ),
    "POST /api/ranges/{vhost}": (
        {"queues": ["fuzzed", STREAM], "missing": True},
        {"exchange": "fuzzed"},
        {"queues": [STREAM], "timestamp": 1.5e9},
    ),
    "POST /api/readers/{vhost}/{group}/open": ({"query": "fuzzed", "lease": 1},),
    "POST /api/readers/{vhost}/{group}/reserve": (
        {"queues": {"fuzzed": None}, "exchange": "fuzzed", "max_messages": 5, "max_octets": 1000, "lease": 1},
    ),
    "POST /api/readers/{vhost}/{group}/commit": ({"queues": {"fuzzed": 1}},),
    "POST /api/readers/{vhost}/{group}/read": ({"slices": [["fuzzed", 0, 1, 2]]},),
    "PUT /api/policies/{vhost}/{name}": (_POLICY,),
    "PUT /api/operator-policies/{vhost}/{name}": (_POLICY,),
    "POST /api/preview/policies/{vhost}/{name}": (_POLICY,),
    "PUT /api/parameters/{component}/{vhost}/{parameter}": ({"value": {"max-queues": 1000}}, {"value": _POLICY}),
    "PUT /api/global-parameters/{parameter}": ({"value": {"a": [1, "b"]}},),
    "PUT /api/nodes/{node}/limits": ({"memory_limit": "50%", "disk_free_limit": "50MB"},),
    "PUT /api/nodes/{node}/log-level": ({"level": "debug"}, {"level": "none"}),
    "PUT /api/nodes/{node}/listeners": ({"suspended": True}, {"suspended": False}),
    "PUT /api/vhost-limits/{vhost}/{limit}": ({"value": 3}, {"value": -1}),
    "PUT /api/user-limits/{user}/{limit}": ({"value": 3}, {"value": -1}),
}
"""Valid bodies, by method and path."""


def make_users(port: int) -> None:
    """Add the users."""
    for name, tag in USERS.items():
        if name != "guest":
            _put(port, f"/api/users/{name}", {"password": name, "tags": tag})
            _put(port, f"/api/permissions/%2F/{name}", {"configure": "^fuzzed", "write": ".*", "read": ".*"})


def put_right(port: int) -> None:
    """Undo changes of listeners, log level and limits."""
    _put(port, "/api/nodes/jumpmq@localhost/listeners", {"suspended": False})
    _put(port, "/api/nodes/jumpmq@localhost/log-level", {"level": "info"})
    for place in ("vhost-limits/%2F", "user-limits/guest"):
        for limit in APT["limit"]:
            with suppress(HTTPError), urlopen(_request(port, "DELETE", f"/api/{place}/{limit}")):
                pass


def read_messages(port: int) -> None:
    """Read a queue once as Arrow, so that the broker loads pyarrow, which takes 90 MB permanently."""
    _put(port, "/api/queues/%2F/fuzzed", {})
    with urlopen(_request(port, "GET", "/api/queues/%2F/fuzzed/messages")):
        pass


def endpoints(port: int) -> list[tuple[str, str, list[str]]]:
    """Method, path and body keys of all described endpoints, and of the page and the metrics."""
    with urlopen(_request(port, "GET", "/api/openapi.json")) as answer:
        described = json.load(answer)["paths"]
    found = [
        (verb.upper(), path, _keys(operation))
        for path, verbs in described.items()
        for verb, operation in verbs.items()
    ]  # fmt: skip
    return found + [("GET", path, []) for path in OTHER_PATHS]


def _keys(operation: dict[str, dict[str, dict[str, dict[str, dict[str, dict[str, object]]]]]]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return list(content.get("schema", {}).get("properties", {}))


def compose(chance: random.Random, known: Sequence[tuple[str, str, list[str]]], user: str | None = None) -> bytes:
    """Return a request as octets.

    Args:
        user: name of the user; by default random, existing or not.
    """
    verb, described, keys = chance.choice(known)
    path, right = described, RIGHT.get(f"{verb} {described}", ())
    while "{" in path:
        before, _, rest = path.partition("{")
        place, _, rest = rest.partition("}")
        path = before + quote(_name(chance, place), safe="") + rest
    if chance.random() < 0.05:
        verb = chance.choice(("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "BREW"))
    if verb != "GET" and path.startswith(SPARED):
        verb = "GET"
    if chance.random() < 0.4:
        query = [(chance.choice(QUERIES), str(chance.choice(VALUES))) for _ in range(chance.randrange(4))]
        path += "?" + "&".join(f"{key}={quote(value, safe='', errors='replace')}" for key, value in query)
    body = _body(chance, keys, right) if verb in ("PUT", "POST", "DELETE") else b""
    lines = [f"{verb} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    if chance.random() < 0.95:
        user = user or chance.choice([*USERS, "stranger"])
        lines.append(f"Authorization: Basic {base64.b64encode(f'{user}:{user}'.encode()).decode()}")
    if body and chance.random() < 0.9:
        lines.append("Content-Type: application/json")
    octets = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
    if chance.random() < 0.05:
        octets = octets[: chance.randrange(len(octets))]
    return octets


def hinders(octets: bytes) -> bool:
    """Return true if a request may block other clients."""
    verb, _, path = octets.decode("latin-1").partition(" ")
    return verb != "GET" and path.startswith(HINDRANCES)


def _name(chance: random.Random, place: str) -> str:
    return chance.choice(APT.get(place, ("fuzzed",)) if chance.random() < 0.7 else NAMES)


def _body(chance: random.Random, keys: list[str], right: Sequence[dict[str, object]]) -> bytes:
    if chance.random() < 0.1:
        return chance.choice(
            (b"", b"{", b"[1, 2", b"NaN", b"\xff\xfe", b"[" * 20_000, b'{"a":' * 5_000, b"0" * 100_000)
        )
    if right and chance.random() < 0.6:
        value = dict(chance.choice(right))
        if chance.random() < 0.5:
            value[chance.choice([*value])] = chance.choice(VALUES)
    else:
        value = {key: chance.choice(VALUES) for key in keys if chance.random() < 0.7}
    if chance.random() < 0.2:
        value[chance.choice(NAMES)] = chance.choice(VALUES)
    return json.dumps(chance.choice(VALUES) if chance.random() < 0.05 else value).encode()


def send(port: int, octets: bytes, chance: random.Random) -> int:
    """Send a request, and read the answer or leave. Return the status, or 0 without an answer."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as client:
        client.sendall(octets)
        if chance.random() < 0.1:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            return 0
        while piece := client.recv(1 << 16):
            answer = (answer + piece)[:64]
    status = answer.split(b" ")[1:2]
    return int(status[0]) if status else 0


def clear(port: int) -> None:
    """Delete all queues."""
    with urlopen(_request(port, "GET", "/api/queues?columns=vhost,name")) as answer:
        queues = json.load(answer)
    for queue in queues:
        path = f"/api/queues/{quote(queue['vhost'], safe='')}/{quote(queue['name'], safe='')}"
        with suppress(HTTPError), urlopen(_request(port, "DELETE", path)):
            pass


def _put(port: int, path: str, value: dict[str, object]) -> None:
    with urlopen(_request(port, "PUT", path, json.dumps(value).encode())):
        pass


def _request(port: int, verb: str, path: str, body: bytes | None = None) -> Request:
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    return Request(f"http://127.0.0.1:{port}{path}", body, headers, method=verb)
