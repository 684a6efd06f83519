"""Common parts of the management port's tests: a client, and a publisher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pyarrow as pa
import requests


class API:
    """The management API of a broker; paths are given as parts, which are percent-encoded."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        self.session = requests.Session()
        self.session.auth = (parts.username or "guest", parts.password or "guest")

    def request(self, method: str, *parts: str, **options: Any) -> requests.Response:
        path = "/".join(quote(part, safe="") for part in parts)
        return self.session.request(method, f"{self.address}/api/{path}", timeout=30, **options)

    def get(self, *parts: str, **query: Any) -> Any:
        """Return the JSON of an answer with status 200."""
        response = self.request("GET", *parts, params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, *parts: str, body: Any) -> Any:
        response = self.request("POST", *parts, json=body)
        assert response.status_code in (200, 204), response.text
        return response.json() if response.content else None

    @property
    def amqp_port(self) -> int:
        """The port for clients of AMQP without TLS."""
        return next(int(one["port"]) for one in self.get("overview")["listeners"] if one["protocol"] == "amqp")

    def node_at(self, port: int) -> str:
        """The node with a listener at the port."""
        node: str = next(one["node"] for one in self.get("overview")["listeners"] if one["port"] == port)
        return node

    def table(self, *parts: str, **query: Any) -> pa.Table:
        """The rows of an Arrow stream."""
        response = self.request("GET", *parts, params=query)
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
        return pa.ipc.open_stream(response.content).read_all()

    def counts(self, queue: str, vhost: str = "/") -> tuple[int, int]:
        """Ready and unacknowledged messages of a queue."""
        shown = self.get("queues", vhost, queue, columns="messages_ready,messages_unacknowledged")
        return shown["messages_ready"], shown["messages_unacknowledged"]


def publish(channel: Any, queue: str, bodies: Iterable[bytes], **properties: Any) -> None:
    """Publish persistent messages through the default exchange. They are on disk on return."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True)
