"""RabbitMQ queues to be moved: their list, the method per queue, and the lock for exclusive access."""

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
"""Name of the exclusive queue held by a move in each virtual host, to allow a single move at a time."""

LOCK_PATIENCE = 10.0
"""Seconds until the lock of a killed move must be gone."""

COLUMNS = "name,vhost,type,auto_delete,arguments,effective_policy_definition,consumers,owner_pid_details,messages"

_LOCKED, _FORBIDDEN = 405, 403

_LETS_GO = ("message-ttl", "max-length", "max-length-bytes", "max-priority")
"""Arguments and policies under which single messages leave a queue, or overtake."""


@dataclass(frozen=True)
class Source:
    """Address of a RabbitMQ.

    Attributes:
        vhost: the only virtual host that is moved; None for all.
    """

    address: AMQPAddress
    tls: ClientTLS
    management: ManagementClient
    vhost: str | None

    def queues(self) -> list[dict[str, Any]]:
        """Return the movable queues, in the management API's form: all but exclusive queues.

        Raises:
            ManagementError: there is no answer, or the user is refused.
        """
        place = () if self.vhost is None else (self.vhost,)
        found = self.management.get("queues", *place, columns=COLUMNS)
        return [one for one in found if not one.get("owner_pid_details") and one["name"] != LOCK]

    def connect(self, vhost: str) -> AMQPConnection:
        """A connection to a virtual host.

        Raises:
            ConnectionLost: there is no answer.
            RequestRefused: the user, or the virtual host, is refused.
        """
        where = replace(self.address, vhost=vhost)
        return AMQPConnection(where, self.tls.context() if where.tls else None)


def suit(drain: Drain, queue: Mapping[str, Any]) -> None:
    """Adapt the move to the properties of a queue."""
    drain.gets = bool(queue.get("auto_delete"))
    drain.marks_each = bool(queue.get("consumers")) or any(_is_set(queue, key) for key in _LETS_GO)


def expires(queue: Mapping[str, Any]) -> bool:
    """True if a queue expires when unused for a while."""
    return _is_set(queue, "expires")


def _is_set(queue: Mapping[str, Any], key: str) -> bool:
    """Return True if an argument or a policy of a queue sets a limit."""
    policy = queue.get("effective_policy_definition")
    return f"x-{key}" in (queue.get("arguments") or {}) or (isinstance(policy, dict) and key in policy)


@contextmanager
def alone(source: Source, vhost: str) -> Iterator[None]:
    """Be the only move of a virtual host: two would publish messages twice.

    A user who may not declare the queue that tells it goes on without.

    Raises:
        MigrationError: another bridge exists.
        ConnectionLost: there is no answer.
        RequestRefused: the user, or the virtual host, is refused.
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
