"""Browsing of a queue or stream: messages are neither consumed nor marked. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.bulk.searching import Search
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer_long
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.rendering import Rendered
from jumpmq.http.plumbing.wanted import WANTED, wanted_of
from jumpmq.http.schema.shapes import Shape, one_of, whole

DEFAULT_COUNT, MAX_COUNT = 50, 1000
"""Default and maximum number of messages in an answer."""

SHAPE = Shape(
    {
        **WANTED.keys,
        "count": whole(MAX_COUNT),
        "truncate": whole((1 << 63) - 1),
        "encoding": one_of("auto", "base64"),
    }
)


async def browse(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/browse?from=SEQ&key=KEY&header=NAME&value=VALUE&text=PART&count=50``: ready
    messages that meet all conditions, in order of their numbers.

    Nothing is consumed. ``value`` is the value of a ``header``, or of a ``property`` (``message_id``,
    ``correlation_id``, ``timestamp``). Further conditions are ``to``, and ``since`` in seconds since the epoch.
    ``truncate`` shortens payloads. A request searches a bounded number of messages, and the answer has a bounded number
    of octets: if ``next`` is not null, the next request continues ``from`` there. Messages delayed by an exchange have
    their time of delivery in ``due_at``, in seconds since the epoch.
    """
    queue = requested.unlocked_queue(request)
    check_permission(request, queue.vhost, "read", queue.name)
    query = dict[str, Any](request.query_params)
    if "since" in query:
        query["since"] = requested.seconds(request, "since")
    query = SHAPE.read(query)
    search = Search(requested.broker(request).slices, queue, wanted_of(queue, query))
    messages = Rendered(requested.broker(request).memory, query.get("encoding", "auto"), query.get("truncate"))
    with messages:
        async for message in search.found(query.get("count", DEFAULT_COUNT)):
            due = {"due_at": round(message.expires_at, 3)} if queue.is_internal else {}
            await messages.add(message, message.body, seq=message.seq, published_at=message.published_at or None, **due)
            if messages.is_full:
                search.stop()
    found, last = iter(messages.texts), queue.next_seq - 1
    return messages.sent_by(
        answer_long(request, {"messages": found, "next": search.next, "searched": search.searched, "last_seq": last})
    )


ROUTES = [Endpoint("GET", "/api/queues/{vhost}/{queue}/browse", browse, at_home=True)]
