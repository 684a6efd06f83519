# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The hot path of the wire format in C. ``_reference.py``, with equal results, has the docstrings."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from jumpmq.amqp.errors import MalformedFrame
from jumpmq.amqp.events import Ack, Publish, RawFrame
from jumpmq.amqp.fields import read_table, read_value
from jumpmq.amqp.texts import header_texts, value_text
from jumpmq.hashing import header_key

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from "string.h":
    void* memmem(const void* octets, size_t size, const void* part, size_t part_size) nogil

DEF FRAME_METHOD = 1
DEF FRAME_HEADER = 2
DEF FRAME_BODY = 3
DEF FRAME_HEARTBEAT = 8
DEF FRAME_END = 0xCE
DEF MAX_RUN = 4096
DEF MAX_DEPTH = 64
DEF APART = 4096
DEF HEADERS = 2
DEF DELIVERY_MODE = 3
DEF PRIORITY = 4
DEF TIMESTAMP = 9
DEF EXPIRATION = 0x0100
DEF USER_ID = 0x0010
DEF LAST_SECOND = 253402300799
DEF MOST_COMPARED = 32


@cython.freelist(4096)
@cython.no_gc
cdef class Message:
    def __init__(
        self,
        str exchange,
        bytes routing_key,
        bytes properties,
        bytes body,
        bint persistent=False,
        double published_at=0.0,
    ):
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.persistent = persistent
        self.published_at = published_at

    def copy(self):
        return new_message(
            self.exchange, self.routing_key, self.properties, self.body, self.persistent, self.published_at
        )


cdef inline Message new_message(
    str exchange, bytes routing_key, bytes properties, bytes body, bint persistent, double published_at
):
    cdef Message message = Message.__new__(Message)
    message.exchange = exchange
    message.routing_key = routing_key
    message.properties = properties
    message.body = body
    message.persistent = persistent
    message.published_at = published_at
    return message


cdef inline uint16_t read_short(const uint8_t* at) noexcept nogil:
    return (<uint16_t>at[0] << 8) | at[1]


cdef inline uint32_t read_long(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline uint64_t read_longlong(const uint8_t* at) noexcept nogil:
    return (<uint64_t>read_long(at) << 32) | read_long(at + 4)


cdef inline uint8_t* write_frame_start(uint8_t* at, int kind, int channel, Py_ssize_t length) noexcept nogil:
    at[0] = kind
    at[1] = channel >> 8
    at[2] = channel & 0xFF
    return write_long(at + 3, length)


cdef inline uint8_t* write_long(uint8_t* at, uint64_t value) noexcept nogil:
    at[0] = (value >> 24) & 0xFF
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF
    return at + 4


cdef inline uint8_t* write_longlong(uint8_t* at, uint64_t value) noexcept nogil:
    return write_long(write_long(at, value >> 32), <uint32_t>value)


cdef inline uint8_t* write_octets(uint8_t* at, const char* octets, Py_ssize_t length) noexcept nogil:
    memcpy(at, octets, length)
    return at + length


cdef inline uint8_t* write_short_string(uint8_t* at, const char* octets, Py_ssize_t length) noexcept nogil:
    at[0] = length & 0xFF
    return write_octets(at + 1, octets, length)


# --- properties ---


cdef const uint8_t* skip_table(const uint8_t* at, const uint8_t* end, bint named, int depth) noexcept nogil:
    """Return the end of the table (``named``) or array at ``at``; NULL if malformed."""
    cdef uint32_t length
    cdef const uint8_t* stop
    if end - at < 4 or depth > MAX_DEPTH:
        return NULL
    length = read_long(at)
    at += 4
    if length > <uint64_t>(end - at):
        return NULL
    stop = at + length
    while at < stop:
        if named:
            if at[0] >= stop - at:
                return NULL
            if not is_utf8(at + 1, at[0]):
                return NULL
            at += 1 + at[0]
        at = skip_value(at, stop, depth)
        if at == NULL:
            return NULL
    return stop


cdef const uint8_t* skip_value(const uint8_t* at, const uint8_t* stop, int depth) noexcept nogil:
    """Return the end of the typed value at ``at``; NULL if malformed."""
    cdef uint8_t kind
    cdef uint64_t size
    if at >= stop:
        return NULL
    kind = at[0]
    at += 1
    if kind == c"F" or kind == c"A":
        return skip_table(at, stop, kind == c"F", depth + 1)
    if kind == c"S" or kind == c"x":
        if stop - at < 4:
            return NULL
        size = 4 + <uint64_t>read_long(at)
    elif kind == c"t" or kind == c"b" or kind == c"B":
        size = 1
    elif kind == c"s" or kind == c"u":
        size = 2
    elif kind == c"I" or kind == c"i" or kind == c"f":
        size = 4
    elif kind == c"l" or kind == c"L" or kind == c"T" or kind == c"d":
        size = 8
    elif kind == c"D":
        size = 5
    elif kind == c"V":
        size = 0
    else:
        return NULL
    if size > <uint64_t>(stop - at):
        return NULL
    return at + size


cdef bint is_utf8(const uint8_t* at, Py_ssize_t length) noexcept nogil:
    """Return true if the octets are ASCII, or UTF-8 by Python's own decoder."""
    cdef Py_ssize_t i
    for i in range(length):
        if at[i] >= 0x80:
            with gil:
                try:
                    PyUnicode_DecodeUTF8(<const char*>at, length, NULL)
                except UnicodeDecodeError:
                    return False
            return True
    return True


cdef bint locate(const uint8_t* at, Py_ssize_t length, const uint8_t** found) noexcept nogil:
    """Find the begin of each of the 14 properties, NULL if absent; return False if the list is malformed."""
    cdef const uint8_t* end = at + length
    cdef int place
    cdef uint16_t flags
    if length < 2:
        return False
    flags = read_short(at)
    at += 2
    if flags & 3:
        return False
    for place in range(14):
        if not (flags << place) & 0x8000:
            found[place] = NULL
            continue
        found[place] = at
        if place == HEADERS:
            at = skip_table(at, end, True, 0)
            if at == NULL:
                return False
        elif place == DELIVERY_MODE or place == PRIORITY:
            if at >= end:
                return False
            at += 1
        elif place == TIMESTAMP:
            if end - at < 8:
                return False
            at += 8
        else:
            if at >= end or at[0] >= end - at:
                return False
            at += 1 + at[0]
    return at == end


cdef int delivery_mode(const uint8_t* at, Py_ssize_t length) noexcept nogil:
    """Return the delivery mode (0 if absent) of a whole, well-formed property list; otherwise -1."""
    cdef const uint8_t* found[14]
    if not locate(at, length, found):
        return -1
    if found[DELIVERY_MODE] == NULL:
        return 0
    return found[DELIVERY_MODE][0] if 1 <= found[DELIVERY_MODE][0] <= 2 else 3


def check_properties(bytes octets):
    return delivery_mode(<const uint8_t*>PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets))


