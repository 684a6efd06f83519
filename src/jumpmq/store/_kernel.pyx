# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Messages laid out as Arrow columns, in C. ``tests/store/reference.py`` is the reference implementation."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize
)
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jumpmq.amqp._kernel cimport Message
from jumpmq.amqp.prefetch cimport FAR, NEAR, prefetch_message, prefetch_octets

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


DEF HEAD = 32
DEF MESSAGES = 1
DEF EXPIRES = 8


cdef inline const char* octets_of(Message message, int field, Py_ssize_t* size) except NULL:
    """Return the octets of a field: 0 body, 1 routing key, 2 properties, 3 exchange."""
    cdef bytes value
    if field == 3:
        return PyUnicode_AsUTF8AndSize(message.exchange, size)
    value = message.body if field == 0 else message.routing_key if field == 1 else message.properties
    size[0] = PyBytes_GET_SIZE(value)
    return PyBytes_AS_STRING(value)


def binary_column(list messages, str name):
    cdef int field = ("body", "routing_key", "properties", "exchange").index(name)
    cdef Message message
    cdef Py_ssize_t total = 0, size, place
    cdef const char* value
    cdef bytes octets, offsets = PyBytes_FromStringAndSize(NULL, 4 * (len(messages) + 1))
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef char* at
    offset[0] = 0
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        prefetch_octets(messages, place + NEAR, field)
        octets_of(message, field, &size)
        total += size
        if total > INT32_MAX:
            raise OverflowError("a binary column holds less than 2 GiB")
        offset += 1
        offset[0] = <int32_t>total
    octets = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(octets)
    for place, message in enumerate(messages):
        prefetch_octets(messages, place + NEAR, field)
        value = octets_of(message, field, &size)
        memcpy(at, value, size)
        at += size
    return offsets, octets


cdef class BatchNumbers:
    cdef public int64_t id
    cdef public int64_t queue_id
    cdef public int64_t first_seq
    cdef public int64_t last_seq
    cdef public int64_t count
    cdef public int64_t bytes
    cdef public int64_t remaining
    cdef public int64_t stored
    cdef public int64_t taken
    cdef public bint closed


def join_batch(list messages, batch, Py_ssize_t most, Py_ssize_t most_octets):
    cdef Message message
    cdef Py_ssize_t taken = 0, bodies = 0, octets = 0, size
    for message in messages:
        if taken >= most or octets >= most_octets:
            break
        message.batch = batch
        size = PyBytes_GET_SIZE(message.body)
        bodies += size
        octets += size + PyBytes_GET_SIZE(message.properties) + PyBytes_GET_SIZE(message.routing_key)
        taken += 1
    return taken, bodies, octets


def seq_column(list messages):
    cdef Message message
    cdef bytes octets = PyBytes_FromStringAndSize(NULL, 8 * len(messages))
    cdef int64_t* at = <int64_t*>PyBytes_AS_STRING(octets)
    for message in messages:
        at[0] = message.seq
        at += 1
    return octets


def time_column(list messages):
    cdef Message message
    cdef bytes octets = PyBytes_FromStringAndSize(NULL, 8 * len(messages))
    cdef int64_t* at = <int64_t*>PyBytes_AS_STRING(octets)
    for message in messages:
        at[0] = <int64_t>(message.published_at * 1e6 + 0.5)
        at += 1
    return octets


def append_numbers(bytearray column not None, int64_t first, int64_t step, Py_ssize_t count, bint short=False):
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(column), place
    PyByteArray_Resize(column, size + (4 if short else 8) * count)
    cdef char* at = PyByteArray_AS_STRING(column) + size
    for place in range(count):
        if short:
            (<int32_t*>at)[place] = <int32_t>(first + place * step)
        else:
            (<int64_t*>at)[place] = first + place * step


def append_offsets(bytearray column not None, const int32_t[::1] offsets not None):
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(column), place
    PyByteArray_Resize(column, size + 4 * (offsets.shape[0] - 1))
    cdef int32_t* at = <int32_t*>(PyByteArray_AS_STRING(column) + size)
    cdef int32_t shift = at[-1] - offsets[0]
    for place in range(offsets.shape[0] - 1):
        at[place] = offsets[place + 1] + shift

# --- blocks of the log ---


cdef inline int64_t microseconds(double seconds) noexcept:
    return <int64_t>(seconds * 1e6 + 0.5)


def expiry_column(list messages):
    cdef Message message
    cdef bytes octets = PyBytes_FromStringAndSize(NULL, 8 * len(messages))
    cdef int64_t* at = <int64_t*>PyBytes_AS_STRING(octets)
    for message in messages:
        at[0] = microseconds(message.expires_at)
        at += 1
    return octets


cdef int write_rows(
    char* at, list messages, Py_ssize_t first, Py_ssize_t end, bint expires, Py_ssize_t gather
) except -1:
    """Write rows side by side, from ``at`` on."""
    cdef Message message
    cdef const char* exchange
    cdef Py_ssize_t exchange_size, key_size, properties_size, place
    cdef int64_t time
    cdef uint32_t length
    for place in range(first, end):
        message = messages[place]
        exchange = PyUnicode_AsUTF8AndSize(message.exchange, &exchange_size)
        key_size, properties_size = PyBytes_GET_SIZE(message.routing_key), PyBytes_GET_SIZE(message.properties)
        time = microseconds(message.published_at)
        memcpy(at, &time, 8)
        at += 8
        if expires:
            time = microseconds(message.expires_at)
            memcpy(at, &time, 8)
            at += 8
        at[0] = <char>exchange_size
        at[1] = <char>key_size
        at[2] = <char>(properties_size & 0xFF)
        at[3] = <char>(properties_size >> 8)
        length = <uint32_t>PyBytes_GET_SIZE(message.body)
        memcpy(at + 4, &length, 4)
        at += 8
        memcpy(at, exchange, exchange_size)
        at += exchange_size
        memcpy(at, PyBytes_AS_STRING(message.routing_key), key_size)
        at += key_size
        memcpy(at, PyBytes_AS_STRING(message.properties), properties_size)
        at += properties_size
        if length < gather:
            memcpy(at, PyBytes_AS_STRING(message.body), length)
            at += length
    return 0


def row_block(list messages, uint64_t queue, int flags, Py_ssize_t gather):
    cdef Message message = messages[0]
    cdef bint expires = False
    cdef bytearray head = None, part
    cdef list buffers = []
    cdef int64_t seq = message.seq
    cdef uint64_t first_seq = message.seq
    cdef Py_ssize_t exchange_size, body_size, octets = 0, size = HEAD, length = 0, first = 0, place, padding
    cdef uint32_t numbers[2]
    cdef char* at
    for message in messages:
        if message.seq != seq or PyBytes_GET_SIZE(message.properties) > 0xFFFF:
            return None
        seq += 1
        if message.expires_at != 0.0:
            expires = True
    for place, message in enumerate(messages):
        PyUnicode_AsUTF8AndSize(message.exchange, &exchange_size)
        body_size = PyBytes_GET_SIZE(message.body)
        octets += body_size
        size += (24 if expires else 16) + exchange_size
        size += PyBytes_GET_SIZE(message.routing_key) + PyBytes_GET_SIZE(message.properties)
        if body_size < gather:
            size += body_size
            continue
        part = PyByteArray_FromStringAndSize(NULL, size)
        at = PyByteArray_AS_STRING(part)
        write_rows(at if head is not None else at + HEAD, messages, first, place + 1, expires, gather)
        if head is None:
            head = part
        else:
            buffers.append(part)
        buffers.append(message.body)
        length += size + body_size
        first, size = place + 1, 0
    padding = -(length + size) & 7
    if size + padding:
        part = PyByteArray_FromStringAndSize(NULL, size + padding)
        at = PyByteArray_AS_STRING(part)
        write_rows(at if head is not None else at + HEAD, messages, first, len(messages), expires, gather)
        memset(at + size, 0, padding)
        if head is None:
            head = part
        else:
            buffers.append(part)
    length += size
    at = PyByteArray_AS_STRING(head)
    memset(at, 0, 4)
    at[4] = MESSAGES
    at[5] = <char>(flags | (EXPIRES if expires else 0))
    at[6], at[7] = <char>(len(messages) & 0xFF), <char>(len(messages) >> 8)
    numbers[0], numbers[1] = <uint32_t>(length - HEAD), <uint32_t>octets
    memcpy(at + 8, numbers, 8)
    memcpy(at + 16, &queue, 8)
    memcpy(at + 24, &first_seq, 8)
    return head, buffers, length + padding


def alike(list messages):
    cdef Message message, first = messages[0]
    cdef bint one_time = True, one_exchange = True, one_properties = True, expires = False
    cdef Py_ssize_t octets = 0
    for message in messages:
        octets += PyBytes_GET_SIZE(message.body)
        if message.published_at != first.published_at:
            one_time = False
        if message.expires_at != 0.0:
            expires = True
        if one_exchange and message.exchange is not first.exchange and message.exchange != first.exchange:
            one_exchange = False
        if one_properties and message.properties is not first.properties and message.properties != first.properties:
            one_properties = False
    return one_time, one_exchange, one_properties, expires, octets


def octets(list messages):
    cdef Message message
    cdef Py_ssize_t bodies = 0, beside = 0, place
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        prefetch_octets(messages, place + NEAR, 0)
        prefetch_octets(messages, place + NEAR, 1)
        prefetch_octets(messages, place + NEAR, 2)
        bodies += PyBytes_GET_SIZE(message.body)
        beside += PyBytes_GET_SIZE(message.routing_key) + PyBytes_GET_SIZE(message.properties)
    return bodies, bodies + beside


def from_columns(
    bytes octets, seq, published, expires, exchanges, properties, Py_ssize_t keys_at, const int32_t[::1] keys,
    Py_ssize_t bodies_at, const int32_t[::1] bodies, Py_ssize_t count,
):
    cdef Message message
    cdef list found = []
    cdef const char* start = PyBytes_AS_STRING(octets)
    cdef Py_ssize_t i
    cdef bint one_exchange = len(exchanges) == 1, one_properties = len(properties) == 1
    cdef str exchange = exchanges[0]
    cdef bytes own = properties[0]
    for i in range(count):
        message = Message.__new__(Message)
        message.exchange = exchange if one_exchange else exchanges[i]
        message.properties = own if one_properties else properties[i]
        message.routing_key = PyBytes_FromStringAndSize(start + keys_at + keys[i], keys[i + 1] - keys[i])
        message.body = PyBytes_FromStringAndSize(start + bodies_at + bodies[i], bodies[i + 1] - bodies[i])
        message.persistent = True
        message.published_at = <double>(<int64_t>published[i]) / 1e6
        message.seq = seq[i]
        if expires is not None:
            message.expires_at = <double>(<int64_t>expires[i]) / 1e6
        found.append(message)
    return found
