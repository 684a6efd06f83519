"""Closing of connections when their user or virtual host is deleted.

Changed passwords and permissions close no connection: they count from the next login, and the next operation, on.
"""

from collections.abc import Callable, Iterable

from jumpmq.amqp.errors import ConnectionForced
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.connection.connection import Connection
from jumpmq.topology import Change, ChangePrincipal, DeleteUser, VirtualHost


class ForcedCloses:
    """Closes connections as definitions change.

    Args:
        connections: the open connections.
    """

    def __init__(self, connections: Iterable[Connection], turns: Turns) -> None:
        self._connections = connections  # the broker's live set
        self._turns = turns  # writes connection.close at the end of the event-loop iteration

    def follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Close the connections of a deleted user: a listener of the topology."""
        if isinstance(change, DeleteUser):
            self.close(f"user '{change.name}' is deleted", lambda one: one.user.is_kept(change.name))

    def leave(self, vhost: VirtualHost) -> None:
        """Close the connections to a virtual host before its deletion (``Topology.leaving``)."""
        self.close(f"vhost '{vhost.name}' is deleted", lambda one: one.opened and one.vhost is vhost)

    def close(self, reason: str, chosen: Callable[[Connection], bool]) -> int:
        """Close the chosen connections; return their number.

        Args:
            reason: text for the clients, after ``CONNECTION_FORCED``.
        """
        found = [connection for connection in self._connections if chosen(connection)]
        with self._turns.turn():
            for connection in found:
                connection.close(ConnectionForced(reason))
        return len(found)
