"""`purge_queue`, `delete_queue`, `retry_now`, `move_queue`, `move_messages`, `list_slots` and `explain`."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError, NoQueue, counted
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo
from jumpmq.management import Refusal

SLOT_COLUMNS = ["slot", "state", "messages_ready", "messages_unacknowledged", "oldest_published_at"]

LOOK = 0.2
"""Interval of polling a move, in seconds."""

MOVED_AT_ONCE = 10_000
"""Number of messages moved per request, and so per line of progress."""

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="name of the queue")]


def purge_queue(session: Session, queue: Name) -> None:
    """Removes all ready messages from a queue."""
    session.inform(f"Purging queue '{queue}' in vhost '{session.vhost}' ...")
    try:
        session.api.delete("queues", session.vhost, queue, "contents")
    except Refusal as refusal:
        if refusal.is_absent:
            raise NoQueue from None
        raise


def retry_now(session: Session, queue: Name) -> None:
    """Lets resting messages of a queue be retried now.

    Resting messages are returned messages of a queue with `x-delayed-retry-type`, and messages that wait for a returned
    message of the same key.
    """
    session.inform(f"Retrying messages of queue '{queue}' in vhost '{session.vhost}' ...")
    try:
        answer = session.api.post("queues", session.vhost, queue, "retries", body={})
    except Refusal as refusal:
        if refusal.is_absent:
            raise NoQueue from None
        raise
    session.inform(f"{counted(answer['messages'], 'message')} released for a retry")


def delete_queue(
    session: Session,
    queue: Name,
    if_empty: Annotated[bool, typer.Option("--if-empty", "-e", help="only without ready messages")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", "-u", help="only without consumers")] = False,
) -> None:
    """Deletes a queue and all messages."""
    conditions = [text for asked, text in ((if_empty, "queue is empty"), (if_unused, "queue is unused")) if asked]
    condition = f" if {' and '.join(conditions)}" if conditions else ""
    session.inform(f"Deleting queue '{queue}' on vhost '{session.vhost}'{condition} ...")
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise CommandError("Queue not found", os.EX_USAGE)
    flags = {True: "true", False: "false"}
    try:
        session.api.delete("queues", session.vhost, queue, if_empty=flags[if_empty], if_unused=flags[if_unused])
    except Refusal as refusal:
        for words in ("in use", "not empty"):
            if words in str(refusal):
                raise CommandError(f"Queue is {words}", os.EX_USAGE) from None
        raise
    session.inform(f"Queue was successfully deleted with {found.get('messages_ready', 0)} ready messages")


def move_queue(
    session: Session,
    queue: Name,
    to: Annotated[
        str | None, typer.Option("--to", help="name of a node; by default the node with fewest queues")
    ] = None,
    home: Annotated[int | None, typer.Option("--home", min=1, help="number of a worker, or of a node's home")] = None,
) -> None:
    """Moves a queue to a different node or worker, and waits until the messages have moved.

    The queue's consumers are cancelled; messages that they do not settle within five seconds are delivered again.
    Messages published during the move come after the messages in the queue. Ctrl-C ends the waiting only.
    """
    if to is not None and home is not None:
        raise CommandError("give --to or --home, not both", os.EX_USAGE)
    session.inform(f"Moving queue '{queue}' in vhost '{session.vhost}' ...")
    if session.api.find("queues", session.vhost, queue) is None:
        raise CommandError("Queue not found", os.EX_USAGE)
    target = {name: value for name, value in (("node", to), ("home", home)) if value is not None}
    session.api.post("queues", session.vhost, queue, "actions", body={"action": "move", **target})
    while True:
        found = session.api.get("queues", session.vhost, queue)
        if "moving_from" not in found and "moving_to" not in found:
            break
        time.sleep(LOOK)
    if (reason := found.get("move_failed")) is not None:
        raise CommandError(f"Queue '{queue}' stays on node {found['node']}: the queue could not be moved {reason}")
    worker = f", at home {found['home']}" if home is not None else ""
    session.say(f"Queue '{queue}' is on node {found['node']}{worker}")


def move_messages(
    session: Session,
    queue: Name,
    to_queue: Annotated[str | None, typer.Option("--to-queue", help="name of a queue")] = None,
    to_exchange: Annotated[str | None, typer.Option("--to-exchange", help="name of an exchange")] = None,
    routing_key: Annotated[
        str | None, typer.Option("--routing-key", help="routing key for the exchange; by default each message's own")
    ] = None,
    to_origin: Annotated[
        bool, typer.Option("--to-origin", help="return each dead-lettered message to the queue of its last death")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="maximum number; by default all ready messages")
    ] = None,
) -> None:
    """Publishes the ready messages of a queue to a different queue or an exchange, from the front, and removes them.

    Messages that no queue accepts stay in place. A kill of any process loses no message.
    """
    target = {"queue": to_queue, "exchange": to_exchange, "routing_key": routing_key, "origin": to_origin or None}
    asked = {key: value for key, value in target.items() if value is not None}
    if len(asked.keys() - {"routing_key"}) != 1:
        raise CommandError("give one of --to-queue, --to-exchange and --to-origin", os.EX_USAGE)
    if "routing_key" in asked and to_exchange is None:
        raise CommandError("--routing-key is for --to-exchange", os.EX_USAGE)
    session.inform(f"Moving messages of queue '{queue}' in vhost '{session.vhost}' ...")
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise CommandError("Queue not found", os.EX_USAGE)
    left = found["messages_ready"] if count is None else count
    moved, kept = 0, dict[str, int]()
    while left > 0 and not kept:
        some = min(left, MOVED_AT_ONCE)
        body = session.api.post("queues", session.vhost, queue, "contents", "move", body=asked | {"count": some})
        moved, kept, left = moved + body["moved"], body["kept"], left - some
        session.inform(f"{moved} messages moved")
        if body["moved"] < some:
            break
    for reason, number in kept.items():
        session.say(f"{number} messages stay: {reason}")
    session.say(f"{moved} messages moved")
    if kept:
        raise typer.Exit(os.EX_UNAVAILABLE)


def list_slots(session: Session, queue: Name) -> None:
    """Lists the non-empty slots of a queue.

    A slot is idle (no ready message), blocked (it has as many unacknowledged messages as `x-in-flight-per-slot`
    allows), withheld (until its unacknowledged messages are settled), reading (from disk) or waiting for its turn.
    """
    session.inform(f"Listing slots of queue {queue} in vhost {session.vhost} ...")
    _require_slots(session, queue)
    found = session.api.get("queues", session.vhost, queue, "slots")
    session.table(SLOT_COLUMNS, [[slot[name] for name in SLOT_COLUMNS] for slot in found])


def explain(
    session: Session,
    queue: Name,
    key: Annotated[str | None, typer.Option("--key", help="key of messages, as defined by x-slot-key")] = None,
    slot: Annotated[int | None, typer.Option("--slot", min=0, help="number of a slot")] = None,
    message: Annotated[
        int | None, typer.Option("--message", min=0, help="number of a message in the queue, or its offset in a stream")
    ] = None,
) -> None:
    """Explains why messages of a queue, key or slot, or a single message, are not delivered."""
    if sum(one is not None for one in (key, slot, message)) > 1:
        raise CommandError("give one of a key, a slot and a message", os.EX_USAGE)
    if slot is not None:
        _require_slots(session, queue)
    asked = {
        name: str(value) for name, value in (("key", key), ("slot", slot), ("message", message)) if value is not None
    }
    session.inform(f"Explaining queue {queue} in vhost {session.vhost} ...")
    try:
        found = session.api.get("queues", session.vhost, queue, "explain", **asked)
    except Refusal as refusal:
        if refusal.is_absent:
            raise NoQueue from None
        raise
    echo(found["reason"])


def _require_slots(session: Session, queue: str) -> None:
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise NoQueue
    if "x-slots" not in found["arguments"]:
        raise CommandError(f"Queue '{queue}' in vhost '{session.vhost}' has no slots", os.EX_DATAERR)


VERBS = (purge_queue, delete_queue, retry_now, move_queue, move_messages, list_slots, explain)
