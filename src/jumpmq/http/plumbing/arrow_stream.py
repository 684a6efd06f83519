"""Answers with messages: an Arrow stream, made batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, groupby, islice
from typing import cast

from starlette.responses import StreamingResponse

from jumpmq.http.plumbing.arrow import (
    COLUMNS,
    MEDIA_TYPE,
    ArrowEncoder,
    ColumnPart,
    QueueMessages,
    bounded,
    load_pyarrow,
)
from jumpmq.http.plumbing.errors import BadRequest


def columns_of(names: object) -> tuple[str, ...]:
    """Parse a list of column names.

    Raises:
        BadRequest: an unknown column, a column named twice, or not a list of names.
    """
    if not isinstance(names, list) or not names or any(name not in COLUMNS or names.count(name) > 1 for name in names):
        raise BadRequest(f"'columns' must be some of {', '.join(COLUMNS)}, each at most once")
    return tuple(names)


async def arrow_stream(
    parts: Iterable[QueueMessages | ColumnPart],
    columns: tuple[str, ...],
    *,
    headers: dict[str, str] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> StreamingResponse:
    """Answer with messages.

    Args:
        alive: called each time the reader has accepted a part of the stream.
    """
    await asyncio.to_thread(load_pyarrow)
    rest = iter(parts)
    parts = chain(list(islice(rest, 1)), rest)  # an error of the first part can still be the answer
    return StreamingResponse(_octets(parts, columns, alive), media_type=MEDIA_TYPE, headers=headers)


async def _octets(
    parts: Iterable[QueueMessages | ColumnPart], columns: tuple[str, ...], alive: Callable[[], None]
) -> AsyncIterator[bytes | memoryview]:
    encoder = ArrowEncoder(columns)
    yield encoder.head()
    for batch in _batches(encoder, parts):
        yield batch
        alive()
        await asyncio.sleep(0)
    yield encoder.tail()


def _batches(encoder: ArrowEncoder, parts: Iterable[QueueMessages | ColumnPart]) -> Iterator[memoryview]:
    for single, run in groupby(parts, key=lambda part: isinstance(part[1], list)):
        if single:
            yield from map(encoder.batch, bounded(cast("Iterable[QueueMessages]", run)))
        else:
            yield from map(encoder.column_batch, bounded(cast("Iterable[ColumnPart]", run)))
