"""Tasks of Spark import neither pandas nor pyarrow's functions, which would take tenths of a second per worker."""

from __future__ import annotations

import subprocess
import sys

from pika.adapters.blocking_connection import BlockingChannel
from tests.spark.sources import numbered, publish

from jumpmq import RunningBroker
from jumpmq.spark import SCHEMA

READS = """
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.spark.schema import SCHEMA
given = {"url": sys.argv[1], "queue": "q1"}
reader = JumpMQDataSource(given).reader(type(SCHEMA)([one for one in SCHEMA if one.name in sys.argv[2:]]))
assert sum(len(batch) for one in reader.partitions() for batch in reader.read(one)) > 0
"""

WRITES = """
from pyspark.sql.types import MapType, StringType, StructType
from jumpmq.spark.source import JumpMQDataSource
text = StringType()
schema = StructType().add("queue", text).add("body", text).add("message_id", text).add("headers", MapType(text, text))
with pyarrow.ipc.open_stream(sys.stdin.buffer) as stream:
    writer = JumpMQDataSource({"url": sys.argv[1]}).writer(schema, False)
    assert writer._publish(iter(stream), writer._writer, "0").published == 3
"""


def imported(code: str, *arguments: str, given: bytes = b"") -> set[str]:
    """The modules imported by a new process with the given code."""
    program = f"import sys, pyarrow, pyspark.worker\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], input=given, stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


def test_a_task_that_reads_imports_neither_pandas_nor_pyarrow_s_functions(
    broker: RunningBroker, channel: BlockingChannel
) -> None:
    publish(channel, numbered(1, 40))
    assert not imported(READS, broker.http_url, "queue", "body") & {"pandas", "pyarrow.compute"}
    assert "pandas" not in imported(READS, broker.http_url, *SCHEMA.names)


def test_a_task_that_writes_imports_no_pandas(broker: RunningBroker, channel: BlockingChannel) -> None:
    import pyarrow as pa

    headers = pa.array([[("h", "v")], None, [("h", "w")]], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch(
        {"queue": ["q1"] * 3, "body": ["a", "b", "c"], "message_id": [None, "1", "2"], "headers": headers}
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    assert "pandas" not in imported(WRITES, broker.http_url, given=out.getvalue().to_pybytes())
