"""What a user may do (RabbitMQ, "Authentication, Authorisation, Access Control")."""

from jumpmq.amqp.errors import AccessRefused, NotAllowed
from jumpmq.topology import Topology, VirtualHost
from jumpmq.topology.users import Operation


class Authorization:
    """Decides by the permissions that are in force now."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def require_vhost(self, user: str, name: str) -> VirtualHost:
        """The virtual host of this name, for a user who opens it.

        Raises:
            NotAllowed: there is none, or the user has no permissions in it.
        """
        vhost = self._topology.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        if name not in self._topology.user(user).permissions:
            raise NotAllowed(f"access to vhost '{name}' refused for user '{user}'")
        return vhost

    def may_impersonate(self, user: str) -> bool:
        """Whether the user may publish in others' names (RabbitMQ, "Validated User-ID": tag ``impersonator``)."""
        found = self._topology.users.get(user)
        return found is not None and "impersonator" in found.tags

    def require(self, user: str, vhost: str, operation: Operation, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user may not.
        """
        found = self._topology.users.get(user)
        permissions = found.permissions.get(vhost) if found is not None else None
        if permissions is None or not permissions.allows(operation, name):
            raise AccessRefused(
                f"{operation} access to resource '{name or 'amq.default'}' in vhost '{vhost}' refused for user '{user}'"
            )
