"""Reservations of reader groups: reserve messages, and acknowledge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.broker.bulk.reader_groups import ReservationRequest, Reserved
from jumpmq.broker.routing.bound_queues import bound_queues
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing import sessions_of_readers as sessions
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.plumbing.forwarding import Forwarder
from jumpmq.http.resources import reader_requests as asked
from jumpmq.http.resources.queue_messages import MAX_QUEUES
from jumpmq.topology import VirtualHost

IS_STREAM = (
    "is a stream: streams are read by offsets, not by reservations; unbind the stream from the exchange, or name the "
    "queues to read instead of the exchange"
)


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
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    offsets = asked.numbers(body, "queues", nullable=True)
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
    most = {name: asked.whole(body, name) for name in ("max_messages", "max_octets")}
    wanted = ReservationRequest(
        offsets=here,
        max_messages=sessions.share(most["max_messages"], here, offsets) if away else most["max_messages"],
        max_octets=sessions.share(most["max_octets"], here, offsets) if away else most["max_octets"],
        last_seqs=asked.numbers(body, "last_seq"),
        lease=asked.lease(body),
        accept_loss=body.get("accept_loss") is True,
        shares=body.get("shares") is not False,
        seen=asked.seen(body),
    )
    if len(offsets) > MAX_QUEUES:
        raise BadRequest(f"the request is for more than {MAX_QUEUES} queues")
    async for queue in requested.broker(request).slices.through(offsets):
        check_permission(request, host.name, "read", queue)
        if queue in host.queues and host.queue(queue, requested.NO_CONNECTION).append_only:
            raise BadRequest(f"'{queue}' {IS_STREAM}")
    reserved = await asked.groups(request).reserve(host, name, wanted, asked.session(request, body))
    answer = _ReserveAnswer(_positions(reserved), reserved.lost, dict(asked.groups(request).fingerprint()))
    if away:
        shares = {
            home: {key: sessions.share(value, queues, offsets) for key, value in most.items()}
            for home, queues in away.items()
        }
        bodies = {
            home: (queues, asked.for_home(body, home, queues, offsets) | shares[home]) for home, queues in away.items()
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
        question = asked.for_home(body, home, gone, dict.fromkeys(gone)) | {"accept_loss": True}
        (told,) = await forwarder.asked(request, host, {home: (gone, question)})
        if any(count is not None for count in told["lost"].values()):
            found.append(home)
    return found


async def commit(request: Request) -> Response:
    """``POST /api/readers/{vhost}/{group}/commit``: acknowledge reservations. Answered when the change is durable.

    The body is ``{"queues": {NAME: OFFSET, ...}, "session": TEXT}``.
    """
    host, name, body = requested.virtual_host(request), asked.group_name(request), await requested.body(request)
    offsets = asked.numbers(body, "queues")
    for queue in offsets:
        check_permission(request, host.name, "read", queue)
    away, forwarder = requested.by_home(request, host, offsets), requested.forwarder(request)
    if away:
        bodies = {
            home: (queues, asked.part_of_session(body, home) | {"queues": {queue: offsets[queue] for queue in queues}})
            for home, queues in away.items()
        }
        await forwarder.asked(request, host, bodies)
        there = {queue for queues in away.values() for queue in queues}
        offsets = {queue: offset for queue, offset in offsets.items() if queue not in there}
    if offsets or not away:
        await asked.groups(request).acknowledge(host, name, offsets, asked.session(request, body))
    return Response(status_code=204)


ROUTES = [
    Endpoint("POST", "/api/readers/{vhost}/{group}/reserve", reserve),
    Endpoint("POST", "/api/readers/{vhost}/{group}/commit", commit),
]
