"""Listeners of a broker, and the protocol for new AMQP clients."""

import asyncio
import socket
from typing import Any

from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.handed import Handed
from jumpmq.broker.connection.listeners import (
    CertificateWatch,
    Listener,
    RefusedConnection,
    RefusedConnections,
    connection_limit,
)
from jumpmq.broker.connection.origin import ConnectionOrigin
from jumpmq.broker.connection.proxied import trusted
from jumpmq.broker.connection.services import Services
from jumpmq.broker.connection.tls_processes import TLSProcesses


class Listening:
    """The listeners of a broker.

    Args:
        services: services shared by all connections.
        connections: the open connections.

    Attributes:
        listeners: started listeners, including the management port's.
        certificates: reloads the certificates of listeners with TLS.
    """

    def __init__(self, services: Services, connections: set[Connection]) -> None:
        self.listeners: list[Listener] = []
        self._services = services
        self._connections = connections
        config = services.config
        self.certificates = CertificateWatch(config.timing.certificates)
        wants_processes = config.tls is not None and config.tls_port is not None and config.tls_processes
        # The processes that do TLS for AMQP clients; None if this process does.
        self._tls_processes = (
            TLSProcesses(config.tls_processes, config.tls, self.accept, config.proxy_protocol_from)
            if config.tls and wants_processes
            else None
        )
        self._refusals = RefusedConnections()  # counts connections beyond the limit
        self._is_stopping = False  # True once no client is accepted any more
        self._joining: set[asyncio.Task[Any]] = set()  # clients handed over by other processes, before their connection

    async def start(self) -> None:
        """Start listening for AMQP clients.

        Raises:
            BrokerError: a port is not available.
        """
        config = self._services.config
        proxies = trusted(config.proxy_protocol_from)
        if config.port is not None:
            await self.listen(Listener("amqp", config.host, config.port, self.accept, proxies=proxies))
        if config.tls is not None and config.tls_port is not None:
            where = config.host, config.tls_port
            tls = config.tls, self._tls_processes
            await self.listen(Listener("amqp/ssl", *where, self.accept, *tls, proxies=proxies))

    async def listen(self, listener: Listener) -> None:
        """Start a listener; the listener is closed with the broker.

        Raises:
            BrokerError: the address is not available.
        """
        await listener.start()
        self.listeners.append(listener)
        self.certificates.add(listener)

    async def suspend(self, suspended: bool) -> None:
        """Stop listening for AMQP clients, or resume at the former ports. Connected clients stay connected.

        Raises:
            BrokerError: another program has taken a port meanwhile.
        """
        for listener in self.listeners:
            if listener.protocol.startswith("amqp") and listener.is_suspended != suspended:
                if suspended:
                    listener.close()
                else:
                    await listener.start()

    def port_of(self, protocol: str) -> int:
        """Return the port of a protocol; 0 if not served."""
        return next((listener.port for listener in self.listeners if listener.protocol == protocol), 0)

    def accept(self, origin: ConnectionOrigin | None = None, handed: Handed | None = None) -> asyncio.BaseProtocol:
        """Return the protocol for a new AMQP client.

        Args:
            origin: origin of the client; None to read it from the socket.
            handed: state from another process that served the client so far.
        """
        if self._is_stopping:  # the marker of a clean stop would not cover deliveries to this client
            return RefusedConnection()
        if len(self._connections) < connection_limit():
            return Connection(self._services, self._connections, origin, handed)
        return self._refusals.accept()

    def take_client(self, client: socket.socket, known: bytes) -> None:
        """Serve a client handed over by a different process of the broker."""
        handed, loop = Handed.unpacked(known), asyncio.get_running_loop()
        client.setblocking(False)
        task = loop.create_task(loop.connect_accepted_socket(lambda: self.accept(handed=handed), client))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def close(self) -> None:
        """Stop listening."""
        for listener in self.listeners:
            listener.close()

    def refuse_all(self) -> None:
        """Stop listening, and refuse clients that are accepted but not connected yet."""
        self._is_stopping = True
        self.close()

    async def stop_processes(self) -> None:
        """End the TLS processes, once all clients are gone."""
        if self._tls_processes is not None:
            await self._tls_processes.stop()
