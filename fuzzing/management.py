"""Requests to the management API that nobody in their right mind would send.

Each is made from the API's own description: a path and method of it, with names that exist and names that do not,
bodies that are nearly right, deep, long or no JSON at all, users of every kind, and now and then half a request. No
answer may be a server error.
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
"""Users by name, with their tag; each user's password is its name."""

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
VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 1 << 70, 1e308, "", "/", ".*", "(.|.)*!", "x" * 5000, [], {}, [[]], {"a": {"b": []}},
    "classic", "x-consistent-hash", "lazy", "\ud800", "guest", "queues",
)  # fmt: skip
QUERIES = (
    "page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "msg_rates_age", "if-unused", "upto",
    "after", "limit", "group", "pagination", "disable_stats",
)  # fmt: skip
SPARED = ("/api/stop", "/api/users/guest", "/api/vhosts/%2F", "/api/permissions/%2F/guest", "/api/whoami")
"""What would end the run, or lock it out. Nothing below them is changed."""


def make_users(port: int) -> None:
    """Add the users."""
    for name, tag in USERS.items():
        if name != "guest":
            _put(port, f"/api/users/{name}", {"password": name, "tags": tag})
            _put(port, f"/api/permissions/%2F/{name}", {"configure": "^fuzzed", "write": ".*", "read": ".*"})


def read_messages(port: int) -> None:
    """Read a queue once as Arrow: the broker loads pyarrow then, which takes 90 MB and stays."""
    _put(port, "/api/queues/%2F/fuzzed", {})
    with urlopen(_request(port, "GET", "/api/queues/%2F/fuzzed/messages")):
        pass


def endpoints(port: int) -> list[tuple[str, str, list[str]]]:
    """Method, path and keys of the body of all that the API describes."""
    with urlopen(_request(port, "GET", "/api/openapi.json")) as answer:
        described = json.load(answer)["paths"]
    return [
        (verb.upper(), path, _keys(operation))
        for path, verbs in described.items()
        for verb, operation in verbs.items()
    ]  # fmt: skip


def _keys(operation: dict[str, dict[str, dict[str, dict[str, dict[str, dict[str, object]]]]]]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return list(content.get("schema", {}).get("properties", {}))


def compose(chance: random.Random, known: Sequence[tuple[str, str, list[str]]]) -> bytes:
    """A request, as octets."""
    verb, path, keys = chance.choice(known)
    while "{" in path:
        before, _, rest = path.partition("{")
        name = chance.choice(NAMES) if chance.random() < 0.7 else "%2F"
        path = before + (name if name == "%2F" else quote(name, safe="")) + rest.partition("}")[2]
    if chance.random() < 0.05:
        verb = chance.choice(("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "BREW"))
    if verb != "GET" and path.startswith(SPARED):
        verb = "GET"
    if chance.random() < 0.4:
        query = [(chance.choice(QUERIES), str(chance.choice(VALUES))) for _ in range(chance.randrange(4))]
        path += "?" + "&".join(f"{key}={quote(value, safe='', errors='replace')}" for key, value in query)
    body = _body(chance, keys) if verb in ("PUT", "POST", "DELETE") else b""
    lines = [f"{verb} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    if chance.random() < 0.95:
        user = chance.choice([*USERS, "stranger"])
        lines.append(f"Authorization: Basic {base64.b64encode(f'{user}:{user}'.encode()).decode()}")
    if body and chance.random() < 0.9:
        lines.append("Content-Type: application/json")
    octets = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
    if chance.random() < 0.05:
        octets = octets[: chance.randrange(len(octets))]
    return octets


def _body(chance: random.Random, keys: list[str]) -> bytes:
    if chance.random() < 0.1:
        return chance.choice(
            (b"", b"{", b"[1, 2", b"NaN", b"\xff\xfe", b"[" * 20_000, b'{"a":' * 5_000, b"0" * 100_000)
        )
    value = {key: chance.choice(VALUES) for key in keys if chance.random() < 0.7}
    if chance.random() < 0.2:
        value[chance.choice(NAMES)] = chance.choice(VALUES)
    return json.dumps(chance.choice(VALUES) if chance.random() < 0.05 else value).encode()


def send(port: int, octets: bytes, chance: random.Random) -> int:
    """Send a request, and read its answer or leave; returns the answer's status, 0 where there was none."""
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
    """Delete all queues, with what gathered in them."""
    with urlopen(_request(port, "GET", "/api/queues?columns=vhost,name")) as answer:
        queues = json.load(answer)
    for queue in queues:
        path = f"/api/queues/{quote(queue['vhost'], safe='')}/{quote(queue['name'], safe='')}"
        with suppress(HTTPError), urlopen(_request(port, "DELETE", path)):
            pass


def _put(port: int, path: str, value: dict[str, str]) -> None:
    with urlopen(_request(port, "PUT", path, json.dumps(value).encode())):
        pass


def _request(port: int, verb: str, path: str, body: bytes | None = None) -> Request:
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    return Request(f"http://127.0.0.1:{port}{path}", body, headers, method=verb)
