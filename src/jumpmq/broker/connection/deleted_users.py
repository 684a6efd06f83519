"""Connections end with their user. (New passwords and permissions count from the next login and operation on.)"""

from collections.abc import Iterable

from jumpmq.amqp.errors import ConnectionForced
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.security.accounts import is_user
from jumpmq.topology import Asker, Change, DeleteUser
from jumpmq.topology.topology import Listener


def closing_connections(connections: Iterable[Connection], turns: Turns) -> Listener:
    """A listener of the topology's that closes the connections of users who are deleted."""

    def follow(change: Change, asker: Asker) -> None:
        if isinstance(change, DeleteUser):
            with turns.turn():
                for connection in [one for one in connections if is_user(one.user, change.name)]:
                    connection.close(ConnectionForced(f"user '{change.name}' is deleted"))

    return follow
