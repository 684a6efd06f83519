"""Cancelling of messages delayed by an exchange. JumpMQ's own. Browsing and purging of the exchange's queue use the
endpoints of queues.
"""

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
    """``DELETE /api/queues/{vhost}/{queue}/messages/{number}``: discard a message delayed by an exchange.

    The queue is the exchange's ``delayed_queue``. The answer is 404 if the message is already due, or was cancelled.
    """
    queue = requested.unlocked_queue(request)
    changing.check_permission(request, queue.vhost, "read", queue.name)
    if queue.type != DelayedQueue.type:
        raise PreconditionFailed(f"queue '{queue.name}' in vhost '{queue.vhost}' is not a delaying exchange's queue")
    text, broker, taken = requested.name(request, "number"), requested.broker(request), list[Message]()
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadRequest(f"the number of a message must be a whole number, not '{text}'")
    with broker.turns.turn():
        taken = queue.take_range(int(text), int(text), 1)
        queue.settle(taken, Outcome.ACKNOWLEDGED, Held.RESERVED)
    if not taken:
        raise NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' has no message {text}")
    await broker.committed()
    return changing.deleted()


ROUTES = [Endpoint("DELETE", "/api/queues/{vhost}/{queue}/messages/{number}", cancel, at_home=True)]
