# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot functions of ``_reference.py`` in C; the docstrings are in ``_reference.py``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLongMask, PyLong_Check
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove

cdef extern from *:
    void __builtin_prefetch(const void*) noexcept nogil


cdef enum:
    GOLDEN = 0x9E3779B9
    SALT_NIL = 0x3C6EF372
    SALT_BINARY = 0x08D12E65
    EMPTY_LIST = 3468870702
    RANGE_MASK = 0x7FFFFFF
    HASH_OF_UNDEFINED = 180132084

# The numbers of ``functions.NUMBERS``.
cdef enum:
    PHASH2 = 0
    XXH64 = 1
    MURMUR2 = 2
    MURMUR3 = 3

cdef enum:
    SEED_OF_KAFKA = 0x9747B28C
    SEED_OF_SUPER_STREAMS = 104729

MISSING = HASH_OF_UNDEFINED & RANGE_MASK


cdef inline uint32_t load(const uint8_t* octets) noexcept nogil:
    # Little-endian on any machine; compilers make one load of it where they can.
    return (
        <uint32_t>octets[0] | <uint32_t>octets[1] << 8 | <uint32_t>octets[2] << 16 | <uint32_t>octets[3] << 24
    )


cdef inline void mix(uint32_t* a, uint32_t* b, uint32_t* c) noexcept nogil:
    cdef uint32_t x = a[0], y = b[0], z = c[0]
    x = (x - y - z) ^ (z >> 13)
    y = (y - z - x) ^ (x << 8)
    z = (z - x - y) ^ (y >> 13)
    x = (x - y - z) ^ (z >> 12)
    y = (y - z - x) ^ (x << 16)
    z = (z - x - y) ^ (y >> 5)
    x = (x - y - z) ^ (z >> 3)
    y = (y - z - x) ^ (x << 10)
    z = (z - x - y) ^ (y >> 15)
    a[0] = x
    b[0] = y
    c[0] = z


cdef inline uint32_t hash_binary(const uint8_t* octets, Py_ssize_t length, uint32_t seed) noexcept nogil:
    cdef uint32_t a = <uint32_t>GOLDEN, b = <uint32_t>GOLDEN, c = <uint32_t>SALT_BINARY + seed
    cdef Py_ssize_t left = length
    cdef uint8_t tail[12]
    if length == 0:
        return c
    while left >= 12:
        a += load(octets)
        b += load(octets + 4)
        c += load(octets + 8)
        mix(&a, &b, &c)
        octets += 12
        left -= 12
    memcpy(tail, b"\0\0\0\0\0\0\0\0\0\0\0\0", 12)
    memcpy(tail, octets, min(left, 8))
    if left > 8:
        memcpy(tail + 9, octets + 8, left - 8)
    a += load(tail)
    b += load(tail + 4)
    c += load(tail + 8) + <uint32_t>length
    mix(&a, &b, &c)
    return c


cdef uint64_t PRIME_1 = 0x9E3779B185EBCA87u
cdef uint64_t PRIME_2 = 0xC2B2AE3D27D4EB4Fu
cdef uint64_t PRIME_3 = 0x165667B19E3779F9u
cdef uint64_t PRIME_4 = 0x85EBCA77C2B2AE63u
cdef uint64_t PRIME_5 = 0x27D4EB2F165667C5u


cdef inline uint64_t load_long(const uint8_t* octets) noexcept nogil:
    return <uint64_t>load(octets) | <uint64_t>load(octets + 4) << 32


