from collections.abc import Callable

from jumpmq.amqp.messages import Message

class Lane:
    """Messages in ascending ``seq``, in one piece of memory; methods as of :class:`jumpmq.queues.head.Head`."""

    @property
    def count(self) -> int: ...
    @property
    def first(self) -> Message: ...
    @property
    def last(self) -> Message: ...
    def extend(self, messages: list[Message]) -> None: ...
    def put_first(self, messages: list[Message]) -> None: ...
    def take(self, count: int) -> list[Message]: ...
    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]: ...
    def take_expired(self, now: float, count: int) -> list[Message]: ...
    def take_last(self, count: int) -> list[Message]: ...
    def fitting(self, last_seq: int) -> int: ...
    def since(self, first_seq: int) -> list[Message]: ...

class Share:
    """Slots taking turns with each other; a slot is in the ring of one share."""

    @property
    def count(self) -> int:
        """Number of slots waiting for their turn."""
    def __len__(self) -> int:
        """Return the same number."""

class Lanes:
    """A lane per slot, and the rings of turns; see :mod:`jumpmq.queues.slots`."""

    def __init__(self, slots: int, limit: int, overhead: int) -> None: ...
    @property
    def share(self) -> Share:
        """Share of all slots not given to another share."""
    @property
    def count(self) -> int:
        """Number of messages in lanes that are not apart."""
    @property
    def size(self) -> int:
        """Octets of the bodies of these messages."""
    @property
    def slots(self) -> int:
        """Number of slots."""
    @property
    def limit(self) -> int:
        """Maximum number of unacknowledged messages per slot."""
    def queue_up(self, slot: int) -> bool:
        """Make a slot with messages wait for its turn, if permitted; return True if it begins to wait."""
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
        """Append messages to the lanes of their slots; return the messages of slots that are apart, and the octets of
        memory of the added ones."""
    def take(
        self, share: Share, count: int, most: int, others: Callable[[int, int, int], tuple[list[Message], int, bool]]
    ) -> tuple[list[Message], int]:
        """Remove up to ``count`` messages of a share, as few as hold ``most`` octets, in turn; ``others`` takes from
        slots that are apart. Return the messages, and the octets of memory of those from lanes."""
    def hold(self, messages: list[Message]) -> None:
        """Count messages taken in another way as unacknowledged."""
    def settle(self, messages: list[Message]) -> tuple[bool, set[int]]:
        """Count messages as settled; return True if slots begin to wait, and the slots apart that may give messages
        again."""
    def set_apart(self, slot: int) -> tuple[Lane, int, int]:
        """Keep the messages of a slot outside of the lanes; return the lane, octets of its bodies, and octets of
        memory."""
    def rejoin(self, slot: int, size: int, held: int) -> None:
        """Take the messages of a slot back; the arguments are the octets returned by :meth:`set_apart`."""
    def reset(self) -> None:
        """Forget all messages; unacknowledged ones stay counted."""
