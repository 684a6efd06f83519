"""Interface between a queue and its consumers, alone or in a group."""

from typing import Protocol

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message


class Rows(Protocol):
    """Encoded messages of a stream."""

    def __len__(self) -> int: ...

    def encode(self, channel: int, consumer_tag: bytes, first_tag: int, frame_max: int) -> list[bytes | memoryview]:
        """Encode a ``basic.deliver`` per message; see :func:`jumpmq.amqp.messages.encode_deliveries`."""


class Consumer(Protocol):
    """A consumer of a queue's messages.

    Attributes:
        tag: consumer tag.
        no_ack: True if deliveries count as acknowledged at once.
        exclusive: True if no other consumer is allowed.
        priority: consumers with a higher priority are served first (argument ``x-priority``).
        arguments: arguments of ``basic.consume``.
        prefetch: maximum number of unacknowledged deliveries; 0 for no limit.
    """

    tag: str
    no_ack: bool
    exclusive: bool
    priority: int
    arguments: list[Field]
    prefetch: int

    def capacity(self) -> int:
        """Return the number of messages that the consumer accepts now."""

    def passed_over(self) -> None:
        """Note a message without capacity: call :meth:`Queue.admit` once capacity is free."""

    @property
    def shares_capacity(self) -> bool:
        """True if a delivery may reduce a second consumer's capacity."""

    def deliver(self, messages: list[Message]) -> None:
        """Deliver messages, at most the capacity."""

    def deliver_rows(self, rows: Rows) -> None:
        """As :meth:`deliver`, messages of a stream."""

    def owns(self, epoch: int) -> None:
        """Note the consumer's epoch (:mod:`~jumpmq.queues.epochs`) as the queue's single active consumer."""

    def cancelled(self) -> None:
        """Handle the deletion of the queue."""


class SubscribedGroup(Protocol):
    """A consumer group, from the point of view of its queues."""

    @property
    def name(self) -> str: ...
