"""Arrow's IPC stream format."""

from __future__ import annotations

import pyarrow as pa


def ipc_stream(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as a complete Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write(rows)
    octets: bytes = out.getvalue().to_pybytes()
    return octets
