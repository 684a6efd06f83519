"""The slots of a queue, and the reason why a message is not delivered. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.messages import Message
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.figures.values import UnitSupply
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer, answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.explained_messages import formatted, where_it_is
from jumpmq.queues import Queue
from jumpmq.queues.fences import Fence, FencedMessages
from jumpmq.queues.slot_states import SlotFigures, SlotState
from jumpmq.queues.slots import SlottedMessages


async def slots(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/slots``: the used slots, with messages, oldest message and state."""
    queue = requested.queue(request)
    found = [] if queue.slots is None else queue.slots.states.figures()
    return await answer_list(request, found, shown, ("slot",))


def shown(slot: SlotFigures) -> dict[str, Any]:
    """Return a slot as JSON; ``oldest_published_at`` is in seconds since the epoch, null if not in memory."""
    return {
        "slot": slot.slot,
        "state": slot.state.value,
        "messages_ready": slot.ready,
        "messages_unacknowledged": slot.unacknowledged,
        "oldest_published_at": slot.oldest,
    }


async def explain(request: Request) -> Response:
    """``GET /api/queues/{vhost}/{queue}/explain``: the reason why messages of the queue are not delivered; or the
    reason for one message by number (``?message=``), for a key (``?key=``), or for a slot (``?slot=``).
    """
    queue = requested.queue(request)
    if "message" in request.query_params:
        return await _explain_message(request, queue)
    key, number = requested.query_octets(request, "key"), request.query_params.get("slot")
    found: dict[str, Any] = {"vhost": queue.vhost, "name": queue.name}
    if key is not None:
        found["key"] = key.decode(errors="replace")
        if queue.fences is not None and (waits := queue.fences.waits_for(key)):
            return answer(found | {"reason": _fenced(waits)})
        if queue.retries is not None and (waits_for := queue.retries.resting.waiting_for(key)) is not None:
            first, due = waits_for
            return answer(found | {"reason": f"the key waits for a retry of message {first} at {formatted(due)}"})
    home = requested.broker(request).home_figures
    asks_of_all = number is None if key is None else queue.slots is None
    if asks_of_all:
        return answer(found | {"reason": _why_queue(home, queue) or "messages are being delivered"})
    if queue.slots is None:
        raise BadRequest(f"queue '{queue.name}' has no slots")
    slot = queue.slots.slot_of(key) if key is not None else requested.number(request, "slot")
    if slot >= queue.slots.slots:
        raise BadRequest(f"queue '{queue.name}' has slots 0 to {queue.slots.slots - 1}, not {slot}")
    figures = queue.slots.states.figures_of(slot)
    reason = _why_slot(home, queue, figures) or _in_turn(queue.slots, slot)
    return answer(found | shown(figures) | {"reason": reason})


async def _explain_message(request: Request, queue: Queue) -> Response:
    number = requested.number(request, "message")
    broker = requested.broker(request)
    reason = await where_it_is(broker, queue, number)
    if isinstance(reason, Message):
        reason = _why_ready(broker.home_figures, queue, reason)
    return answer({"vhost": queue.vhost, "name": queue.name, "message": number, "reason": reason})


def _why_ready(home: HomeFigures, queue: Queue, message: Message) -> str:
    """Explain why a ready message is not delivered."""
    if queue.slots is not None:
        figures = queue.slots.states.figures_of(message.slot)
        reason = _why_slot(home, queue, figures) or _in_turn(queue.slots, message.slot)
        return f"message {message.seq} is ready in slot {message.slot}: {reason}"
    first, _ = queue.view.ready_range()
    before = f"message {message.seq} is ready, behind at most {message.seq - first} other messages"
    return f"{before}: {_why_queue(home, queue) or 'messages are being delivered'}"


def _why_queue(home: HomeFigures, queue: Queue) -> str | None:
    """Explain why the queue delivers nothing; None if the queue delivers."""
    if not queue.ready_count:
        if not queue.unacknowledged_count:
            return "the queue is empty"
        if queue.retries is not None and (due := queue.retries.resting.next_due) is not None:
            count = len(queue.retries.resting.held)
            return f"nothing is ready: {count} messages wait for retries, the next of which is at {formatted(due)}"
        return f"nothing is ready, and {queue.unacknowledged_count} messages are unacknowledged"
    if queue.fences is not None and queue.fenced_count == queue.ready_count:
        return _why_fenced(queue.fences)
    if (supply := home.unit_supply(queue)) is not None:
        if queue.slots is None:
            return _why_unit(supply)
        reasons = [(one.slot, _why_slot(home, queue, one)) for one in queue.slots.states.figures() if one.ready]
        if any(reason is None for _, reason in reasons) or not reasons:
            return None
        slot, reason = reasons[0]
        return f"none of the queue's {len(reasons)} slots with ready messages can be served. Slot {slot}: {reason}"
    if (reason := _why_groups(home, queue)) is not None:
        return reason
    if (reason := _why_consumers(home, queue)) is not None:
        return reason
    if queue.slots is not None and not queue.slots.share:
        return "no slot with ready messages can be served: see the states of the slots"
    return None


