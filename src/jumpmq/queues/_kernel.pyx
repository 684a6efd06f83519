# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What queues do with runs of messages, in C. ``tests/queues/reference.py`` says the same in plain Python."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from jumpmq.amqp._kernel cimport Message
from jumpmq.amqp.prefetch cimport FAR, NEAR, prefetch_message, prefetch_octets
from jumpmq.hashing._kernel cimport hash_xxh64


DEF APART = 16384
DEF BLOCK = 256


cdef extern from "string.h":
    void* memmem(const void* octets, size_t size, const void* part, size_t part_size) nogil


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* container)


def untracked(container):
    PyObject_GC_UnTrack(<void*>container)
    return container


cdef class SegmentNumbers:
    cdef public int64_t count
    cdef public int64_t size
    cdef public int64_t held
    cdef public int64_t first_seq
    cdef public int64_t last_seq
    cdef public int64_t delivered_seq
    cdef public bint exact
    cdef public bint persistent


def body_octets(list messages):
    cdef Message message
    cdef Py_ssize_t total = 0, place
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        prefetch_octets(messages, place + NEAR, 0)
        total += PyBytes_GET_SIZE(message.body)
    return total


def of_body(list messages, bytes body not None):
    cdef Message message
    cdef Py_ssize_t place
    cdef list found = []
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        if <void*>message.body == <void*>body:
            found.append(message)
    return found


def persistent(list messages):
    cdef Message message
    for message in messages:
        if not message.persistent:
            return [message for message in messages if message.persistent]
    return messages


def carries(list messages, bytes name):
    cdef Message message
    cdef bytes known = None
    cdef Py_ssize_t least = 6 + PyBytes_GET_SIZE(name)
    for message in messages:
        if message.properties is not known:
            known = message.properties
            # `name in known` would raise and clear a TypeError first, 0.2 microseconds: an int may be in bytes, too.
            if PyBytes_GET_SIZE(known) > least and memmem(
                PyBytes_AS_STRING(known), PyBytes_GET_SIZE(known), PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
            ) != NULL:
                return True
    return False


def enter_queue(list messages, queue, long long first_seq):
    cdef Message message, own
    cdef list entered = []
    for message in messages:
        own = message
        if message.queue is not None:
            own = message.copy()
            own.expires_at = message.expires_at
        own.queue = queue
        own.seq = first_seq
        first_seq += 1
        entered.append(own)
    return entered


def set_consumer(list messages, consumer):
    cdef Message message
    for message in messages:
        message.consumer = consumer


def claim(dict pieces, list tags, int bits):
    cdef dict piece = None
    cdef unsigned long long number, known = 0
    cdef list claimed = []
    for tag in tags:
        number = tag
        number >>= bits
        if piece is None or number != known:
            if piece is not None and not piece:
                del pieces[known]
            piece, known = pieces.get(number), number
            if piece is None:
                return claimed
        message = piece.pop(tag, None)
        if message is None:
            break
        claimed.append(message)
    if piece is not None and not piece:
        del pieces[known]
    return claimed


def packed_seqs(list messages):
    cdef Message message
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 8 * len(messages))
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(packed)
    cdef uint64_t seq
    cdef int place
    for message in messages:
        seq = <uint64_t>message.seq
        for place in range(8):
            at[place] = (seq >> (56 - 8 * place)) & 0xFF
        at += 8
    return packed


def claim_packed(dict pieces, bytes packed not None, Py_ssize_t begin, int bits):
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed)
    cdef dict piece = None
    cdef uint64_t tag, known = 0
    cdef bint looked = False
    cdef int place
    cdef list claimed = []
    while begin + 8 <= size:
        tag = 0
        for place in range(8):
            tag = (tag << 8) | at[begin + place]
        begin += 8
        if not looked or tag >> bits != known:
            if looked and piece is not None and not piece:
                del pieces[known]
            known, looked = tag >> bits, True
            piece = pieces.get(known)
        if piece is not None:
            message = piece.pop(tag, None)
            if message is not None:
                claimed.append(message)
    if piece is not None and not piece:
        del pieces[known]
    return claimed


def split_upto(dict waiting, unsigned long long last):
    cdef dict taken = {}
    cdef unsigned long long number
    for tag, message in waiting.items():
        number = tag
        if number > last:
            break
        taken[tag] = message
    for tag in taken:
        del waiting[tag]
    return taken


