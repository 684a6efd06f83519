"""``/api/group-offsets``: offsets of consumer groups in streams. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.amqp.fields import Field
from jumpmq.broker.figures.values import GroupOffsetFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import monitors
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.changing import check_permission, may_read, put_answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import NUMBER, Shape, ValueKind
from jumpmq.queues import Queue
from jumpmq.queues.argument_checks import seconds_of
from jumpmq.queues.stream_rows import OFFSET
from jumpmq.topology import VirtualHost

ORDER = ("vhost", "queue", "group")


async def all_group_offsets(request: Request) -> Response:
    """``GET /api/group-offsets``: group offsets of all virtual hosts; without a monitoring tag, those of streams that
    the user may read."""
    return await _answer(request, requested.visible_hosts(request))


async def group_offsets_of_host(request: Request) -> Response:
    """``GET /api/group-offsets/{vhost}``: group offsets of a virtual host."""
    return await _answer(request, [requested.virtual_host(request)])


async def _answer(request: Request, hosts: list[VirtualHost]) -> Response:
    found = await requested.broker(request).figures.group_offsets([host.name for host in hosts])
    if not monitors(requested.user(request)):
        found = [one for one in found if may_read(request, one.vhost, one.queue)]
    return await answer_list(request, found, shown, ORDER)


def shown(figures: GroupOffsetFigures) -> dict[str, Any]:
    """Return a group's offset in a stream as JSON; ``lag`` counts unsettled messages."""
    return {
        "vhost": figures.vhost,
        "queue": figures.queue,
        "group": figures.group,
        "offset": figures.offset,
        "end": figures.end,
        "lag": figures.ready + figures.unacknowledged,
        "ready": figures.ready,
        "unacknowledged": figures.unacknowledged,
        "skipped": figures.skipped,
        "members": figures.has_members,
    }


def _start(value: Any) -> Field:
    if value in ("first", "last", "next"):
        return Field(OFFSET, "S", value)
    if isinstance(value, str) and not value.isdecimal():
        if seconds_of(value) is None:
            raise ValueError
        return Field(OFFSET, "S", value)
    number = int(value) if isinstance(value, str) and len(value) < 20 else value
    if not requested.is_whole(number):
        raise ValueError
    return Field(OFFSET, "l", number)


START = ValueKind(
    "first, last, next, an offset, or an age such as 2h",
    {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]},
    _start,
)
SHAPE = Shape({"offset": START, "timestamp": NUMBER})


async def set_group_offset(request: Request) -> Response:
    """``PUT /api/group-offsets/{vhost}/{queue}/{group}``: let a consumer group continue at another offset of a stream.

    The body is ``{"offset": PLACE}`` (PLACE: ``first``, ``last``, ``next``, an offset, or an age such as ``2h``) or
    ``{"timestamp": SECONDS}``, in seconds since the epoch. Unsettled deliveries no longer count, and their messages may
    come again.
    """
    queue, group = _stream(request), requested.name(request, "group")
    body = await requested.shaped_body(request, SHAPE)
    if len(body) != 1:
        raise BadRequest("the body must have either 'offset' or 'timestamp'")
    start = body.get("offset")
    if start is None:
        if not requested.is_seconds(body["timestamp"]):
            raise BadRequest("'timestamp' must be a number of seconds since the epoch")
        start = Field(OFFSET, "T", body["timestamp"])
    broker = requested.broker(request)
    assert queue.offsets is not None
    existed = queue.offsets.get(group) is not None
    with broker.turns.turn():
        queue.offsets.reset(group, start)
    await broker.committed()
    return put_answer(existed)


async def delete_group_offset(request: Request) -> Response:
    """``DELETE /api/group-offsets/{vhost}/{queue}/{group}``: delete the offset of a consumer group without members."""
    queue, group = _stream(request), requested.name(request, "group")
    assert queue.offsets is not None
    broker = requested.broker(request)
    with broker.turns.turn():
        if not queue.offsets.forget(group):
            raise NotFound(f"consumer group '{group}' has no offset in stream '{queue.name}' in vhost '{queue.vhost}'")
    await broker.committed()
    return Response(status_code=204)


def _stream(request: Request) -> Queue:
    """Return the stream named in the path, if the user may read it."""
    host, name = requested.virtual_host(request), requested.name(request, "queue")
    check_permission(request, host.name, "read", name)
    queue = requested.unlocked_queue(request)
    if queue.offsets is None:
        raise BadRequest(f"queue '{queue.name}' in vhost '{queue.vhost}' is no stream: only streams keep offsets")
    if not requested.name(request, "group"):
        raise BadRequest("the group in the path is empty")
    return queue


ROUTES = [
    Endpoint("GET", "/api/group-offsets", all_group_offsets),
    Endpoint("GET", "/api/group-offsets/{vhost}", group_offsets_of_host),
    Endpoint("PUT", "/api/group-offsets/{vhost}/{queue}/{group}", set_group_offset, shape=SHAPE, at_home=True),
    Endpoint("DELETE", "/api/group-offsets/{vhost}/{queue}/{group}", delete_group_offset, at_home=True),
]
