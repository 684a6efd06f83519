"""Permissions of a user (RabbitMQ, "Authentication, Authorisation, Access Control")."""

from collections.abc import Iterable
from typing import Literal

from jumpmq.amqp.errors import AccessRefused, NotAllowed
from jumpmq.amqp.messages import Message
from jumpmq.broker.security.accounts import Principal
from jumpmq.topology import Change, Exchange, Topology, VirtualHost
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges import TopicExchange
from jumpmq.topology.rights import Right, TopicRight
from jumpmq.topology.users import Operation, TopicPermissions


class Authorization:
    """Decides by the permissions currently in force."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def require_vhost(self, user: Principal, name: str) -> VirtualHost:
        """Return the virtual host of a name, for a user opening the virtual host.

        Raises:
            NotAllowed: no such virtual host, or the user has no permissions in it.
        """
        vhost = self._topology.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        found = user.account(self._topology)
        if found is None or name not in found.permissions:
            raise NotAllowed(f"access to vhost '{name}' refused for user '{user}'")
        return vhost

    def may_impersonate(self, user: Principal) -> bool:
        """Return True if the user may publish under other names (RabbitMQ, "Validated User-ID": tag
        ``impersonator``).
        """
        found = user.account(self._topology)
        return found is not None and "impersonator" in found.tags

    def require(self, user: Principal, vhost: str, operation: Operation, kind: DestinationKind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user lacks the permission.
        """
        if not self.allows(user, vhost, operation, name):
            raise AccessRefused(
                f"{operation} access to {kind} '{name or 'amq.default'}' in vhost '{vhost}' refused for user '{user}'"
            )

    def allows(self, user: Principal, vhost: str, operation: Operation, name: str) -> bool:
        """Return True if the user may ``configure``, ``write`` or ``read`` a queue or exchange of this name."""
        found = user.account(self._topology)
        permissions = found.permissions.get(vhost) if found is not None else None
        return permissions is not None and permissions.allows(operation, name)

    def require_any(self, user: Principal, vhost: str, operation: Operation) -> None:
        """Refuse unless the user's permissions to ``configure``, ``write`` or ``read`` match at least one possible
        name.

        Raises:
            AccessRefused: the permissions match no name.
        """
        found = user.account(self._topology)
        permissions = found.permissions.get(vhost) if found is not None else None
        if permissions is None or not permissions.allows_any(operation):
            raise AccessRefused(f"to {operation} anything in vhost '{vhost}' is refused for user '{user}'")

    def restricts_topics(self, user: Principal, exchange: Exchange) -> bool:
        """Return True if every routing key of the user's publishes to the exchange must be checked."""
        return exchange.type == TopicExchange.type and self._granted_topics(user, exchange) is not None

    def require_publish(self, user: Principal, exchange: Exchange, messages: Iterable[Message]) -> None:
        """Refuse unless the user may publish messages to the exchange with all their routing keys, including those in
        the headers CC and BCC.

        Raises:
            AccessRefused: the user's topic permissions for a topic exchange do not allow a routing key.
            PreconditionFailed: CC or BCC is not an array.
        """
        if self.restricts_topics(user, exchange):
            keys = (key for message in messages for key in Envelope.opened(message).keys)
            self.require_topics(user, exchange, "write", keys)

    def require_topics(
        self, user: Principal, exchange: Exchange, operation: Literal["write", "read"], keys: Iterable[bytes]
    ) -> None:
        """Refuse unless the user may publish to the exchange with these routing keys (write), or bind with these
        routing keys (read).

        Raises:
            AccessRefused: the user's topic permissions for a topic exchange do not allow a routing key.
        """
        if exchange.type != TopicExchange.type:
            return
        granted = self._granted_topics(user, exchange)
        if granted is None:
            return
        for key in keys:
            topic = key.decode(errors="surrogateescape")
            if not granted.allows(operation, topic, user.name, exchange.vhost):
                raise AccessRefused(
                    f"{operation} access to topic '{topic}' in exchange '{exchange.name}' in vhost "
                    f"'{exchange.vhost}' refused for user '{user}'"
                )

    def _granted_topics(self, user: Principal, exchange: Exchange) -> TopicPermissions | None:
        """Return the user's topic permissions for an exchange; None if any topic is allowed."""
        found = user.account(self._topology)
        return found.topic_permissions.get((exchange.vhost, exchange.name)) if found is not None else None

    def require_change(self, user: Principal, change: Change) -> None:
        """Refuse unless the user has the permissions for a change (:meth:`Change.rights`), for all protocols.

        Raises:
            AccessRefused: the user lacks a permission.
        """
        for right in change.rights(self._topology):
            match right:
                case Right(operation, vhost, kind, name):
                    self.require(user, vhost, operation, kind, name)
                case TopicRight(operation, exchange, key):
                    self.require_topics(user, exchange, operation, (key,))
