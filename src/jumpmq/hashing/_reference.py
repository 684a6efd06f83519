"""Reference implementation of the compiled kernel in plain Python: specification of the kernel in tests, and fallback.

Three parts, in the order in which a key passes through them:

1. ``phash2``: Erlang's portable hash of a term (``erlang:phash2/1`` as of OTP 25), 27 bits.
2. ``jump``: the bucket of an integer key, by Lamping and Veach's jump consistent hash (arXiv 1406.2294), drawing
   from Erlang's ``exs1024`` generator as RabbitMQ's consistent hash exchange does.
   ``jump64`` draws from the generator of the paper, with all 64 bits of a hash, for the other hash functions.
3. ``Buckets``: the owner of the bucket; some buckets may be retired (MementoHash, arXiv 2306.09783).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from jumpmq.hashing.arrow import KeyBuffers
from jumpmq.hashing.functions import NAMES
from jumpmq.hashing.sampling import ALL_NOTED, MEAN_GAP

if TYPE_CHECKING:
    from typing_extensions import Buffer

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF


class Atom(str):
    """An Erlang atom, for example ``Atom("undefined")``."""

    __slots__ = ()


Term: TypeAlias = "bytes | int | float | Atom | Sequence[Term]"
"""An Erlang term: a binary (``bytes``), integer, float, boolean, ``Atom``, list or tuple of terms."""

_GOLDEN = 0x9E3779B9
_EMPTY_LIST = 3468870702


def _salt(n: int) -> int:
    """Return the constant that separates the n-th kind of term: n times the golden ratio."""
    return n * _GOLDEN & _M32


_SALT_NIL, _SALT_ATOM, _SALT_OCTETS, _SALT_TUPLE = _salt(2), _salt(3), _salt(4), _salt(9)
_SALT_NEGATIVE, _SALT_POSITIVE, _SALT_FLOAT, _SALT_BINARY = _salt(10), _salt(11), _salt(12), _salt(13)


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Bob Jenkins' reversible mix of three 32-bit words."""
    for right, left, last in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _M32) ^ c >> right
        b = (b - c - a ^ a << left) & _M32
        c = (c - a - b & _M32) ^ b >> last
    return a, b, c


def _mix_words(low: int, high: int, salt: int, seed: int) -> int:
    return _mix(low + salt & _M32, high + salt & _M32, seed)[2]


def _hash_binary(octets: bytes, seed: int) -> int:
    c = _SALT_BINARY + seed & _M32
    if not octets:
        return c
    a = b = _GOLDEN
    whole = len(octets) - len(octets) % 12
    for x, y, z in struct.iter_unpack("<III", octets[:whole]):
        a, b, c = _mix(a + x & _M32, b + y & _M32, c + z & _M32)
    # The length replaces the lowest octet of the last word.
    tail = octets[whole : whole + 8].ljust(8, b"\0") + b"\0" + octets[whole + 8 :].ljust(3, b"\0")
    x, y, z = struct.unpack("<III", tail)
    return _mix(a + x & _M32, b + y & _M32, c + z + len(octets) & _M32)[2]


def _hash_integer(value: int, seed: int) -> int:
    if -(1 << 27) <= value < 1 << 27:
        if value < 0:
            seed = _mix_words(-value, 0, _GOLDEN, seed)
        return _mix_words(value, 0, _GOLDEN, seed)
    salt, magnitude = (_SALT_NEGATIVE, -value) if value < 0 else (_SALT_POSITIVE, value)
    while magnitude:
        seed = _mix_words(magnitude & _M32, magnitude >> 32 & _M32, salt, seed)
        magnitude >>= 64
    return seed


def _hash_float(value: float, seed: int) -> int:
    low, high = struct.unpack("<II", struct.pack("<d", value or 0.0))  # -0.0 hashes as 0.0
    return _mix_words(high, low, _SALT_FLOAT, seed)


def _hash_atom(name: str, seed: int) -> int:
    value = 0
    for octet in b"".join(c.encode("latin-1" if c <= "\xff" else "utf-8") for c in name):
        value = (value << 4) + octet
        overflow = value & 0xF0000000
        value = (value ^ overflow >> 24) & ~overflow
    return _mix_words(value, 0, _SALT_ATOM, seed) if seed else value


