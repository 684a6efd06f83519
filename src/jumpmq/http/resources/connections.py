"""``/api/connections``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.figures.values import ConnectionFigures, ConnectionId, PeerAddress, TLSFigures
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import owned
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Unauthorized
from jumpmq.http.samples import add_samples

CLOSED = "Closed via management plugin"
"""Default reason sent to a client: RabbitMQ's words."""

MAX_REASON = 200

P = TypeVar("P", bound="OfPeer")

OF_TLS = ("ssl_protocol", "ssl_cipher", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity")
"""Keys for the values of :class:`TLSFigures`, in order; all are null without TLS."""


async def all_connections(request: Request) -> Response:
    """``GET /api/connections``: the open connections; without a monitoring tag, the user's own."""
    return await _answer(request, await visible(request))


async def connections_of_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/connections``: connections to the virtual host."""
    host = requested.virtual_host(request)
    return await _answer(request, [one for one in await visible(request) if one.peer.vhost == host.name])


async def connections_of_user(request: Request) -> Response:
    """``GET /api/connections/username/{user}``: connections of a user, in short form."""
    return await answer_list(request, await _of_user(request), _named)


async def close_connections_of_user(request: Request) -> Response:
    """``DELETE /api/connections/username/{user}``: close a user's connections. The clients receive the reason in the
    header ``X-Reason``."""
    found, reason = await _of_user(request), _reason(request)
    for connection in found:
        require_own(request, connection.peer, "administrator")
    await _close(request, {connection.id for connection in found}, reason)
    return changing.deleted()


async def _of_user(request: Request) -> list[ConnectionFigures]:
    user = requested.name(request, "user")
    return [one for one in await visible(request) if one.peer.user == user]


async def _answer(request: Request, found: list[ConnectionFigures]) -> Response:
    return await answer_list(request, found, lambda connection: shown(request, connection))


async def one_connection(request: Request) -> Response:
    """``GET /api/connections/{connection}``: a connection."""
    return answer_object(request, shown(request, await named(request)))


async def close_connection(request: Request) -> Response:
    """``DELETE /api/connections/{connection}``: close a connection. The client receives the reason in the header
    ``X-Reason``."""
    connection = await named(request)
    require_own(request, connection.peer, "administrator")
    await _close(request, {connection.id}, _reason(request))
    return changing.deleted()


async def _close(request: Request, ids: Collection[ConnectionId], reason: str) -> None:
    closed = requested.broker(request).close_connections(reason, lambda one: one.identity in ids)
    if closed < len(ids):
        await requested.forwarder(request).act("close_connections", list(ids), reason)


def _reason(request: Request) -> str:
    """Return the reason to send to clients.

    Raises:
        BadRequest: the reason is too long.
    """
    # The server decodes headers as Latin-1 (RFC 9110, section 5.5); today's clients send UTF-8.
    reason = request.headers.get("X-Reason", CLOSED).encode("latin-1").decode("utf-8", "replace")
    if len(reason) > MAX_REASON:
        raise BadRequest(f"'X-Reason' has more than {MAX_REASON} characters")
    return reason


async def visible(request: Request) -> list[ConnectionFigures]:
    """Return the connections with an open virtual host that the user may see."""
    found = await requested.broker(request).figures.connections()
    user, principal = requested.user(request), requested.principal(request)
    return owned(user, principal, found, lambda connection: connection.peer.user_identity)


def details(peer: PeerAddress) -> dict[str, Any]:
    """Return the connection's details, as part of a dependent object."""
    return {"name": peer.name, "peer_host": peer.host, "peer_port": peer.port} | provided_name(peer)


def provided_name(peer: PeerAddress) -> dict[str, Any]:
    """Return the connection name provided by the client, if any."""
    return {} if peer.provided_name is None else {"user_provided_name": peer.provided_name}


def _named(connection: ConnectionFigures) -> dict[str, Any]:
    peer = connection.peer
    return {"name": peer.name, "user": peer.user, "vhost": peer.vhost, "node": peer.node}


def shown(request: Request, connection: ConnectionFigures) -> dict[str, Any]:
    """Return a connection in the format of RabbitMQ's management API."""
    found = {
        **_named(connection),
        **provided_name(connection.peer),
        "user_who_performed_action": connection.peer.user,
        "state": connection.state,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": connection.mechanism,
        **_encryption(connection.tls),
        "host": connection.host,
        "port": connection.port,
        "peer_host": connection.peer.host,
        "peer_port": connection.peer.port,
        "channels": connection.channels,
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "timeout": connection.timeout,
        "connected_at": int(connection.connected_at * 1000),
        "send_pend": connection.unsent,
        **request.app.state.rates.octets(connection),
        "recv_cnt": connection.reads,
        "send_cnt": connection.writes,
        "client_properties": connection.client_properties,
    }
    return add_samples(request, found, lambda: request.app.state.history.of("connection", connection.peer.name))


def _encryption(tls: TLSFigures | None) -> dict[str, Any]:
    if tls is None:
        return {"ssl": False, **dict.fromkeys(OF_TLS)}
    return {"ssl": True, **dict(zip(OF_TLS, tls, strict=True))}


async def named(request: Request) -> ConnectionFigures:
    """Return the open connection named in the path.

    Raises:
        NotFound, BadRequest: as for :func:`only`.
        Unauthorized: the connection belongs to another user, and the user has no monitoring tag.
    """
    name = requested.name(request, "connection")
    found = await requested.broker(request).figures.connections_named(name)
    connection = only(request, f"connection '{name}'", found)
    require_own(request, connection.peer, "monitoring", "administrator")
    return connection


class OfPeer(Protocol):
    """A connection, or a part of a connection."""

    @property
    def peer(self) -> PeerAddress: ...


def only(request: Request, what: str, found: list[P]) -> P:
    """Return the only one of the found objects, at the node in the query (``?node=``), if given.

    A connection's name consists of the client's and the server's address. Connections to two nodes may have equal
    names.

    Args:
        what: kind and name of the requested object.

    Raises:
        NotFound: no object was found.
        BadRequest: several nodes have such an object.
    """
    node = request.query_params.get("node")
    there = [one for one in found if node in (None, one.peer.node)]
    own = owned(requested.user(request), requested.principal(request), there, lambda one: one.peer.user_identity)
    chosen = own or there
    if not chosen:
        raise NotFound(f"no {what}" if node is None else f"no {what} on node '{node}'")
    if len(chosen) > 1:
        nodes = ", ".join(sorted({one.peer.node for one in chosen}))
        raise BadRequest(f"{what} exists on several nodes ({nodes}): add ?node=NODE")
    return chosen[0]


def require_own(request: Request, peer: PeerAddress, *tags: str) -> None:
    """Refuse unless the connection is the user's own, or the user has one of the tags.

    Raises:
        Unauthorized: the connection belongs to another user, and the user has none of the tags.
    """
    user = requested.user(request)
    if peer.user_identity != requested.principal(request).identity and set(tags).isdisjoint(user.tags):
        raise Unauthorized("User not authorised to access object")


ROUTES = [
    Endpoint("GET", "/api/connections", all_connections),
    Endpoint("GET", "/api/vhosts/{vhost}/connections", connections_of_host),
    Endpoint("GET", "/api/connections/username/{user}", connections_of_user),
    Endpoint("DELETE", "/api/connections/username/{user}", close_connections_of_user),
    Endpoint("GET", "/api/connections/{connection}", one_connection),
    Endpoint("DELETE", "/api/connections/{connection}", close_connection),
]
