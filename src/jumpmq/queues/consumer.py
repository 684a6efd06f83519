"""What a queue needs to know of those who consume from it."""

from typing import Protocol

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message


class Rows(Protocol):
    """Messages as they lie in a stream."""

    def __len__(self) -> int: ...

    def encode(self, channel: int, consumer_tag: bytes, first_tag: int, frame_max: int) -> list[bytes | memoryview]:
        """``basic.deliver`` of each; see :func:`jumpmq.amqp.messages.encode_deliveries`."""


class Consumer(Protocol):
    """Somebody who takes a queue's messages.

    Attributes:
        tag: the consumer tag.
        no_ack: deliveries count as acknowledged at once.
        exclusive: no other consumer is allowed.
        priority: consumers of a higher priority are served first (argument ``x-priority``).
        arguments: of ``basic.consume``.
        prefetch: how many unacknowledged deliveries it may hold, 0 is any number.
    """

    tag: str
    no_ack: bool
    exclusive: bool
    priority: int
    arguments: list[Field]
    prefetch: int

    def capacity(self) -> int:
        """How many messages it would take now."""

    def passed_over(self) -> None:
        """There was a message for it, and it had no room: it is to call :meth:`Queue.admit` once it has."""

    @property
    def shares_capacity(self) -> bool:
        """Whether a delivery to it may leave another consumer less capacity."""

    def deliver(self, messages: list[Message]) -> None:
        """Hand it messages, at most as many as its capacity."""

    def deliver_rows(self, rows: Rows) -> None:
        """As :meth:`deliver`, messages of a stream."""

    def owns(self, epoch: int) -> None:
        """It is the queue's single active consumer under this number (:mod:`~jumpmq.queues.epochs`), or goes on so."""

    def cancelled(self) -> None:
        """The queue is gone."""
