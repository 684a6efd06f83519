"""The broker's management API, as far as Spark needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from jumpmq.management import ClientTLS, InvalidRequest, ManagementClient, ManagementError, NoAnswer, Refusal
from jumpmq.spark.errors import JumpMQError, NotThere


class Client:
    """Requests to one virtual host. It holds no connection, so it can be sent to executors.

    Args:
        url: the management URL, with user and password (guest and guest unless given).
        tls: how the broker is known where the URL says ``https``; the files are read where the requests are made.

    Raises:
        JumpMQError: the URL makes no sense.
    """

    def __init__(self, url: str, vhost: str, tls: ClientTLS | None = None) -> None:
        try:
            self._broker = ManagementClient(url, tls=tls)
        except InvalidRequest as error:
            raise JumpMQError(f"option 'url': {error}") from None
        self._vhost = vhost

    def bound_queues(self, exchange: str) -> list[str]:
        """The queues that an exchange routes to, directly or through other exchanges.

        Raises:
            NotThere: there is no such exchange.
        """
        queues: set[str] = set()
        exchanges, seen = [exchange], {exchange}
        while exchanges:
            name = exchanges.pop() or "amq.default"
            for binding in self._ask("GET", "exchanges", self._vhost, name, "bindings", "source"):
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
        return int(self._ask("GET", "queues", self._vhost, queue)["last_seq"])

    def messages(self, queue: str, last_seq: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The ready messages of a queue, none beyond ``last_seq``; nothing is consumed."""
        query = {"to": last_seq, "columns": ",".join(columns)}
        return self._batches("queues", self._vhost, queue, "messages", query=query)

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
        answer: dict[str, dict[str, int]]
        answer = self._ask("POST", "readers", self._vhost, group, "reserve", body=wish)["queues"]
        return answer

    def renew(self, group: str) -> None:
        """Say that the group is alive."""
        self._ask("POST", "readers", self._vhost, group, "renew")

    def reserved(
        self, group: str, queue: str, after: int | None, upto: int, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """The messages of the reservations behind ``after`` (None: behind what is acknowledged) up to ``upto``."""
        query = {"upto": upto, "columns": ",".join(columns)} | ({} if after is None else {"after": after})
        return self._batches("readers", self._vhost, group, "queues", queue, "messages", query=query)

    def _ask(self, method: str, *path: str, body: Any = None) -> Any:
        with _said_here(self._broker):
            return self._broker.ask(method, *path, body=body)

    def _batches(self, *path: str, query: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """The record batches of an Arrow stream; an error if it ends early."""
        with _said_here(self._broker), self._broker.request("GET", *path, query=query) as response:
            rows = 0
            with pa.ipc.open_stream(response) as stream:
                for batch in stream:
                    rows += len(batch)
                    yield batch
            expected = response.headers.get("JumpMQ-Messages")
            if expected is not None and int(expected) != rows:
                raise JumpMQError(f"the broker's answer ended after {rows} of {expected} messages")

    def __str__(self) -> str:
        return self._broker.address


@contextmanager
def _said_here(broker: ManagementClient) -> Iterator[None]:
    """Raise what goes wrong with a request as this floor's error."""
    try:
        yield
    except NoAnswer as error:
        if error.refused:
            text = f"nothing listens at {broker.address}: is the broker running, and is this its management port?"
            raise JumpMQError(text) from None
        raise JumpMQError(f"lost the broker: {error}") from error
    except Refusal as refusal:
        if refusal.code == 401:
            raise JumpMQError(f"{refusal}: wrong name or password?") from None
        if not refusal.reason:
            raise JumpMQError(f"{broker.address} answers {refusal.code}: is this a JumpMQ broker?") from None
        error_type = NotThere if refusal.code == 404 else JumpMQError
        raise error_type(f"{refusal.reason} (broker at {broker.address})") from None
    except ManagementError as error:
        raise JumpMQError(str(error)) from None
