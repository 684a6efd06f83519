"""The messages of a queue as an Arrow stream: a snapshot, nothing is consumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice

from starlette.requests import Request
from starlette.responses import StreamingResponse

from jumpmq.amqp.messages import Message
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import BATCH_ROWS, COLUMNS, MEDIA_TYPE, ArrowEncoder, bounded, load_pyarrow
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest


async def ready_messages(request: Request) -> StreamingResponse:
    """``GET /api/queues/{vhost}/{queue}/messages?from=SEQ&to=SEQ&columns=seq,body``: the ready messages of a range."""
    queue = requested.queue(request)
    check_permission(request, queue.vhost, "read", queue.name)
    ready = queue.browse(requested.number(request, "from", 0), requested.number(request, "to", requested.LAST_SEQ))
    return await arrow_stream(request, iter(lambda: list(islice(ready, BATCH_ROWS)), []))


async def arrow_stream(
    request: Request,
    lists: Iterable[list[Message]],
    *,
    headers: dict[str, str] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> StreamingResponse:
    """Answer with messages, in the columns that the query asks for.

    Args:
        alive: called whenever a part of the stream has been taken off by the reader.
    """
    columns = tuple(request.query_params.get("columns", ",".join(COLUMNS)).split(","))
    if not set(columns) <= set(COLUMNS) or len(set(columns)) < len(columns):
        raise BadRequest(f"'columns' must be some of {', '.join(COLUMNS)}, each at most once")
    await asyncio.to_thread(load_pyarrow)
    return StreamingResponse(_octets(lists, columns, alive), media_type=MEDIA_TYPE, headers=headers)


async def _octets(
    lists: Iterable[list[Message]], columns: tuple[str, ...], alive: Callable[[], None]
) -> AsyncIterator[bytes]:
    encoder = ArrowEncoder(columns)
    yield encoder.head()
    for messages in _batches(lists):
        yield encoder.batch(messages)
        alive()
        await asyncio.sleep(0)
    yield encoder.tail()


def _batches(lists: Iterable[list[Message]]) -> Iterator[list[Message]]:
    for messages in lists:
        yield from bounded(messages)


ROUTES = [Endpoint("GET", "/api/queues/{vhost}/{queue}/messages", ready_messages)]