def examine(list messages):
    cdef Message message
    cdef bytes known = None
    cdef list acted_on = []
    cdef int mode = 0, flags = 0, all_flags = 0
    for message in messages:
        if message.properties is not known:
            known = message.properties
            mode = delivery_mode(<const uint8_t*>PyBytes_AS_STRING(known), PyBytes_GET_SIZE(known))
            if mode < 0:
                return -1, acted_on
            flags = read_short(<const uint8_t*>PyBytes_AS_STRING(known))
            all_flags |= flags
        message.persistent = mode == 2
        if mode > 2 or flags & (EXPIRATION | USER_ID):
            acted_on.append(message)
    return all_flags, acted_on


cdef inline int64_t whole_number(uint8_t kind, const uint8_t* at) noexcept nogil:
    """Return the value of an integer field of type ``bBsuIilL``."""
    if kind == c"b":
        return <int8_t>at[0]
    if kind == c"B":
        return at[0]
    if kind == c"s":
        return <int16_t>read_short(at)
    if kind == c"u":
        return read_short(at)
    if kind == c"I":
        return <int32_t>read_long(at)
    if kind == c"i":
        return read_long(at)
    return <int64_t>read_longlong(at)


cdef inline bint is_whole_number(uint8_t kind) noexcept nogil:
    return (
        kind == c"I" or kind == c"l" or kind == c"i" or kind == c"b" or kind == c"B" or kind == c"s" or kind == c"u"
        or kind == c"L"
    )


# --- hashing ---


cdef object key_of_value(const uint8_t* at, const uint8_t* stop):
    cdef uint8_t kind = at[0]
    if kind == c"S" or kind == c"x":
        return PyBytes_FromStringAndSize(<const char*>at + 5, read_long(at + 1))
    if is_whole_number(kind):
        return whole_number(kind, at + 1)
    return header_key(*read_value(PyBytes_FromStringAndSize(<const char*>at, stop - at)))


cdef object key_of_header(const uint8_t* at, const char* name, Py_ssize_t name_size):
    """Return the key of the first header of the name with a value; None without such a header."""
    cdef const uint8_t* end = at + 4 + read_long(at)
    cdef const uint8_t* value
    at += 4
    while at < end:
        value = at + 1 + at[0]
        if at[0] == name_size and value[0] != c"V" and memcmp(at + 1, name, name_size) == 0:
            return key_of_value(value, skip_value(value, end, 0))
        at = skip_value(value, end, 0)
    return None


def routing_keys(list messages):
    cdef Message message
    return [message.routing_key for message in messages]


def hash_keys(list messages, int place, bytes name, missing):
    cdef Message message
    cdef const uint8_t* found[14]
    cdef const char* header = PyBytes_AS_STRING(name)
    cdef Py_ssize_t lacking = 0, name_size = PyBytes_GET_SIZE(name)
    cdef list keys = []
    cdef object key
    for message in messages:
        key = None
        if (
            locate(<const uint8_t*>PyBytes_AS_STRING(message.properties), PyBytes_GET_SIZE(message.properties), found)
            and found[place] != NULL
        ):
            if place == HEADERS:
                key = key_of_header(found[place], header, name_size)
            elif place == TIMESTAMP:
                key = b"%d" % read_longlong(found[place])
            else:
                key = PyBytes_FromStringAndSize(<const char*>found[place] + 1, found[place][0])
        if key is None:
            lacking += 1
            key = missing
        keys.append(key)
    return keys, lacking


def any_copies(list messages):
    cdef Message message
    cdef const char* octets
    cdef Py_ssize_t size
    for message in messages:
        octets = PyBytes_AS_STRING(message.properties)
        size = PyBytes_GET_SIZE(message.properties)
        if size > 8 and (memmem(octets, size, b"\x02CC", 3) != NULL or memmem(octets, size, b"\x03BCC", 4) != NULL):
            return True
    return False


# --- decoding ---


cdef struct Column:
    const int32_t* offsets
    const char* octets


cdef Column column_of(offsets, octets):
    """Return an Arrow column of binary values; the caller must keep its buffers."""
    cdef const uint8_t[::1] view = offsets
    cdef Column column
    column.offsets = <const int32_t*>&view[0]
    column.octets = b""
    if len(octets):
        view = octets
        column.octets = <const char*>&view[0]
    return column


cdef inline Py_ssize_t size_at(Column* column, Py_ssize_t row) noexcept nogil:
    return column.offsets[row + 1] - column.offsets[row]


cdef struct Cells:
    Column values
    const uint8_t* valid
    Py_ssize_t octets


cdef Cells cells_of(column, Py_ssize_t rows) except *:
    """Return an Arrow column of nullable binary values, from its three buffers; the caller must keep the buffers."""
    cdef Cells cells
    cdef const uint8_t[::1] view
    validity, offsets, octets = column
    if len(offsets) < 4 * (rows + 1) or (validity is not None and 8 * len(validity) < rows):
        raise ValueError("an Arrow column with too few rows")
    cells.values = column_of(offsets, octets)
    cells.octets = len(octets)
    cells.valid = NULL
    if validity is not None:
        view = validity
        cells.valid = &view[0]
    return cells


cdef inline Py_ssize_t cell(Cells* cells, Py_ssize_t row, const uint8_t** at) except -2:
    """Return the number of octets of a cell, and find the octets; -1 for null."""
    cdef Py_ssize_t first, size
    if cells.valid != NULL and not cells.valid[row >> 3] >> (row & 7) & 1:
        return -1
    first = cells.values.offsets[row]
    size = cells.values.offsets[row + 1] - first
    if first < 0 or size < 0 or first + size > cells.octets:
        raise ValueError("an offset of the Arrow column points outside its octets")
    at[0] = <const uint8_t*>cells.values.octets + first
    return size


