"""The verbs that list objects by columns: queues, exchanges, bindings, connections, channels, consumers, vhosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from jumpmq.cli.columns import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, QUEUES, VHOSTS, Listing
from jumpmq.cli.session import Session

Verb = Callable[..., None]


def _listing(listing: Listing) -> Verb:
    """The verb `list_*` of one kind of object."""

    def list_objects(
        session: Session, columns: Annotated[list[str] | None, typer.Argument(metavar="COLUMN")] = None
    ) -> None:
        names = listing.choose(columns or [])
        session.inform(listing.banner.format(vhost=session.vhost))
        found = session.in_vhost(listing.kind) if listing.is_of_vhost else session.api.get(listing.kind)
        session.table(names, listing.rows(found, names))

    list_objects.__name__ = f"list_{listing.kind}"
    columns = f"Columns: {', '.join(sorted(listing.columns))}. By default: {', '.join(listing.default)}."
    list_objects.__doc__ = f"{listing.purpose}\n\n{columns}"
    return list_objects


VERBS = tuple(map(_listing, (QUEUES, EXCHANGES, BINDINGS, CONNECTIONS, CHANNELS, CONSUMERS, VHOSTS)))
