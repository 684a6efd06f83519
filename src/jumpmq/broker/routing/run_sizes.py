"""Sizes of routing steps: a run of publishes is cut into pieces of a few milliseconds.

The cost of a message depends on its exchange: one queue, or a thousand header bindings to match and five hundred
destination queues. The broker learns the cost for each exchange, from small pieces to larger ones, and learns it again
when bindings change.
"""

from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message, any_copies
from jumpmq.amqp.properties import HEADERS
from jumpmq.topology import Change, ChangePrincipal, DeclareQueue, DeleteQueue, Unbind

PIECE = 0.002
"""Maximum duration of a piece, in seconds."""

FIRST = 8
"""Number of messages of an exchange's first piece."""

GROWTH = 4

LARGEST = 4096
"""Maximum number of messages of a piece."""

COPIES = 16 << 10
"""Maximum octets of properties in a piece with headers CC or BCC."""


class RunSizes:
    """The size of pieces, in messages, by virtual host and exchange."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}  # messages of the next piece

    def cut(self, vhost: str, run: Publish, most: int = LARGEST) -> tuple[Publish, Publish | None]:
        """Return a piece to route now, of at most ``most`` messages, and the rest of the run; None without a rest."""
        size = min(most, self._sizes.get((vhost, run.exchange), FIRST))
        if run.flags & HEADERS and len(run.messages) > 1 and any_copies(run.messages):
            size = min(size, _within(run.messages))
        if len(run.messages) <= size:
            return run, None
        return _part(run, 0, size), _part(run, size, len(run.messages))

    def learn(self, vhost: str, piece: Publish, seconds: float) -> None:
        """Adjust the size of pieces after the routing of a piece, in ``seconds``."""
        key, count = (vhost, piece.exchange), len(piece.messages)
        size = self._sizes.get(key, FIRST)
        if seconds > PIECE:
            self._sizes[key] = max(1, int(count * PIECE / seconds))
        elif count >= size and seconds < PIECE / GROWTH:
            self._sizes[key] = min(LARGEST, size * GROWTH)

    def follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Handle a change of definitions: learn again after changes that may make messages more expensive."""
        if self._sizes and not isinstance(change, DeclareQueue | DeleteQueue | Unbind):
            self._sizes.clear()


def _within(messages: list[Message]) -> int:
    """Return the number of messages to route together, limited by the octets of properties: headers CC and BCC may have
    many routing keys.
    """
    octets = 0
    for number, message in enumerate(messages):
        octets += len(message.properties)
        if octets > COPIES:
            return max(1, number)
    return len(messages)


def _part(run: Publish, first: int, last: int) -> Publish:
    messages = run.messages[first:last]
    size = sum(len(message.body) for message in messages)
    return Publish(run.channel, run.exchange, run.mandatory, run.immediate, run.flags, size, messages)
