"""Groups of readers: they reserve messages, read them as often as needed, and acknowledge them."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.reader_groups import ReaderGroups, ReservationRequest
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.queue_messages import arrow_stream
from jumpmq.queues import Queue
from jumpmq.queues.reader import LEASE
from jumpmq.topology import VirtualHost

MAX_LEASE = 86400.0


async def show(request: Request) -> JSONResponse:
    """``GET /api/readers/{vhost}/{group}``: where the group is in each queue that the user may read."""
    host, group = requested.virtual_host(request), requested.name(request, "group")
    readers = [one for one in _groups(request).readers(host, group) if _may_read(request, one.queue)]
    return JSONResponse(
        {
            "queues": {
                reader.queue.name: {
                    "acknowledged": reader.acknowledged,
                    "offset": reader.latest,
                    "messages": reader.outstanding,
                    "lapsed": reader.lapsed,
                    "lease": reader.lease,
                }
                for reader in readers
            }
        }
    )


async def reserve(request: Request) -> JSONResponse:
    """``POST /api/readers/{vhost}/{group}/reserve``: acknowledge what is done, reserve more, answer when it is durable.

    The body is ``{"queues": {NAME: OFFSET or null, ...}, "max_messages": N or null, "last_seq": {NAME: SEQ, ...},
    "lease": SECONDS}``, the answer ``{"queues": {NAME: {"offset": OFFSET, "messages": COUNT}, ...}}``, where COUNT is
    what is outstanding.
    """
    host, group, body = requested.virtual_host(request), requested.name(request, "group"), await requested.body(request)
    wanted = ReservationRequest(
        offsets=_numbers(body, "queues", nullable=True),
        max_messages=_whole(body, "max_messages"),
        last_seqs=_numbers(body, "last_seq"),
        lease=_lease(body),
    )
    for name in wanted.offsets:
        check_permission(request, host.name, "read", name)
    reserved = await _groups(request).reserve(host, group, wanted)
    answer = {name: {"offset": offset, "messages": count} for name, (offset, count) in reserved.items()}
    return JSONResponse({"queues": answer})


async def read(request: Request) -> StreamingResponse:
    """``GET .../queues/{queue}/messages?after=A&upto=B&columns=...``: the messages of reservations A + 1 to B.

    Without ``after``, of all up to B that are not acknowledged. The header ``JumpMQ-Messages`` tells how many.
    """
    queue, group, groups = requested.queue(request), requested.name(request, "group"), _groups(request)
    check_permission(request, queue.vhost, "read", queue.name)
    after = requested.number(request, "after") if "after" in request.query_params else None
    lists = await groups.held(queue, group, after, requested.number(request, "upto"))
    host = requested.virtual_host(request)
    return await arrow_stream(
        request,
        lists,
        headers={"JumpMQ-Messages": str(sum(map(len, lists)))},
        alive=lambda: groups.renew(host, group),
    )


async def commit(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/commit``: acknowledge, answer when it is durable.

    The body is ``{"queues": {NAME: OFFSET, ...}}``.
    """
    host, group, body = requested.virtual_host(request), requested.name(request, "group"), await requested.body(request)
    offsets = _numbers(body, "queues")
    for name in offsets:
        check_permission(request, host.name, "read", name)
    await _groups(request).acknowledge(host, group, offsets)
    return Response(status_code=204)


async def renew(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/renew``: the group is alive, its leases begin anew."""
    host, group = requested.virtual_host(request), requested.name(request, "group")
    _require_read(request, host, group)
    _groups(request).renew(host, group)
    return Response(status_code=204)


async def release(request: Request) -> Response:
    """``DELETE /api/readers/{vhost}/{group}``: everything goes back to the queues, and the group is forgotten."""
    host, group = requested.virtual_host(request), requested.name(request, "group")
    _require_read(request, host, group)
    await _groups(request).release(host, group)
    return Response(status_code=204)


def _require_read(request: Request, host: VirtualHost, group: str) -> None:
    """Refuse unless the user may read every queue in which the group has a place.

    Raises:
        AccessRefused: the user may not.
    """
    for reader in _groups(request).readers(host, group):
        check_permission(request, host.name, "read", reader.queue.name)


def _may_read(request: Request, queue: Queue) -> bool:
    try:
        check_permission(request, queue.vhost, "read", queue.name)
    except AccessRefused:
        return False
    return True


def _groups(request: Request) -> ReaderGroups:
    return requested.broker(request).reader_groups


def _numbers(body: dict[str, Any], key: str, *, nullable: bool = False) -> dict[str, Any]:
    numbers = body.get(key, {})
    if not isinstance(numbers, dict):
        raise BadRequest(f"'{key}' must be an object of queue names and whole numbers")
    for name, value in numbers.items():
        if not (_is_whole(value) or (nullable and value is None)):
            raise BadRequest(f"'{key}' of queue '{name}' must be a whole number from 0, not {value!r}")
    return numbers


def _whole(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is not None and not _is_whole(value):
        raise BadRequest(f"'{key}' must be a whole number from 0 or null, not {value!r}")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= requested.LAST_SEQ


def _lease(body: dict[str, Any]) -> float:
    value = body.get("lease", LEASE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_LEASE or math.isnan(value):
        raise BadRequest(f"'lease' must be a number of seconds up to {MAX_LEASE:.0f}, not {value!r}")
    return float(value)


ROUTES = [
    Endpoint("GET", "/api/readers/{vhost}/{group}", show),
    Endpoint("DELETE", "/api/readers/{vhost}/{group}", release),
    Endpoint("POST", "/api/readers/{vhost}/{group}/reserve", reserve),
    Endpoint("POST", "/api/readers/{vhost}/{group}/commit", commit),
    Endpoint("POST", "/api/readers/{vhost}/{group}/renew", renew),
    Endpoint("GET", "/api/readers/{vhost}/{group}/queues/{queue}/messages", read),
]
