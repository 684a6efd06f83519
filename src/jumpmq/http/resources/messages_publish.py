"""Publishing of many messages at once, as an Arrow stream: used by Spark's sink."""

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
    Published,
    TooManyCopies,
    ValidatedRun,
    push,
    push_all_or_none,
    validate,
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
"""Maximum characters of a chunk's digest: room for some characters per message."""

PACED = 5.0
"""Maximum seconds of the user's publish rate in one stream of more than :data:`UNPACED` rows. The user's next stream
waits as long, and clients time out after a minute.
"""

UNPACED = 8192
"""Maximum number of rows in a stream without the limit :data:`PACED`."""

PAUSE = 0.05
"""Seconds between checks whether publishers are still blocked."""


async def publish(request: Request) -> JSONResponse:
    """``POST /api/messages/{vhost}/publish``: publish the messages of an Arrow stream. Answered when the messages are
    on disk.

    Parameters of the query:

    - ``exchange=NAME`` or ``queue=NAME``: target of rows without an exchange or queue.
    - ``persistent=false``: rows without a delivery mode are transient; otherwise they get delivery mode 2.
    - ``unroutable=drop``: rows that reach no queue are dropped; otherwise such a row is a 400, and no row is published.
    - ``undelivered-to=NAME``: rows that reach no queue, or are refused by a full queue, are published to this exchange.
    - ``writer=NAME&part=NAME&batch=N&first=N&rows=N&digest=TEXT``: the stream is a chunk of a batch. ``first`` rows of
      the batch precede the chunk; ``rows`` are published after the chunk. A chunk published before is skipped
      (``"repeated": true``). If a full queue would refuse a row, no row of the chunk is published, and ``refused`` is
      the number of such rows.
    - ``attempt=TEXT``: the batch's last attempt must be this one; otherwise the chunk is refused.
    - ``opened=true``: the writer must be open; otherwise the chunk is refused.

    The answer is ``{"published": N, "unroutable": N, "refused": N, "undelivered": N, "repeated": false}``. It is 413
    for too many messages in all queues together, and for a stream that takes too long at the user's rate
    (:data:`PACED`).
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
        while broker.alarms.active:  # noqa: ASYNC110 (only connections are notified of the alarms' end)
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
        raise BadRequest(f"the stream has {rows} rows, not {chunk.place.rows - chunk.first}")
    if rows > max(UNPACED, broker.publishable_within(user, PACED)):
        raise RequestTooLarge(
            f"{rows} messages take more than {PACED:.0f} seconds at the user's max-publish-rate: publish fewer at once"
        )
    await broker.count_published(user, rows)
    await broker.pause.over()
    drop, undelivered_to = query.get("unroutable") == "drop", query.get("undelivered-to")
    with _refused_as_answers():
        validated = await broker.slices.between(
            validate(broker.authorization, user, host, messages, drop_unroutable=drop, undelivered_to=undelivered_to)
        )
        if chunk is not None or undelivered_to is not None:
            validated.require_one_step()
    if chunk is not None:
        broker.writers.has_published(chunk)  # the writer may have been closed in the meantime
    with _refused_as_answers():
        published, forwarding = await _push(broker, validated, chunk)
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


async def _push(broker: Broker, validated: ValidatedRun, chunk: BatchRows | None) -> tuple[Published, Forwarding]:
    """Push validated messages. The messages of a writer's chunk are in one commit with the writer's progress: either
    all are published, or none.

    Returns:
        The result, and the messages for other homes.

    Raises:
        Blocked: too many messages are already kept for another home of a target queue.
    """
    result, outbox = Published(), broker.peers.outbox
    full = outbox.full_home({queue.definition.home for queue in validated.remote})
    if full is not None:
        raise Blocked(f"home {full} is down or behind, and too many messages wait for it: publish again later")
    forwarding = outbox.forwarding()
    keep = partial(outbox.add, forwarding)

    def steps() -> Iterator[None]:
        nonlocal result
        if chunk is None and validated.undelivered_to is None:
            result = yield from push(validated, keep)
        else:
            result = yield from push_all_or_none(validated, broker.authorization, keep)

    def noted_steps(chunk: BatchRows) -> Iterator[None]:
        with broker.turns.together():
            yield from steps()
            if not result.refused and broker.topology.vhosts.get(validated.vhost.name) is validated.vhost:
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
    """Refuse users without the right to publish, before the body is read. Exchanges in rows are checked later.

    Raises:
        AccessRefused: the user may not write to the exchange or queue in the query, or to no exchange at all.
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
        BadRequest: a name in the query is too long. The name of a queue is used as a routing key.
    """
    for name in ("exchange", "queue", "undelivered-to"):
        if len(request.query_params.get(name, "").encode()) > MAX_KEY:
            raise BadRequest(f"'{name}' has more than {MAX_KEY} octets")


def _require_virtual_host(request: Request, host: VirtualHost) -> None:
    if host.name not in requested.user(request).permissions:
        raise Unauthorized("User not authorised to access virtual host")


async def show(request: Request) -> JSONResponse:
    """``GET /api/messages/{vhost}/writers/{writer}``: progress of the user's writer, or of a part (``part=NAME``).

    The answer is ``{"batch": N or null, "rows": N, "digest": TEXT}``.
    """
    host = requested.virtual_host(request)
    place = requested.broker(request).writers.place(_writer(request, host), _part(request))
    return JSONResponse({"batch": place.batch, "rows": place.rows, "digest": place.digest})


async def open_writer(request: Request) -> Response:
    """``PUT /api/messages/{vhost}/writers/{writer}``: open the writer. After the writer's deletion, requests with
    ``opened`` are refused.
    """
    host, broker = requested.virtual_host(request), requested.broker(request)
    _require_virtual_host(request, host)
    broker.authorization.require_any(requested.principal(request), host.name, "write")
    broker.writers.open(_writer(request, host))
    await broker.committed()
    return Response(status_code=204)


async def begin(request: Request) -> JSONResponse:
    """``POST /api/messages/{vhost}/writers/{writer}/begin``: begin an attempt at a batch. Rows of earlier attempts are
    refused from now on.

    The body is ``{"batch": N, "attempt": TEXT, "origin": TEXT}``. ``origin`` is optional, and names the source of the
    batches' numbers. The answer is that of ``batches``. For a complete batch, the answer has ``"complete": true``, with
    the number of the batch's ``"rows"`` (null if unknown), and nothing remains to be done. The answer is 400 if a later
    batch was begun, or a batch of the same number by another origin.
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
    """``POST /api/messages/{vhost}/writers/{writer}/complete``: complete a batch, after all its rows were published.

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

    An administrator's request also deletes progress of that name recorded by an earlier version without a user.
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
        BadRequest: the body is longer than :data:`MAX_OCTETS`.
    """
    length = int(request.headers.get("content-length", MAX_OCTETS))
    if length > MAX_OCTETS:
        raise BadRequest(f"the stream is longer than {MAX_OCTETS} octets")
    return length