def by_holder(list messages):
    cdef Message message
    cdef list runs = [], run = None
    cdef object consumer = None, queue = None
    for message in messages:
        if run is None or message.consumer is not consumer or message.queue is not queue:
            consumer, queue, run = message.consumer, message.queue, []
            runs.append((consumer, queue, run))
        run.append(message)
    return runs


def settle_stored(list messages):
    cdef Message message
    cdef object batch = None
    cdef long long first = 0, last = -2
    for message in messages:
        if message.batch is batch and message.seq == last + 1:
            last = message.seq
            continue
        if batch is not None:
            batch.settle_range(first, last)
        batch, first, last = message.batch, message.seq, message.seq
    if batch is not None:
        batch.settle_range(first, last)


cdef int priority_of(const uint8_t* properties) noexcept nogil:
    """The priority in a whole, well-formed property list, 0 where there is none."""
    cdef uint16_t flags = (<uint16_t>properties[0] << 8) | properties[1]
    cdef const uint8_t* at = properties + 2
    if not flags & 0x0800:
        return 0
    if flags & 0x8000:
        at += 1 + at[0]
    if flags & 0x4000:
        at += 1 + at[0]
    if flags & 0x2000:
        at += 4 + ((<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3])
    if flags & 0x1000:
        at += 1
    return at[0]


def by_priority(list messages, int highest, int above=0):
    cdef Message message
    cdef bytes known = None
    cdef int priority = 0
    cdef dict groups = {}
    cdef list group = None
    for message in messages:
        if message.properties is not known:
            known = message.properties
            priority = min(max(priority_of(<const uint8_t*>PyBytes_AS_STRING(known)) - above, 0), highest)
            group = groups.get(priority)
            if group is None:
                group = groups[priority] = []
        group.append(message)
    return groups


def by_destination(list items not None, list places not None, list order not None):
    cdef dict groups = {}, found = {}
    cdef list group
    cdef Py_ssize_t i
    if len(items) != len(places):
        raise ValueError("as many places as items")
    if len(items) == 1:
        return {order[places[0]]: items}
    for i in range(len(items)):
        place = places[i]
        group = groups.get(place)
        if group is None:
            groups[place] = found[order[place]] = group = []
        group.append(items[i])
    return found

def set_slots(list messages not None, list keys, unsigned int slots, uint64_t seed):
    cdef Message message
    cdef bytes key, known = None
    cdef unsigned short slot = 0
    cdef Py_ssize_t place
    if not 0 < slots <= 65535 or (keys is not None and len(keys) != len(messages)):
        raise ValueError("a key for each message, and 1 to 65535 slots")
    for place, message in enumerate(messages):
        key = message.routing_key if keys is None else keys[place]
        if key is not known:
            known = key
            slot = hash_xxh64(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), seed) % slots
        message.slot = slot


def by_slot(list messages not None):
    cdef Message message
    cdef dict groups = {}
    cdef list group
    for message in messages:
        group = groups.get(message.slot)
        if group is None:
            groups[message.slot] = group = []
        group.append(message)
    return groups


def ends_of_runs(list messages not None):
    cdef Message message, first = None
    cdef Py_ssize_t place
    cdef list ends = []
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        if first is not None and (message.batch is not first.batch or message.redelivered != first.redelivered):
            ends.append(place)
        first = message
    if messages:
        ends.append(len(messages))
    return ends


def last_redelivered(list messages not None):
    cdef Message message
    cdef long long last = 0
    cdef Py_ssize_t place
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        if message.redelivered:
            last = message.seq
    return last


def highest_seq(list messages not None):
    cdef Message message
    cdef long long highest = 0
    for message in messages:
        if message.seq > highest:
            highest = message.seq
    return highest


# --- columns ---


cdef inline bytes part_of(Message message, int field):
    return message.body if field == 0 else message.routing_key if field == 1 else message.properties


