"""RabbitMQ queues to be moved: the list of queues, the method for each queue, and the lock against a second move."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from jumpmq.amqp import methods as m
from jumpmq.cli.migration.draining import Drain, MigrationError
from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, RequestRefused
from jumpmq.management import ClientTLS, ManagementClient

LOCK = "jumpmq migrate"
"""Name of the exclusive queue that locks a virtual host for a single move."""

LOCK_PATIENCE = 10.0
"""Seconds to wait for the lock: RabbitMQ releases the lock of a killed move late."""

COLUMNS = "name,vhost,type,auto_delete,arguments,effective_policy_definition,consumers,owner_pid_details,messages"

_LOCKED, _FORBIDDEN = 405, 403

_LETS_GO = ("message-ttl", "max-length", "max-length-bytes", "max-priority")
"""Arguments and policies under which single messages leave a queue, or overtake others."""


@dataclass(frozen=True)
class Source:
    """Address of a RabbitMQ.

    Attributes:
        vhost: virtual host to move; None for all virtual hosts.
    """

    address: AMQPAddress
    tls: ClientTLS
    management: ManagementClient
    vhost: str | None

    def queues(self) -> list[dict[str, Any]]:
        """Return the movable queues, in the management API's form: all except exclusive queues.

        Raises:
            ManagementError: the RabbitMQ does not answer, or refuses the user.
        """
        place = () if self.vhost is None else (self.vhost,)
        found = self.management.get("queues", *place, columns=COLUMNS)
        return [one for one in found if not one.get("owner_pid_details") and one["name"] != LOCK]

    def connect(self, vhost: str) -> AMQPConnection:
        """Connect to a virtual host.

        Raises:
            ConnectionLost: the RabbitMQ does not answer.
            RequestRefused: the RabbitMQ refuses the user or the virtual host.
        """
        where = replace(self.address, vhost=vhost)
        return AMQPConnection(where, self.tls.context() if where.tls else None)


def suit(drain: Drain, queue: Mapping[str, Any]) -> None:
    """Adapt the move to the properties of a queue."""
    drain.gets = bool(queue.get("auto_delete"))
    drain.marks_each = bool(queue.get("consumers")) or any(_is_set(queue, key) for key in _LETS_GO)


def expires(queue: Mapping[str, Any]) -> bool:
    """Return True if the queue expires after a time without use."""
    return _is_set(queue, "expires")


def _is_set(queue: Mapping[str, Any], key: str) -> bool:
    """Return True if the queue's arguments or policy have the key."""
    policy = queue.get("effective_policy_definition")
    return f"x-{key}" in (queue.get("arguments") or {}) or (isinstance(policy, dict) and key in policy)


@contextmanager
def alone(source: Source, vhost: str) -> Iterator[None]:
    """Hold the lock of a virtual host: two moves would publish messages twice.

    A user without the right to declare the exclusive queue of the lock moves without the lock.

    Raises:
        MigrationError: another move holds the lock.
        ConnectionLost: the RabbitMQ does not answer.
        RequestRefused: the RabbitMQ refuses the user or the virtual host.
    """
    connection = lock(source, vhost)
    try:
        yield
    finally:
        connection.close()


def lock(source: Source, vhost: str, patience: float = LOCK_PATIENCE) -> AMQPConnection:
    """Open a connection that holds the lock of :func:`alone` until closed. Raises as :func:`alone`."""
    until = time.monotonic() + patience
    while True:
        connection = source.connect(vhost)
        try:
            connection.call(m.QueueDeclare(queue=LOCK, exclusive=True, auto_delete=True), m.QueueDeclareOk)
        except RequestRefused as refused:
            if refused.code == _FORBIDDEN and refused.is_open:
                with suppress(ConnectionLost, RequestRefused):
                    connection.call(m.ChannelOpen(), m.ChannelOpenOk)
                return connection
            connection.close()
            if refused.code != _LOCKED:
                raise
            if time.monotonic() > until:
                raise MigrationError(
                    f"another `jumpmq migrate` moves the queues of vhost '{vhost}' at {source.address}"
                ) from None
            time.sleep(0.2)
        else:
            return connection
