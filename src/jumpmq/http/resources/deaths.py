"""Causes of dead-lettering in a queue, summed over the ``x-death`` headers. JumpMQ's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.bulk.searching import Search
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.changing import check_permission
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.wanted import wanted_of

MOST = 20_000
"""Maximum number of messages counted per request."""

LONGEST = 255
"""Maximum length of a shown name or reason, in characters: any client may write the header ``x-death``."""

SHOWN = 100
"""Maximum number of pairs of reason and queue in an answer, most frequent first."""


async def deaths(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/deaths``: numbers of the first ready messages by the queue and reason of their
    last death.

    The answer is ``{"deaths": [{"reason", "queue", "exchange", "messages"}, ...], "letters": COUNT, "searched": COUNT,
    "whole": true}``. With ``whole`` false, the queue has more messages than a request counts. Nothing is consumed.
    """
    queue = requested.unlocked_queue(request)
    check_permission(request, queue.vhost, "read", queue.name)
    search = Search(requested.broker(request).slices, queue, wanted_of(queue, {}))
    counts = Counter[tuple[str, str, str]]()
    async for message in search.found(MOST):
        if (died := _last_death(message)) is not None:
            counts[died] += 1
    shown = [
        {"reason": reason, "queue": name, "exchange": exchange, "messages": count}
        for (reason, name, exchange), count in counts.most_common(SHOWN)
    ]
    whole = search.next is None
    return answer({"deaths": shown, "letters": counts.total(), "searched": search.searched, "whole": whole})


def _last_death(message: Message) -> tuple[str, str, str] | None:
    """Return reason, queue and exchange of a message's last death; None without one."""
    if b"x-death" not in message.properties:
        return None  # most messages have no such header, and parsing all properties takes longer
    entries: Any = to_python(Properties.parse(message.properties).headers or []).get("x-death")
    last = entries[0] if isinstance(entries, list) and entries else None
    if not isinstance(last, dict):
        return None
    reason, queue, exchange = (_text(last.get(name)) for name in ("reason", "queue", "exchange"))
    return reason, queue, exchange


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return text[:LONGEST]


ROUTES = [Endpoint("GET", "/api/queues/{vhost}/{queue}/deaths", deaths, at_home=True)]
