"""The topic exchange routes by patterns of words (AMQP 0-9-1, section 3.1.3.3).

Dots separate words. In a binding key ``*`` stands for one word and ``#`` for any number of words. As in RabbitMQ an
empty routing key has no words: ``#`` matches the empty key, and ``*`` does not. The exchange caches the destinations of
each routing key until a binding changes.
"""

from collections.abc import Iterable

from jumpmq.amqp.messages import Message
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange, Split, split
from jumpmq.topology.exchanges.topic_automaton import TopicAutomaton
from jumpmq.topology.exchanges.topic_trie import TopicTrie

MAX_KEYS, MAX_DESTINATIONS = 10_000, 200_000
"""Maximum numbers of cached routing keys and destinations; beyond them the cache is cleared."""


class TopicExchange(Exchange):
    """Routes a message once to a destination, even if several patterns match."""

    type = "topic"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._trie = TopicTrie()
        self._automaton: TopicAutomaton | None = None
        self._matched: dict[bytes, tuple[Destination, ...]] = {}
        self._remembered = 0

    def added(self, binding: Binding, destination: Destination) -> None:
        words = _words(binding.key)
        bound = self._trie.add(words, destination)
        if self._automaton is not None and len(bound) == 1 and bound[destination] == 1:
            self._automaton.add(words, bound)
        self._forget()

    def removed(self, binding: Binding, destination: Destination) -> None:
        words = _words(binding.key)
        bound = self._trie.remove(words, destination)
        if self._automaton is not None and not bound:
            self._automaton.remove(words)
        self._forget()

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        if len(envelope.keys) == 1:
            return self._match(envelope.keys[0])
        return dict.fromkeys(destination for key in envelope.keys for destination in self._match(key))

    def split(self, messages: list[Message]) -> Split[Message]:
        return split(messages, lambda message: self._match(message.routing_key))

    def _match(self, key: bytes) -> tuple[Destination, ...]:
        found = self._matched.get(key)
        if found is None:
            words = _words(key)
            bound = self._trie.match(words)
            if bound is None:
                bound = self._made_automaton().match(words)
            found = tuple(dict.fromkeys(destination for one in bound for destination in one))
            self._remembered += len(found)
            if len(self._matched) >= MAX_KEYS or self._remembered > MAX_DESTINATIONS:
                self._forget()
            self._matched[key] = found
        return found

    def _made_automaton(self) -> TopicAutomaton:
        """The automaton. The first walk that gives up makes the automaton; bindings update it from then on."""
        if self._automaton is None:
            self._automaton = TopicAutomaton()
            for words, bound in self._trie.patterns():
                self._automaton.add(words, bound)
        return self._automaton

    def _forget(self) -> None:
        self._matched.clear()
        self._remembered = 0


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []
