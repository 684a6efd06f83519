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

    `reserved` messages are read and not yet acknowledged, `ready` ones not yet reserved: `ready_octets` are those of
    their bodies. `age` is that of the oldest reserved one, `lease_left` what is left of the lease; both are in seconds.
    `owner_epoch` is the number that the query's rows have in the column of that name.
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
            raise CommandError(f"there is no reader '{group}' in vhost '{session.vhost}'", os.EX_DATAERR) from None
        raise


VERBS = (list_readers, release_reader)
