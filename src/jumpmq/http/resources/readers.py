"""Reader groups: lists, sessions and leases. See :mod:`jumpmq.http.resources.reader_reservations` for reservations, and
:mod:`jumpmq.http.resources.reader_messages` for the reserved messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.bulk.reader_group import ReaderGroup, UnknownSession
from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.broker.errors import HomeUnreachable
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.changing import may_read
from jumpmq.http.plumbing.endpoint import ENDLESS, Endpoint
from jumpmq.http.plumbing.errors import BadRequest, RefusedByHome
from jumpmq.http.plumbing.forwarding import Bodies, OpenAnswer
from jumpmq.http.resources import reader_requests as asked
from jumpmq.queues.reservations import Reservations


async def list_groups(request: Request) -> JSONResponse:
    """``GET /api/readers/{vhost}``: the reader groups of a virtual host, with their positions in queues that the user
    may read."""
    host = requested.virtual_host(request)
    found = [
        {"name": group.shown_name, "user": group.user, **_shown(request, group)}
        for group in asked.groups(request).groups(host.name)
        if asked.may_see(request, group)
    ]
    merged = {(group["name"], group["user"]): group for group in found}
    for told in await _answers_of_others(request):
        for group in told:
            merged.setdefault((group["name"], group["user"]), group)["queues"].update(group["queues"])
    return JSONResponse(list(merged.values()))


async def _answers_of_others(request: Request) -> list[Any]:
    """Return the answers of all reachable other homes to this request, as JSON."""
    return list((await requested.forwarder(request).everywhere(request)).values())


async def all_groups(request: Request) -> JSONResponse:
    """``GET /api/readers``: the reader groups of all visible virtual hosts, an entry per queue.

    An entry has the numbers of ``reserved`` messages and of ``ready`` messages (not yet reserved: the group's lag), the
    octets of ready messages (``ready_octets``), the ``age`` of the oldest reserved message in seconds, ``alive`` (true
    while a query reads), and the remaining ``lease`` in seconds.
    """
    hosts = requested.visible_hosts(request)
    groups = [group for host in hosts for group in asked.groups(request).groups(host.name)]
    places = [
        (group, place)
        for group in groups
        for place in group.places.values()
        if may_read(request, place.queue.vhost, place.queue.name)
    ]
    now = asyncio.get_running_loop().time()
    found = [shown_in_brief(group, place, now) for group, place in places]
    return JSONResponse(found + [one for told in await _answers_of_others(request) for one in told])


def shown_in_brief(group: ReaderGroup, place: Reservations, now: float) -> dict[str, Any]:
    """Return a group's position in a queue in short form.

    Args:
        now: current time by the event loop's clock.
    """
    oldest, figures = place.oldest, place.queue.figures()
    return {
        "vhost": group.vhost,
        "name": group.shown_name,
        "user": group.user,
        "query": group.query,
        "alive": group.alive(now),
        "queue": place.queue.name,
        "reserved": place.outstanding,
        "lapsed": place.lapsed,
        "ready": place.queue.ready_count,
        "ready_octets": figures and figures.ready_octets,
        "age": None if oldest is None else round(max(0.0, time.time() - oldest), 1),
        "lease": group.lease,
        "lease_left": round(max(0.0, group.deadline - now), 1) if math.isfinite(group.deadline) else None,
        "owner_epoch": group.owner_epoch or None,
    }


async def list_unread(request: Request) -> JSONResponse:
    """``GET /api/unread/{vhost}``: the queues with messages and without a reader: no consumer, and no living query.

    An entry has the ``name``, the number of ``ready`` messages, and ``bound``: true for a queue bound to an exchange
    other than the default exchange.
    """
    host = requested.virtual_host(request)
    unread: list[dict[str, Any]] = []
    for name, ready in await requested.broker(request).home_figures.unread(host.name):
        queue = host.queues.get(name)
        if queue is not None and may_read(request, queue.vhost, queue.name):
            bound = any(one.source for one in host.bindings_to(queue))
            unread.append({"name": name, "ready": ready, "bound": bound})
    unread += [one for told in await _answers_of_others(request) for one in told]
    return JSONResponse(sorted(unread, key=lambda one: one["name"]))


async def show(request: Request) -> JSONResponse:
    """``GET /api/readers/{vhost}/{group}?session=TEXT``: the positions of a reader group in readable queues.

    With a ``session``, the answer is 409 if another query has taken over the group. ``owner_epoch`` is the owner's
    number of the query; null after a restart of the broker until the next reservation.
    """
    host, name = requested.virtual_host(request), asked.group_name(request, also_others=True)
    known = asked.groups(request).group(host.name, name)
    fields = {
        **request.query_params,
        **await requested.body(request),
    }  # a forwarded request has the session in the body
    session = asked.session(request, fields)
    if known is not None and session is not None:
        known.require_session(session, asyncio.get_running_loop().time())
    group = known or ReaderGroup(host.name, name)
    found = _shown(request, group)
    forwarder, given = requested.forwarder(request), {"session": fields.get("session")}
    bodies: Bodies = {home: ([], asked.part_of_session(given, home)) for home in forwarder.others}
    for told in (await forwarder.asked_of_running(request, bodies)).values():
        found["queues"].update(told["queues"])
    return JSONResponse(found)


async def open_session(request: Request) -> JSONResponse:
    """``POST /api/readers/{vhost}/{group}/open``: begin the session of a query that reads for the group.

    The body is ``{"query": NAME, "lease": SECONDS}``. The answer is ``{"session": TEXT}``; all following requests must
    have the session. While a session is alive, the answer to queries of other names is 409.
    """
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    requested.broker(request).authorization.require_any(requested.principal(request), host.name, "read")
    asked.require_read(request, host, name)
    query = body.get("query")
    if not isinstance(query, str) or not 0 < len(query) <= 255:
        raise BadRequest("'query' must be a name of 1 to 255 characters")
    session = await asked.groups(request).open(host.name, name, query, asked.lease(body))
    forwarder = requested.forwarder(request)
    told = await forwarder.everywhere(request, body)  # an absent home learns of the session later
    return JSONResponse({"session": forwarder.joined_session(session, told)})


async def attend(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/attend``: attend a session by an answer without an end. When the connection
    breaks, the query counts as dead.

    The body is ``{"session": TEXT}``. The answer is 412 for an unknown group or session.
    """
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    asked.require_read(request, host, name)
    session = asked.session(request, body)
    if session is None:
        raise BadRequest("'session' is missing")
    if asked.groups(request).group(host.name, name) is None:
        raise UnknownSession
    asked.groups(request).renew(host.name, name, session)
    answer = Attendance(asked.groups(request), host.name, name, session)
    forwarder, target = requested.forwarder(request), request.scope["raw_path"]
    for home in forwarder.others:
        with contextlib.suppress(HomeUnreachable):
            answer.others.append(await forwarder.ask(request, home, target, asked.part_of_session(body, home)))
    return answer


async def renew(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/renew``: renew the group's leases.

    The body is ``{"session": TEXT}``.
    """
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    asked.require_read(request, host, name)
    asked.groups(request).renew(host.name, name, asked.session(request, body))
    forwarder = requested.forwarder(request)
    await forwarder.asked_of_running(
        request, {home: ([], asked.part_of_session(body, home)) for home in forwarder.others}
    )
    return Response(status_code=204)


async def release(request: Request) -> Response:
    """``DELETE /api/readers/{vhost}/{group}``: return all reserved messages to their queues, and delete the group."""
    host, name = requested.virtual_host(request), asked.group_name(request, also_others=True)
    asked.require_read(request, host, name)
    forwarder, is_known = requested.forwarder(request), False
    for home in forwarder.others:
        try:
            is_known |= bool(await forwarder.asked_of_running(request, {home: ([], None)}))
        except RefusedByHome as refused:
            if refused.response.status_code != 404:
                raise
    try:
        await asked.groups(request).release(host, name)
    except NotFound:
        if not is_known:
            raise
    return Response(status_code=204)


class Attendance(Response):
    """Response without end. The session is detached when the client disconnects or the broker stops."""

    def __init__(self, groups: ReaderGroups, vhost: str, group: str, session: str) -> None:
        super().__init__(status_code=200)
        self._groups = groups
        self._subject = vhost, group, session
        self.others: list[OpenAnswer] = []  # open answers of other homes to the same request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(ENDLESS)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"\n", "more_body": True})
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the broker stops: not an error
                while (await receive())["type"] != "http.disconnect":
                    pass
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._groups.detach(*self._subject)
            for answer in self.others:
                answer.close()


def _shown(request: Request, group: ReaderGroup) -> dict[str, Any]:
    places = [place for place in group.places.values() if may_read(request, place.queue.vhost, place.queue.name)]
    of_all = {"lease": group.lease, "owner_epoch": group.owner_epoch or None}
    return {"queues": {place.queue.name: _shown_place(place) | of_all for place in places}}


def _shown_place(place: Reservations) -> dict[str, Any]:
    return {
        "acknowledged": place.acknowledged,
        "offset": place.latest,
        "messages": place.outstanding,
        "lapsed": place.lapsed,
        "ready": place.queue.ready_count,
        "reservations": {str(number): count for number, count in place.sizes().items()},
    }


ROUTES = [
    Endpoint("GET", "/api/readers", all_groups),
    Endpoint("GET", "/api/readers/{vhost}", list_groups),
    Endpoint("GET", "/api/unread/{vhost}", list_unread),
    Endpoint("GET", "/api/readers/{vhost}/{group}", show),
    Endpoint("DELETE", "/api/readers/{vhost}/{group}", release),
    Endpoint("POST", "/api/readers/{vhost}/{group}/open", open_session),
    Endpoint("POST", "/api/readers/{vhost}/{group}/attend", attend),
    Endpoint("POST", "/api/readers/{vhost}/{group}/renew", renew),
]
