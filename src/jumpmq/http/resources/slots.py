"""The slots of a queue at a glance, and why a message is not delivered. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer, answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.queues import Queue
from jumpmq.queues.slots import SlotFigures, SlotState, SlottedMessages


async def slots(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/slots``: messages of each slot in use, the oldest, and whether it is served."""
    queue = requested.queue(request)
    found = [] if queue.slots is None else queue.slots.figures()
    return await answer_list(request, found, shown, ("slot",))


def shown(slot: SlotFigures) -> dict[str, Any]:
    """A slot as JSON; ``oldest_published_at`` is in seconds since the epoch, null where it is not in memory."""
    return {
        "slot": slot.slot,
        "state": slot.state.value,
        "messages_ready": slot.ready,
        "messages_unacknowledged": slot.unacknowledged,
        "oldest_published_at": slot.oldest,
    }


async def explain(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/explain``: why messages are not delivered, of the queue, or, where it has
    slots, of a key (``?key=``) or a slot (``?slot=``).
    """
    queue = requested.queue(request)
    key, number = request.query_params.get("key"), request.query_params.get("slot")
    found: dict[str, Any] = {"vhost": queue.vhost, "name": queue.name}
    if key is None and number is None:
        return answer(found | {"reason": _why_queue(queue) or "messages are being delivered"})
    if queue.slots is None:
        raise BadRequest(f"queue '{queue.name}' has no slots: only the queue as a whole can be asked about")
    slot = queue.slots.slot_of(key.encode()) if key is not None else requested.number(request, "slot")
    if slot >= queue.slots.slots:
        raise BadRequest(f"queue '{queue.name}' has slots 0 to {queue.slots.slots - 1}, not {slot}")
    figures = queue.slots.figures_of(slot)
    reason = _why_slot(queue.slots, figures) or _why_queue(queue) or _in_turn(queue.slots, slot)
    return answer(found | ({} if key is None else {"key": key}) | shown(figures) | {"reason": reason})


def _why_queue(queue: Queue) -> str | None:
    """Why the queue delivers nothing, as far as it is not for its slots; None where it delivers."""
    if not queue.ready_count:
        return f"nothing is ready, and {queue.unacknowledged_count} messages are unacknowledged"
    if not queue.consumers:
        return "the queue has no consumer"
    served = queue.consumers if queue.active_consumer is None else [queue.active_consumer]
    if not any(consumer.capacity() > 0 for consumer in served):
        return "no consumer has room: each holds as much as its prefetch allows, or does not read from its connection"
    if queue.slots is not None and not queue.slots.share:
        return "no slot with ready messages can be served: see the states of the slots"
    return None


def _why_slot(slots: SlottedMessages, slot: SlotFigures) -> str | None:
    """Why a slot is not served, as far as it is for the slot."""
    if slot.state is SlotState.IDLE:
        return f"nothing is ready in slot {slot.slot}, and {slot.unacknowledged} of its messages are unacknowledged"
    if slot.state is SlotState.BLOCKED:
        return (
            f"slot {slot.slot} has {slot.unacknowledged} unacknowledged messages, and x-in-flight-per-slot is "
            f"{slots.limit}: it goes on when a consumer acknowledges, rejects or returns one"
        )
    if slot.state is SlotState.WITHHELD:
        return f"slot {slot.slot} is withheld until its unacknowledged messages ({slot.unacknowledged}) are settled"
    if slot.state is SlotState.READING:
        return f"what is next in slot {slot.slot} is being read from disk"
    return None


def _in_turn(slots: SlottedMessages, slot: int) -> str:
    return f"slot {slot} waits for its turn, behind {slots.before(slot)} other slots"


ROUTES = [
    Endpoint("GET", "/api/queues/{vhost}/{queue}/slots", slots, at_home=True),
    Endpoint("GET", "/api/queues/{vhost}/{queue}/explain", explain, at_home=True),
]