def _is_octet(term: Term) -> bool:
    return type(term) is int and 0 <= term < 256


def _hash_list(terms: Sequence[Term], seed: int) -> int:
    # Erlang hashes runs of octets in a list four at a time, because strings were lists of octets.
    for octets, run in groupby(terms, _is_octet):
        if octets:
            text = bytes(run)  # type: ignore[arg-type]
            for i in range(0, len(text), 4):
                seed = _mix_words(int.from_bytes(text[i : i + 4], "big"), 0, _SALT_OCTETS, seed)
        else:
            for term in run:
                seed = _hash(term, seed)
    return _mix_words(2, 0, _SALT_NIL, seed) if seed else _EMPTY_LIST


def _hash(term: Term, seed: int) -> int:
    match term:
        case bytes():
            return _hash_binary(term, seed)
        case bool():
            return _hash_atom(str(term).lower(), seed)
        case int():
            return _hash_integer(term, seed)
        case float():
            return _hash_float(term, seed)
        case Atom():
            return _hash_atom(term, seed)
        case list():
            return _hash_list(term, seed)
        case tuple():
            seed = _mix_words(len(term), 0, _SALT_TUPLE, seed)
            for element in term:
                seed = _hash(element, seed)
            return seed
    raise TypeError(f"a term is bytes, int, float, bool, Atom, list or tuple, not {type(term).__name__}")


def phash2(term: Term) -> int:
    """Erlang's portable hash of a term, ``erlang:phash2/1`` of OTP 25: 0 to 2**27 - 1.

    Raises:
        TypeError: the term, or a part of the term, has a type outside ``Term``.
    """
    return _hash(term, 0) & 0x7FFFFFF


def phash2_list(keys: list[bytes]) -> int:
    """Hash a list of binaries with ``phash2``: the modulus exchange takes the result modulo its destinations."""
    return phash2(keys)


def moduli(keys: list[bytes], buckets: int, function: int = 0) -> list[int]:
    """Return the hash of each key modulo ``buckets``. With ``phash2``, the hash is that of a list with the key.

    Args:
        function: a number of ``functions.NUMBERS``.

    Raises:
        ValueError: ``buckets`` is less than 1.
    """
    if buckets < 1:
        raise ValueError(f"a modulus is 1 or more, not {buckets}")
    return [(hashed(key, function) if function else phash2([key])) % buckets for key in keys]


# Number of low bits of a key that seed Erlang's exs1024: keys with equal low bits share a bucket in every ring.
_SEED_BITS = 21
_SEED_MASK = (1 << _SEED_BITS) - 1


def _exs64(state: int) -> Iterator[int]:
    while True:
        state ^= state >> 12
        state ^= state << 25 & _M64
        state ^= state >> 27
        yield state * 2685821657736338717 & _M64


def _exs1024(key: int) -> Iterator[int]:
    """Draws of ``rand:seed_s(exs1024, {Key, Key, Key})``: 64-bit words."""
    k = (key & _SEED_MASK) + 1
    first, second, third = (k * factor & _SEED_MASK for factor in (2097131, 2097133, 2097143))
    source = _exs64(first << 43 | second << 22 | third << 1 | 1)
    words = [next(source) for _ in range(16)][::-1]
    p = 0
    while True:
        s0, p = words[p], (p + 1) % 16
        s1 = words[p]
        s1 ^= s1 << 31 & _M64
        words[p] = s0 ^ s0 >> 30 ^ s1 ^ s1 >> 11
        yield words[p] * 1181783497276652981 & _M64


def jump(key: int, buckets: int) -> int:
    """Return the bucket of an integer key, 0 to ``buckets`` - 1, as RabbitMQ's exchange computes it.

    Only the low 21 bits of the key count. From n to n + 1 buckets, one key in n + 1 moves, always to bucket n.

    Raises:
        ValueError: less than 1 or more than 2**31 - 1 buckets.
    """
    if not 1 <= buckets < 1 << 31:
        raise ValueError(f"a key has a bucket among 1 to 2147483647 buckets, not {buckets}")
    draws = _exs1024(key)
    bucket, candidate = 0, 0
    while candidate < buckets:
        bucket = candidate
        candidate = int((bucket + 1) / (next(draws) / 2**64))
    return bucket


