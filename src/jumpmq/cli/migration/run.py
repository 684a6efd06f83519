"""A whole move: first the definitions, then every queue's messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jumpmq.cli.migration.definitions import Copied, copy_definitions
from jumpmq.cli.migration.draining import MigrationError, Target, copy_stream, drain
from jumpmq.cli.migration.rings import Rings
from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, Refused
from jumpmq.management import ClientTLS, ManagementClient, ManagementError

MANAGEMENT_PORTS = {False: 15672, True: 15671}


@dataclass(frozen=True)
class Moved:
    """What a move did.

    Attributes:
        queues: how many had messages.
        messages: how many were moved or copied.
        copied: what became of the definitions.
    """

    queues: int
    messages: int
    copied: Copied


def migrate(
    source: str,
    management: str | None,
    to: str,
    tls: ClientTLS,
    *,
    messages: bool,
    console: Console,
    rings: Rings | None = None,
) -> Moved:
    """Copy all definitions, then drain all queues and copy all streams.

    Args:
        source: AMQP URL of the RabbitMQ; with a virtual host in it, only that one is moved, made where there is none,
            and no users.
        management: URL of its management port; None for the usual one of the same host and user.
        to: management URL of the JumpMQ.
        tls: files for TLS with either.
        messages: whether messages are moved, too.
        rings: those of the RabbitMQ, where they are known.

    Raises:
        MigrationError: something cannot be moved. What was moved is; a move that is begun again goes on.
    """
    address, vhost = _address(source)
    place = () if vhost is None else (vhost,)
    try:
        old = ManagementClient(management or _management_of(address), tls=tls)
        new = ManagementClient(to, tls=tls)
        copied = copy_definitions(old.get("definitions", *place), new, vhost, rings or {})
        if not messages:
            return Moved(0, 0, copied)
        origin = str(old.get("overview")["cluster_name"])
        queues = [
            one
            for one in old.get("queues", *([vhost] if vhost is not None else []))
            if not one.get("owner_pid_details")
        ]
        with _progress(console) as progress:
            counts = [_move(one, copied, address, tls, new, origin, progress) for one in queues]
    except ManagementError as error:
        raise MigrationError(str(error)) from None
    except (ConnectionLost, Refused) as error:
        raise MigrationError(f"{address}: {error}") from None
    return Moved(sum(count > 0 for count in counts), sum(counts), copied)


def _move(
    queue: dict[str, Any],
    copied: Copied,
    address: AMQPAddress,
    tls: ClientTLS,
    new: ManagementClient,
    origin: str,
    progress: Progress,
) -> int:
    name, vhost = queue["name"], queue["vhost"]
    task = progress.add_task(f"{vhost} {name}", total=queue.get("messages", 0))
    target = Target(new, vhost, copied.names.get((vhost, name), name), origin)
    where = replace(address, vhost=vhost)
    move = copy_stream if queue.get("type") == "stream" else drain
    with AMQPConnection(where, tls.context() if where.tls else None) as amqp:
        moved = move(amqp, name, target, partial(progress.advance, task))
    progress.update(task, total=moved)
    return moved


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _address(source: str) -> tuple[AMQPAddress, str | None]:
    """The address in a URL, and the virtual host if it names one."""
    try:
        address = AMQPAddress.parse(source)
    except ValueError as error:
        raise MigrationError(f"--from: {error}") from None
    path = source.split("://", 1)[1].partition("/")[2]
    return address, address.vhost if path else None


def _management_of(address: AMQPAddress) -> str:
    scheme, host = "https" if address.tls else "http", f"[{address.host}]" if ":" in address.host else address.host
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    return f"{scheme}://{user}:{password}@{host}:{MANAGEMENT_PORTS[address.tls]}"