cdef bytes said_or_persistent(const uint8_t* at, Py_ssize_t size):
    """Return encoded properties with delivery mode 2 added if they have no delivery mode."""
    cdef Py_ssize_t place = 2
    cdef bytes octets
    cdef char* to
    if size < 2 or at[0] & 0x10:
        return PyBytes_FromStringAndSize(<const char*>at, size)
    if at[0] & 0x80:
        place += 1 + (at[place] if place < size else size)
    if at[0] & 0x40:
        place += 1 + (at[place] if place < size else size)
    if at[0] & 0x20:
        place += 4 + (<Py_ssize_t>read_long(at + place) if place + 4 <= size else size)
    if place > size:
        return PyBytes_FromStringAndSize(<const char*>at, size)
    octets = PyBytes_FromStringAndSize(NULL, size + 1)
    to = PyBytes_AS_STRING(octets)
    memcpy(to, at, place)
    to[0] |= 0x10
    to[place] = 2
    memcpy(to + place + 1, at + place, size - place)
    return octets


def messages_of_rows(
    str exchange, keys, bytes key, properties, bytes plain, bodies, Py_ssize_t first, Py_ssize_t count,
    Py_ssize_t most_octets, bint persistent, double now
):
    cdef Cells key_cells, property_cells, body_cells = cells_of(bodies, first + count)
    cdef const uint8_t* at = NULL
    cdef const uint8_t* last = NULL
    cdef Py_ssize_t row, size, octets = 0, last_size = -1
    cdef bytes own_key, own, body
    cdef bint has_keys = keys is not None, has_properties = properties is not None
    cdef list messages = []
    if first < 0 or count < 0:
        raise ValueError("no rows of a column")
    if has_keys:
        key_cells = cells_of(keys, first + count)
    if has_properties:
        property_cells = cells_of(properties, first + count)
    own = plain
    for row in range(first, first + count):
        size = cell(&body_cells, row, &at)
        if messages and octets + size > most_octets:
            break
        octets += size
        if size < 0:
            raise ValueError("a body is null")
        body = PyBytes_FromStringAndSize(<const char*>at, size)
        size = cell(&key_cells, row, &at) if has_keys else -1
        own_key = key if size < 0 else PyBytes_FromStringAndSize(<const char*>at, size)
        if own_key is None:
            raise ValueError("a routing key is null")
        if has_properties:
            size = cell(&property_cells, row, &at)
            if size <= 0:
                own, last_size = plain, -1
            elif size != last_size or memcmp(at, last, size) != 0:
                if persistent:
                    own = said_or_persistent(at, size)
                else:
                    own = PyBytes_FromStringAndSize(<const char*>at, size)
                last, last_size = at, size
        messages.append(new_message(exchange, own_key, own, body, False, now))
    return messages


cdef class Grown:
    """A buffer of octets that grows at its end."""

    cdef char* start
    cdef Py_ssize_t size, room

    def __dealloc__(self):
        free(self.start)

    cdef char* more(self, Py_ssize_t count) except NULL:
        """Return the place of the next octets, and count them as written."""
        cdef Py_ssize_t room
        cdef void* moved
        if self.start == NULL or self.size + count > self.room:
            room = max(2 * self.room, self.size + count, 4096)
            moved = realloc(self.start, room)
            if moved == NULL:
                raise MemoryError
            self.start = <char*>moved
            self.room = room
        self.size += count
        return self.start + self.size - count

    cdef bytes taken(self):
        return PyBytes_FromStringAndSize(self.start, self.size)


cdef bytes packed(Grown flags):
    """Return an Arrow bitmap, from octets of 0 or 1."""
    cdef bytes bits = bytes((flags.size + 7) // 8)
    cdef char* at = PyBytes_AS_STRING(bits)
    cdef Py_ssize_t row
    for row in range(flags.size):
        at[row >> 3] |= flags.start[row] << (row & 7)
    return bits


cdef class Values:
    """A growing Arrow column of texts, or of 64-bit integers."""

    cdef Grown present, places, octets
    cdef Py_ssize_t rows, absent

    def __cinit__(self):
        self.present, self.places, self.octets = Grown(), Grown(), Grown()

    cdef int add_absent(self, Py_ssize_t count) except -1:
        """Add rows without a value; their offsets are the end of the octets."""
        cdef Py_ssize_t row
        cdef char* at
        if count <= 0:
            return 0
        memset(self.present.more(count), 0, count)
        at = self.places.more(8 * count)
        for row in range(count):
            (<int64_t*>at)[row] = self.octets.size
        self.rows += count
        self.absent += count
        return 0

    cdef int add_number(self, int64_t value) except -1:
        self.present.more(1)[0] = 1
        (<int64_t*>self.places.more(8))[0] = value
        self.rows += 1
        return 0

    cdef int add_text(self, const char* text, Py_ssize_t size) except -1:
        memcpy(self.octets.more(size), text, size)
        return self.add_number(self.octets.size)

    cdef int add_str(self, str text) except -1:
        cdef Py_ssize_t size
        cdef const char* octets
        if text is None:
            return self.add_absent(1)
        octets = PyUnicode_AsUTF8AndSize(text, &size)
        return self.add_text(octets, size)

    cdef bytes bitmap(self):
        """Return the validity bitmap; None if all rows have a value."""
        return packed(self.present) if self.absent else None

    cdef tuple numbers(self):
        cdef Py_ssize_t row
        for row in range(self.rows):
            if not self.present.start[row]:
                (<int64_t*>self.places.start)[row] = 0
        return self.bitmap(), self.places.taken()

    cdef bytes offsets(self):
        """Return the ends of rows, as 32-bit offsets."""
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (self.rows + 1))
        cdef int32_t* at = <int32_t*>PyBytes_AS_STRING(offsets)
        cdef Py_ssize_t row
        at[0] = 0
        for row in range(self.rows):
            at[row + 1] = <int32_t>(<int64_t*>self.places.start)[row]
        return offsets

    cdef tuple texts(self):
        if self.octets.size > 0x7FFFFFFF:
            raise OverflowError("a column of more than 2 GB")
        return self.bitmap(), self.offsets(), self.octets.taken()


cdef int add_octets(Values column, const uint8_t* at, Py_ssize_t size) except -1:
    """Add a property's text, with replacement characters for octets that are not UTF-8."""
    if is_utf8(at, size):
        return column.add_text(<const char*>at, size)
    return column.add_str(PyBytes_FromStringAndSize(<const char*>at, size).decode("utf-8", "replace"))


cdef int add_value(Values column, const uint8_t* at, const uint8_t* stop) except -1:
    """Add a header's value as text."""
    cdef uint8_t kind = at[0]
    cdef char digits[24]
    if (kind == c"S" or kind == c"x") and is_utf8(at + 5, stop - at - 5):
        return column.add_text(<const char*>at + 5, stop - at - 5)
    if is_whole_number(kind):
        return column.add_text(digits, snprintf(digits, 24, b"%lld", <long long>whole_number(kind, at + 1)))
    if kind == c"t":
        return column.add_text(b"true", 4) if at[1] else column.add_text(b"false", 5)
    if kind == c"V":
        return column.add_absent(1)
    return column.add_str(value_text(PyBytes_FromStringAndSize(<const char*>at, stop - at)))


cdef bint has_each_once(const uint8_t* at) noexcept nogil:
    """Return true if a header table is short, and has no duplicate names."""
    cdef const uint8_t* names[MOST_COMPARED]
    cdef const uint8_t* end = at + 4 + read_long(at)
    cdef Py_ssize_t count = 0, other
    at += 4
    while at < end:
        if count == MOST_COMPARED:
            return False
        for other in range(count):
            if memcmp(names[other], at, 1 + at[0]) == 0:
                return False
        names[count] = at
        count += 1
        at = skip_value(at + 1 + at[0], end, 0)
    return True


cdef int add_headers(Values names, Values items, const uint8_t* at) except -1:
    """Add the entries of a header table."""
    cdef const uint8_t* end = at + 4 + read_long(at)
    cdef const uint8_t* value
    if not has_each_once(at):
        table = header_texts(read_table(PyBytes_FromStringAndSize(<const char*>at, end - at))[0])
        for name, text in table.items():
            names.add_str(name)
            items.add_str(text)
        return 0
    at += 4
    while at < end:
        value = at + 1 + at[0]
        names.add_text(<const char*>at + 1, at[0])
        at = skip_value(value, end, 0)
        add_value(items, value, at)
    return 0


cdef object finished(Values column, int place, Py_ssize_t rows):
    """Return the buffers of a property's column; None if no row has the property."""
    if not column.rows:
        return None
    column.add_absent(rows - column.rows)
    return column.numbers() if place == DELIVERY_MODE or place == PRIORITY or place == TIMESTAMP else column.texts()


def decode_properties(offsets, octets, Py_ssize_t first, Py_ssize_t count, int wanted):
    cdef Column source
    cdef const uint8_t* found[14]
    cdef Grown readable = Grown()
    cdef Values column, entries = Values(), names = Values(), items = Values()
    cdef list columns = []
    cdef int places[14]
    cdef int used = 0, at, place
    cdef Py_ssize_t row, held, unreadable = 0
    if first < 0 or count < 0 or (count and len(offsets) < 4 * (first + count + 1)):
        raise ValueError("an Arrow column with too few offsets")
    source = column_of(offsets if count else b"\0\0\0\0", octets)
    for place in range(14):
        columns.append(Values())
        if wanted >> (15 - place) & 1 and place != HEADERS:
            places[used] = place
            used += 1
    for row in range(count):
        held = source.offsets[first + row]
        if not 0 <= held <= source.offsets[first + row + 1] <= len(octets):
            raise ValueError("an offset of the Arrow column points outside its octets")
        if not locate(<const uint8_t*>source.octets + held, size_at(&source, first + row), found):
            memset(found, 0, sizeof(found))
            unreadable += 1
            readable.more(1)[0] = 0
        else:
            readable.more(1)[0] = 1
        if wanted & 0x2000:
            if found[HEADERS] != NULL:
                add_headers(names, items, found[HEADERS])
            entries.add_number(names.rows)
        for at in range(used):
            place = places[at]
            if found[place] == NULL or (place == TIMESTAMP and read_longlong(found[place]) > LAST_SECOND):
                continue
            column = columns[place]
            column.add_absent(row - column.rows)
            if place == DELIVERY_MODE or place == PRIORITY:
                column.add_number(found[place][0])
            elif place == TIMESTAMP:
                column.add_number(read_longlong(found[place]))
            else:
                add_octets(column, found[place] + 1, found[place][0])
    for place in range(14):
        columns[place] = finished(columns[place], place, count)
    if wanted & 0x2000:
        columns[HEADERS] = (entries.offsets(), *names.texts()[1:], *items.texts())
    return packed(readable) if unreadable else None, columns


# --- encoding ---


cdef struct Numbers:
    const int64_t* values
    const uint8_t* valid


cdef Numbers numbers_of(column, Py_ssize_t rows) except *:
    """Return an Arrow column of nullable 64-bit integers, from its two buffers; the caller must keep the buffers."""
    cdef Numbers numbers
    cdef const uint8_t[::1] view
    validity, octets = column
    if len(octets) < 8 * rows or (validity is not None and 8 * len(validity) < rows):
        raise ValueError("an Arrow column with too few rows")
    numbers.values = NULL
    if rows:
        view = octets
        numbers.values = <const int64_t*>&view[0]
    numbers.valid = NULL
    if validity is not None:
        view = validity
        numbers.valid = &view[0]
    return numbers


cdef int add_short_string(Grown out, const uint8_t* at, Py_ssize_t size) except -1:
    if size > 255:
        raise ValueError("a short string of more than 255 octets")
    write_short_string(<uint8_t*>out.more(1 + size), <const char*>at, size)
    return 0


cdef int add_table(Grown out, Cells* names, Cells* values, Py_ssize_t first, Py_ssize_t end) except -1:
    """Encode entries of a map as a field table: text, or void for a null value."""
    cdef Py_ssize_t start, entry, size
    cdef const uint8_t* at = NULL
    cdef uint8_t* to
    out.more(4)
    start = out.size
    for entry in range(first, end):
        size = cell(names, entry, &at)
        if size < 0:
            raise ValueError("a header without a name")
        add_short_string(out, at, size)
        size = cell(values, entry, &at)
        if size < 0:
            out.more(1)[0] = c"V"
            continue
        to = <uint8_t*>out.more(5 + size)
        to[0] = c"S"
        write_octets(write_long(to + 1, size), <const char*>at, size)
    write_long(<uint8_t*>out.start + start - 4, out.size - start)
    return 0


