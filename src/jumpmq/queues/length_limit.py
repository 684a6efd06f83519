"""The length limit of a queue (``x-max-length``, ``x-max-length-bytes``, ``x-overflow``)."""

from jumpmq.amqp.messages import Message
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.arguments import Limits


class LengthLimit:
    """Limit of a queue's ready messages, by their number, by the octets of their bodies, or both.

    Attributes:
        drops_head: True if the oldest messages are dropped beyond the limit; False if publishes are refused.
        counts_octets: True if the limit includes octets.
    """

    __slots__ = ("_most", "_most_octets", "counts_octets", "drops_head")

    def __init__(self, limits: Limits) -> None:
        self._most = limits.max_length  # None for no limit of messages
        self._most_octets = limits.max_length_bytes  # None for no limit of octets
        self.counts_octets = self._most_octets is not None
        self.drops_head = limits.overflow == "drop-head"

    @classmethod
    def of(cls, limits: Limits) -> "LengthLimit | None":
        """Return the length limit among a queue's limits; None without one."""
        return cls(limits) if limits.max_length is not None or limits.max_length_bytes is not None else None

    def is_exceeded(self, ready: AnyReady) -> bool:
        """Return True if there are more messages than allowed."""
        return (self._most is not None and len(ready) > self._most) or (
            self._most_octets is not None and ready.size > self._most_octets
        )

    def take_overflow(self, ready: AnyReady, count: int) -> list[Message]:
        """Take up to ``count`` of the oldest messages, as long as there are more than allowed."""
        taken: list[Message] = []
        while len(taken) < count and self.is_exceeded(ready):
            # With a limit of octets, one at a time: the number of surplus messages is unknown.
            beyond = 1 if self._most is None else max(len(ready) - self._most, 1)
            taken += ready.take_oldest(min(beyond, count - len(taken)))
        return taken

    def refused(self, messages: list[Message], count: int, octets: int) -> list[Message]:
        """Return the messages without room, of messages published in this order.

        Args:
            count, octets: present messages, and octets of their bodies; the octets only with a limit of octets.
        """
        if self._most_octets is None:
            assert self._most is not None
            return messages[max(0, self._most - count) :]
        refused = []
        for message in messages:
            size = octets + len(message.body)
            if size > self._most_octets or (self._most is not None and count >= self._most):
                refused.append(message)
            else:
                count, octets = count + 1, size
        return refused
