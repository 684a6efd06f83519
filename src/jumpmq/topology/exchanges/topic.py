"""The topic exchange: by patterns of words (AMQP 0-9-1, section 3.1.3.3).

Words are separated by dots; in a binding key ``*`` stands for one word and ``#`` for any number of them. As in RabbitMQ
an empty routing key has no words: ``#`` matches it, ``*`` does not.

Patterns are kept in a trie with a node a word. A routing key is matched by walking all nodes that its words so far can
reach at once, which takes time linear in its words, whatever the patterns. What a routing key matched is remembered
until a binding changes.
"""

from collections.abc import Iterable

from jumpmq.amqp.messages import Message
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import BoundDestinations, Destination, Exchange, Split, split

CACHE_SIZE = 10_000
"""Routing keys remembered; beyond, remembering starts anew."""


class _Node:
    """A place in the trie: what is bound here, and where the next word of a pattern leads."""

    __slots__ = ("bound", "children", "repeats")

    def __init__(self, repeats: bool) -> None:
        self.bound = BoundDestinations()
        self.children: dict[bytes, _Node] = {}
        self.repeats = repeats


class TopicExchange(Exchange):
    """Each destination gets a message once, however many patterns match."""

    type = "topic"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._root = _Node(False)
        self._matched: dict[bytes, tuple[Destination, ...]] = {}

    def added(self, binding: Binding, destination: Destination) -> None:
        node = self._root
        for word in _words(binding.key):
            node = node.children.setdefault(word, _Node(word == b"#"))
        node.bound.add(destination)
        self._matched.clear()

    def removed(self, binding: Binding, destination: Destination) -> None:
        words = _words(binding.key)
        path = [self._root]
        for word in words:
            path.append(path[-1].children[word])
        path[-1].bound.remove(destination)
        for parent, word, node in reversed(list(zip(path, words, path[1:], strict=False))):
            if not node.bound and not node.children:
                del parent.children[word]
        self._matched.clear()

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        if len(envelope.keys) == 1:
            return self._match(envelope.keys[0])
        return dict.fromkeys(destination for key in envelope.keys for destination in self._match(key))

    def split(self, messages: list[Message]) -> Split[Message]:
        return split(messages, lambda message: self._match(message.routing_key))

    def _match(self, key: bytes) -> tuple[Destination, ...]:
        found = self._matched.get(key)
        if found is None:
            if len(self._matched) >= CACHE_SIZE:
                self._matched.clear()
            found = self._matched[key] = tuple(_match(self._root, _words(key)))
        return found


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def _match(root: _Node, words: list[bytes]) -> dict[Destination, None]:
    """All destinations whose patterns match the words."""
    reached = _with_empty_matches({root: None})
    for word in words:
        following: dict[_Node, None] = {}
        for node in reached:
            for child in (node.children.get(word), node.children.get(b"*")):
                if child is not None:
                    following[child] = None
            if node.repeats:
                following[node] = None
        reached = _with_empty_matches(following)
    return dict.fromkeys(destination for node in reached for destination in node.bound)


def _with_empty_matches(nodes: dict[_Node, None]) -> dict[_Node, None]:
    """The nodes, and those behind them that a ``#`` matching no word opens."""
    found = dict(nodes)
    open_nodes = list(nodes)
    for node in open_nodes:
        child = node.children.get(b"#")
        if child is not None and child not in found:
            found[child] = None
            open_nodes.append(child)
    return found