def encode_properties(Py_ssize_t rows, headers, list columns):
    cdef Cells texts[14]
    cdef Numbers numbers[14]
    cdef Cells names, values
    cdef Grown out = Grown(), present = Grown(), ends = Grown()
    cdef const int32_t* entries = NULL
    cdef const uint8_t* has_headers = NULL
    cdef const uint8_t[::1] view
    cdef const uint8_t* at = NULL
    cdef int kinds[14]
    cdef int place, flags
    cdef Py_ssize_t row, size, start, absent = 0, entries_there = 0
    cdef int64_t number
    if rows < 0 or len(columns) != 14:
        raise ValueError("fourteen columns of some rows")
    for place in range(14):
        kinds[place] = 0 if columns[place] is None else len(columns[place])
        if kinds[place] == 3:
            texts[place] = cells_of(columns[place], rows)
        elif kinds[place] == 2:
            numbers[place] = numbers_of(columns[place], rows)
    if headers is not None:
        validity, offsets, entries_there, name_column, value_column = headers
        if len(offsets) < 4 * (rows + 1) or (validity is not None and 8 * len(validity) < rows):
            raise ValueError("an Arrow column with too few rows")
        view = offsets
        entries = <const int32_t*>&view[0]
        if validity is not None:
            view = validity
            has_headers = &view[0]
        names, values = cells_of(name_column, entries_there), cells_of(value_column, entries_there)
    (<int32_t*>ends.more(4))[0] = 0
    for row in range(rows):
        start, flags = out.size, 0
        out.more(2)
        for place in range(14):
            if place == HEADERS:
                if entries == NULL or (has_headers != NULL and not has_headers[row >> 3] >> (row & 7) & 1):
                    continue
                if not 0 <= entries[row] <= entries[row + 1] <= entries_there:
                    raise ValueError("an offset of the Arrow column points outside its entries")
                if entries[row] == entries[row + 1]:
                    continue
                add_table(out, &names, &values, entries[row], entries[row + 1])
            elif kinds[place] == 3:
                size = cell(&texts[place], row, &at)
                if size < 0:
                    continue
                add_short_string(out, at, size)
            elif kinds[place] == 2:
                if numbers[place].valid != NULL and not numbers[place].valid[row >> 3] >> (row & 7) & 1:
                    continue
                number = numbers[place].values[row]
                if number < 0 or (place != TIMESTAMP and number > 255):
                    raise ValueError("a number that the property has no room for")
                if place == TIMESTAMP:
                    write_longlong(<uint8_t*>out.more(8), number)
                else:
                    out.more(1)[0] = <char>number
            else:
                continue
            flags |= 0x8000 >> place
        if flags:
            out.start[start], out.start[start + 1] = <char>(flags >> 8), <char>(flags & 0xFF)
        else:
            out.size = start
            absent += 1
        present.more(1)[0] = flags != 0
        if out.size > 0x7FFFFFFF:
            raise OverflowError("a column of more than 2 GB")
        (<int32_t*>ends.more(4))[0] = <int32_t>out.size
    return packed(present) if absent else None, ends.taken(), out.taken() if out.size else b""


# --- reading ---


cdef class Run:
    """The run of messages that a scan collects, with its parts as C values."""

    cdef object event
    cdef list items
    cdef int channel, bits
    cdef uint32_t flags
    cdef Py_ssize_t size, count
    cdef bytes exchange_octets
    cdef str exchange
    cdef bytes properties
    cdef bint persistent

    cdef void finish(self):
        """Write the counts back to the run."""
        if self.event is not None and self.exchange is not None:
            self.event.flags = self.flags
            self.event.size = self.size
        self.event = None
        self.exchange = None


cdef struct Whole:
    const uint8_t* exchange
    const uint8_t* key
    const uint8_t* properties
    const uint8_t* body
    Py_ssize_t exchange_size, key_size, properties_size, body_size
    int bits
    Py_ssize_t end


cdef bint whole_publish(
    const uint8_t* octets, Py_ssize_t size, Py_ssize_t at, Py_ssize_t end, uint32_t frame_max, Whole* found
) noexcept nogil:
    """Return true if the publish method in [at, end) is followed by its header frame and its only body frame."""
    cdef const uint8_t* payload = octets + at + 7
    cdef Py_ssize_t length = end - at - 7, key_at
    cdef uint64_t body_size, header_size
    if length < 9:
        return False
    key_at = 7 + payload[6]
    if key_at >= length or key_at + 1 + payload[key_at] + 1 != length:
        return False
    found.exchange = payload + 7
    found.exchange_size = payload[6]
    found.key = payload + key_at + 1
    found.key_size = payload[key_at]
    found.bits = payload[length - 1]
    payload = octets + end + 1
    if size - end - 1 < 22 or payload[0] != FRAME_HEADER or memcmp(payload + 1, octets + at + 1, 2) != 0:
        return False
    header_size = read_long(payload + 3)
    if header_size < 14 or header_size + 8 > frame_max or header_size + 8 > <uint64_t>(size - end - 1):
        return False
    if payload[7 + header_size] != FRAME_END or read_long(payload + 7) != 0x003C0000:
        return False
    body_size = read_longlong(payload + 11)
    found.properties = payload + 19
    found.properties_size = header_size - 12
    found.body = payload
    found.body_size = body_size
    found.end = end + 1 + header_size + 8
    if body_size == 0:
        return True
    payload = octets + found.end
    if body_size > frame_max or body_size + 8 > frame_max or body_size + 8 > <uint64_t>(size - found.end):
        return False
    if payload[0] != FRAME_BODY or memcmp(payload + 1, octets + at + 1, 2) != 0:
        return False
    if read_long(payload + 3) != body_size or payload[7 + body_size] != FRAME_END:
        return False
    found.body = payload + 7
    found.end += body_size + 8
    return True


cdef bint same(bytes known, const uint8_t* octets, Py_ssize_t length) noexcept:
    return (
        known is not None
        and PyBytes_GET_SIZE(known) == length
        and memcmp(PyBytes_AS_STRING(known), octets, length) == 0
    )


