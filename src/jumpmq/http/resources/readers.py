"""Reader groups: reserve messages, read reserved messages repeatedly, and acknowledge them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.bulk.reader_group import LEASE, ReaderGroup, UnknownSession, owned
from jumpmq.broker.bulk.reader_groups import ReaderGroups, ReservationRequest, Reserved, Slice
from jumpmq.broker.bulk.with_bodies import with_bodies
from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.routing.bound_queues import bound_queues
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing import sessions_of_readers as sessions
from jumpmq.http.plumbing.access import sees_all_vhosts
from jumpmq.http.plumbing.arrow import COLUMNS
from jumpmq.http.plumbing.arrow_stream import arrow_stream, columns_of
from jumpmq.http.plumbing.changing import check_permission, may_read
from jumpmq.http.plumbing.endpoint import ENDLESS, Endpoint
from jumpmq.http.plumbing.errors import BadRequest, RefusedByHome
from jumpmq.http.plumbing.forwarding import Bodies, Forwarder, OpenAnswer
from jumpmq.http.resources.queue_messages import MAX_QUEUES, slices_of
from jumpmq.queues.reservations import OWNED, Reservations
from jumpmq.topology import VirtualHost

MAX_LEASE = 86400.0

IS_STREAM = (
    "is a stream: streams are read by offsets, not by reservations; unbind the stream from the exchange, or name the "
    "queues to read instead of the exchange"
)


async def list_groups(request: Request) -> JSONResponse:
    """``GET /api/readers/{vhost}``: the reader groups of a virtual host, with their positions in queues that the user
    may read."""
    host = requested.virtual_host(request)
    found = [
        {"name": group.shown_name, "user": group.user, **_shown(request, group)}
        for group in _groups(request).groups(host.name)
        if _may_see(request, group)
    ]
    merged = {(group["name"], group["user"]): group for group in found}
    for told in await _told_by_others(request):
        for group in told:
            merged.setdefault((group["name"], group["user"]), group)["queues"].update(group["queues"])
    return JSONResponse(list(merged.values()))


async def _told_by_others(request: Request) -> list[Any]:
    """Return the answers of all reachable other homes to this request, as JSON."""
    return list((await requested.forwarder(request).everywhere(request)).values())


async def all_groups(request: Request) -> JSONResponse:
    """``GET /api/readers``: the reader groups of all visible virtual hosts, an entry per queue.

    An entry has the numbers of ``reserved`` messages and of ``ready`` messages (not yet reserved: the group's lag), the
    octets of ready messages (``ready_octets``), the ``age`` of the oldest reserved message in seconds, ``alive`` (true
    while a query reads), and the remaining ``lease`` in seconds.
    """
    hosts = requested.visible_hosts(request)
    groups = [group for host in hosts for group in _groups(request).groups(host.name)]
    places = [
        (group, place)
        for group in groups
        for place in group.places.values()
        if may_read(request, place.queue.vhost, place.queue.name)
    ]
    now = asyncio.get_running_loop().time()
    found = [shown_in_brief(group, place, now) for group, place in places]
    return JSONResponse(found + [one for told in await _told_by_others(request) for one in told])


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
    unread += [one for told in await _told_by_others(request) for one in told]
    return JSONResponse(sorted(unread, key=lambda one: one["name"]))


async def show(request: Request) -> JSONResponse:
    """``GET /api/readers/{vhost}/{group}?session=TEXT``: the positions of a reader group in readable queues.

    With a ``session``, the answer is 409 if another query has taken over the group. ``owner_epoch`` is the owner's
    number of the query; null after a restart of the broker until the next reservation.
    """
    host, name = requested.virtual_host(request), _name(request, also_others=True)
    known = _groups(request).group(host.name, name)
    asked = {**request.query_params, **await requested.body(request)}  # a forwarded request has the session in the body
    session = _session(request, asked)
    if known is not None and session is not None:
        known.require_session(session, asyncio.get_running_loop().time())
    group = known or ReaderGroup(host.name, name)
    found = _shown(request, group)
    forwarder, given = requested.forwarder(request), {"session": asked.get("session")}
    bodies: Bodies = {home: ([], _part_of_session(given, home)) for home in forwarder.others}
    for told in (await forwarder.asked_of_running(request, bodies)).values():
        found["queues"].update(told["queues"])
    return JSONResponse(found)


async def open_session(request: Request) -> JSONResponse:
    """``POST /api/readers/{vhost}/{group}/open``: begin the session of a query that reads for the group.

    The body is ``{"query": NAME, "lease": SECONDS}``. The answer is ``{"session": TEXT}``; all following requests must
    have the session. While a session is alive, the answer to queries of other names is 409.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    requested.broker(request).authorization.require_any(requested.principal(request), host.name, "read")
    _require_read(request, host, name)
    query = body.get("query")
    if not isinstance(query, str) or not 0 < len(query) <= 255:
        raise BadRequest("'query' must be a name of 1 to 255 characters")
    session = await _groups(request).open(host.name, name, query, _lease(body))
    forwarder = requested.forwarder(request)
    told = await forwarder.everywhere(request, body)  # an absent home learns of the session later
    return JSONResponse({"session": forwarder.joined_session(session, told)})


async def attend(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/attend``: attend a session by an answer without an end. When the connection
    breaks, the query counts as dead.

    The body is ``{"session": TEXT}``. The answer is 412 for an unknown group or session.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    _require_read(request, host, name)
    session = _session(request, body)
    if session is None:
        raise BadRequest("'session' is missing")
    if _groups(request).group(host.name, name) is None:
        raise UnknownSession
    _groups(request).renew(host.name, name, session)
    answer = Attendance(_groups(request), host.name, name, session)
    forwarder, target = requested.forwarder(request), request.scope["raw_path"]
    for home in forwarder.others:
        with contextlib.suppress(HomeUnreachable):
            answer.others.append(await forwarder.ask(request, home, target, _part_of_session(body, home)))
    return answer


async def reserve(request: Request) -> JSONResponse:
    """``POST /api/readers/{vhost}/{group}/reserve``: acknowledge reservations and reserve more messages. Answered when
    both are durable.

    The body is ``{"queues": {NAME: OFFSET or null, ...}, "exchange": NAME, "max_messages": N or null, "max_octets": N
    or null, "last_seq": {NAME: SEQ, ...}, "lease": SECONDS, "accept_loss": false, "shares": true, "session": TEXT,
    "seen": {...}}``. Queues bound to the exchange are added with offset null.

    The answer is ``{"queues": {NAME: {"offset": OFFSET, "messages": COUNT, "ready": COUNT, "ready_octets": OCTETS,
    "oldest": TIME, "owner_epoch": NUMBER}, ...}, "lost": {NAME: COUNT or null, ...}, "seen": {...}}``:

    - ``messages``: number of outstanding messages. ``oldest``: publishing time of the oldest outstanding message, in
      seconds since the epoch; null without messages.
    - ``ready``, ``ready_octets``: messages not yet reserved.
    - ``owner_epoch``: the owner's number of the query, higher than the numbers of the queue's earlier owners.
    - ``lost``: number of lost messages by deleted queue (null if unknown).
    - ``seen``: state of the broker's data directories, for the next request.

    The answer is 410 if a data directory is older than in ``seen``, because it was restored from a backup, unless
    ``accept_loss`` is true. It is 423 while a consumer group consumes from one of the queues, and, unless both groups
    share, while another group's query reads one of them. Queues of an absent home keep their offset (``"down": true``),
    and the other queues proceed; with a ``last_seq``, the answer is 404 instead.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    offsets = _numbers(body, "queues", nullable=True)
    if body.get("exchange") is not None:
        bound = bound_queues(host.exchange(str(body["exchange"])))
        offsets = dict.fromkeys(queue.name for queue in bound) | offsets
    away, forwarder = requested.by_home(request, host, offsets), requested.forwarder(request)
    there = {queue for queues in away.values() for queue in queues}
    if gone := [queue for queue in offsets if queue not in host.declared]:
        for home in await _who_knows(request, forwarder, host, body, gone):
            away[home] = away.get(home, []) + gone
            there.update(gone)
    here = {queue: offset for queue, offset in offsets.items() if queue not in there}
    most = {name: _whole(body, name) for name in ("max_messages", "max_octets")}
    wanted = ReservationRequest(
        offsets=here,
        max_messages=sessions.share(most["max_messages"], here, offsets) if away else most["max_messages"],
        max_octets=sessions.share(most["max_octets"], here, offsets) if away else most["max_octets"],
        last_seqs=_numbers(body, "last_seq"),
        lease=_lease(body),
        accept_loss=body.get("accept_loss") is True,
        shares=body.get("shares") is not False,
        seen=_seen(body),
    )
    if len(offsets) > MAX_QUEUES:
        raise BadRequest(f"the request is for more than {MAX_QUEUES} queues")
    async for queue in requested.broker(request).slices.through(offsets):
        check_permission(request, host.name, "read", queue)
        if queue in host.queues and host.queue(queue, requested.NO_CONNECTION).append_only:
            raise BadRequest(f"'{queue}' {IS_STREAM}")
    reserved = await _groups(request).reserve(host, name, wanted, _session(request, body))
    answer = _ReserveAnswer(_positions(reserved), reserved.lost, dict(_groups(request).sight()))
    if away:
        shares = {
            home: {key: sessions.share(value, queues, offsets) for key, value in most.items()}
            for home, queues in away.items()
        }
        bodies = {
            home: (queues, _for_home(body, home, queues, offsets) | shares[home]) for home, queues in away.items()
        }
        if wanted.last_seqs:  # a query with last numbers must read all queues
            answers = dict(zip(bodies, await forwarder.asked(request, host, bodies), strict=True))
        else:
            answers = await forwarder.asked_of_running(request, bodies)
        answer.merge(answers.values())
        answer.add_down({queue: offsets[queue] for home in away.keys() - answers for queue in away[home]})
    return JSONResponse(answer._asdict())


class _ReserveAnswer(NamedTuple):
    """Answer to :func:`reserve`, of this home or of several."""

    queues: dict[str, dict[str, Any]]
    lost: dict[str, int | None]
    seen: dict[str, Any]

    def merge(self, answers: Iterable[dict[str, Any]]) -> None:
        """Add the answers of other homes."""
        for told in answers:
            self.queues.update(told["queues"])
            self.seen.update(told["seen"])
            self.lost.update({name: count for name, count in told["lost"].items() if self.lost.get(name) is None})

    def add_down(self, offsets: Mapping[str, int | None]) -> None:
        """Add the queues of absent homes, which keep their offsets; queues without an offset are left out."""
        kept: dict[str, Any] = {"messages": 0, "ready": 0, "oldest": None, "down": True}
        self.queues.update({queue: {"offset": at} | kept for queue, at in offsets.items() if at is not None})


def _positions(reserved: Reserved) -> dict[str, dict[str, Any]]:
    """Return the positions of a group in the queues of this home, as JSON."""
    return {
        queue: {
            "offset": place.latest,
            "messages": place.outstanding,
            "ready": place.queue.ready_count,
            "ready_octets": figures and figures.ready_octets,
            "oldest": place.oldest,
            "owner_epoch": reserved.owner_epoch,
        }
        for queue, place in reserved.places.items()
        for figures in (place.queue.figures(),)
    }


async def _who_knows(
    request: Request, forwarder: Forwarder, host: VirtualHost, body: dict[str, Any], gone: list[str]
) -> list[int]:
    """Return the other homes with counts of the messages lost in deleted queues of the group."""
    found = []
    for home in forwarder.others:
        asked = _for_home(body, home, gone, dict.fromkeys(gone)) | {"accept_loss": True}
        (told,) = await forwarder.asked(request, host, {home: (gone, asked)})
        if any(count is not None for count in told["lost"].values()):
            found.append(home)
    return found


def _for_home(body: dict[str, Any], home: int, queues: list[str], offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a home's queues."""
    given = body.get("last_seq", {})
    last_seqs = {queue: given[queue] for queue in queues if queue in given}
    own = {"exchange": None, "queues": {queue: offsets[queue] for queue in queues}, "last_seq": last_seqs}
    return _part_of_session(body, home) | own


def _slices_of(body: dict[str, Any], queues: list[str]) -> list[Any]:
    wanted = set(queues)
    return [one for one in body["slices"] if one[0] in wanted]


def _part_of_session(body: dict[str, Any], home: int) -> dict[str, Any]:
    return body | {"session": sessions.part_of(body.get("session"), home)}


async def read(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/read``: the messages of parts of reservations, in order.

    The body is ``{"slices": [[QUEUE, AFTER, UPTO, FIRST, COUNT], ...], "columns": [...], "accept_loss": false}``. A
    slice selects the reservations AFTER + 1 to UPTO (AFTER null: from the first unacknowledged reservation), and of
    their messages COUNT messages from position FIRST on (COUNT null: all following). The header ``JumpMQ-Messages`` is
    the number of messages in the answer.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    slices = [
        Slice(queue, after, upto or 0, first or 0, count) for queue, after, upto, first, count in slices_of(body, 5)
    ]
    columns = columns_of(body.get("columns", list(COLUMNS)))
    away = requested.by_home(request, host, dict.fromkeys(one.queue for one in slices))
    there = {queue for queues in away.values() for queue in queues}
    here = [one for one in slices if one.queue not in there]
    answer = await _read(request, host, name, here, columns, body.get("accept_loss") is True)
    bodies = {home: (queues, body | {"slices": _slices_of(body, queues)}) for home, queues in away.items()}
    return await requested.forwarder(request).streamed(request, host, bodies, answer, columns)


async def read_one(request: Request) -> StreamingResponse:
    """``GET .../queues/{queue}/messages?after=A&upto=B&columns=...``: the messages of reservations A + 1 to B.

    Without ``after``, the messages of all unacknowledged reservations up to B. The header ``JumpMQ-Messages`` is the
    number of messages in the answer.
    """
    host, name, queue = requested.virtual_host(request), _name(request), requested.queue(request)
    after = requested.number(request, "after") if "after" in request.query_params else None
    columns = columns_of(request.query_params.get("columns", ",".join(COLUMNS[1:])).split(","))
    slices = [Slice(queue.name, after, requested.number(request, "upto"))]
    return await _read(request, host, name, slices, columns, accept_loss=False)


async def commit(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/commit``: acknowledge reservations. Answered when the change is durable.

    The body is ``{"queues": {NAME: OFFSET, ...}, "session": TEXT}``.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    offsets = _numbers(body, "queues")
    for queue in offsets:
        check_permission(request, host.name, "read", queue)
    away, forwarder = requested.by_home(request, host, offsets), requested.forwarder(request)
    if away:
        bodies = {
            home: (queues, _part_of_session(body, home) | {"queues": {queue: offsets[queue] for queue in queues}})
            for home, queues in away.items()
        }
        await forwarder.asked(request, host, bodies)
        there = {queue for queues in away.values() for queue in queues}
        offsets = {queue: offset for queue, offset in offsets.items() if queue not in there}
    if offsets or not away:
        await _groups(request).acknowledge(host, name, offsets, _session(request, body))
    return Response(status_code=204)


async def renew(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/renew``: renew the group's leases.

    The body is ``{"session": TEXT}``.
    """
    host, name, body = requested.virtual_host(request), _name(request), await requested.body(request)
    _require_read(request, host, name)
    _groups(request).renew(host.name, name, _session(request, body))
    forwarder = requested.forwarder(request)
    await forwarder.asked_of_running(request, {home: ([], _part_of_session(body, home)) for home in forwarder.others})
    return Response(status_code=204)


async def release(request: Request) -> Response:
    """``DELETE /api/readers/{vhost}/{group}``: return all reserved messages to their queues, and delete the group."""
    host, name = requested.virtual_host(request), _name(request, also_others=True)
    _require_read(request, host, name)
    forwarder, is_known = requested.forwarder(request), False
    for home in forwarder.others:
        try:
            is_known |= bool(await forwarder.asked_of_running(request, {home: ([], None)}))
        except RefusedByHome as refused:
            if refused.response.status_code != 404:
                raise
    try:
        await _groups(request).release(host, name)
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


async def _read(
    request: Request, host: VirtualHost, group: str, slices: list[Slice], columns: tuple[str, ...], accept_loss: bool
) -> StreamingResponse:
    for queue in {one.queue for one in slices}:
        check_permission(request, host.name, "read", queue)
    pieces = await _groups(request).held(host, group, slices, accept_loss)
    return await arrow_stream(
        with_bodies(pieces, columns),
        columns,
        headers={"JumpMQ-Messages": str(sum(piece.readable for piece in pieces))},
        alive=lambda: _groups(request).touch(host.name, group),
    )


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


def _name(request: Request, *, also_others: bool = False) -> str:
    """Return the internal name of the group in the path: with the user's name, or without it for a group of an earlier
    version.

    Args:
        also_others: True to let an administrator name another user's group, if the administrator has no group of the
            name. The query's ``user`` names the other user.
    """
    host, name = requested.virtual_host(request), requested.name(request, "group")
    if OWNED in name:
        raise BadRequest("the name of a group has a control character")
    groups, user = _groups(request), requested.user(request)
    own = owned(name, requested.principal(request))
    if groups.group(host.name, own) is not None and "user" not in request.query_params:
        return own
    if groups.group(host.name, name) is not None:
        return name
    if also_others and "administrator" in user.tags:
        whose = request.query_params.get("user")
        for group in groups.groups(host.name):
            if group.shown_name == name and whose in (None, group.user):
                return group.name
    return own


def _may_see(request: Request, group: ReaderGroup) -> bool:
    """Return True if a list for the user includes a group."""
    user = requested.user(request)
    return (
        sees_all_vhosts(user)
        or group.user is None
        or group.name == owned(group.shown_name, requested.principal(request))
        or any(may_read(request, place.queue.vhost, place.queue.name) for place in group.places.values())
    )


def _require_read(request: Request, host: VirtualHost, name: str) -> None:
    """Refuse unless the user may read every queue in which the group has a position.

    Raises:
        AccessRefused: the user may not read a queue.
    """
    group = _groups(request).group(host.name, name)
    for place in group.places.values() if group is not None else ():
        check_permission(request, host.name, "read", place.queue.name)


def _groups(request: Request) -> ReaderGroups:
    return requested.broker(request).reader_groups


def _numbers(body: dict[str, Any], key: str, *, nullable: bool = False) -> dict[str, Any]:
    numbers = body.get(key, {})
    if not isinstance(numbers, dict):
        raise BadRequest(f"'{key}' must be an object of queue names and whole numbers")
    for name, value in numbers.items():
        if not (requested.is_whole(value) or (nullable and value is None)):
            raise BadRequest(f"'{key}' of queue '{name}' must be a whole number from 0, not {value!r}")
    return numbers


def _seen(body: dict[str, Any]) -> dict[str, tuple[str, int]]:
    seen = body.get("seen", {})
    if not isinstance(seen, dict) or not all(_is_start(one) for one in seen.values()):
        raise BadRequest(f"'seen' must be the value of an earlier answer, not {str(seen)[:100]}")
    return {directory: (start, commit) for directory, (start, commit) in seen.items()}


def _is_start(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and bool(requested.is_whole(value[1]))
    )


def _whole(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is not None and not requested.is_whole(value):
        raise BadRequest(f"'{key}' must be a whole number from 0 or null, not {value!r}")
    return value


def _session(request: Request, body: dict[str, Any]) -> str | None:
    """Return this home's part of the session in a body."""
    value = body.get("session")
    if value is not None and not isinstance(value, str):
        raise BadRequest("'session' must be text")
    return None if value is None else requested.forwarder(request).own_session(value)


def _lease(body: dict[str, Any]) -> float:
    value = body.get("lease", LEASE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_LEASE or math.isnan(value):
        raise BadRequest(f"'lease' must be a number of seconds up to {MAX_LEASE:.0f}, not {value!r}")
    return float(value)


ROUTES = [
    Endpoint("GET", "/api/readers", all_groups),
    Endpoint("GET", "/api/readers/{vhost}", list_groups),
    Endpoint("GET", "/api/unread/{vhost}", list_unread),
    Endpoint("GET", "/api/readers/{vhost}/{group}", show),
    Endpoint("DELETE", "/api/readers/{vhost}/{group}", release),
    Endpoint("POST", "/api/readers/{vhost}/{group}/open", open_session),
    Endpoint("POST", "/api/readers/{vhost}/{group}/attend", attend),
    Endpoint("POST", "/api/readers/{vhost}/{group}/reserve", reserve),
    Endpoint("POST", "/api/readers/{vhost}/{group}/read", read),
    Endpoint("POST", "/api/readers/{vhost}/{group}/commit", commit),
    Endpoint("POST", "/api/readers/{vhost}/{group}/renew", renew),
    Endpoint("GET", "/api/readers/{vhost}/{group}/queues/{queue}/messages", read_one, at_home=True),
]