cdef inline uint64_t turn(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline uint64_t lane(uint64_t state, uint64_t word) noexcept nogil:
    return turn(state + word * PRIME_2, 31) * PRIME_1


cdef uint64_t hash_xxh64(const uint8_t* octets, Py_ssize_t length, uint64_t seed) noexcept nogil:
    """XXH64, by its specification."""
    cdef uint64_t lanes[4]
    cdef uint64_t word
    cdef Py_ssize_t left = length
    cdef int i
    if length >= 32:
        lanes[0] = seed + PRIME_1 + PRIME_2
        lanes[1] = seed + PRIME_2
        lanes[2] = seed
        lanes[3] = seed - PRIME_1
        while left >= 32:
            for i in range(4):
                lanes[i] = lane(lanes[i], load_long(octets + 8 * i))
            octets += 32
            left -= 32
        word = turn(lanes[0], 1) + turn(lanes[1], 7) + turn(lanes[2], 12) + turn(lanes[3], 18)
        for i in range(4):
            word = (word ^ lane(0, lanes[i])) * PRIME_1 + PRIME_4
    else:
        word = seed + PRIME_5
    word += <uint64_t>length
    while left >= 8:
        word = turn(word ^ lane(0, load_long(octets)), 27) * PRIME_1 + PRIME_4
        octets += 8
        left -= 8
    if left >= 4:
        word = turn(word ^ load(octets) * PRIME_1, 23) * PRIME_2 + PRIME_3
        octets += 4
        left -= 4
    while left:
        word = turn(word ^ octets[0] * PRIME_5, 11) * PRIME_1
        octets += 1
        left -= 1
    word = (word ^ word >> 33) * PRIME_2
    word = (word ^ word >> 29) * PRIME_3
    return word ^ word >> 32


def xxh64(bytes key not None, uint64_t seed=0):
    return hash_xxh64(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), seed)


cdef inline uint64_t number_xxh64(uint64_t number) noexcept nogil:
    cdef uint8_t octets[8]
    cdef int i
    for i in range(8):
        octets[i] = (number >> 8 * i) & 0xFF
    return hash_xxh64(octets, 8, 0)


cdef inline uint32_t load_rest(const uint8_t* octets, Py_ssize_t left) noexcept nogil:
    """The last octets, fewer than four, of a key."""
    cdef uint32_t word = octets[0]
    if left > 1:
        word |= <uint32_t>octets[1] << 8
    if left > 2:
        word |= <uint32_t>octets[2] << 16
    return word


cdef uint32_t hash_murmur2(const uint8_t* octets, Py_ssize_t length) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995u, hash = <uint32_t>SEED_OF_KAFKA ^ <uint32_t>length, word
    cdef Py_ssize_t left = length
    while left >= 4:
        word = load(octets) * m
        hash = hash * m ^ (word ^ word >> 24) * m
        octets += 4
        left -= 4
    if left:
        hash = (hash ^ load_rest(octets, left)) * m
    hash = (hash ^ hash >> 13) * m
    return (hash ^ hash >> 15) & 0x7FFFFFFFu


cdef inline uint32_t turn_short(uint32_t word, int bits) noexcept nogil:
    return word << bits | word >> (32 - bits)


cdef uint32_t hash_murmur3(const uint8_t* octets, Py_ssize_t length) noexcept nogil:
    cdef uint32_t first = 0xCC9E2D51u, second = 0x1B873593u, hash = <uint32_t>SEED_OF_SUPER_STREAMS
    cdef Py_ssize_t left = length
    while left >= 4:
        hash = turn_short(hash ^ turn_short(load(octets) * first, 15) * second, 13) * 5 + 0xE6546B64u
        octets += 4
        left -= 4
    if left:
        hash ^= turn_short(load_rest(octets, left) * first, 15) * second
    hash ^= <uint32_t>length
    hash = (hash ^ hash >> 16) * 0x85EBCA6Bu
    hash = (hash ^ hash >> 13) * 0xC2B2AE35u
    return hash ^ hash >> 16


def murmur2(bytes key not None):
    return hash_murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


