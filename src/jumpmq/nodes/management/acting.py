"""Actions requested by a home from all peers."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from jumpmq.broker.errors import HomeUnreachable
from jumpmq.broker.figures.plain import dump
from jumpmq.nodes.management.client import HomeClient
from jumpmq.nodes.other_homes import OtherHomes

if TYPE_CHECKING:
    from jumpmq.broker import Broker

PATH = "/home/acts"

log = logging.getLogger(__name__)


async def close_connections(broker: Broker, identities: list[str], reason: str) -> int:
    """Close connections; return the number of connections closed here."""
    wanted = set(identities)
    return broker.close_connections(reason, lambda one: one.identity in wanted)


async def acknowledge_losses(broker: Broker) -> None:
    """Stop reporting acknowledged losses."""
    await broker.acknowledge_losses()


async def set_limits(broker: Broker, memory: int | None, disk_free: int | None) -> None:
    """Change this home's limits of memory and free disk, in octets."""
    broker.set_limits(memory, disk_free)


async def set_log_level(broker: Broker, level: int) -> None:
    """Set the log level, a level of :mod:`logging`."""
    logging.getLogger("jumpmq").setLevel(level)


async def forget_attempts(broker: Broker) -> None:
    """Reset the counts of login attempts."""
    broker.authenticator.attempts.clear()


async def rebalance(broker: Broker) -> None:
    """Move queues of the local home to homes with fewer queues."""
    broker.peers.moves.rebalance()


async def give(broker: Broker, vhost: str, name: str, number: int, home: int, begun: bool) -> bool | str:
    """See :meth:`~jumpmq.nodes.moves.relocating.Relocating.give`."""
    assert isinstance(broker.peers, OtherHomes)
    return await broker.peers.relocating.give(vhost, name, number, home, begun)


async def suspend(broker: Broker, suspended: bool) -> None:
    """Stop or resume listening for AMQP clients."""
    await broker.listening.suspend(suspended)


async def copy_positions(broker: Broker, home: int) -> Any:
    """See :meth:`~jumpmq.broker.copies.Copies.positions`."""
    return await broker.copies.positions(home)


async def copy_files(broker: Broker, home: int) -> Any:
    """See :meth:`~jumpmq.broker.copies.Copies.files`."""
    return await broker.copies.files(home)


async def copy_checksum(broker: Broker, home: int, name: str, offset: int, length: int) -> Any:
    """See :meth:`~jumpmq.broker.copies.Copies.checksum`."""
    return await broker.copies.checksum(home, name, offset, length)


async def copy_damaged(broker: Broker, home: int, name: str, length: int) -> Any:
    """See :meth:`~jumpmq.broker.copies.Copies.is_damaged`."""
    return await broker.copies.is_damaged(home, name, length)


async def end_group_member(broker: Broker, group: list[Any], member: str, reason: str) -> bool:
    """End a member of a consumer group; return True if the member was connected here.

    Args:
        group: virtual host, kind and name of the group's source, and name of the group.
        reason: for the log.
    """
    with broker.turns.turn():
        return broker.consumer_groups.end_member(tuple(group), member, reason)


ACTS: dict[str, Callable[..., Awaitable[Any]]] = {
    one.__name__: one
    for one in (
        *(close_connections, acknowledge_losses, set_limits, set_log_level, forget_attempts, rebalance, suspend),
        end_group_member,
        *(copy_positions, copy_files, copy_checksum, copy_damaged),
        give,
    )
}


async def ask(client: HomeClient, name: str, *arguments: Any) -> Any:
    """Request an action from a home; return the result, None if down."""
    try:
        async with await client.ask("POST", PATH.encode(), body=dump([name, *arguments])) as answer:
            body = await answer.whole()
            if answer.status != 200:
                raise HomeUnreachable(client.home, f"status {answer.status}")
            return json.loads(body)
    except HomeUnreachable as error:
        log.warning("%s was not done at home %d: %s", name, client.home, error)
        return None


def route(broker: Broker) -> Route:
    """Return the route for actions requested from a home."""

    async def act(request: Request) -> JSONResponse:
        name, *arguments = json.loads(await request.body())
        return JSONResponse(await ACTS[name](broker, *arguments))

    return Route(PATH, act, methods=["POST"])
