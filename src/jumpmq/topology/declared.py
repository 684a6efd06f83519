"""A declared queue, known to every process, and its contents, held only by the process of its home."""

from jumpmq.queues import QUEUE_TYPES, Queue
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.queue_arguments import queue_type_of
from jumpmq.topology.shards import parse_shard_name


class DeclaredQueue:
    """A queue in the definitions.

    Attributes:
        definition: definition of the queue.
        contents: messages and consumers; None at other homes.
        shard: exchange and number in the name of a shard; None for other names.
        vhost, name, id, durable, exclusive, owner: as in the definition.
    """

    __slots__ = ("contents", "definition", "durable", "exclusive", "id", "name", "owner", "shard", "vhost")

    def __init__(self, definition: QueueDefinition, contents: Queue | None) -> None:
        self.definition = definition
        self.contents = contents
        self.vhost = definition.vhost
        self.name = definition.name
        self.id = definition.id
        self.durable = definition.durable
        self.exclusive = definition.exclusive
        self.owner = definition.owner
        self.shard = parse_shard_name(definition.name, definition.node)

    def __repr__(self) -> str:
        return f"<declared queue {self.name!r} in vhost {self.vhost!r}>"

    @property
    def type(self) -> str:
        """Kind of queue, a key of ``QUEUE_TYPES``."""
        return queue_type_of(self.definition.arguments)

    @property
    def is_internal(self) -> bool:
        """True if only the broker itself writes and reads the queue, for an exchange."""
        return QUEUE_TYPES[self.type].is_internal

    @property
    def append_only(self) -> bool:
        """True if reading removes nothing, as in a stream."""
        return QUEUE_TYPES[self.type].append_only

    @property
    def destination(self) -> "Queue | DeclaredQueue":
        """Destination for exchanges: the contents if local."""
        return self if self.contents is None else self.contents
