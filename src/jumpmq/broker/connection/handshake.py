"""The handshake, up to ``connection.tune``: server properties, client properties, authentication."""

import asyncio
import logging
import platform
from functools import cache
from typing import Any, Protocol

from jumpmq._version import __version__
from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AccessRefused, NotAllowed
from jumpmq.amqp.fields import Field, to_python, typed
from jumpmq.amqp.protocol import Failed
from jumpmq.broker.connection.origin import Encryption
from jumpmq.broker.connection.services import Services
from jumpmq.broker.security import login
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.certificates import Certificate, login_name
from jumpmq.broker.telemetry import audit

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


KNOWN = ("client_properties", "mechanism", "wants_cancel_notice", "wants_blocked_notice")
"""Attributes kept when a client is handed over."""


class IntroducedClient(Protocol):
    """The connection of the handshake; see :class:`~jumpmq.broker.connection.connection.Connection`."""

    name: str
    peer_host: str
    tls: Encryption | None
    user: Principal

    def send(self, channel: int, method: m.Method) -> None: ...
    def tune(self, user: Principal) -> None: ...
    def set_user(self, user: Principal) -> None: ...
    def fail(self, failed: Failed) -> None: ...
    def abort(self) -> None: ...


class _Encoded(m.Method):
    """A frequently sent method, encoded once."""

    def __init__(self, method: m.Method) -> None:
        self._octets = method.encode()

    def encode(self) -> bytes:
        return self._octets


@cache
def _start(cluster: str, mechanisms: str) -> m.Method:
    properties = [Field(name, *typed(value)) for name, value in server_properties(cluster).items()]
    properties.insert(0, Field("capabilities", "F", [Field(name, "t", True) for name in CAPABILITIES]))
    return _Encoded(m.ConnectionStart(0, 9, properties, mechanisms.encode(), b"en_US"))


class ClientHandshake:
    """Handshake of a connection.

    Attributes:
        client_properties: properties of the client, from ``connection.start-ok``.
        mechanism: SASL mechanism of the login.
        wants_cancel_notice: True if the client supports ``basic.cancel`` from the broker.
        wants_blocked_notice: True if the client supports ``connection.blocked``.
    """

    def __init__(self, connection: IntroducedClient, services: Services) -> None:
        self.client_properties: dict[str, Any] = {}
        self.mechanism = ""
        self.wants_cancel_notice = self.wants_blocked_notice = False
        self._connection = connection  # deleted at the end of the connection
        self._services = services  # shared by all connections
        self._wants_login_notice = False  # True if the client supports ``connection.close`` for a refused login
        self._login: asyncio.Task[None] | None = None  # the running login
        self._claimed = ""  # user name given by the client

    def send_start(self) -> None:
        """Send ``connection.start``."""
        self._connection.send(0, _start(self._services.topology.cluster_name, self._mechanisms()))

    def _mechanisms(self) -> str:
        return f"EXTERNAL {login.MECHANISMS}" if self._certificate() else login.MECHANISMS

    def _certificate(self) -> Certificate | None:
        """The client's verified certificate, if any."""
        tls = self._connection.tls
        return tls.certificate if tls is not None else None

    def authenticate(self, method: m.ConnectionStartOk) -> None:
        """Store the client's properties and authenticate the client; then send ``connection.tune``, or close."""
        self.client_properties = to_python(method.client_properties)
        capabilities = self.client_properties.get("capabilities")
        if isinstance(capabilities, dict):
            self.wants_cancel_notice = capabilities.get("consumer_cancel_notify") is True
            self.wants_blocked_notice = capabilities.get("connection.blocked") is True
            self._wants_login_notice = capabilities.get("authentication_failure_close") is True
        self.mechanism = method.mechanism
        self._login = asyncio.get_running_loop().create_task(self._log_in(method))

    def cancel(self) -> None:
        """Cancel a running authentication when the client leaves."""
        # A refused login ends its connection from within its own task.
        if self._login is not None and self._login is not asyncio.current_task():
            self._login.cancel()

    def close(self) -> None:
        """Cancel the login, and drop the reference to the connection, when the client is gone."""
        self.cancel()
        self._login = None
        del self._connection  # breaks a reference cycle: garbage collections are rare in a serving broker

    async def _log_in(self, method: m.ConnectionStartOk) -> None:
        connection = self._connection
        try:
            user = await self._authenticated(method)
            if user is None:
                audit.record(
                    "login refused",
                    logging.WARNING,
                    user=self._claimed,
                    mechanism=method.mechanism,
                    connection=connection.name,
                )
                raise login.refusal(method.mechanism)
        except AccessRefused as error:
            # Without this capability the socket is closed without a method, as AMQP 0-9-1 requires (RabbitMQ,
            # "Authentication Failure Notifications").
            if self._wants_login_notice:
                with self._services.turns.turn():
                    connection.fail(Failed(error))
            else:
                connection.abort()
        else:
            audit.record("login", user=user.name, mechanism=method.mechanism, connection=connection.name)
            with self._services.turns.turn():
                connection.tune(user)

    async def _authenticated(self, method: m.ConnectionStartOk) -> Principal | None:
        """Return the authenticated principal; None on failure."""
        authenticator, peer_host = self._services.authenticator, self._connection.peer_host
        certificate = self._certificate()
        if method.mechanism == "EXTERNAL" and certificate is not None:
            self._claimed = login_name(certificate, self._services.config.tls_login_from) or ""
            accepts_certificate_user = authenticator.accepts_certificate_user(self._claimed, peer_host)
            authenticator.count("amqp091", accepts_certificate_user)
            return Principal(self._claimed) if accepts_certificate_user else None
        self._claimed, password = login.read_credentials(method.mechanism, method.response)
        return await authenticator.authenticate(self._claimed, password, peer_host, "amqp091")

    def known(self) -> dict[str, Any]:
        """Return the client's data for :meth:`go_on` in a second process."""
        return {name: getattr(self, name) for name in KNOWN}

    def go_on(self, known: dict[str, Any]) -> None:
        """Continue with a client introduced to a second process."""
        for name in KNOWN:
            setattr(self, name, known[name])

    def renew(self, token: bytes) -> None:
        """Go on with another token (``connection.update-secret``); ``update-secret-ok`` follows, or the end."""
        self._login = asyncio.get_running_loop().create_task(self._renew(token.decode("utf-8", "replace")))

    async def _renew(self, token: str) -> None:
        connection = self._connection
        user = await self._services.authenticator.renew(connection.user, token)
        with self._services.turns.turn():
            if user is None:
                error = NotAllowed("New secret was refused")
                connection.fail(Failed(error, 0, m.ConnectionUpdateSecret.class_id, m.ConnectionUpdateSecret.method_id))
            else:
                audit.record("token renewed", user=user.name, connection=connection.name)
                connection.set_user(user)
                connection.send(0, m.ConnectionUpdateSecretOk())


def server_properties(cluster_name: str) -> dict[str, Any]:
    """Return the broker's properties in ``connection.start``."""
    return {
        "cluster_name": cluster_name,
        "copyright": "The JumpMQ authors",
        "information": "Licensed under the Apache License 2.0",
        "platform": f"Python {platform.python_version()}",
        "product": "JumpMQ",
        "version": __version__,
    }
