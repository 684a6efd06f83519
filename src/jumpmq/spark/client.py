"""The broker's management API, as far as Spark needs it, over the standard library."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import pyarrow as pa

from jumpmq.spark.errors import JumpMQError, NotThere

TIMEOUT = 60.0
"""Seconds without a single octet from the broker before a request counts as failed."""

DEFAULT_PORT = 15672


class Client:
    """Requests to one virtual host. It holds no connection, so it can be sent to executors.

    Args:
        url: the management URL, with user and password (guest and guest unless given).

    Raises:
        JumpMQError: the URL makes no sense.
    """

    def __init__(self, url: str, vhost: str) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname, parts.port or DEFAULT_PORT
        except ValueError as error:
            raise JumpMQError(f"option 'url': {error}") from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise JumpMQError("option 'url' must look like http://user:password@host:15672")
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._user = unquote(parts.username or "guest")
        password = unquote(parts.password or "guest")
        self._authorization = "Basic " + base64.b64encode(f"{self._user}:{password}".encode()).decode("ascii")
        self._vhost = vhost

    def bound_queues(self, exchange: str) -> list[str]:
        """The queues that an exchange routes to, directly or through other exchanges.

        Raises:
            NotThere: there is no such exchange.
        """
        queues: set[str] = set()
        exchanges, seen = [exchange], {exchange}
        while exchanges:
            path = self._path_of("exchanges", exchanges.pop() or "amq.default")
            for binding in self._json("GET", f"{path}/bindings/source"):
                destination = binding["destination"]
                if binding["destination_type"] == "queue":
                    queues.add(destination)
                elif destination not in seen:
                    seen.add(destination)
                    exchanges.append(destination)
        return sorted(queues)

    def last_seq(self, queue: str) -> int:
        """The number of the youngest message that a queue was given, 0 if there was none.

        Raises:
            NotThere: there is no such queue.
        """
        return int(self._json("GET", self._path_of("queues", queue))["last_seq"])

    def messages(self, queue: str, last_seq: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The ready messages of a queue, none beyond ``last_seq``; nothing is consumed."""
        return self._batches(self._path_of("queues", queue, "messages"), {"to": last_seq, "columns": ",".join(columns)})

    def reserve(
        self,
        group: str,
        offsets: dict[str, int | None],
        max_messages: int | None,
        last_seqs: dict[str, int],
        lease: float,
    ) -> dict[str, dict[str, int]]:
        """Acknowledge what is done and reserve more.

        Returns:
            per queue, the ``offset`` reached and how many ``messages`` are outstanding.
        """
        wish = {"queues": offsets, "max_messages": max_messages, "last_seq": last_seqs, "lease": lease}
        answer: dict[str, dict[str, int]] = self._json("POST", self._path_of("readers", group, "reserve"), wish)[
            "queues"
        ]
        return answer

    def renew(self, group: str) -> None:
        """Say that the group is alive."""
        self._json("POST", self._path_of("readers", group, "renew"))

    def reserved(
        self, group: str, queue: str, after: int | None, upto: int, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """The messages of the reservations behind ``after`` (None: behind what is acknowledged) up to ``upto``."""
        query = {"upto": upto, "columns": ",".join(columns)} | ({} if after is None else {"after": after})
        return self._batches(self._path_of("readers", group, "queues", queue, "messages"), query)

    # -- HTTP

    def _path_of(self, resource: str, *names: str) -> str:
        return "/".join([f"{self._path}/api", resource, *(quote(name, safe="") for name in (self._vhost, *names))])

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        with self._request(method, path, body) as response:
            content = response.read()
            return json.loads(content) if content else None

    def _batches(self, path: str, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """The record batches of an Arrow stream; an error if it ends early."""
        with self._request("GET", f"{path}?{urlencode(query)}") as response:
            rows = 0
            with pa.ipc.open_stream(response) as stream:
                for batch in stream:
                    rows += len(batch)
                    yield batch
            expected = response.headers.get("JumpMQ-Messages")
            if expected is not None and int(expected) != rows:
                raise JumpMQError(f"the broker's answer ended after {rows} of {expected} messages")

    @contextmanager
    def _request(self, method: str, path: str, body: Any = None) -> Iterator[HTTPResponse]:
        connection = (HTTPSConnection if self._secure else HTTPConnection)(
            self._host or "", self._port, timeout=TIMEOUT
        )
        headers = {"Authorization": self._authorization, "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise self._refusal(response)
            yield response
        except ConnectionRefusedError:
            raise JumpMQError(
                f"nothing listens at {self}: is the broker running, and is this its management port?"
            ) from None
        except (OSError, HTTPException) as error:
            raise JumpMQError(f"lost the broker at {self}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _refusal(self, response: HTTPResponse) -> JumpMQError:
        if response.status == 401:
            return JumpMQError(f"the broker at {self} refuses user '{self._user}': wrong name or password?")
        content = response.read()
        try:
            reason = json.loads(content)["reason"]
        except (ValueError, KeyError, TypeError):
            return JumpMQError(f"{self} answers {response.status} {response.reason}: is this a JumpMQ broker?")
        return (NotThere if response.status == 404 else JumpMQError)(f"{reason} (broker at {self})")

    def __str__(self) -> str:
        return f"{'https' if self._secure else 'http'}://{self._host}:{self._port}{self._path}"
