"""Reader groups, such as Spark queries: `list_readers`, `release_reader`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

COLUMNS = ["name", "queue", "query", "alive", "reserved", "ready", "ready_octets", "age", "lease_left", "owner_epoch"]


def list_readers(session: Session) -> None:
    """Lists the groups of readers of a virtual host, a row a queue.

    `reserved` messages are read and not acknowledged yet; `ready` messages are not reserved yet, and `ready_octets` are
    the octets of their bodies. `age` is the age of the oldest reserved message, `lease_left` the rest of the lease,
    both in seconds. `owner_epoch` is the value of that column in the query's rows.
    """
    session.inform(f"Listing readers for vhost {session.vhost} ...")
    session.check_vhost()
    found = [one for one in session.api.get("readers") if one["vhost"] == session.vhost]
    session.table(COLUMNS, [[one[name] for name in COLUMNS] for one in found])


def release_reader(session: Session, group: Annotated[str, typer.Argument(help="name of the group")]) -> None:
    """Returns a reader group's reserved messages to the queues, and deletes the group."""
    session.inform(f"Releasing reader {group} in vhost {session.vhost} ...")
    session.check_vhost()
    try:
        session.api.delete("readers", session.vhost, group)
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError(f"no reader group '{group}' in vhost '{session.vhost}'", os.EX_DATAERR) from None
        raise


VERBS = (list_readers, release_reader)
