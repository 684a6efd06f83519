"""Publishing many messages at once, as an Arrow stream: what Spark's sink does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import AMQPError
from jumpmq.broker.bulk.bulk_publishing import (
    Addressed,
    Judged,
    Published,
    TooManyCopies,
    judge,
    push,
    push_all_or_none,
)
from jumpmq.broker.bulk.writers import MAX_BATCH, WHOLE, BatchRows, WriterId, WriterPlace
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.memory.uploads import Upload
from jumpmq.broker.upkeep.slices import in_turns
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import load_pyarrow
from jumpmq.http.plumbing.arrow_messages import MAX_KEY, MAX_OCTETS, messages_of, read_batches
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Blocked, RequestTooLarge, Unauthorized
from jumpmq.queues.memory import held_octets
from jumpmq.topology import VirtualHost

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.broker.peers import Forwarding

MAX_WRITER = 255

MAX_DIGEST = 2000
"""Maximum characters of a chunk's digest, possibly with a few per message."""

PACED = 5.0
UNPACED = 8192
"""Seconds of the user's publish rate that a stream may take, if it has more than so many rows: the user's next streams
wait for that, and their clients wait for an answer for a minute."""

PAUSE = 0.05
"""Seconds between two looks whether publishers are still blocked."""


async def publish(request: Request) -> JSONResponse:
    """``POST /api/messages/{vhost}/publish``: publish the messages of an Arrow stream, answer when they are on disk.

    The query is ``exchange=NAME`` or ``queue=NAME``, for rows that name none; ``persistent=false``, or else rows
    without a delivery mode get delivery mode 2; ``unroutable=drop``, or else a row that reaches no queue is a 400, and
    none of the rows is published.
    With ``undelivered-to=NAME`` such rows, and those that a full queue refuses, are published to that exchange.
    With ``writer=NAME&part=NAME&batch=N&first=N&rows=N&digest=TEXT`` a chunk that was published already is passed over:
    ``first`` rows of the batch come before it, ``rows`` are published after it. With ``attempt=TEXT`` that attempt must
    have begun the batch, and no other one since. With ``opened=true`` the writer must be open. Of a chunk no row is
    published where a queue that is full would refuse one: ``refused`` says of how many. The answer is
    ``{"published": N, "unroutable": N, "refused": N, "undelivered": N, "repeated": false}``, or 413 where these
    would be too many messages in all queues together, or take too long at the user's rate (:data:`PACED`).
    """
    host = requested.virtual_host(request)
    _require_virtual_host(request, host)
    _require_names(request)
    chunk = _chunk(request, host.name)
    broker = requested.broker(request)
    _require_write(request, host)
    await asyncio.to_thread(load_pyarrow)
    charges = Charges(broker.memory)
    async with broker.uploads.admitted(_length(request)) as upload:
        while broker.alarms.active:  # noqa: ASYNC110 (who hears of their end are connections)
            await asyncio.sleep(PAUSE)
        try:
            messages = await _messages(request, upload, charges)
            if chunk is None:
                return await _publish(request, host, None, messages)
            async with broker.writers.publishing(chunk):
                return await _publish(request, host, chunk, messages)
        finally:
            charges.release()


async def _publish(
    request: Request, host: VirtualHost, chunk: BatchRows | None, messages: list[Addressed]
) -> JSONResponse:
    broker, user, query = requested.broker(request), requested.principal(request), request.query_params
    if chunk is not None and broker.writers.has_published(chunk):
        if not broker.writers.is_known(chunk):
            with broker.turns.turn():
                broker.writers.note(chunk)
        await broker.committed()
        return _answer(Published(), repeated=True)
    rows = sum(len(run.messages) for run in messages)
    if chunk is not None and chunk.place.rows - chunk.first != rows:
        raise BadRequest(f"the stream has {rows} rows, and not {chunk.place.rows - chunk.first}")
    if rows > max(UNPACED, broker.publishable_within(user, PACED)):
        raise RequestTooLarge(
            f"{rows} messages take more than {PACED:.0f} seconds at the user's max-publish-rate: publish fewer at once"
        )
    await broker.count_published(user, rows)
    await broker.pause.over()
    drop, undelivered_to = query.get("unroutable") == "drop", query.get("undelivered-to")
    with _refused_as_answers():
        judged = await broker.slices.between(
            judge(broker.authorization, user, host, messages, drop_unroutable=drop, undelivered_to=undelivered_to)
        )
        if chunk is not None or undelivered_to is not None:
            judged.require_one_step()
    if chunk is not None:
        broker.writers.has_published(chunk)  # the writer may have been closed in the meantime
    with _refused_as_answers():
        published, forwarding = await _push(broker, judged, chunk)
    await broker.committed()
    await broker.peers.outbox.forwarded(forwarding)
    return _answer(published, repeated=False)


