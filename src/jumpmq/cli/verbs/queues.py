"""`purge_queue`, `delete_queue`, `move_queue`, `list_slots` and `explain`."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

SLOT_COLUMNS = ["slot", "state", "messages_ready", "messages_unacknowledged", "oldest_published_at"]

LOOK = 0.2
"""Seconds until it is asked again whether a move is over."""

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="name of the queue")]


def purge_queue(session: Session, queue: Name) -> None:
    """Removes all ready messages from a queue."""
    session.inform(f"Purging queue '{queue}' in vhost '{session.vhost}' ...")
    try:
        session.api.delete("queues", session.vhost, queue, "contents")
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError("not_found") from None
        raise


def delete_queue(
    session: Session,
    queue: Name,
    if_empty: Annotated[bool, typer.Option("--if-empty", "-e", help="only if it has no ready messages")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", "-u", help="only if it has no consumers")] = False,
) -> None:
    """Deletes a queue with the messages in it."""
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
    to: Annotated[str | None, typer.Option("--to", help="name of a node; else that with the fewest queues")] = None,
    home: Annotated[int | None, typer.Option("--home", min=1, help="number of a worker, or of a node's home")] = None,
) -> None:
    """Moves a queue to another node or worker, and waits until its messages are there.

    Its consumers are cancelled; what they hold and do not settle within five seconds is delivered again. What is
    published meanwhile is behind what was in the queue. Ctrl-C ends the waiting only.
    """
    if to is not None and home is not None:
        raise CommandError("give --to or --home, not both", os.EX_USAGE)
    session.inform(f"Moving queue '{queue}' in vhost '{session.vhost}' ...")
    if session.api.find("queues", session.vhost, queue) is None:
        raise CommandError("Queue not found", os.EX_USAGE)
    target = {name: value for name, value in (("node", to), ("home", home)) if value is not None}
    session.api.post("queues", session.vhost, queue, "actions", body={"action": "move", **target})
    while (found := session.api.get("queues", session.vhost, queue)).get("moving_from"):
        time.sleep(LOOK)
    session.say(f"Queue '{queue}' is on node {found['node']}")


def list_slots(session: Session, queue: Name) -> None:
    """Lists the slots of a queue that have messages.

    A slot is idle (nothing is ready), blocked (as many unacknowledged messages as `x-in-flight-per-slot` allows),
    withheld (until its unacknowledged messages are settled), reading (from disk) or waiting for its turn.
    """
    session.inform(f"Listing slots of queue {queue} in vhost {session.vhost} ...")
    _require_slots(session, queue)
    found = session.api.get("queues", session.vhost, queue, "slots")
    session.table(SLOT_COLUMNS, [[slot[name] for name in SLOT_COLUMNS] for slot in found])


def explain(
    session: Session,
    queue: Name,
    key: Annotated[str | None, typer.Option("--key", help="of messages; what x-slot-key says is their key")] = None,
    slot: Annotated[int | None, typer.Option("--slot", min=0, help="number of a slot")] = None,
) -> None:
    """Says why messages of a queue, or of a key or slot of it, are not delivered."""
    if key is not None and slot is not None:
        raise CommandError("give a key or a slot, not both", os.EX_USAGE)
    if key is not None or slot is not None:
        _require_slots(session, queue)
    asked = {name: str(value) for name, value in (("key", key), ("slot", slot)) if value is not None}
    session.inform(f"Explaining queue {queue} in vhost {session.vhost} ...")
    try:
        found = session.api.get("queues", session.vhost, queue, "explain", **asked)
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError("not_found") from None
        raise
    typer.echo(found["reason"])


def _require_slots(session: Session, queue: str) -> None:
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise CommandError("not_found")
    if "x-slots" not in found["arguments"]:
        raise CommandError(f"Queue '{queue}' in vhost '{session.vhost}' has no slots", os.EX_DATAERR)


VERBS = (purge_queue, delete_queue, move_queue, list_slots, explain)
