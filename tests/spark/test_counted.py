"""Every message is counted: from queues of every kind to a queue, across kills, over TLS, with and without
permissions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType
from tests.http.api import API
from tests.spark.sources import numbered
from tests.spark.streams.published import Query, bodies, rows

import jumpmq
from jumpmq import RunningBroker
from jumpmq.cli.certificates import make_certificates
from jumpmq.spark import JumpMQDataSource, JumpMQError
from jumpmq.spark.sink import StreamWriter
from jumpmq.testing import JumpMQ

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "priority": {"x-max-priority": 2},
    "stream": {"x-queue-type": "stream"},
}

WRITTEN = StructType().add("body", BinaryType()).add("amqp_properties", BinaryType())


def declare(url: str, kind: str) -> None:
    """Declare four queues of a kind behind the exchange ``x``, over separate connections, and ``out``."""
    for queue in ("q0", "q1", "q2", "q3"):
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", "x-consistent-hash", durable=True)
            channel.queue_declare(queue, durable=True, arguments=KINDS[kind])
            channel.queue_bind(queue, "x", "1")
            channel.queue_declare("out", durable=True)


def publish(url: str, first: int, last: int) -> None:
    """Publish numbered messages with distinct headers and properties."""
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, body in enumerate(numbered(first, last), first):
            own = {"number": number, "text": f"t{number}", "flag": bool(number % 2)}
            properties = pika.BasicProperties(
                delivery_mode=2, headers=own, priority=number % 3, message_id=f"m{number}", correlation_id="c"
            )
            channel.basic_publish("x", body, body, properties, mandatory=True)


def write(url: str, found: list[dict[str, Any]], number: int, **options: str) -> None:
    """Write a micro-batch into ``out``, as a streaming query's task, twice: as if the first attempt had been lost."""
    batch = pa.record_batch({name: [row[name] for row in found] for name in ("body", "amqp_properties")})
    for attempt in ("first", "second"):
        writer = JumpMQDataSource({"url": url, "queue": "out"} | options).streamWriter(WRITTEN, False)
        assert isinstance(writer, StreamWriter)
        writer._publish_once(iter([batch]), "query", number, "0", attempt)
        client = writer._client
    client.complete_batch("query", number)


def told(found: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Counts of the rows' published properties and bodies."""
    return Counter((row["body"], row["amqp_properties"]) for row in found)


def copied(query: Query, url: Callable[[], str], again: Callable[[], None], **options: str) -> Counter[tuple[Any, ...]]:
    """Run a query from ``x`` to ``out`` to its end. Return the counts of its rows.

    Args:
        url: returns the current address of the broker.
        again: restarts broker and query, after the first micro-batch was read, and before it is written.
    """
    found = query.batch(150)
    assert 150 <= len(found) <= 152  # of several processes as many more, at most
    again()
    assert query.repeated() == found
    read, number = Counter[tuple[Any, ...]](), 0
    while found:
        read += told(found)
        write(url(), found, number, **options)
        number += 1
        found = query.batch(150)
    return read


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("classic", 2),
        pytest.param("quorum", 1, marks=pytest.mark.slow),
        pytest.param("priority", 2, marks=pytest.mark.slow),
        pytest.param("stream", 2, marks=pytest.mark.slow),
    ],
)
def test_through_a_kill_of_the_whole_broker(tmp_path: Path, kind: str, workers: int) -> None:
    arguments = ("--workers", str(workers), "--queue-leader-locator", "balanced")
    start = {"startingOffsets": "earliest"} if kind == "stream" else {}
    with JumpMQ(tmp_path / "data", arguments=arguments) as broker:

        def url() -> str:
            return f"http://guest:guest@127.0.0.1:{broker.http_port}"

        def again() -> None:
            broker.kill()
            broker.start()
            publish(amqp(), 301, 400)
            query.at(None, url=url(), exchange="x", **start)

        def amqp() -> str:
            return f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"

        declare(amqp(), kind)
        publish(amqp(), 1, 300)
        query = Query(None, url=url(), exchange="x", **start)
        read = copied(query, url, again)
        assert sorted(body for body, _ in read.elements()) == numbered(1, 400)
        assert told(rows(None, url=url(), queue="out")) == read
        left = rows(None, url=url(), exchange="x")
        assert len(left) == (400 if kind == "stream" else 0)


def test_over_tls_through_a_restart(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    options = {"tlsCa": str(made.ca)}
    with ExitStack() as stack:

        def started() -> RunningBroker:
            return stack.enter_context(
                jumpmq.running(
                    data_dir=tmp_path / "data", tls_cert=made.server, tls_key=made.server_key, tls_ca=made.ca
                )
            )

        running = [started()]

        def again() -> None:
            stack.close()
            running[0] = started()
            query.at(None, url=running[0].https_url, exchange="x", **options)

        declare(running[0].amqp_url, "classic")
        publish(running[0].amqp_url, 1, 300)
        query = Query(None, url=running[0].https_url, exchange="x", **options)
        read = copied(query, lambda: running[0].https_url, again, **options)
        assert sorted(body for body, _ in read.elements()) == numbered(1, 300)
        assert told(rows(None, url=running[0].https_url, queue="out", **options)) == read


def test_a_user_who_may_not_read_one_of_the_queues_takes_nothing_of_any(broker: RunningBroker, api: API) -> None:
    """Neither a table nor a query lacks rows silently, also if the permission is revoked from a running query."""
    declare(broker.amqp_url, "classic")
    publish(broker.amqp_url, 1, 300)
    api.request("PUT", "users", "reader", json={"password": "r", "tags": "monitoring"})

    def may_read(queues: str) -> None:
        rights = {"configure": "", "write": "", "read": queues}
        assert api.request("PUT", "permissions", "/", "reader", json=rights).ok

    url = broker.http_url.replace("guest:guest", "reader:r")
    may_read("x|q[0-2]")
    for source in ({"exchange": "x"}, {"pattern": "q."}, {"queues": "q0,q3"}):
        with pytest.raises(JumpMQError, match="'q3'"):
            rows(None, url=url, **source)
        with pytest.raises(JumpMQError, match="'q3'"):
            Query(None, url=url, **source).batch()
    assert sum(api.counts(f"q{number}")[0] for number in range(4)) == 300
    may_read("x|q.")
    query = Query(None, url=url, exchange="x")
    found = query.batch(100)
    may_read("x|q[0-2]")
    with pytest.raises(JumpMQError, match="'q3'"):
        query.batch()
    may_read("x|q.")
    query.at(None, url=url, exchange="x")
    while more := query.batch():
        found += more
    assert sorted(bodies(found)) == numbered(1, 300)
