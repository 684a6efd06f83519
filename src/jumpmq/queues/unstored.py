"""Messages of a queue that are not in the store: their number and octets, for statistics."""

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import body_octets, of_body, persistent


class Unstored:
    """Transient messages of a durable queue, ready or taken.

    Attributes:
        count: number of messages. Test this before :meth:`forget`: most queues have none.
        octets: octets of their bodies.
    """

    __slots__ = ("count", "octets")

    def __init__(self) -> None:
        self.count = self.octets = 0

    def add(self, messages: list[Message], stored: list[Message]) -> None:
        """Count the messages of a run that are not among the stored ones."""
        self.count += len(messages) - len(stored)
        self.octets += body_octets(messages) - body_octets(stored)

    def forget(self, messages: list[Message], *, paged: bool) -> None:
        """Count the departure of messages.

        Args:
            paged: True if bodies may be on disk only.
        """
        kept = persistent(messages)
        self.leave(len(messages) - len(kept), body_octets(messages) - body_octets(kept))
        if paged:
            on_disk = of_body([message for message in messages if not message.persistent], PAGED)
            self.octets -= sum([message.paged - len(PAGED) for message in on_disk])

    def leave(self, count: int, octets: int) -> None:
        """Count the departure of messages; none if none is here."""
        if self.count:
            self.count -= count
            self.octets -= octets