def xxh64(key: bytes, seed: int = 0) -> int:
    """Return the XXH64 of a binary, 64 bits, by the package ``xxhash``."""
    import xxhash

    return xxhash.xxh64_intdigest(key, seed)


def murmur2(key: bytes) -> int:
    """Return the MurmurHash2 of a binary as in Kafka's partitioner: Kafka's seed, the sign bit cleared; 31 bits.

    Source: ``murmur2`` and ``toPositive`` of ``org.apache.kafka.common.utils.Utils``.
    """
    m, hash = 0x5BD1E995, 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        word = word * m & _M32
        hash = (hash * m ^ (word ^ word >> 24) * m) & _M32
    if key[whole:]:
        hash = (hash ^ int.from_bytes(key[whole:], "little")) * m & _M32
    hash = (hash ^ hash >> 13) * m & _M32
    return (hash ^ hash >> 15) & 0x7FFFFFFF


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _M32


def murmur3(key: bytes) -> int:
    """Return the MurmurHash3 (x86, 32 bits) of a binary with the seed of RabbitMQ's clients for super streams, 104729.

    Source: ``HashUtils`` of RabbitMQ's Java client for streams.
    """
    hash = 104729
    whole = len(key) - len(key) % 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        hash ^= _turned(word * 0xCC9E2D51 & _M32, 15) * 0x1B873593 & _M32
        hash = _turned(hash, 13) * 5 + 0xE6546B64 & _M32
    rest = int.from_bytes(key[whole:], "little")
    hash ^= (_turned(rest * 0xCC9E2D51 & _M32, 15) * 0x1B873593 & _M32) ^ len(key)
    hash = (hash ^ hash >> 16) * 0x85EBCA6B & _M32
    hash = (hash ^ hash >> 13) * 0xC2B2AE35 & _M32
    return hash ^ hash >> 16


def hashed(key: bytes, function: int) -> int:
    """Return the hash of a binary by a function of ``functions.NUMBERS``."""
    return (phash2, xxh64, murmur2, murmur3)[function](key)


def jump64(key: int, buckets: int) -> int:
    """Return the bucket of a 64-bit key, by Lamping and Veach's own generator (arXiv 1406.2294, figure 1).

    Raises:
        ValueError: less than 1 or more than 2**31 - 1 buckets.
    """
    if not 1 <= buckets < 1 << 31:
        raise ValueError(f"a key has a bucket among 1 to 2147483647 buckets, not {buckets}")
    bucket, candidate = 0, 0
    while candidate < buckets:
        bucket = candidate
        key = key * 2862933555777941757 + 1 & _M64
        candidate = int((bucket + 1) * (2**31 / ((key >> 33) + 1)))
    return bucket


MISSING = 45914356
"""``phash2(Atom("undefined"))``: the key of a message without the header, and of a null in an Arrow array."""


def _scaled(word: int, working: int) -> int:
    """Return the splitmix64 hash of a word, scaled to 0 to ``working`` - 1."""
    word = word + 0x9E3779B97F4A7C15 & _M64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _M64
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _M64
    return ((word ^ word >> 31) >> 32) * working >> 32


