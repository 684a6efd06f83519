"""Writing over AMQP to any broker."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

import jumpmq
from jumpmq.spark import JumpMQDataSource
from jumpmq.spark.errors import BrokerAway

SCHEMA = StructType().add("body", BinaryType())


def waiting(port: int, queue: str) -> int:
    with closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))) as connection:
        count: int = connection.channel().queue_declare(queue, durable=True).method.message_count
        return count


def test_a_task_waits_for_a_broker_that_is_restarted(tmp_path: Path) -> None:
    rows = [pa.RecordBatch.from_pydict({"body": [b"a", b"b"]})]
    with jumpmq.running(data_dir=tmp_path) as broker:
        port = broker.port
        assert waiting(port, "q") == 0
        options = {"url": f"amqp://guest:guest@127.0.0.1:{port}", "queue": "q"}
        writer = JumpMQDataSource(options).writer(SCHEMA, overwrite=False)
        impatient = JumpMQDataSource(options | {"brokerRetrySeconds": "0"}).writer(SCHEMA, overwrite=False)
    with pytest.raises(BrokerAway, match="cannot connect"):
        impatient.write(iter(rows))
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        written = thread.submit(writer.write, iter(rows))
        stack.enter_context(jumpmq.running(data_dir=tmp_path, port=port))
        assert written.result(timeout=120).published == 2
        assert waiting(port, "q") == 2
