"""Arrow streams for the endpoint `publish`, also as batches of a writer."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import requests
from tests.http.api import API


def stream(**columns: Sequence[str | bytes | None]) -> bytes:
    types = {"exchange": pa.string(), "queue": pa.string()}
    arrays = {name: pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()}
    return written(pa.record_batch(arrays))


def written(*batches: pa.RecordBatch, **options: Any) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    octets: bytes = out.getvalue().to_pybytes()
    return octets


def publish(api: API, octets: bytes, **query: Any) -> requests.Response:
    return api.request("POST", "messages", "/", "publish", data=octets, params=query)


def write(
    api: API, first: int = 0, *, writer: str = "w", rows: int = 1, batch: int = 0, **more: Any
) -> requests.Response:
    place = {"writer": writer, "batch": batch, "first": first, "rows": first + rows, "digest": f"d{first}"}
    octets = stream(body=[b"%d" % first] * rows, routing_key=[b"q"] * rows)
    return publish(api, octets, exchange="", **place, **more)