class Buckets:
    """The numbered buckets of a hash ring. A working bucket has an owner (a number chosen by the caller), a retired
    bucket has none.

    A retired bucket keeps its number, and stores the number of buckets still working when it retired: its replacement.
    A key of a retired bucket is drawn again among these buckets.

    Args:
        function: a number of ``functions.NUMBERS``. With ``phash2`` the bucket is found by ``jump``, and an integer
            is its own hash. With the other functions the bucket is found by ``jump64``; ``xxh64`` hashes an integer as
            its eight octets, the lowest first, and ``murmur2`` and ``murmur3`` hash its decimal digits.

    Attributes:
        size: number of buckets, working and retired: the argument of ``jump``.
        working: number of buckets with an owner.
    """

    def __init__(self, function: int = 0) -> None:
        self.function = function
        self._owners: list[int] = []
        self._replacements: dict[int, int] = {}

    @property
    def size(self) -> int:
        return len(self._owners)

    @property
    def working(self) -> int:
        return len(self._owners) - len(self._replacements)

    def writable(self) -> Buckets:
        """Return the buckets to change: these, or a copy while a second thread routes a batch.

        Every change begins with this call, because this call drops the cached owners of keys.
        """
        return self

    # Changes, without checks of the arguments: HashRing gives valid arguments.

    def append(self, count: int, owner: int) -> None:
        """Add buckets above the last bucket."""
        self._owners += [owner] * count

    def truncate(self, size: int) -> None:
        """Drop the buckets from ``size`` on; none of them may be retired."""
        del self._owners[size:]

    def cut(self, first: int, count: int) -> None:
        """Remove buckets and shift the following ones down. No bucket may be retired."""
        del self._owners[first : first + count]

    def retire(self, first: int, count: int) -> None:
        """Retire working buckets, the highest first."""
        for bucket in reversed(range(first, first + count)):
            self._replacements[bucket] = self.working - 1

    def assign(self, first: int, count: int, owner: int) -> None:
        """Assign buckets to an owner. Retired buckets among them, which must be the last retired, work again."""
        for bucket in range(first, first + count):
            self._owners[bucket] = owner
            self._replacements.pop(bucket, None)

    def forget(self, owner: int) -> None:
        """Remove an owner without working buckets; owners with higher numbers are renumbered by one."""
        self._owners = [other - 1 if other > owner else other for other in self._owners]

    def _bucket(self, word: int) -> int:
        """Return the working bucket of a hash."""
        bucket = (jump64 if self.function else jump)(word, len(self._owners))
        while (working := self._replacements.get(bucket)) is not None:
            place = _scaled(self._drawn_again(word, bucket), working)
            # A bucket that had retired before stands for its replacement.
            while (replacement := self._replacements.get(place, -1)) >= working:
                place = replacement
            bucket = place
        return bucket

    def _drawn_again(self, word: int, bucket: int) -> int:
        """Return the hash for the next draw of a key from a retired bucket, from the key's hash and the bucket."""
        if self.function:
            return word ^ bucket * 0x9E3779B185EBCA87 & _M64
        return bucket << _SEED_BITS | word & _SEED_MASK

    def _hash(self, key: bytes | int) -> int:
        if not isinstance(key, int):
            return hashed(key, self.function)
        match NAMES[self.function]:
            case "phash2":
                return key
            case "xxh64":
                return xxh64((key & _M64).to_bytes(8, "little"))
        return hashed(b"%d" % key, self.function)

    def owner(self, key: bytes | int) -> int:
        """Return the owner of a key, -1 if no bucket works. An integer is used as a hash.

        Raises:
            TypeError: the key is neither bytes nor an integer.
        """
        if not isinstance(key, bytes | int):
            raise TypeError(f"a key is bytes, not {type(key).__name__}")
        if not self.working:
            return -1
        return self._owners[self._bucket(self._hash(key))]

    def owners(
        self, keys: list[bytes] | list[bytes | int], counts: KeyCounts | None = None, missing: object = None
    ) -> list[int]:
        """Return the owners of keys, in order.

        Args:
            counts: counts the keys and their messages, if given.
            missing: the key object that stands for a missing key: only its messages are counted.
        """
        owners = [self.owner(key) for key in keys]
        if counts is not None:
            self.count(keys, owners, counts, missing)
        return owners

    def count(
        self, keys: list[bytes] | list[bytes | int], owners: list[int], counts: KeyCounts, missing: object = None
    ) -> None:
        """Count keys with owners from :meth:`owners`.

        Raises:
            ValueError: there are more or fewer owners than keys.
        """
        if len(owners) != len(keys):
            raise ValueError(f"{len(keys)} keys have {len(owners)} owners")
        for key, owner in zip(keys, owners, strict=True):
            word = key & _M64 if isinstance(key, int) else _hash(key, 0)
            counts.note(self._hash(key) if self.function else word, key, owner, key is missing)

    def owners_of_arrow(self, out: Buffer, keys: KeyBuffers) -> None:
        """Write the owner of each key to ``out``, a writable buffer of int32. A null is routed as ``MISSING``.

        Raises:
            ValueError: a buffer is too small, or an offset points outside the octets.
        """
        owners = (self.owner(MISSING if key is None else key) for key in _arrow_keys(keys))
        _write_int32(out, keys.length, owners)


class RunBuckets(Buckets):
    """Unchangeable buckets by runs: memory by destination instead of by bucket, and slower to route.

    Args:
        runs: in order, without gaps: first bucket, count, owner, and ``left``: -1 for working buckets, otherwise the
            number of working buckets after the first bucket of the run, the last to retire, had retired.
        function: as for :class:`Buckets`.

    Raises:
        ValueError: there are gaps.
    """

    def __init__(self, runs: list[tuple[int, int, int, int]], function: int = 0) -> None:
        super().__init__(function)
        for first, count, owner, left in runs:
            if first != self.size or count < 1:
                raise ValueError("runs are in order, without gaps")
            self.append(count, owner)
            if left >= 0:
                self._replacements.update({first + place: left + place for place in range(count)})


def _arrow_keys(keys: KeyBuffers) -> Iterator[bytes | None]:
    if keys.first < 0 or keys.length < 0:
        raise ValueError("a slice of an Arrow array has no negative bounds")
    end = keys.first + keys.length
    width, code = (8, "q") if keys.wide else (4, "i")
    offsets, octets, present = (bytes(part or b"") for part in (keys.offsets, keys.octets, keys.validity))
    if keys.length and (len(offsets) < (end + 1) * width or (keys.validity is not None and len(present) * 8 < end)):
        raise ValueError(f"a buffer of the Arrow array is too small for {end} keys")
    for slot in range(keys.first, end):
        start, stop = struct.unpack_from(f"=2{code}", offsets, slot * width)
        if keys.validity is not None and not present[slot >> 3] >> (slot & 7) & 1:
            yield None
        elif 0 <= start <= stop <= len(octets):
            yield octets[start:stop]
        else:
            raise ValueError("an offset of the Arrow array points outside its octets")


def _write_int32(out: Buffer, count: int, values: Iterator[int]) -> None:
    if memoryview(out).nbytes < 4 * count:
        raise ValueError(f"a buffer of {memoryview(out).nbytes} octets is too small: {4 * count} are needed")
    struct.pack_into(f"={count}i", out, 0, *values)


def modulus_of_arrow(out: Buffer, buckets: int, keys: KeyBuffers, function: int = 0) -> None:
    """Write the hash of each key modulo ``buckets`` to ``out``, a writable buffer of int32: see :func:`moduli`.

    A null counts as ``MISSING``: with ``phash2`` as the list of the atom ``undefined``.

    Raises:
        ValueError: ``buckets`` is less than 1, a buffer is too small, or an offset points outside the octets.
    """
    if buckets < 1:
        raise ValueError(f"a modulus is 1 or more, not {buckets}")
    if function:
        hash = Buckets(function)._hash
        hashes = (hash(MISSING if key is None else key) for key in _arrow_keys(keys))
    else:
        hashes = (phash2([Atom("undefined") if key is None else key]) for key in _arrow_keys(keys))
    _write_int32(out, keys.length, (hash % buckets for hash in hashes))


# Counting keys: the number of different keys, and the frequent keys.

_PLACE_BITS = 10
_RANKS = 64 - _PLACE_BITS + 2
_FREQUENT = 64
_LONGEST_KEY = 255
_SPREAD = 0x9E3779B97F4A7C15


def _spread(word: int) -> int:
    word = (word ^ word >> 32) * 0xFF51AFD7ED558CCD & _M64
    return word ^ word >> 29


class _Frequent:
    """A place of the space-saving summary."""

    __slots__ = ("count", "error", "hash", "key", "owner")

    def __init__(self) -> None:
        self.count = self.error = self.hash = self.owner = 0
        self.key = b""


