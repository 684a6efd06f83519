"""Transactions of a channel (AMQP 0-9-1, class tx): publishes and acknowledgements that wait for ``tx.commit``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message

Outcome = Callable[[list[Message]], None]
"""What becomes of deliveries: acknowledged, requeued or rejected."""


@dataclass(slots=True)
class Transaction:
    """What a transactional channel did since its last commit.

    Attributes:
        publishes: runs of messages, in order.
        settlements: deliveries by their tags, and what is to become of them. They are off the channel's list, so that
            a second acknowledgement of one is an error at once, and return to it at a rollback.
    """

    publishes: list[Publish] = field(default_factory=list)
    settlements: list[tuple[dict[int, Message], Outcome]] = field(default_factory=list)

    @property
    def claimed(self) -> dict[int, Message]:
        """All deliveries that wait for the commit, by their tags."""
        return {tag: message for messages, _ in self.settlements for tag, message in messages.items()}
