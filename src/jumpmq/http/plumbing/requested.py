"""Parsing of requests: user, names in the path, numbers in the query, JSON in the body.

Invalid values raise :class:`BadRequest`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.requests import Request

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import Principal
from jumpmq.http.plumbing.access import check_virtual_host, sees_all_vhosts
from jumpmq.http.plumbing.errors import BadRequest, Unauthorized, UnsupportedMediaType
from jumpmq.http.plumbing.json_body import read_object
from jumpmq.http.schema.shapes import MAX_NAME, Shape

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.broker.figures.figures import Figures
    from jumpmq.http.plumbing.forwarding import Forwarder
    from jumpmq.queues import Queue
    from jumpmq.topology import Exchange, User, VirtualHost
    from jumpmq.topology.definitions import QueueDefinition
    from jumpmq.topology.exchanges import Destination

LAST_SEQ = (1 << 63) - 1
LAST_SECOND = 253402300799
"""The end of the year 9999."""

MAX_BODY = 1 << 20
"""Default maximum size of a JSON body, in octets."""

MAX_LONG_BODY = 16 << 20
"""Maximum size of definitions, and of a message to publish, in octets."""

NO_CONNECTION = ""
"""Connection name for requests to the topology. Requests have no connection, so exclusive queues are locked."""

DEFAULT_EXCHANGE = "amq.default"
"""Name in paths of the exchange with the empty name."""


def broker(request: Request) -> Broker:
    """Return the broker."""
    found: Broker = request.app.state.broker
    return found


def forwarder(request: Request) -> Forwarder:
    """Return the forwarder to other homes; a forwarder without homes for a request that was forwarded to this
    process.
    """
    found: Forwarder = request.app.state.forwarder
    return found


def node_forwarder(request: Request) -> Forwarder:
    """Return the forwarder to further homes of this node."""
    found: Forwarder = request.app.state.node_forwarder
    return found


def node_figures(request: Request) -> Figures:
    """Return the metrics of all homes of this node, without other nodes of the cluster."""
    return broker(request).node_figures


def by_home(request: Request, host: VirtualHost, queues: Iterable[str]) -> dict[int, list[str]]:
    """Group queues of other homes by home, without local and unknown queues."""
    others = forwarder(request).others
    found: dict[int, list[str]] = {}
    for queue_name in queues if others else ():
        declared = host.declared.get(queue_name)
        if declared is not None and declared.definition.home in others:
            found.setdefault(declared.definition.home, []).append(queue_name)
    return found


def principal(request: Request) -> Principal:
    """Return the authenticated principal."""
    found: Principal = request.scope["user"]
    return found


def user(request: Request) -> User:
    """Return the account of the authenticated principal.

    Raises:
        Unauthorized: the user has been deleted in the meantime.
    """
    found = principal(request).account(broker(request).topology)
    if found is None:
        raise Unauthorized("Login failed")
    return found


def name(request: Request, parameter: str) -> str:
    """Return a name in the path, percent-decoded.

    Raises:
        BadRequest: the name is not UTF-8, or too long.
    """
    try:
        found = unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise BadRequest(f"the {parameter} in the path is not UTF-8") from None
    if len(found.encode()) > MAX_NAME:
        raise BadRequest(f"the {parameter} in the path has more than {MAX_NAME} octets")
    return found


def virtual_host(request: Request) -> VirtualHost:
    """Return the virtual host named in the path.

    Raises:
        Unauthorized: the user has no permissions in the virtual host.
        NotFound: the virtual host does not exist.
    """
    wanted = name(request, "vhost")
    check_virtual_host(user(request), wanted)
    found = broker(request).topology.vhosts.get(wanted)
    if found is None:
        raise NotFound(f"no vhost '{wanted}'")
    return found


def visible_hosts(request: Request) -> list[VirtualHost]:
    """Return the virtual hosts whose queues, exchanges and bindings the user may see."""
    asking = user(request)
    hosts = broker(request).topology.vhosts.values()
    return [host for host in hosts if sees_all_vhosts(asking) or host.name in asking.permissions]


def queue(request: Request) -> Queue:
    """Return the queue named in the path.

    Raises:
        NotFound: the virtual host or the queue does not exist.
    """
    return virtual_host(request).queue(name(request, "queue"))


def destination(request: Request) -> Destination:
    """Return the queue named in the path, as a binding destination.

    Raises:
        NotFound: as for :func:`queue`.
    """
    return virtual_host(request).declared_queue(name(request, "queue")).destination


def queue_definition(request: Request) -> QueueDefinition:
    """Return the definition of the queue named in the path.

    Raises:
        NotFound: as for :func:`queue`.
    """
    return virtual_host(request).declared_queue(name(request, "queue")).definition


def unlocked_queue(request: Request) -> Queue:
    """Return the queue named in the path. Exclusive queues are refused.

    Raises:
        NotFound: as for :func:`queue`.
        ResourceLocked: the queue is exclusive to a connection.
    """
    return virtual_host(request).queue(name(request, "queue"), NO_CONNECTION)


def exchange(request: Request, parameter: str = "exchange") -> Exchange:
    """Return the exchange named in the path; ``amq.default`` is the exchange with the empty name.

    Raises:
        NotFound: the virtual host or the exchange does not exist.
    """
    return virtual_host(request).exchange(exchange_name(request, parameter))


def exchange_name(request: Request, parameter: str = "exchange") -> str:
    """Return the name of the exchange in the path."""
    wanted = name(request, parameter)
    return "" if wanted == DEFAULT_EXCHANGE else wanted


def query_octets(request: Request, parameter: str) -> bytes | None:
    """Return a query parameter as octets, not necessarily text; None if missing."""
    for pair in request.scope["query_string"].split(b"&"):
        name, _, value = pair.partition(b"=")
        if unquote_to_bytes(name) == parameter.encode():
            return unquote_to_bytes(value.replace(b"+", b" "))
    return None


def number(request: Request, parameter: str, default: int | None = None) -> int:
    """Return a query parameter as a whole number from 0.

    Raises:
        BadRequest: the value is not such a number, or the parameter is missing and has no default.
    """
    text = request.query_params.get(parameter)
    if text is None:
        if default is None:
            raise BadRequest(f"the query lacks '{parameter}'")
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_SEQ):
        raise BadRequest(f"'{parameter}' must be a whole number from 0 to {LAST_SEQ}, not '{text}'")
    return int(text)


def flag(request: Request, parameter: str, *, missing: bool = False) -> bool:
    """Return a query parameter as a truth value; ``missing`` without the parameter.

    Raises:
        BadRequest: the value is neither ``true`` nor ``false``.
    """
    text = request.query_params.get(parameter, str(missing).lower())
    if text not in ("true", "false"):
        raise BadRequest(f"'{parameter}' must be true or false, not '{text}'")
    return text == "true"


def seconds(request: Request, parameter: str) -> float:
    """Return a query parameter as a time, in seconds since the epoch.

    Raises:
        BadRequest: the value is no such time.
    """
    text = request.query_params[parameter]
    with contextlib.suppress(ValueError):
        if is_seconds(found := float(text)):
            return found
    raise BadRequest(f"'{parameter}' must be a number of seconds since the epoch, not '{text}'")


def is_seconds(value: object) -> bool:
    """Return True if a value is a valid time of publishing."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LAST_SECOND


