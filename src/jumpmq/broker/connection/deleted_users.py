"""Connections end with their user. (New passwords and permissions count from the next login and operation on.)"""

from jumpmq.amqp.errors import ConnectionForced
from jumpmq.broker.security.accounts import is_user
from jumpmq.broker.services import Services
from jumpmq.topology import Asker, Change, DeleteUser
from jumpmq.topology.topology import Listener


def closing_connections(services: Services) -> Listener:
    """A listener of the topology's that closes the connections of users who are deleted."""

    def follow(change: Change, asker: Asker) -> None:
        if isinstance(change, DeleteUser):
            with services.turns.turn():
                for connection in [one for one in services.connections if is_user(one.user, change.name)]:
                    connection.close(ConnectionForced(f"user '{change.name}' is deleted"))

    return follow
