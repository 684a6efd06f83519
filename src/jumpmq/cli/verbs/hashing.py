"""Distribution of messages: `consistent_hash_exchange_ring_state` and `shards`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.formatters import FormatterName, as_json_object
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo
from jumpmq.management import Refusal

Exchange = Annotated[str, typer.Argument(help="name of the exchange")]

SHARD_COLUMNS = ["name", "messages", "consumers", "share", "skew", "node"]


def consistent_hash_exchange_ring_state(session: Session, exchange: Exchange) -> None:
    """Shows the owners of the buckets of a consistent hash exchange's ring; retired buckets are not listed."""
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
        echo(as_json_object({str(bucket): owner for bucket, owner in owners}))
        return
    for bucket, owner in owners:
        echo(f"Ring index: {bucket}, queue: '{owner}'")


def _owners(destinations: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return the working buckets in order, with their destinations."""
    return sorted(
        (bucket, one["destination"])
        for one in destinations
        for first, count in one["runs"]
        for bucket in range(first, first + count)
    )


def shards(session: Session, exchange: Exchange) -> None:
    """Lists the shards of an exchange; warns of messages without a consumer.

    The skew is the ratio of a shard's messages to an even share: 1 is even, 2 is twice as many.
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
            echo(f"Warning: shard '{shard['name']}' has {count} messages and no consumer", err=True)


def explain_key(
    session: Session,
    exchange: Exchange,
    key: Annotated[str, typer.Argument(help="value hashed by the exchange: a routing key, or the value of a header")],
    destinations: Annotated[
        int | None, typer.Option(min=0, max=1000, help="also show the key's place among so many destinations")
    ] = None,
) -> None:
    """Shows the route of a key: hash, bucket, queue, node, consumers, waiting messages and the reason."""
    session.inform(f"Following key '{key}' from exchange {exchange} in vhost {session.vhost} ...")
    query = {"key": key} | ({} if destinations is None else {"destinations": str(destinations)})
    try:
        found = session.api.get("exchanges", session.vhost, exchange, "key", **query)
    except Refusal as refusal:
        if refusal.code != 404:
            raise
        where = f"in virtual host '{session.vhost}' does not exist or hashes no keys"
        raise CommandError(f"Exchange '{exchange}' {where}", os.EX_DATAERR) from None
    if session.formatter is FormatterName.json:
        echo(as_json_object(found))
        return
    for line in _followed(session, found):
        echo(line)


def _followed(session: Session, found: dict[str, Any]) -> Iterator[str]:
    for hop in found["hops"]:
        where = hop["destination"] or "nothing: no queue is bound"
        retired = " (retired)" if hop["retired"] else ""
        yield f"{hop['hashed']} '{found['key']}' has hash {hop['hash']}"
        yield f"bucket {hop['bucket']} of {hop['buckets']}{retired} of exchange '{hop['exchange']}' leads to {where}"
    queue = found["queue"]
    if queue is not None:
        worker = f", worker {queue['worker']}" if queue["workers"] > 1 else ""
        yield f"queue '{queue['name']}' is at {queue['node']}{worker}, {queue['state']}"
        if queue["state"] != "down":
            yield f"{queue['messages_ready']} messages ready, {queue['messages_unacknowledged']} unacknowledged"
            explained = session.api.get("queues", session.vhost, queue["name"], "explain")
            yield f"deliveries: {explained['reason']}"
        for one in queue["consumer_details"]:
            yield f"consumer '{one['consumer_tag']}' of {_client(one)}"
        for one in queue["readers"]:
            yield f"reader group '{one['group']}', {one['behind']} messages behind"
    if found["traffic"] is not None:
        yield f"{100 * found['traffic']['share']:.1f} % of the messages of the last minutes"
    if found["then"] is not None:
        yield f"with {found['then']['destinations']} destinations the key would go to {found['then']['destination']}"


def _client(consumer: dict[str, Any]) -> str:
    channel = consumer["channel_details"]
    return channel.get("user_provided_name") or channel.get("name") or "the broker itself"


VERBS = (consistent_hash_exchange_ring_state, explain_key, shards)
