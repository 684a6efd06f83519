"""Messages delayed by exchanges of type `x-delayed-message`: `list_delayed` and `cancel_delayed`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

COLUMNS = ["number", "due", "routing_key", "payload_bytes"]

AT_ONCE = 1000
"""Maximum number of messages per request."""

Name = Annotated[str, typer.Argument(metavar="EXCHANGE", help="name of an exchange of type x-delayed-message")]


def list_delayed(
    session: Session, exchange: Name, count: Annotated[int, typer.Option("--count", min=1, help="maximum number")] = 100
) -> None:
    """Lists messages delayed by an exchange, in the order of publishing."""
    session.inform(f"Listing delayed messages of exchange {exchange} in vhost {session.vhost} ...")
    queue, found, position = _queue(session, exchange), list[dict[str, Any]](), 1
    while len(found) < count:
        asked = {"count": str(min(AT_ONCE, count - len(found))), "truncate": "0", "from": str(position)}
        answer = session.api.get("queues", session.vhost, queue, "browse", **asked)
        found += answer["messages"]
        if answer["next"] is None:
            break
        position = answer["next"]
    rows = [[one["seq"], _time(one["due_at"]), one["routing_key"], one["payload_bytes"]] for one in found]
    session.table(COLUMNS, rows)


def cancel_delayed(
    session: Session,
    exchange: Name,
    numbers: Annotated[list[int] | None, typer.Argument(metavar="[NUMBER]...", help="numbers in list_delayed")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all messages of the exchange")] = False,
) -> None:
    """Deletes messages delayed by an exchange."""
    if everything == bool(numbers):
        raise CommandError("give numbers of messages, or --all", os.EX_USAGE)
    session.inform(f"Cancelling delayed messages of exchange {exchange} in vhost {session.vhost} ...")
    queue = _queue(session, exchange)
    if everything:
        session.api.delete("queues", session.vhost, queue, "contents")
        return
    absent = []
    for number in numbers or ():
        try:
            session.api.delete("queues", session.vhost, queue, "messages", str(number))
        except Refusal as refusal:
            if not refusal.is_absent:
                raise
            absent.append(str(number))
    if absent:
        raise CommandError(f"No delayed message has the number: {', '.join(absent)}", os.EX_DATAERR)


def _queue(session: Session, exchange: str) -> str:
    found = session.api.find("exchanges", session.vhost, exchange)
    if found is None:
        raise CommandError(f"Exchange '{exchange}' in vhost '{session.vhost}' not found", os.EX_DATAERR)
    if "delayed_queue" not in found:
        raise CommandError(f"Exchange '{exchange}' is of type {found['type']}, which delays nothing", os.EX_DATAERR)
    return str(found["delayed_queue"])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


VERBS = (list_delayed, cancel_delayed)