def murmur3(bytes key not None):
    return hash_murmur3(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline uint64_t hash_octets(int function, const uint8_t* octets, Py_ssize_t length) noexcept nogil:
    """Hash a key by a function other than ``phash2``."""
    if function == XXH64:
        return hash_xxh64(octets, length, 0)
    return hash_murmur2(octets, length) if function == MURMUR2 else hash_murmur3(octets, length)


cdef inline uint64_t hash_missing(int function) noexcept nogil:
    """Return the hash of a missing key, by a function other than ``phash2``."""
    if function == XXH64:
        return number_xxh64(HASH_OF_UNDEFINED & RANGE_MASK)
    return hash_octets(function, <const uint8_t*>b"45914356", 8)


cdef inline int32_t jump_word(uint64_t word, int32_t buckets) noexcept nogil:
    cdef int64_t bucket = 0, candidate = 0
    while candidate < buckets:
        bucket = candidate
        word = word * 2862933555777941757u + 1
        candidate = <int64_t>((bucket + 1) * (2147483648.0 / <double><int64_t>((word >> 33) + 1)))
    return <int32_t>bucket


def jump64(key, buckets):
    if not 1 <= buckets <= MOST_BUCKETS:
        raise ValueError(f"a key has a bucket among 1 to {MOST_BUCKETS} buckets, not {buckets}")
    return jump_word(PyLong_AsUnsignedLongLongMask(key), buckets)


cdef inline uint32_t end_list(uint32_t hash) noexcept nogil:
    cdef uint32_t a = <uint32_t>SALT_NIL + 2, b = <uint32_t>SALT_NIL
    if hash == 0:
        return <uint32_t>EMPTY_LIST
    mix(&a, &b, &hash)
    return hash


cdef inline uint32_t hash_object(PyObject* key, uint32_t seed) except? 0xFFFFFFFF:
    if not PyBytes_Check(<object>key):
        raise TypeError(f"a key is bytes, not {type(<object>key).__name__}")
    return hash_binary(<const uint8_t*>PyBytes_AS_STRING(<object>key), PyBytes_GET_SIZE(<object>key), seed)


cdef inline uint64_t wide_hash(PyObject* key, int function) except? 0xFFFFFFFFFFFFFFFF:
    """Hash a key by a function other than ``phash2``."""
    if not PyBytes_Check(<object>key):
        raise TypeError(f"a key is bytes, not {type(<object>key).__name__}")
    return hash_octets(function, <const uint8_t*>PyBytes_AS_STRING(<object>key), PyBytes_GET_SIZE(<object>key))


def phash2(bytes key not None):
    return hash_object(<PyObject*>key, 0) & RANGE_MASK


def phash2_list(list keys not None):
    cdef uint32_t hash = 0
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(keys)):
        hash = hash_object(PyList_GET_ITEM(keys, i), hash)
    return end_list(hash) & RANGE_MASK


def moduli(list keys not None, int32_t buckets, int function=PHASH2):
    cdef Py_ssize_t i, count = PyList_GET_SIZE(keys)
    cdef list out = []
    if buckets < 1:
        raise ValueError(f"a modulus is 1 or more, not {buckets}")
    if function != PHASH2:
        for i in range(count):
            out.append(wide_hash(PyList_GET_ITEM(keys, i), function) % <uint64_t>buckets)
        return out
    for i in range(count):
        out.append((end_list(hash_object(PyList_GET_ITEM(keys, i), 0)) & RANGE_MASK) % <uint32_t>buckets)
    return out


cdef enum:
    SEED_BITS = 21
    SEEDS = 1 << 21
    MOST_BUCKETS = 0x7FFFFFFF

# With phash2 the seed alone determines the owner, so that a table of 2**21 owners, 4 MB, can hold all decisions. A ring
# begins a table after TABLE_PAYS routed keys of arrays, and fills the table with each decision. Over 100 buckets, on a
# 2.5 GHz Xeon, a key takes 120 ns to decide and 20 ns to look up, if the memory is prefetched for BLOCK keys at once.
cdef enum:
    TABLE_PAYS = 65536
    BLOCK = 128


cdef inline double to_double(uint64_t word) noexcept nogil:
    # Rounded once, as a cast is, without the branch of a cast of 64 unsigned bits on x86-64.
    return <double><int64_t>(word >> 32) * 4294967296.0 + <double><int64_t><uint32_t>word


cdef inline int32_t jump_seed(uint32_t seed, int32_t buckets) noexcept nogil:
    cdef uint64_t words[16]
    cdef uint64_t state, s0, s1
    cdef double candidate
    cdef int32_t bucket = 0
    cdef uint32_t k = seed + 1
    cdef uint64_t first = (k * 2097131u) & (SEEDS - 1)
    cdef uint64_t second = (k * 2097133u) & (SEEDS - 1)
    cdef uint64_t third = (k * 2097143u) & (SEEDS - 1)
    cdef int i, p = 0
    if buckets == 1:
        return 0
    state = first << 43 | second << 22 | third << 1 | 1
    for i in range(15, -1, -1):
        state ^= state >> 12
        state ^= state << 25
        state ^= state >> 27
        words[i] = state * 2685821657736338717u
    while True:
        s0 = words[p]
        p = (p + 1) & 15
        s1 = words[p]
        s1 ^= s1 << 31
        s0 ^= (s0 >> 30) ^ s1 ^ (s1 >> 11)
        words[p] = s0
        # (bucket + 1) / (draw / 2**64): powers of two are exact.
        candidate = (bucket + 1) * 18446744073709551616.0 / to_double(s0 * 1181783497276652981u)
        if not candidate < buckets:
            return bucket
        bucket = <int32_t>candidate


