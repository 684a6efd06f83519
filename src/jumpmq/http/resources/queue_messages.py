"""The ready messages of queues as an Arrow stream: a snapshot, nothing is consumed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.broker.bound_queues import bound_queues
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.arrow import BATCH_ROWS, COLUMNS, Part
from jumpmq.http.plumbing.arrow_stream import arrow_stream, columns_of
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.queues import Queue

MAX_SLICES = 100_000


async def ready_messages(request: Request) -> StreamingResponse:
    """``GET /api/queues/{vhost}/{queue}/messages?from=SEQ&to=SEQ&columns=seq,body``: the ready messages of a range."""
    queue = requested.unlocked_queue(request)
    check_permission(request, queue.vhost, "read", queue.name)
    first, last = requested.number(request, "from", 0), requested.number(request, "to", requested.LAST_SEQ)
    columns = columns_of(request.query_params.get("columns", ",".join(COLUMNS[1:])).split(","))
    return await arrow_stream(_ready(queue, first, last), columns)


async def ready_slices(request: Request) -> StreamingResponse:
    """``POST /api/messages/{vhost}``: the ready messages of ranges of several queues, one range after the other.

    The body is ``{"slices": [[QUEUE, FIRST_SEQ, LAST_SEQ], ...], "columns": [...]}``.
    """
    host, body = requested.virtual_host(request), await requested.body(request)
    slices = slices_of(body, 3)
    queues = {name: host.queue(name, requested.NO_CONNECTION) for name, *_ in slices}
    for name in queues:
        check_permission(request, host.name, "read", name)
    parts = (part for name, first, last in slices for part in _ready(queues[name], first, last))
    return await arrow_stream(parts, columns_of(body.get("columns", list(COLUMNS))))


async def ranges(request: Request) -> Response:
    """``POST /api/ranges/{vhost}``: where the ready messages of queues begin and end, and how many they are.

    The body is ``{"exchange": NAME}``, for all queues bound to it, directly or through other exchanges, or ``{"queues":
    [NAME, ...]}``, the answer ``{NAME: {"first_seq": SEQ, "last_seq": SEQ, "messages": COUNT}, ...}``, where
    ``last_seq`` is that of the youngest message that the queue was given.
    """
    host, body = requested.virtual_host(request), await requested.body(request)
    if "exchange" in body:
        queues = bound_queues(host.exchange(str(body["exchange"])))
    else:
        queues = [host.queue(str(name), requested.NO_CONNECTION) for name in body.get("queues", ())]
    for queue in queues:
        check_permission(request, host.name, "read", queue.name)
    return answer({queue.name: _range(queue) for queue in queues})


def slices_of(body: dict[str, Any], length: int) -> list[list[Any]]:
    """The slices that a body names: each a queue and so many numbers less one; null stands for no number.

    Raises:
        BadRequest: they are something else.
    """
    slices = body.get("slices")
    if not isinstance(slices, list) or len(slices) > MAX_SLICES:
        raise BadRequest(f"'slices' must be a list of at most {MAX_SLICES} lists")
    for one in slices:
        if not isinstance(one, list) or len(one) != length or not isinstance(one[0], str):
            raise BadRequest(f"a slice is a queue's name and {length - 1} numbers, not {str(one)[:100]}")
        if not all(value is None or requested.is_whole(value) for value in one[1:]):
            raise BadRequest(f"the numbers of a slice are whole and not below 0: {str(one)[:100]}")
    return slices


def _ready(queue: Queue, first: int, last: int) -> Iterator[Part]:
    found = queue.browse(first, last)
    while messages := list(islice(found, BATCH_ROWS)):
        yield queue.name, messages


def _range(queue: Queue) -> dict[str, int]:
    last = queue.next_seq - 1
    first = next(queue.browse(1, last), None)
    return {"first_seq": first.seq if first else last + 1, "last_seq": last, "messages": queue.ready_count}


ROUTES = [
    Endpoint("GET", "/api/queues/{vhost}/{queue}/messages", ready_messages),
    Endpoint("POST", "/api/messages/{vhost}", ready_slices),
    Endpoint("POST", "/api/ranges/{vhost}", ranges),
]
