"""The connection as seen by its channels."""

from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.commit.turns import CommitClient
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import Principal
from jumpmq.topology import ChangePrincipal, VirtualHost
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.users import Operation


class ChannelClient(CommitClient, Protocol):
    """A client as seen by the client's channels.

    Attributes:
        name: ``CLIENT:PORT -> SERVER:PORT``.
        user: the logged-in user.
        peer_host: address of the client.
        identity: unique identifier of the connection, also among earlier runs of the broker.
        peer_port: port of the client.
        node: name of the client's node.
        vhost: the opened virtual host.
        charges: broker memory held by the client.
    """

    name: str
    user: Principal
    peer_host: str
    identity: str
    peer_port: int
    node: str
    vhost: VirtualHost
    charges: Charges

    @property
    def frame_max(self) -> int:
        """Size of the largest frame that the client accepts, in octets."""

    @property
    def congested(self) -> bool:
        """True if the client reads too slowly for more deliveries."""

    @property
    def wants_cancel_notice(self) -> bool:
        """True if the client understands ``basic.cancel`` from the broker."""

    @property
    def provided_name(self) -> str | None:
        """Connection name given by the client; None without one."""

    @property
    def change_principal(self) -> ChangePrincipal:
        """Principal of changes made at the client's request."""

    def leave_queues(self) -> None:
        """Delete the exclusive queues of a closing connection."""

    def require_permission(self, operation: Operation, kind: DestinationKind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user lacks the permission.
        """

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method at the end of the current work."""

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with a content at the end of the current work."""

    def send_deliveries(self, buffers: list[bytes | memoryview]) -> None:
        """Send deliveries at the end of the current work, or at once if much output is waiting."""

    def relay_deliveries(self, frames: memoryview) -> None:
        """Relay deliveries from another home. The memory of ``frames`` is reused after this call."""

    def defer_answers(self) -> None:
        """Hold the answers to the current read until all its changes are complete."""