cdef inline uint32_t seed_of(object key) except? 0xFFFFFFFF:
    return <uint32_t>(PyLong_AsUnsignedLongLongMask(key) & (SEEDS - 1))


def jump(key, buckets):
    if not 1 <= buckets <= MOST_BUCKETS:
        raise ValueError(f"a key has a bucket among 1 to {MOST_BUCKETS} buckets, not {buckets}")
    return jump_seed(seed_of(key), buckets)


cdef inline uint32_t scaled(uint64_t word, int32_t working) noexcept nogil:
    """Return the splitmix64 hash of a word, scaled to 0 to ``working`` - 1."""
    word += 0x9E3779B97F4A7C15u
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu
    return <uint32_t>(((word ^ (word >> 31)) >> 32) * <uint64_t>working >> 32)


cdef int32_t* resized(int32_t* array, int64_t length) except NULL:
    """Resize an array to ``length`` elements; without memory the array stays as it is."""
    cdef void* moved = realloc(array, length * sizeof(int32_t))
    if moved == NULL:
        raise MemoryError
    return <int32_t*>moved


cdef class Buckets:
    cdef int32_t* _owners
    cdef int32_t* _replacements  # number of buckets still working when the bucket retired; -1 for a working bucket
    cdef int32_t _size, _room, _working
    cdef int _readers  # batches being routed without the GIL
    cdef readonly int function  # a number of functions.NUMBERS
    cdef bint wide  # true if all 64 bits of a hash count: for every function except phash2
    cdef int64_t _routed  # keys routed in batches since the last change
    cdef uint16_t* _known  # the owner of each seed, plus 1; 0 for a seed not yet routed. NULL before TABLE_PAYS

    def __init__(self, int function=PHASH2):
        self.function = function
        self.wide = function != PHASH2

    def __dealloc__(self):
        free(self._owners)
        free(self._replacements)
        free(self._known)

    @property
    def size(self):
        return self._size

    @property
    def working(self):
        return self._working

    def writable(self):
        cdef Buckets copy
        if not self._readers:
            free(self._known)
            self._known = NULL
            self._routed = 0
            return self
        copy = Buckets(self.function)
        copy._reserve(self._size)
        memcpy(copy._owners, self._owners, self._size * sizeof(int32_t))
        memcpy(copy._replacements, self._replacements, self._size * sizeof(int32_t))
        copy._size = self._size
        copy._working = self._working
        return copy

    cdef int _reserve(self, int64_t size) except -1:
        cdef int64_t room = min(max(size, 2 * <int64_t>self._room, 64), MOST_BUCKETS)
        if size <= self._room:
            return 0
        if size > MOST_BUCKETS:
            raise ValueError(f"a ring has at most {MOST_BUCKETS} buckets")
        self._owners = resized(self._owners, room)
        self._replacements = resized(self._replacements, room)
        self._room = <int32_t>room
        return 0

    def append(self, int32_t count, int32_t owner):
        cdef int32_t bucket
        self._reserve(<int64_t>self._size + count)
        for bucket in range(self._size, self._size + count):
            self._owners[bucket] = owner
            self._replacements[bucket] = -1
        self._size += count
        self._working += count

    def truncate(self, int32_t size):
        self._working -= self._size - size
        self._size = size

    def cut(self, int32_t first, int32_t count):
        memmove(
            self._owners + first, self._owners + first + count, (self._size - first - count) * sizeof(int32_t)
        )
        self._size -= count
        self._working -= count

    def retire(self, int32_t first, int32_t count):
        cdef int32_t bucket
        for bucket in range(first + count - 1, first - 1, -1):
            self._working -= 1
            self._replacements[bucket] = self._working

    def assign(self, int32_t first, int32_t count, int32_t owner):
        cdef int32_t bucket
        for bucket in range(first, first + count):
            self._owners[bucket] = owner
            self._working += self._replacements[bucket] >= 0
            self._replacements[bucket] = -1

    def forget(self, int32_t owner):
        cdef int32_t bucket
        for bucket in range(self._size):
            self._owners[bucket] -= self._owners[bucket] > owner

    cdef inline int32_t _bucket(self, uint64_t word) noexcept nogil:
        cdef int32_t bucket, working, place
        cdef uint32_t seed = word & (SEEDS - 1)
        bucket = jump_word(word, self._size) if self.wide else jump_seed(seed, self._size)
        working = self._replacements[bucket]
        while working >= 0:
            if self.wide:
                place = <int32_t>scaled(word ^ <uint64_t>bucket * PRIME_1, working)
            else:
                place = <int32_t>scaled(<uint64_t>bucket << SEED_BITS | seed, working)
            while self._replacements[place] >= working:
                place = self._replacements[place]
            bucket = place
            working = self._replacements[bucket]
        return bucket

    cdef inline int32_t _owner(self, uint64_t word) noexcept nogil:
        """Return the owner of a key's hash; unless ``wide``, only the low SEED_BITS of the hash count."""
        cdef int32_t owner
        cdef uint32_t seed = word & (SEEDS - 1)
        if self._known != NULL and self._known[seed]:
            return self._known[seed] - 1
        if self._working == 0:
            return -1
        owner = self._owners[self._bucket(word)]
        if self._known != NULL and owner < 65535:
            self._known[seed] = <uint16_t>(owner + 1)
        return owner

    cdef inline uint64_t _hash(self, PyObject* key) except? 0xFFFFFFFFFFFFFFFF:
        cdef bytes digits
        if not self.wide:
            return PyLong_AsUnsignedLongLongMask(<object>key) if PyLong_Check(<object>key) else hash_object(key, 0)
        if not PyLong_Check(<object>key):
            return wide_hash(key, self.function)
        if self.function == XXH64:
            return number_xxh64(PyLong_AsUnsignedLongLongMask(<object>key))
        digits = b"%d" % <object>key
        return wide_hash(<PyObject*>digits, self.function)

    def owner(self, key):
        return self._owner(self._hash(<PyObject*>key))

    def owners(self, list keys not None, KeyCounts counts=None, missing=None):
        cdef Py_ssize_t i, count = PyList_GET_SIZE(keys)
        cdef list out = PyList_New(count)
        cdef object owner
        cdef PyObject* key
        cdef PyObject* absent = NULL if missing is None else <PyObject*>missing
        cdef uint64_t word
        cdef int32_t place
        for i in range(count):
            key = PyList_GET_ITEM(keys, i)
            word = self._hash(key)
            place = self._owner(word)
            owner = place
            Py_INCREF(owner)
            PyList_SET_ITEM(out, i, owner)
            if counts is not None:
                counts._note(word, key, place, key == absent)
        return out

    def count(self, list keys not None, list owners not None, KeyCounts counts not None, missing=None):
        cdef Py_ssize_t i, count = PyList_GET_SIZE(keys)
        cdef PyObject* key
        cdef PyObject* absent = NULL if missing is None else <PyObject*>missing
        if PyList_GET_SIZE(owners) != count:
            raise ValueError(f"{count} keys have {len(owners)} owners")
        for i in range(count):
            key = PyList_GET_ITEM(keys, i)
            counts._note(self._hash(key), key, <int32_t><object>PyList_GET_ITEM(owners, i), key == absent)

    def owners_of_arrow(self, out, keys):
        cdef KeyReader reader = KeyReader(keys)
        cdef Octets owners = Octets(out, True, reader.count * sizeof(int32_t))
        cdef int64_t begin = 0, read = 1
        self._routed += reader.count
        if self._known == NULL and self._routed >= TABLE_PAYS and not self.wide:
            self._known = <uint16_t*>calloc(SEEDS, sizeof(uint16_t))
        self._readers += 1
        with nogil:
            while begin < reader.count and read > 0:
                read = self._route_block(reader, owners.start, begin)
                begin += read
        self._readers -= 1
        if begin < reader.count:
            raise ValueError(OUTSIDE)

    cdef int64_t _route_block(self, KeyReader reader, uint8_t* out, int64_t begin) noexcept nogil:
        """Route up to BLOCK keys: first hash all keys, so that their entries of the table are prefetched at once."""
        cdef uint64_t words[BLOCK]
        cdef uint32_t hash = 0
        cdef int32_t owner
        cdef int64_t i, count = min(BLOCK, reader.count - begin)
        for i in range(count):
            if self.wide:
                if not reader.read_wide(begin + i, self.function, &words[i]):
                    return 0
                continue
            if not reader.read(begin + i, &hash):
                return 0
            words[i] = hash
            if self._known != NULL:
                __builtin_prefetch(&self._known[hash & (SEEDS - 1)])
        for i in range(count):
            owner = self._owner(words[i])
            memcpy(out + (begin + i) * sizeof(int32_t), &owner, sizeof(int32_t))
        return count


