"""A consumer with a filter gets exactly the matching rows of a stream, whatever the headers contain."""

import random
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from tests.brokers import config_of, in_loop, started, with_channel

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.queues import stream
from jumpmq.queues.stream_filter import FEW, FILTER, UNFILTERED, VALUE, StreamFilter

NAMED = bytes([len(VALUE)]) + VALUE.encode()


def properties(draw: random.Random) -> tuple[bytes, str]:
    """Return the properties of a message, and its filter value."""
    headers, value = [], ""
    for _ in range(draw.randrange(4)):
        kind = draw.randrange(6)
        if kind == 0 and not value:
            value = f"v{draw.randrange(40)}"
            headers.append(Field(VALUE, "S", value))
        elif kind == 1:  # looks like the filter header, nested in another header
            headers.append(Field("other", "x", NAMED + b"S\0\0\0\2v1"))
        elif kind == 2 and not any(one.name == VALUE for one in headers):
            headers.append(Field(VALUE, "I", 1))
            break
        elif kind == 3:
            headers.append(Field("long", "S", "x" * draw.randrange(2000)))
        else:
            headers.append(Field("plain", "S", "v1"))
    return Properties(headers=headers or None).encode(), value


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 30])
@pytest.mark.parametrize("unfiltered", [False, True])
def test_the_rows_are_those_with_a_wanted_value(count: int, unfiltered: bool) -> None:
    draw = random.Random(count)
    for _ in range(30):
        rows = [properties(draw) for _ in range(draw.randrange(60))]
        batch = pa.record_batch({"properties": pa.array([octets for octets, _ in rows], pa.binary())})
        wanted = {f"v{number}" for number in range(count)}
        arguments = [
            Field(FILTER, "A", [("S", one) for one in wanted] + [("I", 7)]),
            Field(UNFILTERED, "t", unfiltered),
        ]
        found = StreamFilter.of(arguments)
        assert found is not None
        wanted |= {""} if unfiltered else set()
        assert found.rows(batch) == [row for row, (_, value) in enumerate(rows) if value in wanted]


@in_loop
async def test_consumers_that_are_searched_for_in_steps_get_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SEARCHING", 0.0)  # a chunk, or none, in a step
    broker = await started(config_of(1, 1, tmp_path))

    def work(channel: Any) -> list[list[int]]:
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()

        def publish(first: int) -> None:
            for number in range(first, first + 60):
                headers = {VALUE: f"v{number % 3}"}
                channel.basic_publish("", "s", b"%d" % number, pika.BasicProperties(delivery_mode=2, headers=headers))

        found: list[list[int]] = [[], [], []]
        publish(0)
        channel.basic_qos(prefetch_count=5)
        for which, values in enumerate((["v0"], ["v1", "v2"], [f"v{number}" for number in range(50)])):

            def take(channel: Any, method: Any, properties: Any, body: bytes, which: int = which) -> None:
                found[which].append(int(body))
                channel.basic_ack(method.delivery_tag)

            channel.basic_consume("s", take, arguments={"x-stream-offset": "first", FILTER: values})
        publish(60)
        while sum(map(len, found)) < 40 + 80 + 120:
            channel.connection.process_data_events(0.1)
        return found

    found = await with_channel(broker, work)
    assert found == [
        [number for number in range(120) if number % 3 == 0],
        [number for number in range(120) if number % 3],
        list(range(120)),
    ]
