"""What was counted of a channel's messages, and of those of a virtual host's channels that are gone."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Messages, counted as RabbitMQ's ``message_stats`` counts them.

    Attributes:
        publish: taken from a client.
        confirm: that the client was told of.
        return_unroutable, drop_unroutable: that reached no queue, by whether the client had it back (``mandatory``).
        deliver, deliver_no_ack: sent to consumers, with acknowledgement wanted or without.
        get, get_no_ack: the same with ``basic.get``.
        get_empty: times that nothing was there to get.
        redeliver: of those sent, how many for another time.
        ack: acknowledged.
    """

    publish: int = 0
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
        """Count what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