class KeyCounts:
    """Counts of messages and of distinct keys by owner, and the most frequent keys, in bounded memory.

    Different keys are counted by HyperLogLog (Flajolet et al., 2007), 1,024 registers an owner: a standard error of
    3.3 %. Frequent keys are found by space-saving (Metwally et al., 2005), 64 places: every key with more than a 64th
    of the messages is found. Space-saving counts the first 16,384 messages, and then one message in 16 as 16 messages,
    with random gaps between.

    Attributes:
        noted: number of messages with a counted key.
    """

    def __init__(self, owners: int) -> None:
        self._messages = [0] * owners
        self._registers: list[bytearray | None] = [None] * owners
        self._frequent: list[_Frequent] = []
        self._merged: tuple[KeyCounts, ...] = ()
        self.noted = 0
        self._gap = self._weight = 1
        self._random = 2463534242

    def note(self, word: int, key: bytes | int, owner: int, is_missing: bool) -> None:
        """Count a message, given its key's hash; called by :meth:`Buckets.count`.

        Raises:
            IndexError: unknown owner.
        """
        if not 0 <= owner < len(self._messages):
            raise IndexError(f"no owner {owner} among {len(self._messages)}")
        self._messages[owner] += 1
        if is_missing:
            return
        word = _spread(word * _SPREAD & _M64)
        self._rank(owner, word)
        self.noted += 1
        self._gap -= 1
        if not self._gap:
            self._count(word, key, owner, self._weight, 0)
            self._next_gap()

    def messages(self) -> list[int]:
        """Return the number of messages by owner."""
        return list(self._messages)

    def ranks(self, owner: int = -1) -> list[int]:
        """Return the number of registers at each rank, of an owner (-1: of all owners): the input of an estimate."""
        found = [0] * _RANKS
        for rank in self.registers(owner):
            found[rank] += 1
        return found

    def registers(self, owner: int = -1) -> bytes:
        """Return the registers of an owner (-1: of all owners); after :meth:`merged`, the maxima of both counts."""
        if owner >= len(self._messages):
            raise IndexError(f"no owner {owner} among {len(self._messages)}")
        parts = self._merged or (self,)
        chosen = [one for part in parts for one in (part._registers if owner < 0 else [part._registers[owner]])]
        return bytes(max(ranks) for ranks in zip(bytes(1 << _PLACE_BITS), *filter(None, chosen), strict=True))

    def frequent(self) -> list[tuple[bytes, int, int, int]]:
        """Return the frequent keys: key (up to 255 octets), owner, maximum number of messages, and possible error of
        the number."""
        return [(one.key, one.owner, one.count, one.error) for one in self._frequent]

    def merged(self, other: KeyCounts) -> KeyCounts:
        """Return the sum of two counts. Registers, being many, are merged on demand.

        Raises:
            ValueError: the counts have different numbers of owners.
        """
        if len(other._messages) != len(self._messages):
            raise ValueError("counts of different rings")
        both = KeyCounts(len(self._messages))
        both._merged = (*(self._merged or (self,)), *(other._merged or (other,)))
        for part in (self, other):
            both.noted += part.noted
            both._messages = [sum(counts) for counts in zip(both._messages, part._messages, strict=True)]
            for one in part._frequent:
                both._count(one.hash, one.key, one.owner, one.count, one.error)
        return both

    def _rank(self, owner: int, word: int) -> None:
        registers = self._registers[owner]
        if registers is None:
            registers = self._registers[owner] = bytearray(1 << _PLACE_BITS)
        below = word << _PLACE_BITS & _M64 | 1 << _PLACE_BITS - 1
        place = word >> 64 - _PLACE_BITS
        registers[place] = max(registers[place], 65 - below.bit_length())

    def _next_gap(self) -> None:
        if self.noted < ALL_NOTED:
            self._gap = self._weight = 1
            return
        self._random ^= self._random << 13 & _M32
        self._random ^= self._random >> 17
        self._random ^= self._random << 5 & _M32
        self._gap = 1 + self._random % (2 * MEAN_GAP - 1)
        self._weight = MEAN_GAP

    def _count(self, word: int, key: bytes | int, owner: int, weight: int, error: int) -> None:
        for one in self._frequent:
            if one.hash == word:
                one.count += weight
                one.error += error
                one.owner = owner
                return
        if len(self._frequent) < _FREQUENT:
            least = _Frequent()
            self._frequent.append(least)
        else:
            least = min(self._frequent, key=lambda one: one.count)
        least.hash, least.owner = word, owner
        least.key = key[:_LONGEST_KEY] if isinstance(key, bytes) else b"%d" % key
        least.error = least.count + error
        least.count += weight
