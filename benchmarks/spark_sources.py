"""Minimal Python data sources, to measure Spark's own cost.

They have a module of their own, because the processes that plan and read import the defining module.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

COLUMNS = "queue string, routing_key binary, body binary"


class Nothing(DataSource):
    """A stream without rows."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ArrowFilesStreamReader([], 0)


class ArrowFiles(DataSource):
    """Record batches from files, one partition per file; a stream has all files in every micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "arrow_files"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: object) -> DataSourceReader:
        return ArrowFilesReader(self.options["files"].split(","))

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ArrowFilesStreamReader(self.options["files"].split(","), int(self.options["times"]))


class ArrowFilesReader(DataSourceReader):
    """Reads the files, without further work."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(partition.value)


class ArrowFilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the files in each of the given number of micro-batches."""

    def __init__(self, files: list[str], times: int) -> None:
        self._files = files
        self._times = times

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names, here and below)
        pass

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"times": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"times": min(self._times, start["times"] + 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(partition.value)


class InMemory(DataSource):
    """A micro-batch of rows like those of :func:`arrow_files`, in two partitions, generated on reading."""

    @classmethod
    def name(cls) -> str:
        return "in_memory"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return InMemoryStreamReader([self.options["rows"]] * 2, 1)


class InMemoryStreamReader(ArrowFilesStreamReader):
    """Generates rows; its files are numbers of rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from made_rows(int(partition.value) // 2)


class BareServer(DataSource):
    """A micro-batch of the files of :func:`bare_server`, a partition per file."""

    @classmethod
    def name(cls) -> str:
        return "bare_server"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return BareServerStreamReader([f"{self.options['port']} {file}" for file in range(2)], 1)


class BareServerStreamReader(ArrowFilesStreamReader):
    """Its files are pairs of port and file number."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        port, file = map(int, partition.value.split())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(bytes([file]))
            with connection.makefile("rb") as octets, pa.ipc.open_stream(octets) as stream:
                yield from stream


def _serve(listener: socket.socket, contents: list[bytes]) -> None:
    """Send the requested file to every client in turn."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(contents[connection.recv(1)[0]])


@contextmanager
def bare_server(files: str) -> Iterator[int]:
    """Run two processes that send files from memory to clients. Return their common port."""
    contents = [Path(file).read_bytes() for file in files.split(",")]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = multiprocessing.get_context("fork").Process
        servers = [made(target=_serve, args=(listener, contents), daemon=True) for _ in range(2)]
        for server in servers:
            server.start()
        yield listener.getsockname()[1]
        for server in servers:
            server.kill()
            server.join()


def made_rows(count: int) -> Iterator[pa.RecordBatch]:
    """Generate rows like those of :func:`arrow_files` from their numbers, without an object per row."""
    schema = pa.schema([("queue", pa.string()), ("routing_key", pa.binary()), ("body", pa.binary())])
    for start in range(0, count, 8192):
        numbers = np.arange(start, min(start + 8192, count), dtype=np.uint64)
        digits = numbers * np.uint64(2654435761) % np.uint64(100_000)
        keys = np.empty((len(numbers), 10), np.uint8)
        for place in range(10):
            keys[:, 9 - place] = digits // np.uint64(10**place) % np.uint64(10) + np.uint64(48)
        bodies = np.empty((len(numbers), 100), np.uint8)
        bodies[:, :8] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        bodies[:, 8:] = np.arange(92, dtype=np.uint8)
        queues = np.tile(np.frombuffer(b"spark-0", np.uint8), len(numbers))
        columns = [_cells(queues, 7, pa.string()), _cells(keys, 10, pa.binary()), _cells(bodies, 100, pa.binary())]
        yield pa.record_batch(columns, schema)


def _cells(octets: np.ndarray[Any, Any], size: int, type_: pa.DataType) -> pa.Array:
    """A column of cells of fixed size."""
    count = octets.size // size
    offsets = np.arange(0, octets.size + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _batches(file: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(file) as opened, pa.ipc.open_stream(opened) as stream:
        yield from stream


@contextmanager
def arrow_files(count: int) -> Iterator[str]:
    """Return the names of two files of distinct rows, in batches like the broker's."""
    schema = pa.schema([("queue", pa.string()), ("routing_key", pa.binary()), ("body", pa.binary())])
    rest = bytes(range(92))
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/{number}.arrow" for number in range(2)]
        for file in files:
            with pa.OSFile(file, "w") as opened, pa.ipc.new_stream(opened, schema) as stream:
                for start in range(0, count // 2, 8192):
                    numbers = range(start, min(start + 8192, count // 2))
                    keys = [b"%010d" % (number * 2654435761 % 100_000) for number in numbers]
                    bodies = [number.to_bytes(8) + rest for number in numbers]
                    stream.write_batch(pa.record_batch([["spark-0"] * len(numbers), keys, bodies], schema))
        yield ",".join(files)
