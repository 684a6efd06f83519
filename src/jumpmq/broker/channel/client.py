"""The connection as seen by its channels."""

from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.broker.commit.turns import CommitClient
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import Principal
from jumpmq.topology import Asker, VirtualHost
from jumpmq.topology.bindings import Kind
from jumpmq.topology.users import Operation


class ChannelClient(CommitClient, Protocol):
    """A client as seen by the client's channels.

    Attributes:
        name: ``CLIENT:PORT -> SERVER:PORT``.
        user: who logged in.
        peer_host: address of the client.
        identity: tells it from all other connections, also of earlier runs of the broker.
        peer_port: its port.
        node: name of the node that it is connected to.
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
    def asker(self) -> Asker:
        """Author of changes made at the client's request."""

    def leave_queues(self) -> None:
        """Delete the exclusive queues of a closing connection."""

    def require_permission(self, operation: Operation, kind: Kind, name: str) -> None:
        """Refuse unless the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user may not.
        """

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method when the current work is done."""

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with a content when the current work is done."""

    def send_deliveries(self, buffers: list[bytes | memoryview]) -> None:
        """Send deliveries when the current work is done, or already now if they have become many."""

    def relay_deliveries(self, frames: memoryview) -> None:
        """Relay deliveries from a remote home, from memory that is reused afterwards."""

    def defer_answers(self) -> None:
        """Hold the answers to the current read until all its changes are complete."""