@contextmanager
def _refused_as_answers() -> Iterator[None]:
    """Convert refusals of a run of messages to HTTP errors."""
    try:
        yield
    except AMQPError as error:
        raise BadRequest(f"{error.code} {error.reply_text}") from None
    except TooManyCopies as error:
        raise RequestTooLarge(str(error)) from None


async def _push(broker: Broker, judged: Judged, chunk: BatchRows | None) -> tuple[Published, Forwarding]:
    """Push validated messages. Those of a writer are in one commit with the writer's progress, and so all or none.

    Returns: the result, and the messages for other homes.

    Raises:
        Blocked: too much is kept for a home that it would go to.
    """
    result, outbox = Published(), broker.peers.outbox
    full = outbox.full_home({queue.definition.home for queue in judged.remote})
    if full is not None:
        raise Blocked(f"home {full} is down or behind, and too much is kept for it: publish again later")
    forwarding = outbox.forwarding()
    keep = partial(outbox.add, forwarding)

    def steps() -> Iterator[None]:
        nonlocal result
        if chunk is None and judged.undelivered_to is None:
            result = yield from push(judged, keep)
        else:
            result = yield from push_all_or_none(judged, broker.authorization, keep)

    def noted_steps(chunk: BatchRows) -> Iterator[None]:
        with broker.turns.together():
            yield from steps()
            if not result.refused and broker.topology.vhosts.get(judged.vhost.name) is judged.vhost:
                broker.writers.note(chunk)

    taken = steps() if chunk is None else noted_steps(chunk)
    try:
        await in_turns(broker, taken)
    except asyncio.CancelledError:
        with broker.turns.turn():
            for _ in taken:
                pass
        raise
    return result, forwarding


def _require_write(request: Request, host: VirtualHost) -> None:
    """Refuse users without the right to publish before the body is read; exchanges named in rows are checked
    individually.

    Raises:
        AccessRefused: the user may not write to what the query names, or may write to nothing.
    """
    authorization, query = requested.broker(request).authorization, request.query_params
    user = requested.principal(request)
    authorization.require_any(user, host.name, "write")
    if query.get("exchange"):
        authorization.require(user, host.name, "write", "exchange", query["exchange"])
    elif "queue" in query:
        authorization.require(user, host.name, "write", "exchange", "")


def _require_names(request: Request) -> None:
    """
    Raises:
        BadRequest: a name in the query is too long: that of a queue becomes the routing key of messages.
    """
    for name in ("exchange", "queue", "undelivered-to"):
        if len(request.query_params.get(name, "").encode()) > MAX_KEY:
            raise BadRequest(f"'{name}' has more than {MAX_KEY} octets")


def _require_virtual_host(request: Request, host: VirtualHost) -> None:
    if host.name not in requested.user(request).permissions:
        raise Unauthorized("User not authorised to access virtual host")


async def show(request: Request) -> JSONResponse:
    """``GET /api/messages/{vhost}/writers/{writer}``: how far the user's writer has got.

    The answer is ``{"batch": N or null, "rows": N, "digest": TEXT}``.

    The query is ``part=NAME`` for one of its parts.
    """
    host = requested.virtual_host(request)
    place = requested.broker(request).writers.place(_writer(request, host), _part(request))
    return JSONResponse({"batch": place.batch, "rows": place.rows, "digest": place.digest})


async def open_writer(request: Request) -> Response:
    """``PUT /api/messages/{vhost}/writers/{writer}``: open the writer: requests with ``opened`` are refused once it is
    deleted.
    """
    host, broker = requested.virtual_host(request), requested.broker(request)
    _require_virtual_host(request, host)
    broker.authorization.require_any(requested.principal(request), host.name, "write")
    broker.writers.open(_writer(request, host))
    await broker.committed()
    return Response(status_code=204)


async def begin(request: Request) -> JSONResponse:
    """``POST /api/messages/{vhost}/writers/{writer}/begin``: begin a batch: rows of earlier attempts are refused from
    now on.

    The body is ``{"batch": N, "attempt": TEXT, "origin": TEXT}``; ``origin``, which may be missing, names what numbers
    the batches. The answer is as that of ``batches``, with ``"complete": true`` where the batch is complete, and there
    is nothing to do; ``"rows"`` is the number of its rows then (null if unknown). It is 400 where a later batch was
    begun, or one of that number by another origin.
    """
    host, broker, body = requested.virtual_host(request), requested.broker(request), await requested.body(request)
    _require_virtual_host(request, host)
    broker.authorization.require_any(requested.principal(request), host.name, "write")
    batch, attempt, writer = _batch(body.get("batch")), body.get("attempt"), _writer(request, host)
    if not isinstance(attempt, str) or not 0 < len(attempt) <= MAX_WRITER:
        raise BadRequest(f"'attempt' must be a name of 1 to {MAX_WRITER} characters")
    origin = body.get("origin", "")
    if not isinstance(origin, str) or len(origin) > MAX_WRITER:
        raise BadRequest(f"'origin' must be a name of at most {MAX_WRITER} characters")
    complete = not broker.writers.begin(writer, batch, attempt, origin)
    await broker.committed()
    found = {"complete": complete, "rows": broker.writers.rows_of_complete(writer, batch)}
    return JSONResponse(found | _begun(broker, writer, batch))


async def show_batch(request: Request) -> JSONResponse:
    """``GET /api/messages/{vhost}/writers/{writer}/batches/{batch}``: the current attempt at the batch, and its
    progress.

    The answer is ``{"attempt": TEXT, "parts": {NAME: {"batch": N, "rows": N, "digest": TEXT, "attempt": TEXT}, ...}}``.
    """
    host, batch = requested.virtual_host(request), request.path_params["batch"]
    number = _batch(int(batch) if batch.isascii() and batch.isdigit() and len(batch) < 17 else None)
    return JSONResponse(_begun(requested.broker(request), _writer(request, host), number))


async def complete(request: Request) -> Response:
    """``POST /api/messages/{vhost}/writers/{writer}/complete``: a batch is published as a whole.

    The body is ``{"batch": N}``.
    """
    host, broker, body = requested.virtual_host(request), requested.broker(request), await requested.body(request)
    _require_virtual_host(request, host)
    broker.writers.complete(_writer(request, host), _batch(body.get("batch")))
    await broker.committed()
    return Response(status_code=204)


def _begun(broker: Broker, writer: WriterId, batch: int) -> dict[str, Any]:
    attempt, parts = broker.writers.begun(writer, batch)
    return {"attempt": attempt, "parts": {part: place._asdict() for part, place in parts.items()}}


def _batch(value: Any) -> int:
    if not requested.is_whole(value) or value > MAX_BATCH:
        raise BadRequest(f"'batch' must be a whole number from 0 to {MAX_BATCH}")
    return int(value)


async def forget(request: Request) -> Response:
    """``DELETE /api/messages/{vhost}/writers/{writer}``: delete the user's writer with all parts.

    An administrator's request forgets also what an earlier version has noted of that name without a user.
    """
    host, broker = requested.virtual_host(request), requested.broker(request)
    _require_virtual_host(request, host)
    is_administrator = "administrator" in requested.user(request).tags
    broker.writers.forget(_writer(request, host), also_unowned=is_administrator)
    await broker.committed()
    return Response(status_code=204)


def _writer(request: Request, host: VirtualHost) -> WriterId:
    return WriterId.of(host.name, requested.name(request, "writer"), requested.principal(request))


def _part(request: Request) -> str:
    part = request.query_params.get("part", WHOLE)
    if len(part) > MAX_WRITER:
        raise BadRequest(f"'part' must have at most {MAX_WRITER} characters")
    return part