cdef bint add_publish(list events, Run run, int channel, Whole* found, double now):
    """Add the message to the run, or begin a new run; return False if the general parser has to parse the publish."""
    cdef int mode
    if not same(run.properties, found.properties, found.properties_size):
        mode = delivery_mode(found.properties, found.properties_size)
        if mode < 0 or mode > 2:
            return False
        run.properties = PyBytes_FromStringAndSize(<const char*>found.properties, found.properties_size)
        run.persistent = mode == 2
    if (
        run.exchange is None
        or run.channel != channel
        or run.bits != found.bits & 3
        or run.count >= MAX_RUN
        or not same(run.exchange_octets, found.exchange, found.exchange_size)
    ):
        run.finish()
        run.exchange_octets = PyBytes_FromStringAndSize(<const char*>found.exchange, found.exchange_size)
        try:
            run.exchange = run.exchange_octets.decode()
        except UnicodeDecodeError:
            return False
        run.items = []
        run.channel, run.bits = channel, found.bits & 3
        run.flags = run.size = run.count = 0
        run.event = Publish(channel, run.exchange, bool(run.bits & 1), bool(run.bits & 2), 0, 0, run.items)
        events.append(run.event)
    run.flags |= read_short(found.properties)
    run.size += found.body_size
    run.count += 1
    run.items.append(
        new_message(
            run.exchange,
            PyBytes_FromStringAndSize(<const char*>found.key, found.key_size),
            run.properties,
            PyBytes_FromStringAndSize(<const char*>found.body, found.body_size),
            run.persistent,
            now,
        )
    )
    return True


cdef void add_ack(list events, Run run, int channel, uint64_t tag, bint multiple):
    if multiple or run.event is None or run.exchange is not None or run.channel != channel or run.count >= MAX_RUN:
        run.finish()
        run.items = [tag]
        run.channel, run.count = channel, 1
        run.event = Ack(channel, run.items, bool(multiple))
        events.append(run.event)
        if multiple:
            run.event = None
    else:
        run.items.append(tag)
        run.count += 1


def scan(octets, uint32_t frame_max, double now):
    cdef Py_buffer view  # a typed memoryview of Cython takes longer than parsing a publish
    PyObject_GetBuffer(octets, &view, PyBUF_SIMPLE)
    try:
        return scan_octets(octets, <const uint8_t*>view.buf, view.len, frame_max, now)
    finally:
        PyBuffer_Release(&view)


cdef tuple scan_octets(octets, const uint8_t* start, Py_ssize_t size, uint32_t frame_max, double now):
    cdef Py_ssize_t at = 0, end
    cdef const uint8_t* frame
    cdef uint32_t length, method
    cdef int kind, channel
    cdef Whole found
    cdef list events = []
    cdef Run run = Run()
    while size - at >= 7:
        frame = start + at
        kind = frame[0]
        if kind != FRAME_METHOD and kind != FRAME_HEADER and kind != FRAME_BODY and kind != FRAME_HEARTBEAT:
            events.append(MalformedFrame(f"type {kind}, unknown frame type"))
            break
        channel = read_short(frame + 1)
        length = read_long(frame + 3)
        if <uint64_t>length + 8 > frame_max:
            events.append(
                MalformedFrame(f"type {kind}, frame_too_large: {<uint64_t>length + 8} octets, frame_max {frame_max}")
            )
            break
        end = at + 7 + length
        if end >= size:
            break
        if start[end] != FRAME_END:
            events.append(MalformedFrame(f"type {kind}, invalid frame end marker {start[end]}"))
            break
        if kind == FRAME_METHOD and length >= 4:
            method = read_long(frame + 7)
            if method == 0x003C0028 and whole_publish(start, size, at, end, frame_max, &found):
                if add_publish(events, run, channel, &found, now):
                    at = found.end
                    continue
            elif method == 0x003C0050 and length == 13:
                add_ack(events, run, channel, read_longlong(frame + 11), frame[19] & 1)
                at = end + 1
                continue
        run.finish()
        if kind == FRAME_BODY:
            events.append(RawFrame(kind, channel, memoryview(octets)[at + 7 : end]))
        else:
            events.append(RawFrame(kind, channel, PyBytes_FromStringAndSize(<const char*>frame + 7, length)))
        at = end + 1
    run.finish()
    return events, at


cdef class Body:
    cdef bytes octets
    cdef readonly Py_ssize_t missing

    def __init__(self, Py_ssize_t size):
        self.octets = PyBytes_FromStringAndSize(NULL, size)
        self.missing = size

    def add(self, const uint8_t[::1] piece):
        cdef Py_ssize_t length = piece.shape[0]
        if length > self.missing:
            raise ValueError("more octets than the body has")
        if length:
            memcpy(PyBytes_AS_STRING(self.octets) + PyBytes_GET_SIZE(self.octets) - self.missing, &piece[0], length)
        self.missing -= length

    def room(self):
        return PyMemoryView_FromObject(self)[PyBytes_GET_SIZE(self.octets) - self.missing :]

    def placed(self, Py_ssize_t length):
        if not 0 <= length <= self.missing:
            raise ValueError("more octets than the body has")
        self.missing -= length

    def whole(self):
        if self.missing:
            raise ValueError("octets are missing")
        return self.octets

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self.octets), PyBytes_GET_SIZE(self.octets), 0, flags)


# --- writing ---


cdef enum:
    COUNTED = 26  # octets of the header x-delivery-count
    NUMBERED = 25  # octets of the header x-stream-offset


cdef inline Py_ssize_t growth(const uint8_t* properties, Py_ssize_t more) noexcept nogil:
    """Return the growth of a property list, in octets, by the given octets of further headers."""
    return 0 if not more else more if read_short(properties) & 0x2000 else more + 4


cdef uint8_t* write_properties(
    uint8_t* at, const uint8_t* properties, Py_ssize_t size, const char* fields, Py_ssize_t fields_size,
    const char* name, Py_ssize_t name_size, uint64_t value,
) noexcept nogil:
    """Write a whole, well-formed property list with further headers: entries of a field table, and a number, left out
    if its name is empty."""
    cdef uint16_t flags = read_short(properties)
    cdef Py_ssize_t place = 2, more = fields_size + (name_size + 10 if name_size else 0)
    cdef uint32_t length = 0
    if flags & 0x8000:
        place += 1 + properties[place]
    if flags & 0x4000:
        place += 1 + properties[place]
    at[0] = (flags | 0x2000) >> 8
    at[1] = flags & 0xFF
    at = write_octets(at + 2, <const char*>properties + 2, place - 2)
    if flags & 0x2000:
        length = read_long(properties + place)
        place += 4
    at = write_long(at, length + more)
    at = write_octets(at, <const char*>properties + place, length)
    at = write_octets(at, fields, fields_size)
    if name_size:
        at = write_short_string(at, name, name_size)
        at[0] = c"l"
        at = write_longlong(at + 1, value)
    return write_octets(at, <const char*>properties + place + length, size - place - length)


