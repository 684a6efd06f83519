"""Ordering barriers after a change of a ring: `list_fences` and `lift_fence`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

COLUMNS = ["queue", "source", "exchange", "remaining", "messages_held", "seconds"]


def list_fences(session: Session) -> None:
    """Lists the queues of a virtual host whose messages wait for an older queue.

    A change of an exchange's ring moves keys to another queue, while older messages of the keys are still in their
    former queue, the `source`. New messages of these keys wait (`messages_held`) until the older messages in the source
    are settled (`remaining`).
    """
    session.inform(f"Listing fences for vhost {session.vhost} ...")
    found = session.in_vhost("fences")
    session.table(COLUMNS, [[one[name] for name in COLUMNS] for one in found])


def lift_fence(
    session: Session,
    queue: Annotated[str, typer.Argument(help="queue with waiting messages")],
    source: Annotated[str, typer.Argument(help="queue awaited by the messages")],
) -> None:
    """Releases the messages of a queue that wait for an older queue.

    The messages are then delivered before, or at the same time as, the older messages of their keys in the other
    queue.
    """
    session.inform(f"Lifting the fence of queue {queue} for queue {source} in vhost {session.vhost} ...")
    try:
        session.api.delete("fences", session.vhost, queue, source)
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError(refusal.reason, os.EX_DATAERR) from None
        raise


VERBS = (list_fences, lift_fence)