def lay_out(list messages not None, bytes paged not None, Py_ssize_t least, Py_ssize_t most):
    cdef Message message, first, like
    cdef bytearray times, expiries
    cdef list values = [bytearray(), bytearray(), bytearray()], offsets = [], batches = []
    cdef object batch = None
    cdef bint expires = False
    cdef long long seq, begin
    cdef Py_ssize_t alike = 0, done = 0, end, place, octets = 0, total, size
    cdef Py_ssize_t sizes[3]
    cdef Py_ssize_t used[3]
    cdef Py_ssize_t rooms[3]
    cdef char* at[3]
    cdef int32_t* offset[3]
    cdef int field
    if len(messages) < least:
        return None
    first = messages[0]
    seq = begin = first.seq
    for place in range(min(FAR, len(messages))):
        prefetch_message(messages, place)
    for place, message in enumerate(messages):
        prefetch_message(messages, place + FAR)
        if (
            message.seq != seq + alike
            or message.persistent != first.persistent
            or message.redelivered != first.redelivered
            or message.attempts != first.attempts
            or message.slot != first.slot
            or <void*>message.body == <void*>paged
            or (message.exchange is not first.exchange and message.exchange != first.exchange)
        ):
            break
        if message.expires_at != 0.0:
            expires = True
        alike += 1
    if alike < least:
        return None
    like = new_like(first)
    times, expiries = bytearray(8 * alike), bytearray(8 * alike if expires else 0)
    for field in range(3):
        offsets.append(bytearray(4 * (alike + 1)))
        offset[field] = <int32_t*>PyByteArray_AS_STRING(offsets[field])
        used[field] = rooms[field] = 0
    while done < alike:
        end = min(done + BLOCK, alike)
        sizes[0] = sizes[1] = sizes[2] = 0
        for place in range(done, end):
            prefetch_message(messages, place + FAR)
            for field in range(3):
                prefetch_octets(messages, place + NEAR, field)
            message = messages[place]
            for field in range(3):
                sizes[field] += PyBytes_GET_SIZE(part_of(message, field))
        total = sizes[0] + sizes[1] + sizes[2]
        if octets + total > most:
            break
        octets += total
        for field in range(3):
            if used[field] + sizes[field] > rooms[field]:  # as much a message as so far
                rooms[field] = (used[field] + sizes[field]) * alike // end + 64
                PyByteArray_Resize(values[field], rooms[field])
            at[field] = PyByteArray_AS_STRING(values[field])
        for place in range(done, end):
            message = messages[place]
            for field in range(3):
                size = PyBytes_GET_SIZE(part_of(message, field))
                memcpy(at[field] + used[field], PyBytes_AS_STRING(part_of(message, field)), size)
                used[field] += size
                offset[field][place + 1] = <int32_t>used[field]
            (<int64_t*>PyByteArray_AS_STRING(times))[place] = <int64_t>(message.published_at * 1e6 + 0.5)
            if expires:
                (<double*>PyByteArray_AS_STRING(expiries))[place] = message.expires_at
            if message.batch is not batch:
                if batch is not None:
                    batches.append((batch, begin, seq - 1))
                batch, begin = message.batch, seq
            seq += 1
            message = None
            messages[place] = None  # is freed while it is near
        done = end
    if not done:
        return None
    del messages[:done]
    if batch is not None:
        batches.append((batch, begin, seq - 1))
    for field in range(3):
        PyByteArray_Resize(values[field], used[field])
    return like, done, octets, times, expiries, list(zip(offsets, values)), batches


cdef Message new_like(Message first):
    """A message with all that messages have in common that are laid out together."""
    cdef Message like = Message(first.exchange, b"", b"", b"", first.persistent, first.published_at)
    like.redelivered, like.attempts, like.slot = first.redelivered, first.attempts, first.slot
    like.queue, like.seq = first.queue, first.seq
    return like


def from_layout(Message like not None, Py_ssize_t count, bytearray times, bytearray expiries, list binary, list batches):
    cdef Message message
    cdef list found = [], parts
    cdef bytearray offsets, octets
    cdef const int32_t* offset
    cdef int field
    cdef Py_ssize_t place, size
    for place in range(count):
        message = new_like(like)
        message.seq += place
        message.published_at = (<int64_t*>PyByteArray_AS_STRING(times))[place] / 1e6
        if PyByteArray_GET_SIZE(expiries):
            message.expires_at = (<double*>PyByteArray_AS_STRING(expiries))[place]
        parts = []
        for field in range(3):
            offsets, octets = binary[field]
            offset = <const int32_t*>PyByteArray_AS_STRING(offsets) + place
            parts.append(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(octets) + offset[0], offset[1] - offset[0]))
        message.body, message.routing_key, message.properties = parts
        found.append(message)
    for batch, first, last in batches:
        for message in found[first - like.seq : last + 1 - like.seq]:
            message.batch = batch
    return found


