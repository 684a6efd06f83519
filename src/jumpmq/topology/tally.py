"""Message counts: of a channel, of a queue, and of closed channels and deleted queues."""

from dataclasses import dataclass, field

from jumpmq.queues import Queue


@dataclass(slots=True)
class Tally:
    """Message counts as in RabbitMQ's ``message_stats``.

    Attributes:
        publish: taken from a client.
        routed: number of copies given to queues.
        confirm: that the client was told of.
        return_unroutable, drop_unroutable: that reached no queue, by whether the client had it back (``mandatory``).
        deliver, deliver_no_ack: sent to consumers, with acknowledgement wanted or without.
        get, get_no_ack: the same with ``basic.get``.
        get_empty: times that nothing was there to get.
        redeliver: of those sent, how many for another time.
        ack: acknowledged.
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
        channels: of channels, and of messages that needed none.
        queues: by the kind of queue.
    """

    channels: Tally = field(default_factory=Tally)
    queues: dict[str, Tally] = field(default_factory=dict)

    def add(self, other: "DeletedCounts") -> None:
        """Add the counts of a second instance."""
        self.channels.add(other.channels)
        for kind, tally in other.queues.items():
            self.queues.setdefault(kind, Tally()).add(tally)

    def add_queue(self, queue: Queue) -> None:
        """A queue is gone."""
        self.queues.setdefault(queue.type, Tally()).add(Tally.of_queue(queue))
