"""Closing of connections when their user or virtual host is deleted, by any means.

New passwords and permissions count from the next login and operation on.
"""

from collections.abc import Callable, Iterable

from jumpmq.amqp.errors import ConnectionForced
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.connection.connection import Connection
from jumpmq.topology import Asker, Change, DeleteUser, VirtualHost


class ForcedCloses:
    """Closes connections as definitions change.

    Args:
        connections: the open connections.
    """

    def __init__(self, connections: Iterable[Connection], turns: Turns) -> None:
        self._connections = connections  # the broker's set, which changes
        self._turns = turns  # what is sent to the closed ones is written at the turn's end

    def follow(self, change: Change, asker: Asker) -> None:
        """A listener of the topology's: close the connections of a user who is deleted."""
        if isinstance(change, DeleteUser):
            self.close(f"user '{change.name}' is deleted", lambda one: one.user.is_kept(change.name))

    def leave(self, vhost: VirtualHost) -> None:
        """Close the connections to a virtual host that is about to be taken apart (``Topology.leaving``)."""
        self.close(f"vhost '{vhost.name}' is deleted", lambda one: one.opened and one.vhost is vhost)

    def close(self, reason: str, chosen: Callable[[Connection], bool]) -> int:
        """Close connections; returns how many.

        Args:
            reason: what the clients are told, after ``CONNECTION_FORCED``.
        """
        found = [connection for connection in self._connections if chosen(connection)]
        with self._turns.turn():
            for connection in found:
                connection.close(ConnectionForced(reason))
        return len(found)
