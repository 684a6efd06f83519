"""Python data sources that do only what nobody can leave out: what they take is Spark's own.

They are in a module of their own, as the processes that plan and read import what they are defined in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

COLUMNS = "queue string, routing_key binary, body binary"


class Nothing(DataSource):
    """A stream in which nothing ever is."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ArrowFilesStreamReader([], 0)


class ArrowFiles(DataSource):
    """Record batches from files, a partition a file; as a stream, all of them in each of so many micro-batches."""

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
    """Reads them, and nothing else."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(partition.value)


class ArrowFilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads them so many times."""

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


def _batches(file: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(file) as opened, pa.ipc.open_stream(opened) as stream:
        yield from stream


@contextmanager
def arrow_files(count: int) -> Iterator[str]:
    """Two files with so many rows, as the broker's batches have them, no two alike; their names."""
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
