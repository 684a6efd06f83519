"""Progress of streaming queries by queue: for programs, and for Prometheus.

Spark has no metrics of Python sources. The source reports the state of its queues as ``latestOffset`` instead, which
the query's progress contains, in JSON: ``{"ready": {QUEUE: COUNT}, "total": COUNT, "rows": {QUEUE: COUNT}, "oldest":
{QUEUE: TIME}, "unread": {QUEUE: COUNT}, "warnings": [TEXT]}``, and lags under the names of Kafka's source
(:mod:`jumpmq.spark.lag`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

METRICS = {
    "query_batch": ("gauge", "Number of the last micro-batch"),
    "query_batch_seconds": ("gauge", "Duration of the last micro-batch"),
    "query_rows_total": ("counter", "Messages read, by queue"),
    "query_ready": ("gauge", "Ready messages after the last micro-batch, by queue: the lag"),
    "query_oldest_seconds": ("gauge", "Age of the oldest message of the last micro-batch, by queue"),
}
"""Names of the metrics, behind ``jumpmq_spark_``, with type and help."""


@dataclass(frozen=True)
class QueueProgress:
    """Position of a query in a queue or stream.

    Attributes:
        rows: messages of the last micro-batch.
        ready: ready messages after the micro-batch.
        oldest: seconds since the oldest message of the micro-batch was published; None if unknown, as for streams.
    """

    rows: int
    ready: int
    oldest: float | None


@dataclass(frozen=True)
class Progress:
    """Progress of a query.

    Attributes:
        batch: number of the last micro-batch.
        seconds: duration of the micro-batch.
        queues: progress by queue or stream, over all JumpMQ sources of the query.
        unread: ready messages by queue, for queues of the same virtual hosts without binding and reader, such as a
            queue that was bound and unbound between two micro-batches.
        warnings: reasons for missing rows, a sentence each.
    """

    batch: int
    seconds: float
    queues: dict[str, QueueProgress] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def ready(self) -> int:
        """Number of waiting messages in all queues: the lag."""
        return sum(one.ready for one in self.queues.values())

    @property
    def oldest(self) -> float | None:
        """Age in seconds of the oldest message of the last micro-batch; None if unknown."""
        return max((one.oldest for one in self.queues.values() if one.oldest is not None), default=None)


def progress(query: StreamingQuery) -> Progress | None:
    """Return the progress of a streaming query by queue; None before the first micro-batch."""
    last = query.lastProgress
    return None if last is None else progress_of(json.loads(last.json))


def progress_of(shown: Mapping[str, Any]) -> Progress:
    """Return the progress from Spark's progress report, parsed from JSON."""
    now, queues, unread, warnings = time.time(), {}, dict[str, int](), list[str]()
    has_rows = any(source.get("numInputRows") for source in shown["sources"])  # Connect has no sum where it is 0
    for source in shown["sources"]:
        said = _read(source.get("latestOffset"))
        rows, oldest = said.get("rows", {}), said.get("oldest", {})
        unread |= said.get("unread", {})
        warnings += said.get("warnings", [])
        for queue, ready in said.get("ready", {}).items():
            published = oldest.get(queue)
            age = None if published is None else max(0.0, now - published)
            queues[queue] = QueueProgress(rows.get(queue, 0) if has_rows else 0, ready, age)
    return Progress(shown["batchId"], shown["batchDuration"] / 1000, queues, unread, warnings)


class Exporter(StreamingQueryListener):
    """Serves the metrics of a session's streaming queries to Prometheus, at ``GET /metrics``.

    >>> exporter = Exporter(spark, port=9464)  # doctest: +SKIP

    Args:
        port: the port to listen on; 0 for a free port.
        host: the address to listen on; the loopback address by default.

    Attributes:
        port: the port in use.
    """

    def __init__(self, spark: SparkSession, port: int = 0, host: str = "127.0.0.1") -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._last: dict[str, Progress] = {}
        self._batches: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics of queries", daemon=True).start()
        spark.streams.addListener(self)

    def close(self) -> None:
        """Close the port, and stop observing queries."""
        self._spark.streams.removeListener(self)
        self._server.shutdown()
        self._server.server_close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names, here and below)
        with self._lock:
            self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        shown = json.loads(event.progress.json)
        query, found = shown["id"], progress_of(shown)
        with self._lock:
            self._names[query] = shown.get("name") or query
            self._last[query] = found
            if self._batches.get(query) != found.batch:
                self._batches[query] = found.batch
                for queue, at in found.queues.items():
                    self._rows[query, queue] = self._rows.get((query, queue), 0) + at.rows

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        query = str(event.id)
        with self._lock:
            self._last.pop(query, None)
            self._batches.pop(query, None)
            self._names.pop(query, None)
            self._rows = {key: rows for key, rows in self._rows.items() if key[0] != query}

    def text(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        with self._lock:
            lines = {name: list(self._lines(name)) for name in METRICS}
        return "".join(
            f"# HELP jumpmq_spark_{name} {METRICS[name][1]}\n# TYPE jumpmq_spark_{name} {METRICS[name][0]}\n"
            + "".join(f"jumpmq_spark_{name}{line}\n" for line in found)
            for name, found in lines.items()
        )

    def _lines(self, name: str) -> Iterator[str]:
        for query, last in self._last.items():
            labels = {"query": self._names.get(query, query)}
            if name == "query_batch":
                yield f"{_labels(labels)} {last.batch}"
            elif name == "query_batch_seconds":
                yield f"{_labels(labels)} {last.seconds}"
            else:
                for queue, at in last.queues.items():
                    values = {"query_rows_total": self._rows.get((query, queue), 0), "query_ready": at.ready}
                    value = values.get(name, at.oldest)
                    if value is not None:
                        yield f"{_labels(labels | {'queue': queue})} {value}"


def _read(found: Any) -> dict[str, Any]:
    """Return the JSON of a JumpMQ source, which Spark Connect passes as text; empty for other sources."""
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    return found if isinstance(found, dict) and isinstance(found.get("ready"), dict) else {}


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _handler(exporter: Exporter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = exporter.text().encode() if found else b"the metrics are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
