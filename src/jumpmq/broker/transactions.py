"""Transactions of a channel (AMQP 0-9-1, class tx): publishes and acknowledgements that wait for ``tx.commit``."""

from dataclasses import dataclass, field

from jumpmq.amqp.events import Publish


@dataclass(slots=True)
class Transaction:
    """What a transactional channel did since its last commit.

    Attributes:
        publishes: runs of messages, in order.
        acks: (delivery tags, multiple).
        nacks: (delivery tag, multiple, requeue).
    """

    publishes: list[Publish] = field(default_factory=list)
    acks: list[tuple[list[int], bool]] = field(default_factory=list)
    nacks: list[tuple[int, bool, bool]] = field(default_factory=list)
