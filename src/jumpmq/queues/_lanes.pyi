from collections.abc import Callable

from jumpmq.amqp.messages import Message

class Lane:
    """Messages of a slot by ascending ``seq``, in one array. Has the methods of its reference implementation,
    :class:`jumpmq.queues.head.Head`."""

    @property
    def count(self) -> int:
        """Number of messages."""
    @property
    def first(self) -> Message:
        """First message; the lane must not be empty."""
    @property
    def last(self) -> Message:
        """Last message; the lane must not be empty."""
    def extend(self, messages: list[Message]) -> None:
        """Add messages at the end."""
    def put_first(self, messages: list[Message]) -> None:
        """Insert messages at the front."""
    def take(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the front."""
    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""
    def take_expired(self, now: float, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages at the front that expire by ``now`` (seconds since the epoch)."""
    def take_last(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the end, in order."""
    def fitting(self, last_seq: int) -> int:
        """Return the number of messages up to ``last_seq``."""
    def since(self, first_seq: int) -> list[Message]:
        """Return messages from ``first_seq`` on, at most :data:`jumpmq.queues.head.RUN`, without removing them."""

class Share:
    """Slots that are served in turn, in a ring. A slot is in the ring of one share at most."""

    @property
    def count(self) -> int:
        """Number of slots waiting for their turn."""
    def __len__(self) -> int:
        """Return the number of slots waiting for their turn."""

class Lanes:
    """A lane per slot, and the rings of slots; see :mod:`jumpmq.queues.slots`. A slot may be *apart*: the lane is then
    the head of :class:`jumpmq.queues.ready.ReadyMessages`, which has the slot's messages on disk, too."""

    def __init__(self, slots: int, limit: int, overhead: int) -> None:
        """Create empty lanes.

        Args:
            slots: number of slots, from 1 to 65535.
            limit: maximum number of unacknowledged messages per slot; 0 for no limit.
            overhead: octets of memory per message, in addition to its body.

        Raises:
            ValueError: the number of slots is out of range.
        """
    @property
    def share(self) -> Share:
        """Share of all slots not given to another share."""
    @property
    def count(self) -> int:
        """Number of messages in lanes that are not apart."""
    @property
    def size(self) -> int:
        """Octets of the bodies of messages in lanes that are not apart."""
    @property
    def slots(self) -> int:
        """Number of slots."""
    @property
    def limit(self) -> int:
        """Maximum number of unacknowledged messages per slot; 0 for no limit."""
    def queue_up(self, slot: int) -> bool:
        """Add a slot with messages to the end of its ring, unless the slot is at the limit or in no share. Return True
        if the slot was added."""
    def step_back(self, slot: int) -> None:
        """Remove a slot without deliverable messages from its ring."""
    def give(self, slot: int, share: Share | None) -> None:
        """Move a slot to a share; None for no share."""
    def given_to(self, slot: int) -> Share | None:
        """Return the share of a slot."""
    def ring(self, share: Share) -> list[int]:
        """Return the waiting slots of a share, next first."""
    def held_of(self, slot: int) -> int:
        """Return the number of unacknowledged messages of a slot."""
    def length(self, slot: int) -> int:
        """Return the number of messages in the lane of a slot."""
    def front(self, slot: int) -> Message | None:
        """Return the first message in the lane of a slot."""
    def is_apart(self, slot: int) -> bool:
        """Return True if the messages of a slot are kept outside of the lanes."""
    def filled(self) -> list[int]:
        """Return the slots with messages in lanes that are not apart."""
    def add(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Append messages to the lanes of their slots, except for slots that are apart. Return the messages of the
        latter, and the octets of memory of the added messages."""
    def take(
        self, share: Share, count: int, most: int, others: Callable[[int, int, int], tuple[list[Message], int, bool]]
    ) -> tuple[list[Message], int]:
        """Remove messages of a share's slots, in turn, until ``count`` messages or ``most`` octets of bodies.

        Args:
            others: takes from a slot that is apart, given the slot, and the remaining ``count`` and ``most``. Returns
                the messages, their octets, and True if the slot has further messages to deliver.

        Returns:
            The messages, and the octets of memory of the messages taken from lanes.
        """
    def hold(self, messages: list[Message]) -> None:
        """Count messages as unacknowledged that were taken by other methods than :meth:`take`."""
    def settle(self, messages: list[Message]) -> tuple[bool, set[int]]:
        """Count messages as settled. Return True if slots were added to rings, and the settled slots that are apart and
        in no ring: the caller adds these to rings."""
    def set_apart(self, slot: int) -> tuple[Lane, int, int]:
        """Set a slot apart: the caller counts its messages from then on. Return the lane, the octets of its bodies, and
        its octets of memory."""
    def rejoin(self, slot: int, size: int, held: int) -> None:
        """End the setting apart of a slot: all of its messages are in its lane again.

        Args:
            size: octets of the messages' bodies.
            held: octets of memory of the messages.
        """
    def reset(self) -> None:
        """Remove all messages. The counts of unacknowledged messages stay."""
