"""Publishing many messages at once, as an Arrow stream: what Spark's sink does."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import AMQPError
from jumpmq.broker.bulk.bulk_publishing import Published, publish_many
from jumpmq.broker.bulk.writers import Chunk, Place
from jumpmq.broker.memory.charges import Charges
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import load_pyarrow
from jumpmq.http.plumbing.arrow_messages import MAX_OCTETS, messages_of, read_batches
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Unauthorized
from jumpmq.topology import VirtualHost

MAX_WRITER = 255

PAUSE = 0.05
"""Seconds between two looks whether publishers are still blocked."""


async def publish(request: Request) -> JSONResponse:
    """``POST /api/messages/{vhost}/publish``: publish the messages of an Arrow stream, answer when they are on disk.

    The query is ``exchange=NAME`` or ``queue=NAME``, for rows that name none; ``persistent=true`` for rows without
    properties; ``unroutable=drop``, or else a row that reaches no queue is a 400, and none of the rows is published.
    With ``writer=NAME&batch=N&chunk=N&digest=TEXT`` a chunk that was published already is passed over. The answer is
    ``{"published": N, "unroutable": N, "refused": N, "repeated": false}``.
    """
    host = requested.virtual_host(request)
    if host.name not in requested.user(request).permissions:
        raise Unauthorized("User not authorised to access virtual host")
    chunk = _chunk(request, host.name)
    broker = requested.broker(request)
    _require_write(request, host)
    await asyncio.to_thread(load_pyarrow)
    while broker.alarms.active:  # noqa: ASYNC110 (who hears of their end are connections)
        await asyncio.sleep(PAUSE)
    charges = Charges(broker.memory)
    try:
        return await _publish(request, host, chunk, await _octets(request, charges))
    finally:
        charges.release()


async def _publish(request: Request, host: VirtualHost, chunk: Chunk | None, octets: bytes) -> JSONResponse:
    broker, user, query = requested.broker(request), requested.user(request), request.query_params
    if chunk is not None and broker.writers.has_published(chunk):
        await broker.committed()
        return _answer(Published(), repeated=True)
    persistent = requested.flag(request, "persistent")
    batches = await asyncio.to_thread(read_batches, octets)
    found = messages_of(batches, query.get("exchange", ""), query.get("queue"), persistent=persistent)
    messages = [message async for message in broker.slices.through(found)]
    await broker.count_published(user.name, len(messages))
    with broker.turns.turn():
        try:
            published = publish_many(
                broker.authorization, user.name, host, messages, drop_unroutable=query.get("unroutable") == "drop"
            )
        except AMQPError as error:
            raise BadRequest(f"{error.code} {error.reply_text}") from None
        if chunk is not None and not published.refused:
            broker.writers.note(chunk, broker.store)
    await broker.committed()
    return _answer(published, repeated=False)


def _require_write(request: Request, host: VirtualHost) -> None:
    """Refuse who may not publish before anything of the body is read; rows may name other exchanges, each is checked.

    Raises:
        AccessRefused: the user may not write to what the query names, or may write to nothing.
    """
    authorization, user, query = requested.broker(request).authorization, requested.user(request), request.query_params
    authorization.require_any_write(user.name, host.name)
    if query.get("exchange"):
        authorization.require(user.name, host.name, "write", "exchange", query["exchange"])
    elif "queue" in query:
        authorization.require(user.name, host.name, "write", "exchange", "")


async def show(request: Request) -> JSONResponse:
    """``GET /api/messages/{vhost}/writers/{writer}``: how far it has got: ``batch``, ``rows`` and ``digest``."""
    host = requested.virtual_host(request)
    place = requested.broker(request).writers.place(host.name, requested.name(request, "writer"))
    return JSONResponse(place._asdict() if place is not None else {"batch": None, "rows": 0, "digest": ""})


async def forget(request: Request) -> Response:
    """``DELETE /api/messages/{vhost}/writers/{writer}``: forget the writers whose names begin so; they are done."""
    host, broker = requested.virtual_host(request), requested.broker(request)
    if host.name not in requested.user(request).permissions:
        raise Unauthorized("User not authorised to access virtual host")
    broker.writers.forget(host.name, requested.name(request, "writer"), broker.store)
    await broker.committed()
    return Response(status_code=204)


def _chunk(request: Request, vhost: str) -> Chunk | None:
    query = request.query_params
    writer = query.get("writer")
    if writer is None:
        return None
    if not 0 < len(writer) <= MAX_WRITER:
        raise BadRequest(f"'writer' must have 1 to {MAX_WRITER} characters")
    place = Place(
        requested.number(request, "batch"), requested.number(request, "rows"), query.get("digest", "")[:MAX_WRITER]
    )
    return Chunk(vhost, writer, requested.number(request, "first"), place)


async def _octets(request: Request, charges: Charges) -> bytes:
    """The body; the account of memory knows of it while it is here."""
    octets = bytearray()
    async for part in request.stream():
        octets += part
        charges.set("unfinished", len(octets))
        if len(octets) > MAX_OCTETS:
            raise BadRequest(f"the stream is longer than {MAX_OCTETS} octets")
    return bytes(octets)


def _answer(published: Published, *, repeated: bool) -> JSONResponse:
    return JSONResponse(
        {
            "published": published.published,
            "unroutable": published.unroutable,
            "refused": published.refused,
            "repeated": repeated,
        }
    )


ROUTES = [
    Endpoint("POST", "/api/messages/{vhost}/publish", publish),
    Endpoint("GET", "/api/messages/{vhost}/writers/{writer}", show),
    Endpoint("DELETE", "/api/messages/{vhost}/writers/{writer}", forget),
]
