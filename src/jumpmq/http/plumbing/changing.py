"""Changes of definitions that a request asks for: applied, on disk, then answered."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.upkeep import slices
from jumpmq.http.plumbing import requested
from jumpmq.topology.changes import Change
from jumpmq.topology.users import Operation


async def apply(request: Request, change: Change) -> None:
    """Make a change, with what follows from it, and wait until it is on disk.

    Raises:
        AMQPError: the user may not make it, or it is refused; nothing has changed.
    """
    requested.broker(request).authorization.require_change(requested.user(request).name, change)
    await in_turns(request, requested.broker(request).topology.make_in_steps(change))


async def in_turns(request: Request, steps: Iterator[None]) -> None:
    """Make changes step by step, let others be served between, and wait until all is on disk.

    Raises:
        AMQPError: as the steps do.
    """
    broker = requested.broker(request)
    await slices.in_turns(broker, steps)
    await broker.committed()


def check_permission(request: Request, vhost: str, operation: Operation, queue: str) -> None:
    """Refuse unless the user may configure, write or read a queue, as over AMQP.

    Raises:
        AccessRefused: the user may not.
    """
    requested.broker(request).authorization.require(requested.user(request).name, vhost, operation, "queue", queue)


def put_answer(existed: bool) -> Response:
    """What a ``PUT`` is answered: 201 where it made something, 204 where it was there."""
    return Response(status_code=204 if existed else 201)


def deleted() -> Response:
    """What a ``DELETE`` is answered."""
    return Response(status_code=204)