cdef class RunBuckets:
    cdef int32_t* _firsts
    cdef int32_t* _owners
    cdef int32_t* _lefts
    cdef int32_t _runs, _size, _working
    cdef readonly int function
    cdef bint wide

    def __init__(self, list runs not None, int function=PHASH2):
        cdef int32_t place, count, left
        if self._firsts != NULL:
            raise ValueError("it has its runs already")
        self.function = function
        self.wide = function != PHASH2
        self._runs = <int32_t>len(runs)
        self._firsts = resized(NULL, max(self._runs, 1))
        self._owners = resized(NULL, max(self._runs, 1))
        self._lefts = resized(NULL, max(self._runs, 1))
        for place in range(self._runs):
            first, count, self._owners[place], left = runs[place]
            if first != self._size or count < 1:
                raise ValueError("runs are in order, without gaps")
            self._firsts[place], self._lefts[place] = self._size, left
            self._size += count
            self._working += count if left < 0 else 0

    def __dealloc__(self):
        free(self._firsts)
        free(self._owners)
        free(self._lefts)

    cdef inline int32_t _run(self, int32_t bucket) noexcept nogil:
        cdef int32_t low = 0, high = self._runs, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self._firsts[middle] <= bucket:
                low = middle
            else:
                high = middle
        return low

    cdef inline int32_t _replacement(self, int32_t bucket) noexcept nogil:
        cdef int32_t run = self._run(bucket)
        return -1 if self._lefts[run] < 0 else self._lefts[run] + bucket - self._firsts[run]

    cdef int32_t _owner(self, uint64_t word) noexcept nogil:
        cdef int32_t bucket, working, place
        cdef uint32_t seed = word & (SEEDS - 1)
        if self._working == 0:
            return -1
        bucket = jump_word(word, self._size) if self.wide else jump_seed(seed, self._size)
        working = self._replacement(bucket)
        while working >= 0:
            if self.wide:
                place = <int32_t>scaled(word ^ <uint64_t>bucket * PRIME_1, working)
            else:
                place = <int32_t>scaled(<uint64_t>bucket << SEED_BITS | seed, working)
            while self._replacement(place) >= working:
                place = self._replacement(place)
            bucket = place
            working = self._replacement(bucket)
        return self._owners[self._run(bucket)]

    def owners_of_arrow(self, out, keys):
        cdef KeyReader reader = KeyReader(keys)
        cdef Octets owners = Octets(out, True, reader.count * sizeof(int32_t))
        cdef int64_t place = 0
        cdef uint64_t word = 0
        cdef uint32_t hash = 0
        cdef int32_t owner
        with nogil:
            while place < reader.count:
                if self.wide:
                    if not reader.read_wide(place, self.function, &word):
                        break
                else:
                    if not reader.read(place, &hash):
                        break
                    word = hash
                owner = self._owner(word)
                memcpy(owners.start + place * sizeof(int32_t), &owner, sizeof(int32_t))
                place += 1
        if place < reader.count:
            raise ValueError(OUTSIDE)


