"""Messages of reservations: read any number of times."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.broker.bulk.reader_groups import Slice
from jumpmq.broker.bulk.with_bodies import with_bodies
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import COLUMNS
from jumpmq.http.plumbing.arrow_stream import arrow_stream, columns_of
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import reader_requests as asked
from jumpmq.http.resources.queue_messages import slices_of
from jumpmq.topology import VirtualHost


async def read(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/read``: the messages of parts of reservations, in order.

    The body is ``{"slices": [[QUEUE, AFTER, UPTO, FIRST, COUNT], ...], "columns": [...], "accept_loss": false}``. A
    slice selects the reservations AFTER + 1 to UPTO (AFTER null: from the first unacknowledged reservation), and of
    their messages COUNT messages from position FIRST on (COUNT null: all following). The header ``JumpMQ-Messages`` is
    the number of messages in the answer.
    """
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    slices = [
        Slice(queue, after, upto or 0, first or 0, count) for queue, after, upto, first, count in slices_of(body, 5)
    ]
    columns = columns_of(body.get("columns", list(COLUMNS)))
    away = requested.by_home(request, host, dict.fromkeys(one.queue for one in slices))
    there = {queue for queues in away.values() for queue in queues}
    here = [one for one in slices if one.queue not in there]
    answer = await _read(request, host, name, here, columns, body.get("accept_loss") is True)
    bodies = {home: (queues, body | {"slices": asked.slices_of_queues(body, queues)}) for home, queues in away.items()}
    return await requested.forwarder(request).streamed(request, host, bodies, answer, columns)


async def read_one(request: Request) -> StreamingResponse:
    """``GET .../queues/{queue}/messages?after=A&upto=B&columns=...``: the messages of reservations A + 1 to B.

    Without ``after``, the messages of all unacknowledged reservations up to B. The header ``JumpMQ-Messages`` is the
    number of messages in the answer.
    """
    host, name, queue = requested.virtual_host(request), asked.group_name(request), requested.queue(request)
    after = requested.number(request, "after") if "after" in request.query_params else None
    columns = columns_of(request.query_params.get("columns", ",".join(COLUMNS[1:])).split(","))
    slices = [Slice(queue.name, after, requested.number(request, "upto"))]
    return await _read(request, host, name, slices, columns, accept_loss=False)


async def _read(
    request: Request, host: VirtualHost, group: str, slices: list[Slice], columns: tuple[str, ...], accept_loss: bool
) -> StreamingResponse:
    for queue in {one.queue for one in slices}:
        check_permission(request, host.name, "read", queue)
    pieces = await asked.groups(request).held(host, group, slices, accept_loss)
    return await arrow_stream(
        with_bodies(pieces, columns),
        columns,
        headers={"JumpMQ-Messages": str(sum(piece.readable for piece in pieces))},
        alive=lambda: asked.groups(request).touch(host.name, group),
    )


ROUTES = [
    Endpoint("POST", "/api/readers/{vhost}/{group}/read", read),
    Endpoint("GET", "/api/readers/{vhost}/{group}/queues/{queue}/messages", read_one, at_home=True),
]
