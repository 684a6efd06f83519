"""All binding keys of a topic exchange as one automaton, with states as bits of a number (Baeza-Yates and Gonnet 1992).

Each pattern has one bit for each of its words, and one bit for its end. A set bit means that the words of a routing key
so far lead to this place. Each word of a routing key moves all patterns on with a few operations on these numbers. The
time does not depend on the shape of the patterns, nor on the number of matches. 300 patterns of 127 words need numbers
of 4.8 KB: a key of 127 words takes half a millisecond, and a walk of the trie would take seconds.
"""

from collections import defaultdict
from collections.abc import Iterator

from jumpmq.topology.exchanges.base import BoundDestinations

MASK_BYTES = 16 << 20
"""Maximum size of cached word masks, in octets."""


class TopicAutomaton:
    """Patterns with bound destinations."""

    def __init__(self) -> None:
        self._ends: dict[int, BoundDestinations] = {}
        self._places: dict[tuple[bytes, ...], int] = {}
        self._clear()

    def _clear(self) -> None:
        self._length = self._unused = 0
        self._starts = self._ends_mask = self._any_one = self._any_number = 0
        self._literals: defaultdict[bytes, list[int]] = defaultdict(list)
        self._masks: dict[bytes, int] = {}

    def add(self, words: list[bytes], bound: BoundDestinations) -> None:
        """Add a new pattern."""
        first = self._places[tuple(words)] = self._length
        any_one = any_number = count = 0
        for word in _simplified(words):
            if word == b"*":
                any_one |= 1 << count
            elif word == b"#":
                any_number |= 1 << count
            else:
                self._literals[word].append(first + count)
                self._masks.pop(word, None)
            count += 1
        self._any_one |= any_one << first
        self._any_number |= any_number << first
        self._starts |= 1 << first
        self._ends_mask |= 1 << (first + count)
        self._ends[first + count] = bound
        self._length += count + 1

    def remove(self, words: list[bytes]) -> None:
        """Remove a pattern. The pattern's bits stay, without effect, until half of all bits are unused."""
        first = self._places.pop(tuple(words))
        end = first + len(_simplified(words))
        self._starts &= ~(1 << first)
        self._ends_mask &= ~(1 << end)
        del self._ends[end]
        self._unused += end - first + 1
        if 2 * self._unused > self._length:
            self._rebuild()

    def _rebuild(self) -> None:
        patterns = [(words, self._ends[first + len(_simplified(words))]) for words, first in self._places.items()]
        self._ends, self._places = {}, {}
        self._clear()
        for words, bound in patterns:
            self.add(list(words), bound)

    def match(self, words: list[bytes]) -> list[BoundDestinations]:
        """Return the destinations bound by matching patterns."""
        any_one, any_number = self._any_one, self._any_number
        state = self._starts | (self._starts & any_number) << 1
        for word in words:
            state = (state & any_one | state & self._mask(word)) << 1 | state & any_number
            state |= (state & any_number) << 1
            if not state:
                return []
        return [self._ends[place] for place in _places(state & self._ends_mask)]

    def _mask(self, word: bytes) -> int:
        """The bits of all places where a pattern has exactly this word."""
        mask = self._masks.get(word)
        if mask is None:
            places = self._literals.get(word)
            if places is None:
                return 0
            octets = bytearray(self._length // 8 + 1)
            for place in places:
                octets[place >> 3] |= 1 << (place & 7)
            if (len(self._masks) + 1) * len(octets) > MASK_BYTES:
                self._masks.clear()
            mask = self._masks[word] = int.from_bytes(octets, "little")
        return mask


def _simplified(words: list[bytes] | tuple[bytes, ...]) -> list[bytes]:
    """Return the words with consecutive ``#`` reduced to a single equivalent one."""
    return [word for number, word in enumerate(words) if word != b"#" or number == 0 or words[number - 1] != b"#"]


def _places(bits: int) -> Iterator[int]:
    """Yield the positions of set bits."""
    text = bin(bits)[:1:-1]
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)
