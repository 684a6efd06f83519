"""The ready messages of queues, or a range of a stream, as an Arrow stream. Nothing is consumed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jumpmq.amqp.errors import ResourceError
from jumpmq.broker.routing.bound_queues import bound_queues
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.arrow import COLUMNS, ColumnPart, QueueMessages
from jumpmq.http.plumbing.arrow_stream import arrow_stream, columns_of
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Gone
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost

MAX_SLICES = 100_000

MAX_QUEUES = 50_000
"""Maximum number of queues in a request."""

WRITTEN_AT_ONCE = 500
"""Number of an answer's members written per slice."""


async def ready_messages(request: Request) -> StreamingResponse:
    """``GET /api/queues/{vhost}/{queue}/messages?from=SEQ&to=SEQ&columns=seq,body``: the ready messages of a range.

    For a stream, the numbers are offsets. ``since=SECONDS`` (since the epoch) in place of ``from`` selects messages
    published at that time or later.
    """
    queue = requested.unlocked_queue(request)
    check_permission(request, queue.vhost, "read", queue.name)
    first, last = requested.number(request, "from", 0), requested.number(request, "to", requested.LAST_SEQ)
    if "since" in request.query_params:
        first = _seq_at(queue, requested.seconds(request, "since"))
    columns = columns_of(request.query_params.get("columns", ",".join(COLUMNS[1:])).split(","))
    return await arrow_stream(_ready(queue, first, last), columns)


async def ready_slices(request: Request) -> Response:
    """``POST /api/messages/{vhost}``: the ready messages in ranges of several queues, in order.

    The body is ``{"slices": [[QUEUE, FIRST_SEQ, LAST_SEQ], ...], "columns": [...], "whole": false}``. The ranges of
    several homes are not mixed: one home's ranges follow another's. With ``whole``, for streams only, the answer is 410
    unless the streams have all requested messages. ``"ids": {QUEUE: ID, ...}`` and ``"identity"`` are values of the
    answer and header of ``/api/ranges``: the answer is 410 if the name now belongs to another queue, or to another
    broker.
    """
    host, body = requested.virtual_host(request), await requested.body(request)
    slices = [
        (name, first or 0, requested.LAST_SEQ if last is None else last) for name, first, last in slices_of(body, 3)
    ]
    steps = requested.broker(request).slices
    async for name in steps.through({name for name, *_ in slices}):
        check_permission(request, host.name, "read", name)
    columns = columns_of(body.get("columns", list(COLUMNS)))
    away = requested.by_home(request, host, dict.fromkeys(name for name, *_ in slices))
    there = {name for names in away.values() for name in names}
    here = [one for one in slices if one[0] not in there]
    queues = {name: host.queue(name, requested.NO_CONNECTION) for name, *_ in here}
    _require_same(host, queues, body, requested.broker(request).identity)
    if body.get("whole") is True:
        async for name, first, last in steps.through(here):
            _require_whole(queues[name], first, last)
    parts = (part for name, first, last in here for part in _ready(queues[name], first, last))
    answer = await arrow_stream(parts, columns)
    bodies = {home: (names, body | {"slices": _of(slices, names)}) for home, names in away.items()}
    return await requested.forwarder(request).streamed(request, host, bodies, answer, columns)


def _of(slices: list[Any], queues: list[str]) -> list[Any]:
    """Return the slices of the given queues."""
    wanted = set(queues)
    return [one for one in slices if one[0] in wanted]


async def ranges(request: Request) -> Response:
    """``POST /api/ranges/{vhost}``: first number, last number and count of the ready messages of queues.

    The body is ``{"queues": [NAME, ...]}``, or ``{"exchange": NAME}`` for all queues bound to the exchange, directly or
    through other exchanges, or has both keys. The answer is ``{NAME: {"first_seq": SEQ, "last_seq": SEQ, "messages":
    COUNT, "type": KIND, "id": ID}, ...}``:

    - ``last_seq`` is the number of the latest message that the queue received.
    - ``id`` changes if the queue is deleted and declared again, and if a queue other than a stream moves.
    - ``"by_priority": true`` marks a queue that may deliver messages with higher numbers before others.

    Further keys of the body:

    - ``"timestamp": SECONDS``: a stream also has ``"seq_at": SEQ``, the first message published at that time or later;
      without such a message, the number of the next message.
    - ``"marks": {NAME: SEQ, ...}``: a stream also has a ``"mark"``, a number that identifies the message at the offset;
      null if the message is missing. If the data directory is restored from a backup, a later message at the same
      offset has another mark.
    - ``"missing": true``: a missing queue has the value null; otherwise the answer is 404.

    The answer is 503 while a queue moves between homes. The header ``JumpMQ-Identity`` identifies the broker, if the
    broker has a data directory.
    """
    host, body = requested.virtual_host(request), await requested.body(request)
    names = body.get("queues", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest(f"'queues' must be a list of names, not {str(names)[:100]}")
    if len(names) > MAX_QUEUES:
        raise BadRequest(f"'queues' has more than {MAX_QUEUES} names")
    timestamp, marks, slices = _timestamp(body), _marks(body), requested.broker(request).slices
    wanted = dict.fromkeys(names)
    if "exchange" in body:
        async for queue in slices.through(bound_queues(host.exchange(str(body["exchange"])))):
            wanted[queue.name] = None
    async for name in slices.through(wanted):
        check_permission(request, host.name, "read", name)
    found: dict[str, dict[str, Any] | None] = dict.fromkeys(sorted(wanted))
    away = requested.by_home(request, host, wanted)
    asked = {key: body[key] for key in ("timestamp", "missing", "marks") if key in body}
    bodies = {home: (names, asked | {"queues": names}) for home, names in away.items()}
    for told in await requested.forwarder(request).asked(request, host, bodies):
        found |= told
    there = {name for names in away.values() for name in names}
    async for name in slices.through(name for name in found if name not in there):
        if name in host.queues or body.get("missing") is not True:
            queue = host.queue(name, requested.NO_CONNECTION)
            marked = {"mark": queue.view.mark_of(marks[name])} if name in marks and queue.append_only else {}
            found[name] = _range(host, queue, timestamp) | marked
        else:
            found[name] = None
    identity = requested.broker(request).identity
    headers = {} if identity is None else {"JumpMQ-Identity": identity}
    return StreamingResponse(_object(found, slices), media_type="application/json", headers=headers)


async def _object(members: dict[str, dict[str, Any] | None], slices: Slices) -> AsyncIterator[bytes]:
    """Yield a JSON object in parts of some members."""
    text = ["{"]
    async for number, (name, value) in slices.through(enumerate(members.items())):
        text.append(f"{',' if number else ''}{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}")
        if len(text) == WRITTEN_AT_ONCE:
            yield "".join(text).encode()
            text = []
    yield ("".join(text) + "}").encode()


def slices_of(body: dict[str, Any], length: int) -> list[list[Any]]:
    """Parse the slices of a body. A slice is a queue, and ``length`` - 1 numbers, each possibly null.

    Raises:
        BadRequest: a slice has another form.
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


def _ready(queue: Queue, first: int, last: int) -> Iterator[QueueMessages | ColumnPart]:
    if (batches := queue.view.record_batches(first, last)) is not None:
        yield from ((queue.name, batch) for batch in batches)
        return
    yield from ((queue.name, messages) for messages in queue.view.browse(first, last))


def _range(host: VirtualHost, queue: Queue, timestamp: float | None) -> dict[str, Any]:
    definition = host.declared[queue.name].definition
    if definition.before:
        raise ResourceError(f"queue '{queue.name}' in vhost '{queue.vhost}' is moving from home to home")
    first, last, id = *queue.view.ready_range(), definition.identity
    shown = {"first_seq": first, "last_seq": last, "messages": queue.ready_count, "type": queue.type, "id": id}
    if queue.view.by_priority:
        shown["by_priority"] = True
    seq_at = None if timestamp is None else queue.view.seq_at(timestamp)
    return shown if seq_at is None else shown | {"seq_at": seq_at}


def _marks(body: dict[str, Any]) -> dict[str, int]:
    value = body.get("marks", {})
    if not isinstance(value, dict) or not all(requested.is_whole(seq) for seq in value.values()):
        raise BadRequest(f"'marks' must be an object of whole numbers, not {str(value)[:100]}")
    return value


def _seq_at(queue: Queue, timestamp: float) -> int:
    found = queue.view.seq_at(timestamp)
    if found is None:
        raise BadRequest(f"queue '{queue.name}' is of type {queue.type}, and only streams are read by time")
    return found


def _require_same(host: VirtualHost, queues: Iterable[str], body: dict[str, Any], identity: str | None) -> None:
    """Refuse if the body names a different broker or different queues.

    Raises:
        BadRequest: ``ids`` in the body is no object of whole numbers.
        Gone: the broker or a queue is a different one.
    """
    ids = body.get("ids", {})
    if not isinstance(ids, dict) or not all(requested.is_whole(id) for id in ids.values()):
        raise BadRequest(f"'ids' must be an object of whole numbers, not {str(ids)[:100]}")
    if body.get("identity") not in (None, identity):
        raise Gone("the numbers belong to another broker, or to this broker before the loss of its data directory")
    for name in queues:
        if ids.get(name) not in (None, host.declared[name].definition.identity):
            raise Gone(
                f"the numbers are of another queue '{name}' in vhost '{host.name}': it was deleted and declared again, "
                "or has moved"
            )


def _require_whole(queue: Queue, first: int, last: int) -> None:
    """Refuse unless a stream has all messages of a range.

    Raises:
        Gone: some of the messages are missing.
    """
    if not queue.append_only:
        raise BadRequest(f"queue '{queue.name}' is of type {queue.type}: reads may have gaps")
    lowest, highest = queue.view.ready_range()
    if first <= last and not (lowest <= first and last <= highest):
        raise Gone(
            f"stream '{queue.name}' in vhost '{queue.vhost}' has offsets {lowest} to {highest}, not {first} to {last}"
        )


def _timestamp(body: dict[str, Any]) -> float | None:
    value = body.get("timestamp")
    if value is None or requested.is_seconds(value):
        return value
    raise BadRequest(f"'timestamp' must be a number of seconds since the epoch, not {str(value)[:100]}")


ROUTES = [
    Endpoint("GET", "/api/queues/{vhost}/{queue}/messages", ready_messages, at_home=True),
    Endpoint("POST", "/api/messages/{vhost}", ready_slices),
    Endpoint("POST", "/api/ranges/{vhost}", ranges),
]
