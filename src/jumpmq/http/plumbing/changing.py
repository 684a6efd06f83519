"""Changes of definitions that a request asks for: applied, on disk, then answered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.topology.changes import Change, R
from jumpmq.topology.users import Operation


async def apply(request: Request, change: Change[R]) -> R:
    """Apply a change and wait until it is on disk.

    Raises:
        AMQPError: it is refused, and nothing has changed.
    """
    broker = requested.broker(request)
    result = broker.topology.apply(change)
    await broker.committed()
    return result


def check_permission(request: Request, vhost: str, kind: Operation, name: str) -> None:
    """Refuse unless the user may configure, write or read a queue or exchange, as over AMQP.

    Raises:
        AccessRefused: the user may not.
    """
    requested.broker(request).authorization.require(requested.user(request).name, vhost, kind, name)


def put_answer(existed: bool) -> Response:
    """What a ``PUT`` is answered: 201 where it made something, 204 where it was there."""
    return Response(status_code=204 if existed else 201)


def deleted() -> Response:
    """What a ``DELETE`` is answered."""
    return Response(status_code=204)
