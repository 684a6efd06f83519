"""`purge_queue` and `delete_queue`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

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


VERBS = (purge_queue, delete_queue)
