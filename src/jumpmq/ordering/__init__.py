"""Write as the present owner of a key only: use of the header ``x-owner-epoch`` by consumers, for any client.

A stopped member of a consumer group may lose its queues to another member, go on later, and finish its old work. The
broker ignores the late acknowledgement; the application has to refuse the late write to a database. Each delivery to
a member, and to a single active consumer, has an *owner epoch*: a number that is higher for every later owner. A
transaction is safe if it first raises the row's epoch, and goes on only if this statement has written the row::

    delivery = Delivery.of(properties, method)              # pika; Delivery.of(message) with aio-pika
    with database:                                          # one transaction
        claimed = database.execute(
            "INSERT INTO accounts (account, epoch) VALUES (:key, :epoch) "
            "ON CONFLICT (account) DO UPDATE SET epoch = excluded.epoch WHERE accounts.epoch <= excluded.epoch",
            {"key": delivery.key, "epoch": delivery.epoch},
        )
        delivery.require_owner(claimed.rowcount)            # StaleOwner: another consumer has the key by now
        ...                                                 # the write itself

``jumpmq verify`` reads the records that consumers write with :meth:`Delivery.record`.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Delivery", "StaleOwner"]


class StaleOwner(Exception):
    """The delivery's key has a newer owner, which handles the message: roll back."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Origin and owner of a message.

    Attributes:
        key: the routing key, unless given.
        message: the message id; empty if the publisher gave none.
        queue: the queue; empty for a single active consumer, which knows its queue.
        slot: the slot; None for a queue without slots.
        epoch: the owner's number; 0 for a queue without an owner.
        redelivered: True if the message may have been delivered before.
    """

    key: str
    message: str
    queue: str
    slot: int | None
    epoch: int
    redelivered: bool

    @classmethod
    def of(cls, properties: Any, method: Any = None, *, key: str | None = None) -> "Delivery":
        """Return the origin and owner of a message.

        Args:
            properties: an object with ``headers`` and ``message_id``: pika's ``BasicProperties``, or a message of
                aio-pika.
            method: an object with ``routing_key`` and ``redelivered``: pika's ``Basic.Deliver``; by default
                ``properties``.
            key: the key, if it is not the routing key, as with ``hash-header`` or ``x-slot-key``.
        """
        headers = properties.headers or {}
        method = properties if method is None else method
        return cls(
            key=method.routing_key if key is None else key,
            message=properties.message_id or "",
            queue=headers.get("x-queue", ""),
            slot=headers.get("x-slot"),
            epoch=headers.get("x-owner-epoch", 0),
            redelivered=bool(method.redelivered),
        )

    def require_owner(self, rows: int) -> None:
        """Check the result of a statement with ``WHERE epoch <= :epoch``.

        Args:
            rows: number of written rows.

        Raises:
            StaleOwner: no row was written: a newer owner has the key.
        """
        if not rows:
            raise StaleOwner(f"key {self.key!r} has an owner with a higher epoch than {self.epoch}")

    def record(self, number: int | None = None, **more: Any) -> dict[str, Any]:
        """Return the record of the message, to be written in the transaction that handles the message, for ``jumpmq
        verify``.

        Args:
            number: the message's number among the messages of its key, counted by the publisher; determines the order.
            more: further columns, such as ``consumer``.
        """
        found = {"key": self.key, "message": self.message, "queue": self.queue, "slot": self.slot, "epoch": self.epoch}
        return {**found, "number": number, "time": time.time(), **more}

    def line(self, number: int | None = None, **more: Any) -> str:
        """Return :meth:`record` as a line of JSON, to be appended to a file."""
        return json.dumps(self.record(number, **more)) + "\n"
