"""The hash ring of a consistent hash exchange: the buckets of each destination.

Theory of operation. A destination of weight w owns w of the ring's buckets, numbered from 0. ``jump`` gives a key its
bucket. Adding a destination appends its buckets above the last bucket, so that only keys that now jump to the new
buckets move. The ring's ``removal`` names the treatment of a removed destination's buckets:

``shift``
    RabbitMQ's way. The buckets above move down, and their keys move with them to other destinations.

``minimal``
    MementoHash (Coluzzi et al., IEEE/ACM ToN 2024, arXiv 2306.09783). The destination's buckets retire, the highest
    first; their numbers stay empty. A key that jumps into a retired bucket is drawn again among the buckets that were
    still working when the bucket retired, so that the keys spread by weight. Retired buckets are a stack: an added
    destination takes the last retired buckets first, and with them exactly the keys that were drawn to other buckets,
    and appends only further buckets. In a ring without retired buckets, a removal of the highest buckets drops them.

So a ring without removals decides as RabbitMQ does, with either ``removal``. A destination that is removed and
added again with its weight, before any other change, gets its keys back.

Buckets are stored in runs, (first, count). A destination has one run until a removal splits or joins runs. With
``shift`` a destination always has one run, which follows from the weights and is not stored: a removal moves all
buckets above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from json.encoder import encode_basestring_ascii as _quoted
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

from jumpmq.hashing.arrow import int32_array, key_buffers
from jumpmq.hashing.functions import NUMBERS, HashFunction, hash_function
from jumpmq.hashing.kernel import Buckets, KeyCounts, RunBuckets

if TYPE_CHECKING:
    import pyarrow as pa

RingRemoval = Literal["minimal", "shift"]
Run = tuple[int, int]

MAX_WEIGHT = 10_000


class HashRing:
    """Destinations on a consistent hash ring, with their weights: numbers of buckets.

    Any number of threads may route over a ring while no thread changes the ring. If the ring changes while an Arrow
    array is being routed, the whole array is routed over the ring before the change.

    Args:
        removal: effect of a removal on the other destinations' keys: none (``"minimal"``), or as in RabbitMQ
            (``"shift"``).
        function: RabbitMQ's hash (``"phash2"``), which distinguishes 2**21 keys, or a hash with all its bits in use:
            ``"xxh64"``, Kafka's (``"murmur2"``) or that of super streams (``"murmur3"``).

    Raises:
        ValueError: unknown ``removal`` or ``function``.
    """

    def __init__(self, removal: RingRemoval = "minimal", function: HashFunction = "phash2") -> None:
        if removal not in ("minimal", "shift"):
            raise ValueError(f"a ring's removal is minimal or shift, not {removal!r}")
        try:
            hash_function(function)
        except ValueError as error:
            raise ValueError(f"unknown hash function {error}") from None
        self._removal: RingRemoval = removal
        self._function: HashFunction = function
        self._names: list[str] = []
        self._weights: dict[str, int] = {}
        self._runs: dict[str, list[Run]] = {}  # where removals are minimal
        self._retired: list[Run] = []
        self._buckets = self._no_buckets()

    def __repr__(self) -> str:
        made = f"removal={self._removal!r}, function={self._function!r}"
        return f"HashRing({made}, destinations={self._weights!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return HashRing.restore, (self.state(),)

    def __len__(self) -> int:
        """Return the number of destinations."""
        return len(self._names)

    def __contains__(self, destination: object) -> bool:
        return destination in self._weights

    @property
    def removal(self) -> RingRemoval:
        """``"minimal"`` or ``"shift"``."""
        return self._removal

    @property
    def function(self) -> HashFunction:
        """The hash function of keys."""
        return self._function

    @property
    def names(self) -> list[str]:
        """The destinations in order of addition, as ``route_index`` numbers them. Must not be changed."""
        return self._names

    @property
    def destinations(self) -> Mapping[str, int]:
        """The weights by destination, in order of addition: a view that follows the ring."""
        return MappingProxyType(self._weights)

    @property
    def buckets(self) -> int:
        """The number of buckets with an owner: the sum of the weights."""
        return self._buckets.working

    def add(self, destination: str, weight: int) -> None:
        """Add a destination. Keys move only to the new destination.

        Raises:
            ValueError: the weight is not an integer from 1 to 10,000, or the destination is on the ring.
        """
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(f"a weight is an integer from 1 to {MAX_WEIGHT}, not {weight!r}")
        if destination in self._weights:
            raise ValueError(f"{destination!r} is on the ring already, with weight {self._weights[destination]}")
        buckets = self._buckets = self._buckets.writable()
        owner, wanted = len(self._names), weight
        runs: list[Run] = []
        while wanted and self._retired:
            first, count = self._retired.pop()
            taken = min(count, wanted)
            if taken < count:
                self._retired.append((first + taken, count - taken))
            buckets.assign(first, taken, owner)
            runs.append((first, taken))
            wanted -= taken
        if wanted:
            runs.append((buckets.size, wanted))
            buckets.append(wanted, owner)
        self._names.append(destination)
        self._weights[destination] = weight
        if self._removal == "minimal":
            self._runs[destination] = _joined(runs)

    def remove(self, destination: str) -> None:
        """Remove a destination. Keys of the removed destination, and of remaining destinations, move according to
        ``removal``.

        Raises:
            KeyError: the destination is not on the ring.
        """
        if destination not in self._weights:
            raise KeyError(f"{destination!r} is not on the ring")
        owner = self._names.index(destination)
        first = sum(islice(self._weights.values(), owner))
        weight = self._weights.pop(destination)
        del self._names[owner]
        runs = self._runs.pop(destination, [])
        if not self._names:
            self._retired.clear()
            self._buckets = self._no_buckets()
            return
        self._buckets = self._buckets.writable()
        if self._removal == "minimal":
            self._retire(runs)
        else:
            self._buckets.cut(first, weight)
        self._buckets.forget(owner)

    def _no_buckets(self) -> Buckets:
        return Buckets(NUMBERS[self._function])

    def _retire(self, runs: list[Run]) -> None:
        for first, count in reversed(runs):
            if not self._retired and first + count == self._buckets.size:
                self._buckets.truncate(first)
            else:
                self._buckets.retire(first, count)
                _join_below(self._retired, first, count)

    def route(self, key: bytes | int) -> str | None:
        """The destination of a key; None if the ring is empty.

        Args:
            key: a binary, or an integer; on a ring with ``phash2`` an integer is its own hash (see ``terms``).

        Raises:
            TypeError: the key is neither bytes nor an integer.
        """
        owner = self._buckets.owner(key)
        return self._names[owner] if owner >= 0 else None

    def place(self, key: bytes | int) -> int:
        """As :meth:`route`, the destination as an index into ``names``; -1 if the ring is empty."""
        return self._buckets.owner(key)

    def route_index(
        self, keys: list[bytes] | list[bytes | int], counts: KeyCounts | None = None, missing: object = None
    ) -> list[int]:
        """Return the destinations of keys, as indexes into ``names``; -1 if the ring is empty.

        Args:
            counts: counts the keys by destination, if given.
            missing: the key object that stands for a missing key, compared by identity.

        Raises:
            TypeError: a key is neither bytes nor an integer.
        """
        return self._buckets.owners(keys, counts, missing)

    def count(
        self, keys: list[bytes] | list[bytes | int], places: list[int], counts: KeyCounts, missing: object = None
    ) -> None:
        """Count keys that :meth:`route_index` has routed without counting. The keys are hashed again, without routing.

        Args:
            places: the destinations of the keys, from :meth:`route_index`.
            counts, missing: see :meth:`route_index`.
        """
        self._buckets.count(keys, places, counts, missing)

    def route_array(self, keys: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray | pa.ChunkedArray:
        """The destination of each key of an Arrow array of binaries or strings; all null if the ring is empty.

        A null has the destination of a message without the header (``terms.MISSING``). The result of a chunked array is
        a chunked array.

        Raises:
            TypeError: the keys are neither binary nor string.
        """
        import pyarrow as pa

        if isinstance(keys, pa.ChunkedArray):
            kind = pa.dictionary(pa.int32(), pa.string())
            return pa.chunked_array([self.route_array(chunk) for chunk in keys.chunks], type=kind)
        if isinstance(keys.type, pa.DictionaryType):
            return self.route_array(keys.dictionary_decode())
        names, buffers = pa.array(self._names, pa.string()), key_buffers(keys)
        if not names:
            return pa.DictionaryArray.from_arrays(pa.nulls(len(keys), pa.int32()), names)
        owners = int32_array(len(keys), partial(self._routing().owners_of_arrow, keys=buffers))
        return pa.DictionaryArray.from_arrays(owners, names)

    def _routing(self) -> Buckets | RunBuckets:
        """Return the buckets used for routing arrays."""
        return self._buckets

    def runs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the buckets by destination, as runs: (first, count)."""
        return {name: list(runs) for name, runs in self._owned()}

    def _owned(self) -> Iterator[tuple[str, list[Run]]]:
        """Yield the runs of buckets by destination, in order of addition."""
        if self._removal == "minimal":
            for name in self._names:
                yield name, self._runs[name]
            return
        first = 0
        for name, weight in self._weights.items():
            yield name, [(first, weight)]
            first += weight

    @property
    def retired(self) -> list[tuple[int, int]]:
        """The buckets without a destination, as runs."""
        return list(self._retired)

    def state(self) -> dict[str, Any]:
        """Return the ring as plain JSON: runs of buckets, as [first, count], by destination and of retired buckets."""
        return {
            "removal": self._removal,
            "function": self._function,
            "destinations": [[name, [list(run) for run in runs]] for name, runs in self._owned()],
            "retired": [list(run) for run in self._retired],
        }

    def state_text(self) -> str:
        """Return :meth:`state` as compact JSON, several times faster than a general encoder."""
        destinations = ",".join([f"[{_quoted(name)},{_text_of(runs)}]" for name, runs in self._owned()])
        head = f'"removal":"{self._removal}","function":"{self._function}"'
        return f'{{{head},"destinations":[{destinations}],"retired":{_text_of(self._retired)}}}'

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return a ring with the given ``state``: decisions and later changes equal the original ring's.

        Raises:
            ValueError: ``state`` is not the state of a ring.
        """
        try:
            ring = cls(state["removal"], state.get("function", "phash2"))
            ring._retired = _runs_of(state["retired"])
            for name, runs in state["destinations"]:
                ring._restore_destination(name, _runs_of(runs))
            ring._restore_buckets()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the state of a hash ring: {error}") from error
        return ring

    def _restore_destination(self, name: str, runs: list[Run]) -> None:
        weight = sum(count for _, count in runs)
        if not isinstance(name, str) or name in self._weights or not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(f"destination {name!r} of weight {weight}")
        self._names.append(name)
        self._weights[name] = weight
        self._runs[name] = runs

    def _restore_buckets(self) -> None:
        if self._retired and not self._names:
            raise ValueError("retired buckets, and no destination")
        runs = [*self._retired, *(run for runs in self._runs.values() for run in runs)]
        if self._removal == "shift" and (len(runs) != len(self._names) or runs != sorted(runs)):
            raise ValueError("a ring that shifts has one run a destination, in order of addition")
        end = 0
        for first, count in sorted(runs):
            if first != end:
                raise ValueError(f"bucket {min(first, end)} is there twice or not at all")
            end += count
        self._buckets.append(end, -1)
        for owner, name in enumerate(self._names):
            for first, count in self._runs[name]:
                self._buckets.assign(first, count, owner)
        for first, count in self._retired:
            self._buckets.retire(first, count)
        if self._removal == "shift":
            self._runs.clear()


def _joined(runs: list[Run]) -> list[Run]:
    """Merge runs: the buckets in ascending order, in the smallest number of runs."""
    joined: list[Run] = []
    for first, count in sorted(runs):
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((first, count))
    return joined


def _join_below(runs: list[Run], first: int, count: int) -> None:
    """Append a run retired downwards, merged with the last run if adjacent."""
    if runs and runs[-1][0] == first + count:
        runs[-1] = (first, runs[-1][1] + count)
    else:
        runs.append((first, count))


def _text_of(runs: list[Run]) -> str:
    """Encode runs as JSON; most destinations have a single run."""
    if len(runs) == 1:
        return f"[[{runs[0][0]},{runs[0][1]}]]"
    return f"[{','.join([f'[{first},{count}]' for first, count in runs])}]"


def _runs_of(value: Any) -> list[Run]:
    runs = [(first, count) for first, count in value]
    for first, count in runs:
        if type(first) is not int or type(count) is not int or first < 0 or count < 1:
            raise ValueError(f"run {[first, count]}")
    return runs