async def _messages(request: Request, upload: Upload, charges: Charges) -> list[Addressed]:
    """Return the messages of the body. The memory account is charged for the body on arrival, then for the messages.

    Raises:
        BadRequest: the body is too long, does not arrive in time, or is not a stream of messages.
        Blocked: the body arrives slowly while memory or disk is short, or while other batches wait for memory.
    """
    broker, query = requested.broker(request), request.query_params
    persistent = requested.flag(request, "persistent", missing=True)
    try:
        async with asyncio.timeout(None) as upload.bound:
            octets = await _octets(request, upload, charges)
    except TimeoutError:
        raise Blocked("other batches wait for memory, and the body arrives slowly: publish again later") from None
    upload.complete = True
    batches = await asyncio.to_thread(read_batches, octets)
    found = messages_of(batches, query.get("exchange", ""), query.get("queue"), persistent=persistent)
    messages = []
    # Making objects holds the interpreter's lock: a separate thread would delay the event loop more than slices do.
    async for run in broker.slices.through(found):
        charges.add("unfinished", held_octets(run.messages))
        messages.append(run)
    charges.add("unfinished", -len(octets))
    return messages


async def _octets(request: Request, upload: Upload, charges: Charges) -> bytearray:
    """Return the body.

    Raises:
        BadRequest: the body is too long, or does not arrive in time.
        Blocked: memory or disk is short, and the body arrives slowly: incomplete bodies may be what keeps memory short.
    """
    octets, parts = bytearray(), aiter(request.stream())
    alarms, clock = requested.broker(request).alarms, asyncio.get_running_loop().time
    timeout = requested.broker(request).config.timing.http_part
    until = clock() + timeout
    while True:
        try:
            async with asyncio.timeout(timeout):
                octets += await anext(parts)
        except StopAsyncIteration:
            return octets
        except TimeoutError:
            raise BadRequest(f"no further part of the body arrived for {timeout:.0f} seconds") from None
        upload.received = len(octets)
        charges.set("unfinished", len(octets))
        if len(octets) > MAX_OCTETS:
            raise BadRequest(f"the stream is longer than {MAX_OCTETS} octets")
        if not alarms.active:
            until = clock() + timeout
        elif clock() > until:
            raise Blocked(f"the broker is {alarms.reason}, and the body arrives slowly: publish again later")


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
