"""Cancels a message that an exchange delays. JumpMQ's own; the exchange's queue is looked at and purged as any is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.queues import Outcome
from jumpmq.queues.delayed import DelayedQueue
from jumpmq.queues.memory import Held


async def cancel(request: Request) -> Response:
    """``DELETE /api/queues/{vhost}/{queue}/messages/{number}``: throw away a message that an exchange delays.

    The queue is the exchange's ``delayed_queue``. A message that is due by now, or was cancelled, is a 404.
    """
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    if queue.type != DelayedQueue.type:
        raise PreconditionFailed(f"queue '{queue.name}' in vhost '{queue.vhost}' has nothing that an exchange delays")
    text, broker, taken = requested.name(request, "number"), requested.broker(request), list[Message]()
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadRequest(f"the number of a message is a whole number, not '{text}'")
    with broker.turns.turn():
        taken = queue.take_range(int(text), int(text), 1)
        queue.settle(taken, Outcome.ACKNOWLEDGED, Held.RESERVED)
    if not taken:
        raise NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' has no message {text}")
    await broker.committed()
    return changing.deleted()


ROUTES = [Endpoint("DELETE", "/api/queues/{vhost}/{queue}/messages/{number}", cancel, at_home=True)]
