"""Permissions of a user (RabbitMQ, "Authentication, Authorisation, Access Control")."""

from collections.abc import Iterable
from typing import Literal

from jumpmq.amqp.errors import AccessRefused, NotAllowed
from jumpmq.amqp.messages import Message
from jumpmq.broker.security.accounts import Principal
from jumpmq.topology import (
    Bind,
    Change,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Exchange,
    ExchangeDefinition,
    QueueDefinition,
    Topology,
    Unbind,
    VirtualHost,
    rules,
)
from jumpmq.topology.bindings import Kind
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges import TopicExchange
from jumpmq.topology.users import Operation, TopicPermissions


class Authorization:
    """Decides by the permissions currently in force."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def require_vhost(self, user: Principal, name: str) -> VirtualHost:
        """Return the virtual host of a name, for a user opening the virtual host.

        Raises:
            NotAllowed: there is none, or the user has no permissions in it.
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

    def require(self, user: Principal, vhost: str, operation: Operation, kind: Kind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user may not.
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
        """Refuse unless the user may ``configure``, ``write`` or ``read`` some possible resource.

        Raises:
            AccessRefused: the user's permissions allow it of none.
        """
        found = user.account(self._topology)
        permissions = found.permissions.get(vhost) if found is not None else None
        if permissions is None or not permissions.allows_any(operation):
            raise AccessRefused(f"to {operation} anything in vhost '{vhost}' is refused for user '{user}'")

    def restricts_topics(self, user: Principal, exchange: Exchange) -> bool:
        """Return True if every routing key of the user's publishes to the exchange is to be checked."""
        return exchange.type == TopicExchange.type and self._granted_topics(user, exchange) is not None

    def require_publish(self, user: Principal, exchange: Exchange, messages: Iterable[Message]) -> None:
        """Refuse unless the user may publish messages to the exchange by all their routing keys, those of the headers
        CC and BCC included.

        Raises:
            AccessRefused: it is a topic exchange, and the user's topic permissions for it say no.
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
            AccessRefused: it is a topic exchange, and the user's topic permissions for it say no.
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
        """The user's topic permissions for an exchange; None where any topic is allowed."""
        found = user.account(self._topology)
        return found.topic_permissions.get((exchange.vhost, exchange.name)) if found is not None else None

    def require_change(self, user: Principal, change: Change) -> None:
        """Refuse unless the user may declare, delete or bind the resource of a change, over any protocol.

        A queue's dead letters are read from it and written to their exchange, and so with an alternate exchange: who
        declares such a queue or exchange must be allowed both; ``x-dead-letter-routing-key`` is a topic like another.
        Other changes are not judged here.

        Raises:
            AccessRefused: the user may not.
        """
        match change:
            case DeclareExchange(definition):
                self._require_declaration(user, "exchange", definition, "alternate-exchange")
            case DeclareQueue(definition):
                self._require_declaration(user, "queue", definition, "x-dead-letter-exchange")
            case DeleteExchange(vhost, name):
                self.require(user, vhost, "configure", "exchange", name)
            case DeleteQueue(vhost, name):
                self.require(user, vhost, "configure", "queue", name)
            case Bind(vhost, binding) | Unbind(vhost, binding):
                self.require(user, vhost, "write", binding.kind, binding.destination)
                rules.refuse_default_exchanges(binding)  # in RabbitMQ's order
                self.require(user, vhost, "read", "exchange", binding.source)
                source = self._topology.vhost(vhost).exchanges.get(binding.source)
                if source is not None:
                    self.require_topics(user, source, "read", (binding.key,))

    def _require_declaration(
        self, user: Principal, kind: Kind, definition: QueueDefinition | ExchangeDefinition, forwards_by: str
    ) -> None:
        vhost, name = definition.vhost, definition.name
        self.require(user, vhost, "configure", kind, name)
        target = definition.arguments.get(forwards_by)
        host = self._topology.vhost(vhost)
        exists = name in (host.declared if kind == "queue" else host.exchanges)
        if target is not None and isinstance(target.value, str) and not exists:
            self.require(user, vhost, "read", kind, name)
            self.require(user, vhost, "write", "exchange", target.value)
            key, exchange = definition.arguments.text("x-dead-letter-routing-key"), host.exchanges.get(target.value)
            if kind == "queue" and key is not None and exchange is not None:
                self.require_topics(user, exchange, "write", (key.encode(errors="surrogateescape"),))