def _chunk(request: Request, vhost: str) -> BatchRows | None:
    query = request.query_params
    name = query.get("writer")
    if name is None:
        return None
    if not 0 < len(name.encode()) <= MAX_WRITER:
        raise BadRequest(f"'writer' must have 1 to {MAX_WRITER} octets")
    batch = requested.number(request, "batch")
    if batch > MAX_BATCH:
        raise BadRequest(f"'batch' must be at most {MAX_BATCH}")
    writer = WriterId.of(vhost, name, requested.principal(request))
    attempt = query.get("attempt", "")[:MAX_WRITER]
    place = WriterPlace(batch, requested.number(request, "rows"), query.get("digest", "")[:MAX_DIGEST], attempt)
    opened = requested.flag(request, "opened")
    return BatchRows(writer, _part(request), requested.number(request, "first"), place, opened)


def _length(request: Request) -> int:
    """Return the body's length from the header, in octets; :data:`MAX_OCTETS` without one.

    Raises:
        BadRequest: they are too many.
    """
    length = int(request.headers.get("content-length", MAX_OCTETS))
    if length > MAX_OCTETS:
        raise BadRequest(f"the stream is longer than {MAX_OCTETS} octets")
    return length


async def _messages(request: Request, upload: Upload, charges: Charges) -> list[Addressed]:
    """Return the messages of the body. The memory account is charged for the body on arrival, then for the messages.

    Raises:
        BadRequest: the body is too long, does not come, or is no stream of messages.
        Blocked: the body comes slowly while memory or disk is short, or while other batches wait for memory.
    """
    broker, query = requested.broker(request), request.query_params
    persistent = requested.flag(request, "persistent", missing=True)
    try:
        async with asyncio.timeout(None) as upload.bound:
            octets = await _octets(request, upload, charges)
    except TimeoutError:
        raise Blocked("other batches wait for memory, and the body comes slowly: publish again later") from None
    upload.complete = True
    batches = await asyncio.to_thread(read_batches, octets)
    found = messages_of(batches, query.get("exchange", ""), query.get("queue"), persistent=persistent)
    messages = []
    # As objects they hold the interpreter's lock: in a thread of their own they would hinder the others more.
    async for run in broker.slices.through(found):
        charges.add("unfinished", held_octets(run.messages))
        messages.append(run)
    charges.add("unfinished", -len(octets))
    return messages


async def _octets(request: Request, upload: Upload, charges: Charges) -> bytearray:
    """The body.

    Raises:
        BadRequest: it is too long, or does not come.
        Blocked: memory or disk is short, and it has not come for long: it may be what keeps memory short.
    """
    octets, parts = bytearray(), aiter(request.stream())
    alarms, clock = requested.broker(request).alarms, asyncio.get_running_loop().time
    until = clock() + requested.BODY_TIMEOUT
    while True:
        try:
            async with asyncio.timeout(requested.BODY_TIMEOUT):
                octets += await anext(parts)
        except StopAsyncIteration:
            return octets
        except TimeoutError:
            raise BadRequest(f"no more of the body came for {requested.BODY_TIMEOUT:.0f} seconds") from None
        upload.received = len(octets)
        charges.set("unfinished", len(octets))
        if len(octets) > MAX_OCTETS:
            raise BadRequest(f"the stream is longer than {MAX_OCTETS} octets")
        if not alarms.active:
            until = clock() + requested.BODY_TIMEOUT
        elif clock() > until:
            raise Blocked(f"the broker is {alarms.reason}, and the body comes slowly: publish again later")


def _answer(published: Published, *, repeated: bool) -> JSONResponse:
    return JSONResponse(
        {
            "published": published.published,
            "unroutable": published.unroutable,
            "refused": published.refused,
            "undelivered": published.undelivered,
            "repeated": repeated,
        }
    )


ROUTES = [
    Endpoint("POST", "/api/messages/{vhost}/publish", publish),
    Endpoint("GET", "/api/messages/{vhost}/writers/{writer}", show),
    Endpoint("PUT", "/api/messages/{vhost}/writers/{writer}", open_writer),
    Endpoint("POST", "/api/messages/{vhost}/writers/{writer}/begin", begin),
    Endpoint("GET", "/api/messages/{vhost}/writers/{writer}/batches/{batch}", show_batch),
    Endpoint("POST", "/api/messages/{vhost}/writers/{writer}/complete", complete),
    Endpoint("DELETE", "/api/messages/{vhost}/writers/{writer}", forget),
]
