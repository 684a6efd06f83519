"""Verbs that list objects by columns: queues, exchanges, bindings, connections, channels, consumers, vhosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from jumpmq.cli.columns import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, QUEUES, VHOSTS, Listing
from jumpmq.cli.errors import UsageError
from jumpmq.cli.session import Session

Verb = Callable[..., None]
Wanted = Callable[[dict[str, Any]], bool]
Columns = Annotated[list[str] | None, typer.Argument(metavar="COLUMN")]


def _listing(listing: Listing) -> Verb:
    """Return the verb `list_*` of a kind of object."""

    def list_objects(session: Session, columns: Columns = None) -> None:
        _list(session, listing, columns)

    list_objects.__name__ = f"list_{listing.kind}"
    columns = f"Columns: {', '.join(sorted(listing.columns))}. By default: {', '.join(listing.default)}."
    list_objects.__doc__ = f"{listing.purpose}\n\n{columns}"
    return list_objects


def _list(session: Session, listing: Listing, columns: list[str] | None, wanted: Wanted | None = None) -> None:
    names = listing.choose(columns or [])
    session.inform(listing.banner.format(vhost=session.vhost))
    found = session.in_vhost(listing.kind) if listing.is_of_vhost else session.api.get(listing.kind)
    session.table(names, listing.rows([one for one in found if wanted is None or wanted(one)], names))


def list_queues(
    session: Session,
    columns: Columns = None,
    online: Annotated[bool, typer.Option("--online", help="objects of running nodes")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="objects of stopped nodes")] = False,
    local: Annotated[bool, typer.Option("--local", help="objects of this node")] = False,
) -> None:
    if offline and (online or local):
        raise UsageError("--offline goes with neither --online nor --local")
    node = session.node_name if local else None

    def wanted(queue: dict[str, Any]) -> bool:
        is_down = queue["state"] == "down"
        is_left_out = (online and is_down) or (offline and not is_down)
        return not is_left_out and node in (None, queue["node"])

    _list(session, QUEUES, columns, wanted)


list_queues.__doc__ = _listing(QUEUES).__doc__

VERBS = (list_queues, *map(_listing, (EXCHANGES, BINDINGS, CONNECTIONS, CHANNELS, CONSUMERS, VHOSTS)))