def _why_fenced(fences: FencedMessages) -> str | None:
    """Explain why ordering barriers hold all ready messages; None if the barriers are about to open."""
    closed = [one for one in fences.figures() if one.held]
    if not closed:
        return None
    left = ", ".join(f"{one.remaining} messages of queue '{one.source}' ({one.held} wait)" for one in closed)
    return (
        f"all ready messages have keys that moved from other queues when exchange '{closed[0].exchange}' changed, and "
        f"wait until older messages there are settled: {left}"
    )


def _fenced(waits: list[Fence]) -> str:
    """Describe the barriers before a key's messages."""
    marks = {fence.mark.source: max(fence.mark.left, 0) for fence in waits}
    left = ", ".join(f"{count} messages of queue '{source}'" for source, count in marks.items())
    return (
        f"the key moved from another queue when exchange '{waits[-1].change.exchange}' changed: its messages wait "
        f"until older messages there are settled: {left}"
    )


def _why_groups(home: HomeFigures, queue: Queue) -> str | None:
    """Explain why a consumer group gets nothing from a stream; None if all groups with members get messages."""
    reasons = map(_why_unit, home.stream_supplies(queue))
    return next((reason for reason in reasons if reason is not None), None)


def _why_consumers(home: HomeFigures, queue: Queue) -> str | None:
    """Explain why no consumer of a queue without a consumer group is served; None if a consumer is served."""
    has_room = home.has_room(queue)
    if has_room is None:
        return "the queue has no consumer"
    if not has_room:
        return "no consumer has room: every prefetch is used up, or the client does not read from its connection"
    return None


def _why_slot(home: HomeFigures, queue: Queue, slot: SlotFigures) -> str | None:
    """Explain why a slot is not served; None if the slot waits only for its turn."""
    slots = queue.slots
    assert slots is not None
    if slot.state is SlotState.IDLE:
        return f"nothing is ready in slot {slot.slot}, and {slot.unacknowledged} of its messages are unacknowledged"
    if (supply := home.unit_supply(queue, slot.slot)) is not None:
        if slot.state is SlotState.BLOCKED and not supply.drains:
            return _blocked(slots, slot)
        if (reason := _why_unit(supply)) is not None:
            return reason
    elif slot.state is SlotState.BLOCKED:
        return _blocked(slots, slot)
    elif slot.state is SlotState.WITHHELD:
        return f"slot {slot.slot} is withheld until its unacknowledged messages ({slot.unacknowledged}) are settled"
    elif (reason := _why_consumers(home, queue)) is not None:
        return reason
    if slot.state is SlotState.READING:
        return f"the next message of slot {slot.slot} is being read from disk"
    return None


def _blocked(slots: SlottedMessages, slot: SlotFigures) -> str:
    return (
        f"slot {slot.slot} has {slot.unacknowledged} unacknowledged messages, and x-in-flight-per-slot is "
        f"{slots.limit}: the slot continues when a consumer acknowledges, rejects or returns a message"
    )


def _why_unit(supply: UnitSupply) -> str | None:
    """Explain why a consumer group gets nothing from a queue or slot; None if the group gets messages."""
    subject = f"consumer group '{supply.group}'"
    if supply.gathers:
        return f"{subject} waits a moment for more members before the first assignment"
    if supply.owner is None:
        return f"{subject} has no member for this queue or slot"
    owner = f"member '{supply.owner}' of {subject}"
    if supply.drained is not None:
        tag, connection, held, seconds = supply.drained
        return (
            f"this queue or slot passes to {owner}, once consumer '{tag}' of connection {connection} has settled "
            f"{held} messages; the consumer has received nothing more for {seconds:.0f} s"
        )
    if supply.away_for is not None:
        return f"{owner} is away, and keeps this queue or slot for another {supply.away_for:.0f} s"
    if not supply.has_room:
        return (
            f"{owner} has no room: the member holds {supply.unacknowledged} messages with a prefetch of "
            f"{supply.prefetch}, or does not read from its connection {supply.connection}"
        )
    return None


def _in_turn(slots: SlottedMessages, slot: int) -> str:
    return f"slot {slot} waits for its turn, behind {slots.states.before(slot)} other slots"


ROUTES = [
    Endpoint("GET", "/api/queues/{vhost}/{queue}/slots", slots, at_home=True),
    Endpoint("GET", "/api/queues/{vhost}/{queue}/explain", explain, at_home=True),
]