# --- messages on their way to another process ---


cdef struct Packed:
    double lives
    uint32_t body
    uint32_t properties
    uint8_t routing_key
    uint8_t exchange
    uint8_t persistent
    uint8_t redelivered
    uint8_t unused[4]


def pack(list messages, double now):
    cdef Message message
    cdef Py_ssize_t size = 0
    cdef bint apart
    cdef bytes exchange
    cdef str last
    cdef list buffers = [], run = [], exchanges = []
    last = None
    for message in messages:
        if message.exchange is not last:
            last = message.exchange
            exchange = last.encode("utf-8", "surrogateescape")
        run.append(message)
        exchanges.append(exchange)
        apart = PyBytes_GET_SIZE(message.body) >= APART
        size += sizeof(Packed) + PyBytes_GET_SIZE(exchange) + PyBytes_GET_SIZE(message.routing_key)
        size += PyBytes_GET_SIZE(message.properties) + (0 if apart else PyBytes_GET_SIZE(message.body))
        if apart:
            buffers.append(packed(run, exchanges, size, now))
            buffers.append(message.body)
            run, exchanges, size = [], [], 0
    if run:
        buffers.append(packed(run, exchanges, size, now))
    return buffers


cdef bytes packed(list messages, list exchanges, Py_ssize_t size, double now):
    """Messages side by side; the body of the last is left out where it goes apart."""
    cdef Message message
    cdef Packed head
    cdef Py_ssize_t place
    cdef bytes exchange, octets = PyBytes_FromStringAndSize(NULL, size)
    cdef char* at = PyBytes_AS_STRING(octets)
    memset(&head, 0, sizeof(Packed))
    for place, message in enumerate(messages):
        exchange = exchanges[place]
        head.lives = max(0.0, message.expires_at - now) if message.expires_at else -1.0
        head.body = PyBytes_GET_SIZE(message.body)
        head.properties = PyBytes_GET_SIZE(message.properties)
        head.routing_key = PyBytes_GET_SIZE(message.routing_key)
        head.exchange = PyBytes_GET_SIZE(exchange)
        head.persistent = message.persistent
        head.redelivered = message.redelivered
        at = placed(at, <const char*>&head, sizeof(Packed))
        at = placed(at, PyBytes_AS_STRING(exchange), head.exchange)
        at = placed(at, PyBytes_AS_STRING(message.routing_key), head.routing_key)
        at = placed(at, PyBytes_AS_STRING(message.properties), head.properties)
        if head.body < APART:
            at = placed(at, PyBytes_AS_STRING(message.body), head.body)
    return octets


cdef inline char* placed(char* at, const char* octets, Py_ssize_t size) noexcept:
    memcpy(at, octets, size)
    return at + size


def unpack(const uint8_t[::1] octets, Py_ssize_t at, Py_ssize_t count, double published_at, double now):
    cdef Message message
    cdef Packed head
    cdef Py_ssize_t end = octets.shape[0], size
    cdef const char* start = <const char*>&octets[0]
    cdef bytes last = None
    cdef str exchange = None
    cdef list messages = []
    for _ in range(count):
        if end - at < <Py_ssize_t>sizeof(Packed):
            raise ValueError("a packed message is cut short")
        memcpy(&head, start + at, sizeof(Packed))
        at += sizeof(Packed)
        size = <Py_ssize_t>head.exchange + head.routing_key + head.properties + head.body
        if end - at < size:
            raise ValueError("a packed message is cut short")
        if (
            last is None
            or PyBytes_GET_SIZE(last) != head.exchange
            or memcmp(PyBytes_AS_STRING(last), start + at, head.exchange) != 0
        ):
            last = PyBytes_FromStringAndSize(start + at, head.exchange)
            exchange = last.decode("utf-8", "surrogateescape")
        at += head.exchange
        message = Message.__new__(Message)
        message.exchange = exchange
        message.routing_key = PyBytes_FromStringAndSize(start + at, head.routing_key)
        at += head.routing_key
        message.properties = PyBytes_FromStringAndSize(start + at, head.properties)
        at += head.properties
        message.body = PyBytes_FromStringAndSize(start + at, head.body)
        at += head.body
        message.persistent = head.persistent != 0
        message.redelivered = head.redelivered != 0
        message.published_at = published_at
        if head.lives >= 0:
            message.expires_at = now + head.lives
        messages.append(message)
    return messages, at
