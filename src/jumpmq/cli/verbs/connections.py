"""`close_connection`, `close_all_connections`, `close_all_user_connections`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

Reason = Annotated[str, typer.Argument(metavar="EXPLANATION", help="reason for the client")]


def close_connection(
    session: Session,
    connection: Annotated[str, typer.Argument(help="name of the connection: `name` or `pid` in list_connections")],
    explanation: Reason,
) -> None:
    """Closes a client's connection."""
    session.inform(f"Closing connection {connection}, reason: {explanation}...")
    if not _close(session, connection, session.node, explanation):
        raise CommandError(f"connection {connection} does not exist")


def close_all_connections(
    session: Session,
    explanation: Reason,
    everywhere: Annotated[bool, typer.Option("--global", help="connections of all virtual hosts")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="maximum number; 0 for all")] = 0,
    delay: Annotated[
        int, typer.Option("--per-connection-delay", min=0, help="milliseconds between two connections")
    ] = 0,
) -> None:
    """Closes all connections to a virtual host, or to the broker."""
    where = f"to {session.api.address} (across all vhosts)" if everywhere else f"in vhost {session.vhost}"
    session.inform(f"Closing all connections {where}, reason: {explanation}...")
    found = [one for one in session.api.get("connections") if everywhere or one.get("vhost") == session.vhost]
    closed = 0
    for one in found[: limit or None]:
        closed += _close(session, one["name"], one["node"], explanation)
        time.sleep(delay / 1000)
    session.inform(f"Closed {closed} connections")


def close_all_user_connections(
    session: Session, username: Annotated[str, typer.Argument(help="name of the user")], explanation: Reason
) -> None:
    """Closes all connections of a user."""
    session.inform(f"Closing connections of user {username}, reason: {explanation}...")
    session.api.delete("connections", "username", username, headers=_reason_header(explanation))


def _close(session: Session, name: str, node: str | None, reason: str) -> bool:
    """Close a connection, optionally of a given node; return False if it no longer exists."""
    where = {} if node is None else {"node": node}
    try:
        session.api.delete("connections", name, headers=_reason_header(reason), **where)
    except Refusal as refusal:
        if refusal.code == 404:
            return False
        raise
    return True


def _reason_header(reason: str) -> dict[str, str]:
    """Return the header with the reason for clients."""
    line = " ".join(reason.split())  # a header is one line
    return {"X-Reason": line.encode(errors="replace").decode("latin-1")}


VERBS = (close_connection, close_all_connections, close_all_user_connections)