def is_whole(value: object) -> bool:
    """Return True if a value of a body is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_SEQ


def require_json(request: Request) -> None:
    """Refuse a body without a JSON content type: a page of a foreign site can send such a body without a preflight.

    Raises:
        UnsupportedMediaType: the content type is missing, or is not JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("the body must be of type application/json")


async def shaped_body(request: Request, shape: Shape, most: int = MAX_BODY) -> dict[str, Any]:
    """Return the values of a JSON body, by key.

    Raises:
        BadRequest: the body does not have the shape.
    """
    return shape.read(await body(request, most))


async def body(request: Request, most: int = MAX_BODY) -> dict[str, Any]:
    """Parse the body as a JSON object; an empty body counts as an empty object.

    Args:
        most: maximum number of octets.
    """
    charges = Charges(broker(request).memory)
    try:
        return await _read(request, await _octets(request, most, charges))
    finally:
        charges.release()


async def octets(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the body unparsed.

    Raises:
        BadRequest: the body is longer than ``most`` octets, or does not arrive in time.
    """
    charges = Charges(broker(request).memory)
    try:
        return bytes(await _octets(request, most, charges))
    finally:
        charges.release()


async def _read(request: Request, octets: bytearray) -> dict[str, Any]:
    if not octets:
        return {}
    try:
        found: dict[str, Any] = await broker(request).slices.between(read_object(octets))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return found


async def _octets(request: Request, most: int, charges: Charges) -> bytearray:
    """Read the body, and charge the memory account for the received octets."""
    octets = bytearray()
    parts, timeout = aiter(request.stream()), broker(request).config.timing.http_part
    while True:
        try:
            async with asyncio.timeout(timeout):
                octets += await anext(parts)
        except StopAsyncIteration:
            return octets
        except TimeoutError:
            raise BadRequest(f"no further part of the body arrived for {timeout:.0f} seconds") from None
        charges.set("unfinished", len(octets))
        if len(octets) > most:
            raise BadRequest(f"the body is longer than {most} octets")
