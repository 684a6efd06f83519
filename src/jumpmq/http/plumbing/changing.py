"""Changes of definitions by requests: accepted, written to disk, then answered."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.upkeep import slices
from jumpmq.http.plumbing import requested
from jumpmq.topology import Change, ChangePrincipal, Pending
from jumpmq.topology.users import Operation


async def apply(request: Request, change: Change) -> None:
    """Apply a change with its consequences, and wait until the change is on disk.

    Raises:
        AMQPError: the user lacks a right, or the change is refused; nothing has changed.
    """
    broker = requested.broker(request)
    broker.authorization.require_change(requested.principal(request), change)
    with broker.turns.turn():
        pending = broker.topology.propose(change, change_principal(request), limited=True)
    await slices.decided(pending)
    pending.result()
    await broker.committed()


def change_principal(request: Request) -> ChangePrincipal:
    """Return the principal of a request, for the audit log."""
    address = request.client.host if request.client is not None else ""
    return ChangePrincipal(requested.principal(request).name, address=address)


async def in_turns(request: Request, steps: Iterator[Pending | None]) -> None:
    """Make changes step by step, with other clients served in between, and wait until all changes are on disk.

    Raises:
        AMQPError: raised by a step.
    """
    broker = requested.broker(request)
    await slices.in_turns(broker, steps)
    await broker.committed()


def check_permission(request: Request, vhost: str, operation: Operation, queue: str) -> None:
    """Refuse unless the user may configure, write or read a queue, as over AMQP.

    Raises:
        AccessRefused: the user lacks the permission.
    """
    requested.broker(request).authorization.require(requested.principal(request), vhost, operation, "queue", queue)


def may_read(request: Request, vhost: str, queue: str) -> bool:
    """Return True if the user may read a queue, as over AMQP."""
    try:
        check_permission(request, vhost, "read", queue)
    except AccessRefused:
        return False
    return True


def put_answer(existed: bool) -> Response:
    """Answer a ``PUT``: 201 for a new object, 204 for an existing one."""
    return Response(status_code=204 if existed else 201)


def deleted() -> Response:
    """Answer a ``DELETE``."""
    return Response(status_code=204)
