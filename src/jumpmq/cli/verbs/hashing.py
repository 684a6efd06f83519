"""How messages are spread: `consistent_hash_exchange_ring_state` and `shards`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.formatters import FormatterName, as_json_object
from jumpmq.cli.session import Session

Exchange = Annotated[str, typer.Argument(help="name of the exchange")]

SHARD_COLUMNS = ["name", "messages", "consumers", "share", "skew"]


def consistent_hash_exchange_ring_state(session: Session, exchange: Exchange) -> None:
    """Shows which queue has which bucket of a consistent hash exchange's ring; retired buckets are not listed."""
    session.inform(
        f"Inspecting consistent hashing ring state for exchange {exchange} in virtual host '{session.vhost}'..."
    )
    found = session.api.find("exchanges", session.vhost, exchange, "ring")
    if found is None:
        raise CommandError(
            f"Exchange '{exchange}' in virtual host '{session.vhost}' does not exist or is no consistent hash exchange",
            os.EX_DATAERR,
        )
    owners = _owners(found["destinations"])
    if session.formatter is FormatterName.json:
        typer.echo(as_json_object({str(bucket): owner for bucket, owner in owners}))
        return
    for bucket, owner in owners:
        typer.echo(f"Ring index: {bucket}, queue: '{owner}'")


def _owners(destinations: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """The buckets that work, in order, and the destination that has each."""
    return sorted(
        (bucket, one["destination"])
        for one in destinations
        for first, count in one["runs"]
        for bucket in range(first, first + count)
    )


def shards(session: Session, exchange: Exchange) -> None:
    """Lists the shards of an exchange; warns of messages without a consumer.

    The skew is a shard's messages in relation to an even share: 1 is even, 2 is twice as many.
    """
    session.inform(f"Listing shards of exchange {exchange} in vhost {session.vhost} ...")
    found = session.api.find("exchanges", session.vhost, exchange, "shards")
    if found is None:
        raise CommandError(f"Exchange '{exchange}' does not exist in virtual host '{session.vhost}'", os.EX_DATAERR)
    if not found:
        raise CommandError(f"Exchange '{exchange}' in virtual host '{session.vhost}' is not sharded", os.EX_DATAERR)
    session.table(SHARD_COLUMNS, [[shard[name] for name in SHARD_COLUMNS] for shard in found])
    for shard in found:
        if shard["messages"] and not shard["consumers"]:
            count = shard["messages"]
            typer.echo(f"Warning: shard '{shard['name']}' has {count} messages and no consumer", err=True)


VERBS = (consistent_hash_exchange_ring_state, shards)