cdef inline Py_ssize_t head_size(Message message, Py_ssize_t tag_size, bytes fields) except -1:
    """Return the number of octets of a delivery's method and header frames."""
    cdef Py_ssize_t exchange_size, more = PyBytes_GET_SIZE(fields) + (COUNTED if message.attempts > 1 else 0)
    PyUnicode_AsUTF8AndSize(message.exchange, &exchange_size)
    return (
        8 + 16 + tag_size + exchange_size + PyBytes_GET_SIZE(message.routing_key)
        + 8 + 12 + PyBytes_GET_SIZE(message.properties)
        + growth(<const uint8_t*>PyBytes_AS_STRING(message.properties), more)
    )


cdef uint8_t* write_head(
    uint8_t* at, Message message, int channel, bytes consumer_tag, uint64_t tag, bytes fields
) except NULL:
    cdef Py_ssize_t exchange_size, size, key_size = PyBytes_GET_SIZE(message.routing_key)
    cdef Py_ssize_t tag_size = PyBytes_GET_SIZE(consumer_tag), fields_size = PyBytes_GET_SIZE(fields)
    cdef const char* exchange = PyUnicode_AsUTF8AndSize(message.exchange, &exchange_size)
    cdef const uint8_t* properties
    cdef bint counted = message.attempts > 1
    cdef Py_ssize_t more = fields_size + (COUNTED if counted else 0)
    at = write_frame_start(at, FRAME_METHOD, channel, 16 + tag_size + exchange_size + key_size)
    at = write_long(at, 0x003C003C)
    at = write_short_string(at, PyBytes_AS_STRING(consumer_tag), tag_size)
    at = write_longlong(at, tag)
    at[0] = message.redelivered
    at = write_short_string(at + 1, exchange, exchange_size)
    at = write_short_string(at, PyBytes_AS_STRING(message.routing_key), key_size)
    at[0] = FRAME_END
    properties = <const uint8_t*>PyBytes_AS_STRING(message.properties)
    size = PyBytes_GET_SIZE(message.properties)
    at = write_frame_start(at + 1, FRAME_HEADER, channel, 12 + size + growth(properties, more))
    at = write_long(at, 0x003C0000)
    at = write_longlong(at, PyBytes_GET_SIZE(message.body))
    if more:
        at = write_properties(
            at, properties, size, PyBytes_AS_STRING(fields), fields_size,
            b"x-delivery-count", 16 if counted else 0, message.attempts - 1,
        )
    else:
        at = write_octets(at, <const char*>properties, size)
    at[0] = FRAME_END
    return at + 1


cdef uint8_t* write_body(uint8_t* at, bytes octets, int channel, Py_ssize_t step) noexcept:
    cdef Py_ssize_t size, start = 0, body_size = PyBytes_GET_SIZE(octets)
    while start < body_size:
        size = min(step, body_size - start)
        at = write_frame_start(at, FRAME_BODY, channel, size)
        at = write_octets(at, PyBytes_AS_STRING(octets) + start, size)
        at[0] = FRAME_END
        at += 1
        start += size
    return at


cdef append_body(list out, bytes body, int channel, Py_ssize_t step):
    """Add views of the body, cut into frames, without the start of the first frame and the end of the last frame."""
    cdef Py_ssize_t start = step, size = PyBytes_GET_SIZE(body)
    cdef uint8_t between[8]
    if size <= step:
        out.append(body)
        return
    view = memoryview(body)
    out.append(view[:step])
    while start < size:
        between[0] = FRAME_END
        write_frame_start(between + 1, FRAME_BODY, channel, min(step, size - start))
        out.append(PyBytes_FromStringAndSize(<char*>between, 8))
        out.append(view[start : start + step])
        start += step


