"""Client of the part of the broker's management API that Spark needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from jumpmq.management import InvalidRequest, ManagementClient, ManagementError, NoAnswer, Refusal
from jumpmq.spark.errors import (
    BrokerAway,
    GroupInUse,
    JumpMQError,
    MessagesGone,
    NoSession,
    NotThere,
    QueueInUse,
    TooLarge,
)
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.origin import ANY, Origin
from jumpmq.spark.patience import retried, taken_up

T = TypeVar("T")

SliceFields = list[Any]
"""Part of a queue to read: name and message numbers, as the broker's endpoints expect them."""

REFUSALS: dict[int, type[JumpMQError]] = {
    404: NotThere,
    409: GroupInUse,
    410: MessagesGone,
    412: NoSession,
    413: TooLarge,
    423: QueueInUse,
    503: BrokerAway,
}

TYPES = ("classic", "quorum", "stream")
"""Types of queues to read; queues of other types hold an exchange's own messages, such as delayed messages."""

HOME_DOWN = "is down or inaccessible"
"""The broker's text, with status 404, for a queue of a process or node that is down."""

LOGIN_FAILED = "Login failed"
"""The broker's text for an unknown user or a wrong password, not for a missing permission."""


class Client:
    """Requests to a virtual host. Holds no connection, and so can be pickled for executors.

    Args:
        broker: the address. Several URLs are of nodes of one cluster: each node is tried until one answers.
        met: whether the broker has answered before, to any process of the job. If so, requests without an answer are
            repeated for ``brokerRetrySeconds``; if not, a request without an answer is an error at once.

    Raises:
        JumpMQError: the URL makes no sense.
    """

    def __init__(self, broker: BrokerAddress, *, met: bool = False) -> None:
        try:
            self._nodes = [ManagementClient(url, tls=broker.tls) for url in broker.urls]  # the first is in use
        except InvalidRequest as error:
            raise JumpMQError(f"option 'url': {error}") from None
        self._port_named = all(urlsplit(url).port is not None for url in broker.urls)  # whether each URL has a port
        self._vhost = broker.vhost  # the virtual host
        self._retry_seconds = broker.retry_seconds  # how long to repeat a request without an answer
        self._met = met  # whether the broker has answered before: if not, requests are not repeated
        self._identity: str | None = None  # the broker's identity; None before the first request

    @property
    def _broker(self) -> ManagementClient:
        """The node in use; changed only after the node stops answering."""
        return self._nodes[0]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Convert a request's errors to this package's; after a request without an answer, use the next node."""
        broker = self._broker
        try:
            with _converted_errors(broker):
                yield
        except BrokerAway:
            if broker is self._broker:  # unless another thread has changed the node meanwhile
                self._nodes = [*self._nodes[1:], broker]
            raise

    @property
    def identity(self) -> str | None:
        """Identity of the broker, kept across restarts; None for a broker without a data directory."""
        if self._identity is None:
            self.require_broker()
        return self._identity

    def require_broker(self) -> None:
        """Refuse unless the broker is a JumpMQ.

        Raises:
            JumpMQError: another product answers, or nothing does.
        """
        try:
            overview = self._ask("GET", "overview")
        except NotThere as error:
            raise JumpMQError(f"{self}: is this a JumpMQ broker? ({error})") from None
        product = overview.get("product_name") if isinstance(overview, dict) else None
        if product != "JumpMQ":
            default = "" if self._port_named else " (the URL names no port, and that is the default)"
            version = overview.get("rabbitmq_version", "") if isinstance(overview, dict) else ""
            name = f"{product or 'RabbitMQ'} {version}".strip()
            raise JumpMQError(f"{name} answers at {self}{default}, not a JumpMQ broker: check option 'url'")
        self._require_same(overview.get("identity"))
        self._met = True

    def _require_same(self, identity: str | None) -> None:
        """Raise an error if a different broker answered before.

        Raises:
            JumpMQError: the broker has another identity.
        """
        if self._identity not in (None, identity):
            raise JumpMQError(
                f"another broker answers at {self} than before, or the broker has lost its data directory"
            )
        self._identity = identity

    def queues(self) -> list[str]:
        """Return the names of all queues of the virtual host, without queues that belong to an exchange."""
        with self._asking():
            found = self._broker.get("queues", self._vhost, columns="name,type")
        return [queue["name"] for queue in found if queue["type"] in TYPES]

    def require_queue(self, name: str) -> None:
        """Raise an error if the queue does not exist. The queue need not be readable, and its process may be down.

        Raises:
            NotThere: there is no queue of that name.
        """
        self._ask("GET", "queues", self._vhost, name, query={"columns": "name"})

    def unread(self) -> list[dict[str, Any]]:
        """Return the virtual host's queues with messages and without readers: ``name``, ``ready``, ``bound``."""
        found: list[dict[str, Any]] = self._ask("GET", "unread", self._vhost)
        return found

    def ranges(
        self,
        exchange: str | None,
        queues: list[str],
        *,
        timestamp: float | None = None,
        missing: bool = False,
        marks: Mapping[str, int] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Return ``first_seq``, ``last_seq`` and other facts of queues, by name; see the endpoint ``/api/ranges``.

        Args:
            exchange: request the queues bound to this exchange too; None for named queues only.
            queues: names of queues.
            timestamp: request ``seq_at`` of streams for this time, in seconds since the epoch.
            missing: return None for a queue that does not exist, instead of an error.
            marks: request the ``mark`` (fingerprint) of a message per stream: offsets by stream.

        Raises:
            NotThere: there is no such exchange or queue.
            JumpMQError: another broker answers than before.
        """
        body: dict[str, Any] = {"queues": queues, "timestamp": timestamp, "missing": missing}
        body |= {} if exchange is None else {"exchange": exchange}
        body |= {"marks": dict(marks)} if marks else {}

        def once() -> tuple[str | None, dict[str, dict[str, Any]]]:
            with (
                self._asking(),
                self._broker.request("POST", "ranges", self._vhost, body=body) as response,
            ):
                return response.headers.get("JumpMQ-Identity"), json.loads(response.read())

        identity, answer = self.retried(once)
        if self._identity is not None and identity is not None:
            self._require_same(identity)
        return answer

    def ready(self, slices: list[SliceFields], columns: list[str], origin: Origin = ANY) -> Iterator[pa.RecordBatch]:
        """Yield the ready messages of ranges ``[queue, first_seq, last_seq]``, exactly once; nothing is consumed.

        The batches have the columns ``queue`` and ``seq`` too.

        Raises:
            MessagesGone: a queue, or the broker, is not the one of ``origin``.
        """
        body = {"slices": slices} | origin.said()
        return self._batches("messages", self._vhost, body=body, columns=columns)

    def cut(
        self, stream: str, first: int, last: int, columns: list[str], origin: Origin, *, whole: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a stream with offsets ``first`` to ``last``, across broken connections.

        Args:
            columns: names of columns, ``seq`` included.
            whole: True to raise an error for missing messages.

        Raises:
            MessagesGone: messages are missing, or the stream is not the one of ``origin``.
        """

        def rest() -> Iterator[pa.RecordBatch]:
            nonlocal first
            if first > last:
                return
            body = {"slices": [[stream, first, last]], "columns": columns, "whole": whole} | origin.said()
            for batch in self._answer("messages", self._vhost, body=body):
                begin, end = batch.column("seq")[0].as_py(), batch.column("seq")[-1].as_py() + 1
                if whole and (begin != first or end - begin != len(batch)):
                    return
                first = end
                yield batch

        yield from taken_up(self._retry_seconds, rest)
        if whole and first <= last:
            raise MessagesGone(f"stream '{stream}' lacks messages from offset {first} on")

    def group(self, name: str, session: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the positions of a reader group, by queue.

        Raises:
            GroupInUse: the group has another session.
        """
        query = None if session is None else {"session": session}
        queues: dict[str, dict[str, Any]] = self._ask("GET", "readers", self._vhost, name, query=query)["queues"]
        return queues

    def readers(self) -> list[dict[str, Any]]:
        """Return the positions of all reader groups of the virtual host, one entry per queue; see the endpoint
        ``/api/readers``.
        """
        found: list[dict[str, Any]] = self._ask("GET", "readers")
        return [one for one in found if one["vhost"] == self._vhost]

    def open(self, group: str, query: str, lease: float) -> str:
        """Begin a session of a group.

        Raises:
            GroupInUse: another query uses the group.
        """
        body = {"query": query, "lease": lease}
        return str(self._ask("POST", "readers", self._vhost, group, "open", body=body)["session"])

    def reserve(self, group: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge processed messages and reserve more; see the endpoint
        ``/api/readers/{vhost}/{group}/reserve``.
        """
        answer: dict[str, Any] = self._ask("POST", "readers", self._vhost, group, "reserve", body=wanted)
        return answer

    def release(self, group: str) -> None:
        """Return all reserved messages of a group to the queues, and delete the group."""
        self._ask("DELETE", "readers", self._vhost, group)

    def renew(self, group: str, session: str | None) -> None:
        """Extend the group's lease; sent once, without retries."""
        with self._asking():
            self._broker.post("readers", self._vhost, group, "renew", body={"session": session})

    def attend(self, group: str, session: str | None) -> None:
        """Hold a connection open that shows the broker that the query is alive; returns or raises when the connection
        breaks.
        """
        path = ("readers", self._vhost, group, "attend")
        with self._asking(), self._broker.request("POST", *path, body={"session": session}) as response:
            while response.read(1):
                pass

    def reserved(
        self, group: str, slices: list[SliceFields], columns: list[str], *, accept_loss: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of parts of reservations, ``[queue, after, upto, first, count]``, exactly once.

        The batches have the columns ``queue`` and ``seq`` too.
        """
        body = {"slices": slices, "accept_loss": accept_loss}
        return self._batches("readers", self._vhost, group, "read", body=body, columns=columns)

    def ring(self, exchange: str) -> dict[str, Any]:
        """Return the ring of an exchange; see the endpoint ``/api/exchanges/{vhost}/{exchange}/ring``."""
        answer: dict[str, Any] = self._ask("GET", "exchanges", self._vhost, exchange, "ring")
        return answer

    def exchange(self, name: str) -> dict[str, Any]:
        """Return an exchange's declaration.

        Raises:
            NotThere: there is no exchange of that name.
        """
        answer: dict[str, Any] = self._ask("GET", "exchanges", self._vhost, name or "amq.default")
        return answer

    def publish(self, octets: bytes, query: dict[str, Any]) -> dict[str, int]:
        """Publish an Arrow stream that the broker deduplicates; see the endpoint ``/api/messages/{vhost}/publish``."""

        def once() -> Any:
            with self._asking():
                path = ("messages", self._vhost, "publish")
                headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
                return self._broker.ask("POST", *path, body=octets, query=query, headers=headers)

        answer: dict[str, int] = self.retried(once)
        return answer

    def bindings(self, exchange: str) -> list[dict[str, Any]]:
        """Return the bindings of an exchange."""
        found: list[dict[str, Any]] = self._ask("GET", "exchanges", self._vhost, exchange, "bindings", "source")
        return found

    def writer(self, name: str, part: str) -> dict[str, Any]:
        """Return the progress of a writer's part: ``batch`` (None if unknown), ``rows`` and ``digest``."""
        answer: dict[str, Any] = self._ask("GET", "messages", self._vhost, "writers", name, query={"part": part})
        return answer

    def begin_batch(self, writer: str, batch: int, attempt: str, origin: str = "") -> dict[str, Any]:
        """Begin an attempt at a batch: the broker refuses rows of earlier attempts from now on.

        Args:
            origin: id of the streaming query that numbers the batches, a space, and a name of the target; either name
                may be empty.

        Returns:
            the fields of :meth:`batch`, and whether the batch is ``complete``.
        """
        path = ("messages", self._vhost, "writers", writer, "begin")
        body = {"batch": batch, "attempt": attempt, "origin": origin}
        answer: dict[str, Any] = self._ask("POST", *path, body=body)
        return answer

    def batch(self, writer: str, batch: int) -> dict[str, Any]:
        """Return the current ``attempt`` at a batch, and the progress of its ``parts``, as from :meth:`writer`."""
        answer: dict[str, Any] = self._ask("GET", "messages", self._vhost, "writers", writer, "batches", str(batch))
        return answer

    def complete_batch(self, writer: str, batch: int) -> None:
        """Note that all rows of a batch are published."""
        self._ask("POST", "messages", self._vhost, "writers", writer, "complete", body={"batch": batch})

    def open_writer(self, name: str) -> None:
        """Open a writer; requests with ``opened`` are refused once the writer is deleted."""
        self._ask("PUT", "messages", self._vhost, "writers", name)

    def forget_writer(self, name: str) -> None:
        """Delete a writer with all parts."""
        self._ask("DELETE", "messages", self._vhost, "writers", name)

    def _ask(self, method: str, *path: str, body: Any = None, query: dict[str, Any] | None = None) -> Any:
        def once() -> Any:
            with self._asking():
                return self._broker.ask(method, *path, body=body, query=query)

        return self.retried(once)

    def retried(self, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, repeated for ``brokerRetrySeconds`` while the broker is away.

        Raises:
            JumpMQError: the error of the last attempt.
        """

        def of_any() -> T:
            for _ in self._nodes[1:]:
                with suppress(BrokerAway):
                    return attempt()
            return attempt()

        found = retried(self._retry_seconds if self._met else 0, of_any)
        self._met = True
        return found

    def _batches(self, *path: str, body: dict[str, Any], columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of an Arrow stream, every message once.

        A broken answer is requested again. Messages received before are left out by queue and number, not by count: by
        then, different messages may be ready.
        """
        received = ReceivedMessages()
        body = body | {"columns": sorted({*columns, "queue", "seq"})}

        def rest() -> Iterator[pa.RecordBatch]:
            for batch in received.unreceived(self._answer(*path, body=body)):
                received.add(batch)
                yield batch

        return taken_up(self._retry_seconds, rest)

    def _answer(self, *path: str, body: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        with self._asking(), self._broker.request("POST", *path, body=body) as response:
            rows = 0
            with pa.ipc.open_stream(response) as stream:
                for batch in stream:
                    rows += len(batch)
                    yield batch
            expected = response.headers.get("JumpMQ-Messages")
            if expected is not None and int(expected) != rows:
                raise BrokerAway(f"the broker's answer ended after {rows} of {expected} messages")

    def __str__(self) -> str:
        return self._broker.address


class ReceivedMessages:
    """Messages received from an answer, to be left out of a repeated answer; 12 octets per message at most.

    Arrays of Python values import pandas, and computations import ``pyarrow.compute``: together 0.3 s per process. So
    arrays are made only after a broken answer, and batches of a single queue need no computation.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[str | pa.DictionaryArray, bytes]] = []  # queue (of all, or per message), and numbers

    def add(self, batch: pa.RecordBatch) -> None:
        """Note received messages, without keeping the batch in memory."""
        numbers = batch.column("seq")
        octets = memoryview(numbers.buffers()[1])[8 * numbers.offset : 8 * (numbers.offset + len(numbers))]
        queues = batch.column("queue")
        self._batches.append((_only_value(queues) or queues.dictionary_encode(), bytes(octets)))

    def unreceived(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages not yet received when the first of ``batches`` arrived."""
        had = self._by_queue()
        for batch in batches:
            new = batch.filter(self._is_new(batch, had)) if had else batch
            if len(new):
                yield new

    def _by_queue(self) -> dict[str, pa.Array]:
        found: dict[str, list[pa.Array]] = {}
        for queues, octets in self._batches:
            numbers = pa.Array.from_buffers(pa.int64(), len(octets) // 8, [None, pa.py_buffer(octets)])
            if isinstance(queues, str):
                found.setdefault(queues, []).append(numbers)
                continue
            for place, queue in enumerate(queues.dictionary.to_pylist()):
                found.setdefault(queue, []).append(numbers.filter(_equal(queues.indices, place)))
        return {queue: pa.concat_arrays(numbers) for queue, numbers in found.items()}

    def _is_new(self, batch: pa.RecordBatch, had: dict[str, pa.Array]) -> pa.Array:
        import pyarrow.compute as pc

        new, queues = pa.repeat(True, len(batch)), batch.column("queue")
        for queue in queues.unique().to_pylist():
            if queue in had:
                again = pc.and_(pc.equal(queues, queue), pc.is_in(batch.column("seq"), had[queue]))
                new = pc.and_not(new, again)
        return new


def _equal(column: pa.Array, value: int) -> pa.Array:
    import pyarrow.compute as pc

    return pc.equal(column, value)


def _only_value(column: pa.Array) -> str | None:
    """Return the common value of all rows of a text column; None if the values differ, or there is no row."""
    count, value = len(column), column[0].as_py()
    _, bounds, octets = column.buffers()
    offsets = np.frombuffer(bounds, np.int32, count + 1, 4 * column.offset)
    alike = (np.diff(offsets) == len(value.encode())).all()
    return value if alike and bytes(octets[offsets[0] : offsets[-1]]) == value.encode() * count else None


@contextmanager
def _converted_errors(broker: ManagementClient) -> Iterator[None]:
    """Convert errors of a request to errors of the package."""
    try:
        yield
    except pa.ArrowException as error:
        raise BrokerAway(f"lost the broker: the answer broke off ({error})") from None
    except NoAnswer as error:
        if error.refused:
            text = f"nothing listens at {broker.address}: is the broker running, and is this its management port?"
            raise BrokerAway(text) from None
        raise BrokerAway(f"lost the broker: {error}") from None
    except Refusal as refusal:
        if refusal.code == 401:
            hint = ": wrong name or password?" if refusal.reason == LOGIN_FAILED else ""
            raise JumpMQError(f"{refusal}{hint}") from None
        if not refusal.reason:
            # A stopping broker answers 500 to waiting requests.
            kind = BrokerAway if refusal.code >= 500 else JumpMQError
            raise kind(f"{broker.address} answers {refusal.code}: is this a JumpMQ broker?") from None
        is_away = refusal.code == 404 and refusal.reason.endswith(HOME_DOWN)
        kind = BrokerAway if is_away else REFUSALS.get(refusal.code, JumpMQError)
        raise kind(f"{refusal.reason} (broker at {broker.address})") from None
    except ManagementError as error:
        raise JumpMQError(str(error)) from None
