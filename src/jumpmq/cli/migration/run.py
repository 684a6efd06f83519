"""A whole move: first the definitions, then the messages of every queue; once, or until stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jumpmq.cli.migration.definitions import CopiedDefinitions, copy_definitions
from jumpmq.cli.migration.draining import Drain, MigrationError, StreamCopy, Target
from jumpmq.cli.migration.following import Bridge, follow
from jumpmq.cli.migration.rings import Rings
from jumpmq.cli.migration.source import Source, alone, suit
from jumpmq.client import AMQPAddress, ConnectionLost, RequestRefused
from jumpmq.management import ClientTLS, ManagementClient, ManagementError, NoAnswer
from jumpmq.serving.logs import escaped

MANAGEMENT_PORTS = {False: 15672, True: 15671}


@dataclass(frozen=True)
class Migration:
    """A move: contents, source and target.

    Args:
        source: AMQP URL of the RabbitMQ. A virtual host in the URL limits the move to this virtual host, without users;
            the JumpMQ creates a missing virtual host.
        management: management URL of the RabbitMQ; None for the default port, with the host and user of ``source``.
        to: management URL of the JumpMQ.
        tls: files for TLS with both brokers.
        rings: asks for the RabbitMQ's rings; returns an empty mapping if the rings are unknown.
        console: console for the progress.
    """

    source: str
    management: str | None
    to: str
    tls: ClientTLS
    rings: Callable[[], Rings]
    console: Console


@dataclass(frozen=True)
class MigrationResult:
    """Result of a move.

    Attributes:
        queues: number of queues with moved or copied messages.
        messages: number of moved or copied messages.
        copied: result of the copy of the definitions; empty for a bridge, which prints the lines at once.
        rest: last known number of messages left in the RabbitMQ's queues; 0 except for a bridge.
    """

    queues: int
    messages: int
    copied: CopiedDefinitions
    rest: int = 0


def migrate(move: Migration, *, messages: bool) -> MigrationResult:
    """Copy all definitions, then drain all queues and copy all streams.

    Args:
        messages: True to move messages after the definitions.

    Raises:
        MigrationError: definitions or messages cannot be moved. Messages moved before stay moved; a repeated move
            continues.
        RingsUnknown: the rings are not available.
    """
    address, vhost = _address(move.source)
    place = () if vhost is None else (vhost,)
    rings = move.rings()
    try:
        old = ManagementClient(move.management or _management_of(address), tls=move.tls)
        new = ManagementClient(move.to, tls=move.tls)
        source = Source(address, move.tls, old, vhost)
        copied = copy_definitions(_definitions(old, *place), new, vhost, rings)
        if not messages:
            return MigrationResult(0, 0, copied)
        origin = str(old.get("overview")["cluster_name"])
        queues = source.queues()
        with ExitStack() as stack:
            for host in sorted({one["vhost"] for one in queues}):
                stack.enter_context(alone(source, host))
            progress = stack.enter_context(_progress(move.console))
            counts = [_move(one, copied, source, new, origin, progress) for one in queues]
    except ManagementError as error:
        raise MigrationError(str(error)) from None
    except (ConnectionLost, RequestRefused) as error:
        raise MigrationError(f"{address}: {error}") from None
    return MigrationResult(sum(count > 0 for count in counts), sum(counts), copied)


def bridge(move: Migration, say: Callable[[str], None]) -> MigrationResult:
    """Copy definitions and move messages until SIGTERM or Ctrl-C.

    Args:
        say: called with a line for each difference in the definitions, and for each failure.

    Raises:
        MigrationError: the bridge cannot begin.
        RingsUnknown: the rings are not available.
    """
    address, vhost = _address(move.source)
    try:
        old = ManagementClient(move.management or _management_of(address), tls=move.tls)
        new = ManagementClient(move.to, tls=move.tls)
        running = Bridge(Source(address, move.tls, old, vhost), new, move.rings, say)
        follow(running, move.console)
    except ManagementError as error:
        raise MigrationError(str(error)) from None
    except (ConnectionLost, RequestRefused) as error:
        raise MigrationError(f"{address}: {error}") from None
    return MigrationResult(running.queues, running.moved, CopiedDefinitions(), running.rest)


def _move(
    queue: dict[str, Any],
    copied: CopiedDefinitions,
    source: Source,
    new: ManagementClient,
    origin: str,
    progress: Progress,
) -> int:
    name, vhost = queue["name"], queue["vhost"]
    task = progress.add_task(escaped(f"{vhost} {name}"), total=queue.get("messages", 0))
    target = Target(new, vhost, copied.names.get((vhost, name), name), origin, source=name)
    advance = partial(progress.advance, task)
    with source.connect(vhost) as amqp:
        if queue.get("type") == "stream":
            moved = StreamCopy(amqp, name, target, advance).run()
        else:
            drain = Drain(name, target, advance)
            suit(drain, queue)
            moved = drain.run(amqp)
    progress.update(task, total=moved)
    return moved


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _address(source: str) -> tuple[AMQPAddress, str | None]:
    """Return the address in a URL, and the virtual host if the URL names a virtual host."""
    try:
        address = AMQPAddress.parse(source)
    except ValueError as error:
        raise MigrationError(f"--from: {error}") from None
    path = source.split("://", 1)[1].partition("/")[2]
    return address, address.vhost if path else None


def _definitions(old: ManagementClient, *vhost: str) -> dict[str, Any]:
    """Return RabbitMQ's definitions.

    Raises:
        MigrationError: RabbitMQ's management plugin does not answer at the URL.
        ManagementError: RabbitMQ refuses the request.
    """
    try:
        found: dict[str, Any] = old.get("definitions", *vhost)
    except NoAnswer as error:
        raise MigrationError(f"{error}; RabbitMQ's management plugin is needed, at the URL of --management") from None
    return found


def _management_of(address: AMQPAddress) -> str:
    scheme, host = "https" if address.tls else "http", f"[{address.host}]" if ":" in address.host else address.host
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    return f"{scheme}://{user}:{password}@{host}:{MANAGEMENT_PORTS[address.tls]}"