def encode_deliveries(
    list messages, int channel, bytes consumer_tag, uint64_t first_tag, uint32_t frame_max, object added=b""
):
    cdef Py_ssize_t place = 0, last, total, body = 0, count = len(messages), step = frame_max - 8
    cdef Py_ssize_t tag_size = PyBytes_GET_SIZE(consumer_tag)
    cdef bint apart, owed = False
    cdef Message message
    cdef list out = []
    cdef bytes octets
    cdef uint8_t* at
    cdef dict by_slot = added if isinstance(added, dict) else None
    cdef bytes fields = b"" if by_slot is not None else added
    while place < count:
        total, last, apart = owed, place, False
        while last < count and not apart:
            message = messages[last]
            body = PyBytes_GET_SIZE(message.body)
            apart = body >= APART and step >= APART
            if by_slot is not None:
                fields = by_slot[message.slot]
            total += head_size(message, tag_size, fields)
            total += 7 if apart else body + 8 * ((body + step - 1) // step)
            last += 1
        octets = PyBytes_FromStringAndSize(NULL, total)
        at = <uint8_t*>PyBytes_AS_STRING(octets)
        if owed:
            at[0] = FRAME_END
            at += 1
        while place < last:
            message = messages[place]
            if by_slot is not None:
                fields = by_slot[message.slot]
            at = write_head(at, message, channel, consumer_tag, first_tag, fields)
            first_tag += 1
            place += 1
            if place < last or not apart:
                at = write_body(at, message.body, channel, step)
        out.append(octets)
        if apart:
            write_frame_start(at, FRAME_BODY, channel, min(step, body))
            append_body(out, message.body, channel, step)
        owed = apart
    if owed:
        out.append(b"\xce")
    return out


cdef struct Delivered:
    const uint8_t* tag
    const uint8_t* exchange
    const uint8_t* key
    const uint8_t* properties
    const uint8_t* body
    Py_ssize_t tag_size, exchange_size, key_size, properties_size, body_size
    uint64_t number
    Py_ssize_t at_number
    bint redelivered
    Py_ssize_t end


cdef bint whole_delivery(const uint8_t* octets, Py_ssize_t size, Py_ssize_t at, Delivered* found) noexcept nogil:
    """Return true if there is a delivery with its header frame and its only body frame."""
    cdef const uint8_t* payload = octets + at + 7
    cdef Py_ssize_t length, place
    cdef uint64_t body_size
    if size - at < 24 or octets[at] != FRAME_METHOD:
        return False
    length = read_long(octets + at + 3)
    if length < 16 or length > size - at - 8 or payload[length] != FRAME_END or read_long(payload) != 0x003C003C:
        return False
    found.tag = payload + 5
    found.tag_size = payload[4]
    place = 5 + found.tag_size
    if place + 10 > length:
        return False
    found.number = read_longlong(payload + place)
    found.at_number = at + 7 + place
    found.redelivered = payload[place + 8] != 0
    found.exchange = payload + place + 10
    found.exchange_size = payload[place + 9]
    place += 10 + found.exchange_size
    if place >= length or place + 1 + payload[place] != length:
        return False
    found.key = payload + place + 1
    found.key_size = payload[place]
    at += length + 8
    payload = octets + at
    if size - at < 22 or payload[0] != FRAME_HEADER:
        return False
    length = read_long(payload + 3)
    if length < 14 or length > size - at - 8 or payload[7 + length] != FRAME_END:
        return False
    body_size = read_longlong(payload + 11)
    found.properties = payload + 19
    found.properties_size = length - 12
    at += length + 8
    found.body = payload
    found.body_size = body_size
    found.end = at
    if body_size == 0:
        return True
    payload = octets + at
    if size - at < 8 or body_size > <uint64_t>(size - at - 8) or payload[0] != FRAME_BODY:
        return False
    if read_long(payload + 3) != body_size or payload[7 + body_size] != FRAME_END:
        return False
    found.body = payload + 7
    found.end = at + body_size + 8
    return True


def decode_deliveries(octets, Py_ssize_t at):
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef Delivered found
    cdef bytes tag = b"", exchange_octets = None, properties = None
    cdef str exchange = ""
    cdef list messages = []
    cdef Message message
    PyObject_GetBuffer(octets, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        while whole_delivery(start, view.len, at, &found):
            if not messages:
                tag = PyBytes_FromStringAndSize(<const char*>found.tag, found.tag_size)
            elif not same(tag, found.tag, found.tag_size):
                break
            if not same(exchange_octets, found.exchange, found.exchange_size):
                exchange_octets = PyBytes_FromStringAndSize(<const char*>found.exchange, found.exchange_size)
                exchange = PyUnicode_DecodeUTF8(<const char*>found.exchange, found.exchange_size, "surrogateescape")
            if not same(properties, found.properties, found.properties_size):
                properties = PyBytes_FromStringAndSize(<const char*>found.properties, found.properties_size)
            message = new_message(
                exchange,
                PyBytes_FromStringAndSize(<const char*>found.key, found.key_size),
                properties,
                PyBytes_FromStringAndSize(<const char*>found.body, found.body_size),
                False,
                0.0,
            )
            message.seq = found.number
            message.redelivered = found.redelivered
            messages.append(message)
            at = found.end
    finally:
        PyBuffer_Release(&view)
    return tag, messages, at


def relay_deliveries(
    octets, Py_ssize_t at, uint64_t first_tag, Py_ssize_t frame_max, queue, consumer, bint held
):
    cdef Py_buffer view
    cdef uint8_t* start
    cdef Delivered found
    cdef Py_ssize_t count = 0, redelivered = 0
    cdef bytes tag = None
    cdef list messages = []
    cdef Message message
    PyObject_GetBuffer(octets, &view, PyBUF_WRITABLE)
    try:
        start = <uint8_t*>view.buf
        while whole_delivery(start, view.len, at, &found):
            if max(found.properties_size + 12, found.body_size) > frame_max - 8:
                break
            if tag is None:
                tag = PyBytes_FromStringAndSize(<const char*>found.tag, found.tag_size)
            elif not same(tag, found.tag, found.tag_size):
                break
            if held:
                message = new_message("", b"", b"\0\0", b"", False, 0.0)
                message.seq = found.number
                message.redelivered = found.redelivered
                message.queue = queue
                message.consumer = consumer
                messages.append(message)
            write_longlong(start + found.at_number, first_tag + count)
            redelivered += found.redelivered
            count += 1
            at = found.end
    finally:
        PyBuffer_Release(&view)
    return messages, count, redelivered, at


def encode_rows(
    list buffers, Py_ssize_t start, Py_ssize_t stop, uint64_t offset, int channel, bytes consumer_tag,
    uint64_t first_tag, uint32_t frame_max
):
    cdef Column exchange = column_of(buffers[0], buffers[1]), key = column_of(buffers[2], buffers[3])
    cdef Column properties = column_of(buffers[4], buffers[5]), body = column_of(buffers[6], buffers[7])
    cdef Py_ssize_t row, total = 0, step = frame_max - 8, tag_size = PyBytes_GET_SIZE(consumer_tag)
    cdef Py_ssize_t size, body_size, at_body, grown
    cdef const uint8_t* held
    cdef const char* tag = PyBytes_AS_STRING(consumer_tag)
    cdef uint8_t* at
    cdef bytes out
    for row in range(start, stop):
        size = size_at(&body, row)
        held = <const uint8_t*>properties.octets + properties.offsets[row]
        total += (
            24 + tag_size + size_at(&exchange, row) + size_at(&key, row)
            + 20 + size_at(&properties, row) + growth(held, NUMBERED)
            + size + 8 * ((size + step - 1) // step)
        )
    out = PyBytes_FromStringAndSize(NULL, total)
    at = <uint8_t*>PyBytes_AS_STRING(out)
    with nogil:
        for row in range(start, stop):
            at = write_frame_start(
                at, FRAME_METHOD, channel, 16 + tag_size + size_at(&exchange, row) + size_at(&key, row)
            )
            at = write_long(at, 0x003C003C)
            at = write_short_string(at, tag, tag_size)
            at = write_longlong(at, first_tag)
            at[0] = 0
            at = write_short_string(at + 1, exchange.octets + exchange.offsets[row], size_at(&exchange, row))
            at = write_short_string(at, key.octets + key.offsets[row], size_at(&key, row))
            at[0] = FRAME_END
            held = <const uint8_t*>properties.octets + properties.offsets[row]
            size = size_at(&properties, row)
            grown = size + growth(held, NUMBERED)
            body_size = size_at(&body, row)
            at = write_frame_start(at + 1, FRAME_HEADER, channel, 12 + grown)
            at = write_long(at, 0x003C0000)
            at = write_longlong(at, body_size)
            at = write_properties(at, <const uint8_t*>held, size, b"", 0, b"x-stream-offset", 15, offset)
            at[0] = FRAME_END
            at += 1
            at_body = 0
            while at_body < body_size:
                size = min(step, body_size - at_body)
                at = write_frame_start(at, FRAME_BODY, channel, size)
                at = write_octets(at, body.octets + body.offsets[row] + at_body, size)
                at[0] = FRAME_END
                at += 1
                at_body += size
            first_tag += 1
            offset += 1
    return out