OUTSIDE = "an offset of the Arrow array points outside its octets"


cdef class Octets:
    """The octets of an object with a buffer, held for the lifetime of this object; empty for None."""

    cdef Py_buffer _view
    cdef uint8_t* start
    cdef Py_ssize_t length

    def __cinit__(self, exporter, bint writable, int64_t least):
        if exporter is not None:
            PyObject_GetBuffer(exporter, &self._view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.start = <uint8_t*>self._view.buf
        self.length = self._view.len
        if self.length < least:
            raise ValueError(f"a buffer of {self.length} octets is too small: {least} are needed")

    def __dealloc__(self):
        if self._view.buf != NULL:
            PyBuffer_Release(&self._view)


cdef class KeyReader:
    """The keys of a ``KeyBuffers``, after a check of the buffers' sizes."""

    cdef Octets _validity, _offsets, _octets
    cdef bint _wide, _nullable
    cdef int64_t _first, count

    def __cinit__(self, keys):
        self._wide, validity, offsets, octets, self._first, self.count = keys
        if self._first < 0 or self.count < 0:
            raise ValueError("a slice of an Arrow array has no negative bounds")
        end = self._first + self.count
        self._nullable = validity is not None
        self._validity = Octets(validity, False, (end + 7) // 8 if self._nullable else 0)
        self._offsets = Octets(offsets, False, (end + 1) * (8 if self._wide else 4) if self.count else 0)
        self._octets = Octets(octets, False, 0)

    cdef inline int bounds(self, int64_t i, int64_t* found) noexcept nogil:
        """Find the bounds of the i-th key; return 1, or 0 for a null, or -1 for bounds outside the octets."""
        cdef int64_t slot = self._first + i
        cdef int32_t narrow[2]
        if self._nullable and not (self._validity.start[slot >> 3] >> (slot & 7)) & 1:
            return 0
        if self._wide:
            memcpy(found, self._offsets.start + slot * 8, 16)
        else:
            memcpy(narrow, self._offsets.start + slot * 4, 8)
            found[0] = narrow[0]
            found[1] = narrow[1]
        return 1 if 0 <= found[0] <= found[1] <= self._octets.length else -1

    cdef inline bint read(self, int64_t i, uint32_t* hash) noexcept nogil:
        """Hash the i-th key, or the atom ``undefined`` for a null; return false if the key is outside the octets."""
        cdef int64_t found[2]
        cdef int kind = self.bounds(i, found)
        if kind > 0:
            hash[0] = hash_binary(self._octets.start + found[0], found[1] - found[0], 0)
        elif kind == 0:
            hash[0] = HASH_OF_UNDEFINED
        return kind >= 0

    cdef inline bint read_wide(self, int64_t i, int function, uint64_t* hash) noexcept nogil:
        """As ``read``, by a function other than ``phash2``."""
        cdef int64_t found[2]
        cdef int kind = self.bounds(i, found)
        if kind > 0:
            hash[0] = hash_octets(function, self._octets.start + found[0], found[1] - found[0])
        elif kind == 0:
            hash[0] = hash_missing(function)
        return kind >= 0


def modulus_of_arrow(out, int32_t buckets, keys, int function=PHASH2):
    cdef KeyReader reader = KeyReader(keys)
    cdef Octets remainders = Octets(out, True, reader.count * sizeof(int32_t))
    cdef int64_t i
    cdef uint32_t hash = 0
    cdef uint64_t word = 0
    cdef int32_t remainder
    cdef bint sound = True
    if buckets < 1:
        raise ValueError(f"a modulus is 1 or more, not {buckets}")
    with nogil:
        for i in range(reader.count):
            if function != PHASH2:
                sound = reader.read_wide(i, function, &word)
                remainder = <int32_t>(word % <uint64_t>buckets)
            else:
                sound = reader.read(i, &hash)
                remainder = <int32_t>((end_list(hash) & RANGE_MASK) % <uint32_t>buckets)
            if not sound:
                break
            memcpy(remainders.start + i * sizeof(int32_t), &remainder, sizeof(int32_t))
    if not sound:
        raise ValueError(OUTSIDE)


cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil


cdef enum:
    PLACE_BITS = 10
    PLACES = 1 << 10
    RANKS = 64 - 10 + 2
    FREQUENT = 64
    ALL_NOTED = 16384
    MEAN_GAP = 16
    LONGEST_KEY = 255

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15u


cdef inline uint64_t spread(uint64_t hash) noexcept nogil:
    hash = (hash ^ (hash >> 32)) * 0xFF51AFD7ED558CCDu
    return hash ^ (hash >> 29)


cdef class KeyCounts:
    cdef Py_ssize_t _owners
    cdef uint8_t** _registers
    cdef uint64_t* _messages
    cdef uint64_t _hashes[FREQUENT]
    cdef int64_t _counts[FREQUENT]
    cdef int64_t _errors[FREQUENT]
    cdef int32_t _of[FREQUENT]
    cdef list _keys
    cdef tuple _merged
    cdef readonly int64_t noted
    cdef int64_t _gap, _weight
    cdef uint32_t _random

    def __cinit__(self, Py_ssize_t owners):
        self._owners = owners
        self._keys = []
        self._merged = ()
        self._gap = self._weight = 1
        self._random = 2463534242u
        self._registers = <uint8_t**>calloc(max(owners, 1), sizeof(uint8_t*))
        self._messages = <uint64_t*>calloc(max(owners, 1), sizeof(uint64_t))
        if self._registers == NULL or self._messages == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t owner
        if self._registers != NULL:
            for owner in range(self._owners):
                free(self._registers[owner])
        free(self._registers)
        free(self._messages)

    cdef inline int _note(self, uint64_t word, PyObject* key, int32_t owner, bint is_missing) except -1:
        cdef uint64_t hash = spread(word * SPREAD)
        if not 0 <= owner < self._owners:
            raise IndexError(f"no owner {owner} among {self._owners}")
        self._messages[owner] += 1
        if is_missing:
            return 0
        self._rank(owner, hash)
        self.noted += 1
        self._gap -= 1
        if self._gap == 0:
            self._count(hash, <object>key, owner, self._weight, 0)
            self._next_gap()
        return 0

    cdef inline int _rank(self, Py_ssize_t owner, uint64_t hash) except -1:
        cdef uint8_t* registers = self._registers[owner]
        cdef uint8_t rank = <uint8_t>(__builtin_clzll((hash << PLACE_BITS) | (<uint64_t>1 << (PLACE_BITS - 1))) + 1)
        if registers == NULL:
            registers = self._registers[owner] = <uint8_t*>calloc(PLACES, 1)
            if registers == NULL:
                raise MemoryError
        registers += hash >> (64 - PLACE_BITS)
        if registers[0] < rank:
            registers[0] = rank
        return 0

    cdef void _next_gap(self) noexcept:
        if self.noted < ALL_NOTED:
            self._gap = self._weight = 1
            return
        self._random ^= self._random << 13
        self._random ^= self._random >> 17
        self._random ^= self._random << 5
        self._gap = 1 + self._random % (2 * MEAN_GAP - 1)
        self._weight = MEAN_GAP

    cdef int _count(self, uint64_t hash, key, int32_t owner, int64_t weight, int64_t error) except -1:
        cdef Py_ssize_t i, least = 0, used = PyList_GET_SIZE(self._keys)
        for i in range(used):
            if self._hashes[i] == hash:
                self._counts[i] += weight
                self._errors[i] += error
                self._of[i] = owner
                return 0
        if used < FREQUENT:
            least = used
            self._counts[least] = 0
            self._keys.append(None)
        else:
            for i in range(1, used):
                if self._counts[i] < self._counts[least]:
                    least = i
        self._hashes[least] = hash
        self._errors[least] = self._counts[least] + error
        self._counts[least] += weight
        self._of[least] = owner
        self._keys[least] = key[:LONGEST_KEY] if PyBytes_Check(key) else b"%d" % key
        return 0

    def messages(self):
        return [self._messages[owner] for owner in range(self._owners)]

    def ranks(self, Py_ssize_t owner=-1):
        cdef list found = [0] * RANKS
        cdef uint8_t rank
        for rank in self.registers(owner):
            found[rank] += 1
        return found

    def registers(self, Py_ssize_t owner=-1):
        cdef uint8_t merged[PLACES]
        cdef Py_ssize_t i, one
        cdef KeyCounts part
        if owner >= self._owners:
            raise IndexError(f"no owner {owner} among {self._owners}")
        for i in range(PLACES):
            merged[i] = 0
        for part in self._merged or (self,):
            for one in range(self._owners) if owner < 0 else (owner,):
                if part._registers[one] != NULL:
                    for i in range(PLACES):
                        merged[i] = max(merged[i], part._registers[one][i])
        return merged[:PLACES]

    def frequent(self):
        return [
            (self._keys[i], self._of[i], self._counts[i], self._errors[i]) for i in range(PyList_GET_SIZE(self._keys))
        ]

    def merged(self, KeyCounts other not None):
        cdef KeyCounts both = KeyCounts(self._owners)
        cdef KeyCounts part
        cdef Py_ssize_t owner, i
        if other._owners != self._owners:
            raise ValueError("counts of different rings")
        both._merged = (*(self._merged or (self,)), *(other._merged or (other,)))
        for part in (self, other):
            both.noted += part.noted
            for owner in range(self._owners):
                both._messages[owner] += part._messages[owner]
            for i in range(PyList_GET_SIZE(part._keys)):
                both._count(part._hashes[i], part._keys[i], part._of[i], part._counts[i], part._errors[i])
        return both
