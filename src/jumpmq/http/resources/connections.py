"""``/api/connections``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.security.certificates import distinguished_name
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import owned
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest, Unauthorized
from jumpmq.http.samples import add_samples

CLOSED = "Closed via management plugin"
"""What a client is told unless the request gives a reason: RabbitMQ's words."""

MAX_REASON = 200

OF_TLS = ("ssl_protocol", "ssl_cipher", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity")
"""Null where there is nothing to tell."""


async def all_connections(request: Request) -> Response:
    """``GET /api/connections``: the open connections; without a monitoring tag, the user's own."""
    return await _answer(request, visible(request))


async def connections_of_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/connections``: those that have the virtual host open."""
    host = requested.virtual_host(request)
    return await _answer(request, [one for one in visible(request) if one.vhost is host])


async def connections_of_user(request: Request) -> Response:
    """``GET /api/connections/username/{user}``: a user's, in short."""
    return await answer_list(request, _of_user(request), _named)


async def close_connections_of_user(request: Request) -> Response:
    """``DELETE /api/connections/username/{user}``: close a user's; the clients are told the header ``X-Reason``."""
    found, reason = set(_of_user(request)), _reason(request)
    for connection in found:
        require_own(request, connection, "administrator")
    requested.broker(request).close_connections(reason, found.__contains__)
    return changing.deleted()


def _of_user(request: Request) -> list[Connection]:
    user = requested.name(request, "user")
    return [one for one in visible(request) if one.user == user]


async def _answer(request: Request, found: list[Connection]) -> Response:
    return await answer_list(request, found, lambda connection: shown(request, connection))


async def one_connection(request: Request) -> Response:
    """``GET /api/connections/{connection}``: one connection."""
    return answer_object(request, shown(request, named(request)))


async def close_connection(request: Request) -> Response:
    """``DELETE /api/connections/{connection}``: close it; the client is told the header ``X-Reason``."""
    connection = named(request)
    require_own(request, connection, "administrator")
    requested.broker(request).close_connections(_reason(request), lambda one: one is connection)
    return changing.deleted()


def _reason(request: Request) -> str:
    """What the clients are to be told.

    Raises:
        BadRequest: it is too long.
    """
    # Headers reach us as Latin-1, whatever the client meant (RFC 9110, section 5.5); today that is UTF-8.
    reason = request.headers.get("X-Reason", CLOSED).encode("latin-1").decode("utf-8", "replace")
    if len(reason) > MAX_REASON:
        raise BadRequest(f"'X-Reason' has more than {MAX_REASON} characters")
    return reason


def opened(request: Request) -> list[Connection]:
    """The connections that have a virtual host open, or had until they closed."""
    return [one for one in requested.broker(request).connections if one.opened]


def visible(request: Request) -> list[Connection]:
    """Those of :func:`opened` that the user may see."""
    return owned(requested.user(request), opened(request), lambda connection: connection.user)


def details(connection: Connection) -> dict[str, Any]:
    """What is said of a connection where something of its is shown."""
    return {"name": connection.name, "peer_host": connection.peer_host, "peer_port": connection.peer_port}


def _named(connection: Connection) -> dict[str, Any]:
    return {
        "name": connection.name,
        "user": connection.user,
        "vhost": connection.vhost.name,
        "node": connection.node,
    }


def shown(request: Request, connection: Connection) -> dict[str, Any]:
    """A connection as RabbitMQ's management API shows one."""
    protocol = connection.protocol
    host, _, port = connection.name.partition(" -> ")[2].rpartition(":")
    found = {
        **_named(connection),
        "user_who_performed_action": connection.user,
        "state": connection.state,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": connection.handshake.mechanism,
        **_encryption(connection),
        "host": host,
        "port": int(port),
        "peer_host": connection.peer_host,
        "peer_port": connection.peer_port,
        "channels": len(connection.channels),
        "channel_max": protocol.channel_max,
        "frame_max": protocol.frame_max,
        "timeout": protocol.heartbeat,
        "connected_at": int(connection.connected_at * 1000),
        "send_pend": connection.unwritten_octets,
        **request.app.state.rates.octets(connection),
        "recv_cnt": connection.reads,
        "send_cnt": connection.writes,
        "client_properties": connection.handshake.client_properties,
    }
    return add_samples(request, found, lambda: request.app.state.history.of(connection))


def _encryption(connection: Connection) -> dict[str, Any]:
    tls = connection.tls
    if tls is None:
        return {"ssl": False, **dict.fromkeys(OF_TLS)}
    cipher, certificate = tls.cipher(), tls.getpeercert()
    shown: dict[str, Any] = dict.fromkeys(OF_TLS) | {
        "ssl": True,
        "ssl_protocol": tls.version(),
        "ssl_cipher": cipher[0] if cipher else "",
    }
    if certificate:
        shown |= {
            "peer_cert_subject": distinguished_name(certificate["subject"]),  # type: ignore[arg-type]
            "peer_cert_issuer": distinguished_name(certificate["issuer"]),  # type: ignore[arg-type]
            "peer_cert_validity": f"{certificate['notBefore']} - {certificate['notAfter']}",
        }
    return shown


def named(request: Request) -> Connection:
    """The open connection that the path names.

    Raises:
        NotFound: there is none of that name.
        Unauthorized: it is another's, and the user does not monitor.
    """
    name = requested.name(request, "connection")
    for connection in opened(request):
        if connection.name == name:
            require_own(request, connection, "monitoring", "administrator")
            return connection
    raise NotFound(f"no connection '{name}'")


def require_own(request: Request, connection: Connection, *tags: str) -> None:
    """Refuse unless the connection is the user's own, or the user has one of the tags.

    Raises:
        Unauthorized: neither is so.
    """
    user = requested.user(request)
    if connection.user != user.name and set(tags).isdisjoint(user.tags):
        raise Unauthorized("User not authorised to access object")


ROUTES = [
    Endpoint("GET", "/api/connections", all_connections),
    Endpoint("GET", "/api/vhosts/{vhost}/connections", connections_of_host),
    Endpoint("GET", "/api/connections/username/{user}", connections_of_user),
    Endpoint("DELETE", "/api/connections/username/{user}", close_connections_of_user),
    Endpoint("GET", "/api/connections/{connection}", one_connection),
    Endpoint("DELETE", "/api/connections/{connection}", close_connection),
]
