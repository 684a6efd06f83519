"""Message counts: of a channel, of a queue, and of closed channels and deleted queues."""

from dataclasses import dataclass, field

from jumpmq.queues import Queue


@dataclass(slots=True)
class Tally:
    """Message counts as in RabbitMQ's ``message_stats``.

    Attributes:
        publish: messages received from clients.
        routed: number of copies given to queues.
        confirm: messages confirmed to clients.
        return_unroutable, drop_unroutable: messages that reached no queue, returned to the client (``mandatory``) or
            not.
        deliver, deliver_no_ack: messages delivered to consumers, with and without acknowledgement.
        get, get_no_ack: the same for ``basic.get``.
        get_empty: number of ``basic.get`` without a message.
        redeliver: number of repeated deliveries.
        ack: acknowledged messages.
    """

    publish: int = 0
    routed: int = 0
    confirm: int = 0
    return_unroutable: int = 0
    drop_unroutable: int = 0
    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0

    def add(self, other: "Tally") -> None:
        """Add the counts of a second tally."""
        for name in self.__slots__:
            if count := getattr(other, name):
                setattr(self, name, getattr(self, name) + count)

    @classmethod
    def of_queue(cls, queue: Queue) -> "Tally":
        """Return the counts of a queue, without publishers and confirms."""
        sent, got, got_unasked = queue.delivered_unasked, queue.got, queue.got_unasked
        return cls(
            deliver=queue.delivered - sent - got - got_unasked,
            deliver_no_ack=sent,
            get=got,
            get_no_ack=got_unasked,
            get_empty=queue.got_nothing,
            redeliver=queue.redelivered,
            ack=queue.acknowledged - sent - got_unasked,
        )


@dataclass(slots=True)
class DeletedCounts:
    """Counts of deleted objects.

    Attributes:
        channels: counts of channels, and of messages published without a channel.
        queues: counts of queues, by kind.
    """

    channels: Tally = field(default_factory=Tally)
    queues: dict[str, Tally] = field(default_factory=dict)

    def add(self, other: "DeletedCounts") -> None:
        """Add the counts of a second instance."""
        self.channels.add(other.channels)
        for kind, tally in other.queues.items():
            self.queues.setdefault(kind, Tally()).add(tally)

    def add_queue(self, queue: Queue) -> None:
        """Add the counts of a deleted queue."""
        self.queues.setdefault(queue.type, Tally()).add(Tally.of_queue(queue))
