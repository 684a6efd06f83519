# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The ready messages of a queue's slots while they are in memory, in C: a lane for each slot, and the ring of turns.

A lane is held with :mod:`jumpmq.queues.head` in ``tests/queues/test_head.py``, all of it with the model of
``tests/queues/test_slots_model.py``.
"""

import cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from jumpmq.amqp._kernel cimport Message
from jumpmq.amqp.prefetch cimport prefetch


cdef enum:
    SMALL = 64  # messages for which a lane keeps room, also while it has none
    RUN = 8192  # messages that are looked at together
    AHEAD = 16  # messages that the processor is asked for together

cdef enum:
    QUEUED = 1  # the slot is in a ring
    APART = 2  # its messages are kept by somebody else


cdef inline void ask_for(PyObject** items, Py_ssize_t count):
    """Have the processor fetch messages, and the beginnings of their octets."""
    cdef Py_ssize_t place
    cdef Message message
    for place in range(count):
        prefetch(items[place])
        prefetch(<char*>items[place] + 64)
    for place in range(count):
        message = <Message>items[place]
        prefetch(<void*>message.body)
        prefetch(<void*>message.routing_key)
        prefetch(<void*>message.properties)


cdef inline Message at(PyObject** items, Py_ssize_t place):
    return <Message>items[place]


@cython.no_gc
cdef class Lane:
    """Messages by rising ``seq``, in one piece of memory; see :class:`jumpmq.queues.head.Head`."""

    cdef PyObject** items
    cdef Py_ssize_t start, capacity
    cdef readonly Py_ssize_t count
    cdef long long size, octets  # of the bodies, and of all: as long as the lane is not apart

    def __dealloc__(self):
        cdef Py_ssize_t place
        for place in range(self.start, self.start + self.count):
            Py_DECREF(<object>self.items[place])
        free(self.items)

    # --- room ---

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef PyObject** items = <PyObject**>realloc(self.items, capacity * sizeof(PyObject*))
        if items == NULL:
            raise MemoryError()
        self.items, self.capacity = items, capacity
        return 0

    cdef void move(self, Py_ssize_t start) noexcept:
        memmove(self.items + start, self.items + self.start, self.count * sizeof(PyObject*))
        self.start = start

    cdef int need_behind(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t count = self.count + more
        if self.start + count <= self.capacity:
            return 0
        if self.start > self.capacity >> 1 and count <= self.capacity:
            self.move(0)
            return 0
        return self.resize(max(self.start + count + (count >> 1), 8))

    cdef int need_before(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room
        if more <= self.start:
            return 0
        room = (self.count + more) >> 1  # others may follow, before these
        if self.start + more + room + self.count > self.capacity:
            self.resize(self.start + more + room + self.count + 8)
        self.move(self.start + more + room)
        return 0

    cdef int give_room_back(self) except -1:
        """Where there is much more than is needed."""
        if not self.count:
            self.start = 0
        if self.capacity > SMALL and self.count <= self.capacity >> 2:
            self.move(0)
            self.resize(max(self.count * 2, <Py_ssize_t>SMALL))
        return 0

    cdef list cut(self, Py_ssize_t first, Py_ssize_t end):
        """Remove and return those at these places, counted from the first."""
        cdef Py_ssize_t place, count = end - first
        cdef PyObject** items = self.items + self.start
        cdef list found = PyList_New(count)
        for place in range(count):
            PyList_SET_ITEM(found, place, <object>items[first + place])  # with its reference
        if first:
            memmove(items + first, items + end, (self.count - end) * sizeof(PyObject*))
        else:
            self.start += count
        self.count -= count
        self.give_room_back()
        return found

    cdef Py_ssize_t place_of(self, long long seq):
        """The place of the first message with this number or a higher one."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if at(self.items, self.start + middle).seq < seq:
                low = middle + 1
            else:
                high = middle
        return low

    # --- as Head ---

    @property
    def first(self):
        if not self.count:
            raise IndexError("no message")
        return at(self.items, self.start)

    @property
    def last(self):
        if not self.count:
            raise IndexError("no message")
        return at(self.items, self.start + self.count - 1)

    def extend(self, list messages not None):
        cdef Message message
        self.need_behind(len(messages))
        for message in messages:
            if message is None:
                raise TypeError("a message is None")
            Py_INCREF(message)
            self.items[self.start + self.count] = <PyObject*>message
            self.count += 1

    def put_first(self, list messages not None):
        cdef Message message
        cdef Py_ssize_t place, more = len(messages)
        self.need_before(more)
        for place in range(more):
            message = messages[more - 1 - place]
            if message is None:
                raise TypeError("a message is None")
            Py_INCREF(message)
            self.start -= 1
            self.items[self.start] = <PyObject*>message
            self.count += 1

    def take(self, Py_ssize_t count):
        return self.cut(0, min(max(count, 0), self.count))

    def take_range(self, long long first_seq, long long last_seq, Py_ssize_t count):
        cdef Py_ssize_t first = self.place_of(first_seq), end = self.place_of(last_seq + 1)
        return self.cut(first, max(first, min(end, first + count)))

    def take_expired(self, double now, Py_ssize_t count):
        cdef Py_ssize_t end = 0
        cdef Message message
        while end < count and end < self.count:
            message = at(self.items, self.start + end)
            if not 0.0 < message.expires_at <= now:
                break
            end += 1
        return self.cut(0, end)

    def take_last(self, Py_ssize_t count):
        return self.cut(self.count - min(max(count, 0), self.count), self.count)

    def fitting(self, long long last_seq):
        return self.place_of(last_seq + 1)

    def since(self, long long first_seq):
        cdef Py_ssize_t first = self.place_of(first_seq), place
        return [at(self.items, self.start + place) for place in range(first, min(self.count, first + RUN))]


cdef class Share:
    """Slots that take turns, apart from those of other shares. Each is in one ring at most.

    Attributes:
        count: how many slots wait for their turn.
    """

    cdef int first, last
    cdef readonly int count

    def __cinit__(self):
        self.first = self.last = -1

    def __len__(self):
        return self.count


cdef class Lanes:
    """A lane for each slot, and who is next.

    Attributes:
        share: the share of all slots that were given to no other.
        count, size: messages in lanes that are not apart, and octets of their bodies.
    """

    cdef readonly Share share
    cdef readonly Py_ssize_t count
    cdef readonly long long size
    cdef readonly unsigned int slots, limit
    cdef Py_ssize_t overhead
    cdef list lanes
    cdef dict given
    cdef unsigned int* held
    cdef int* after
    cdef int* before
    cdef unsigned char* flags

    def __cinit__(self, unsigned int slots, unsigned int limit, Py_ssize_t overhead):
        if not 0 < slots <= 65535:
            raise ValueError("1 to 65535 slots")
        self.slots, self.limit, self.overhead = slots, limit, overhead
        self.share, self.lanes, self.given = Share(), [None] * slots, {}
        self.held = <unsigned int*>calloc(slots, 3 * sizeof(int) + 1)
        if self.held == NULL:
            raise MemoryError()
        self.after = <int*>(self.held + slots)
        self.before = self.after + slots
        self.flags = <unsigned char*>(self.before + slots)

    def __dealloc__(self):
        free(self.held)

    cdef unsigned int checked(self, unsigned int slot) except? 65535:
        if slot >= self.slots:
            raise IndexError(slot)
        return slot

    # --- the rings ---

    cdef Share share_of(self, unsigned int slot):
        return <Share>self.given.get(slot, self.share) if self.given else self.share

    cdef bint enter(self, unsigned int slot) except -1:
        """Have a slot that has something wait for its turn, if it may; returns whether it does so from now on."""
        cdef Share share
        if self.flags[slot] & QUEUED or (self.limit and self.held[slot] >= self.limit):
            return False
        share = self.share_of(slot)
        if share is None:
            return False
        self.before[slot], self.after[slot] = share.last, -1
        if share.last < 0:
            share.first = slot
        else:
            self.after[share.last] = slot
        share.last = slot
        share.count += 1
        self.flags[slot] |= QUEUED
        return True

    cdef int leave_ring(self, Share share, unsigned int slot) except -1:
        cdef int before = self.before[slot], after = self.after[slot]
        if before < 0:
            share.first = after
        else:
            self.after[before] = after
        if after < 0:
            share.last = before
        else:
            self.before[after] = before
        share.count -= 1
        self.flags[slot] &= ~QUEUED
        return 0

    def queue_up(self, unsigned int slot):
        """Have a slot that has something wait for its turn, if it may; returns whether it does so from now on."""
        return self.enter(self.checked(slot))

    def step_back(self, unsigned int slot):
        """A slot has nothing to give: it waits for no turn."""
        if self.flags[self.checked(slot)] & QUEUED:
            self.leave_ring(self.share_of(slot), slot)

    def give(self, unsigned int slot, Share share):
        """Have the slot's messages taken with this share's from now on; None is no share's."""
        self.step_back(slot)
        self.given[slot] = share
        if share is self.share:
            del self.given[slot]

    def given_to(self, unsigned int slot):
        """The share of a slot."""
        return self.share_of(self.checked(slot))

    def ring(self, Share share not None):
        """The slots of a share that wait, the next first."""
        cdef list found = []
        cdef int slot = share.first
        while slot >= 0:
            found.append(slot)
            slot = self.after[slot]
        return found

    # --- looking ---

    def held_of(self, unsigned int slot):
        """How many messages of the slot are unacknowledged."""
        return self.held[self.checked(slot)]

    def length(self, unsigned int slot):
        """How many messages its lane has."""
        cdef Lane lane = self.lanes[self.checked(slot)]
        return 0 if lane is None else lane.count

    def front(self, unsigned int slot):
        """The first message of its lane; None where it has none."""
        cdef Lane lane = self.lanes[self.checked(slot)]
        return None if lane is None or not lane.count else lane.first

    def is_apart(self, unsigned int slot):
        """Whether somebody else keeps the slot's messages."""
        return self.flags[self.checked(slot)] & APART != 0

    def filled(self):
        """The slots whose lanes have messages and are not apart."""
        cdef unsigned int slot
        cdef list found = []
        for slot in range(self.slots):
            if not self.flags[slot] & APART and self.lanes[slot] is not None and (<Lane>self.lanes[slot]).count:
                found.append(slot)
        return found

    # --- messages ---

    cdef Lane lane(self, unsigned int slot):
        cdef object lane = self.lanes[slot]
        if lane is None:
            lane = self.lanes[slot] = Lane.__new__(Lane)
        return <Lane>lane

    def add(self, list messages not None):
        """Add messages behind the others of their slots; those of slots that are apart are left out.

        Returns:
            What was left out, and octets of memory that the others take.
        """
        cdef Message message
        cdef Lane lane
        cdef list others = []
        cdef Py_ssize_t body, octets
        cdef long long size = 0, held = 0
        cdef unsigned int slot
        for message in messages:
            slot = self.checked(message.slot)
            if self.flags[slot] & APART:
                others.append(message)
                continue
            lane = self.lane(slot)
            lane.need_behind(1)
            Py_INCREF(message)
            lane.items[lane.start + lane.count] = <PyObject*>message
            lane.count += 1
            body = PyBytes_GET_SIZE(message.body)
            octets = body + PyBytes_GET_SIZE(message.routing_key) + PyBytes_GET_SIZE(message.properties)
            lane.size += body
            lane.octets += octets
            size += body
            held += octets + self.overhead
            self.count += 1
            if not self.flags[slot] & QUEUED:
                self.enter(slot)
        self.size += size
        return others, held

    def take(self, Share share not None, Py_ssize_t count, long long most, others):
        """Remove up to ``count`` messages of a share's slots, as few as hold ``most`` octets, in turn: a round gives each
        slot an equal part.

        Args:
            others: called with a slot that is apart, how many messages it may give, and how many octets; returns the
                messages, their octets, and whether the slot has something to give now.

        Returns:
            The messages, and octets of memory that those of lanes took.
        """
        cdef Lane lane
        cdef Message message
        cdef PyObject** items
        cdef list taken = [], found
        cdef Py_ssize_t some, place, octets, turns = 0, part = 0
        cdef long long size = 0, held = 0, body
        cdef unsigned int slot
        while share.count and count > 0 and most > 0:
            if not turns:  # another round
                turns = share.count
                part = (count + turns - 1) // turns
            turns -= 1
            slot = share.first
            self.leave_ring(share, slot)
            some = min(part, count)
            if self.limit:
                some = min(some, <Py_ssize_t>self.limit - self.held[slot])
            if self.flags[slot] & APART:
                found, octets, more = others(slot, some, most)
                taken += found
                count -= len(found)
                most -= octets
                self.held[slot] += len(found)
                if more:
                    self.enter(slot)
                continue
            lane = <Lane>self.lanes[slot]
            some = min(some, lane.count)
            items = lane.items + lane.start
            body = octets = place = 0
            while place < some and most > 0:
                if not place % AHEAD:
                    ask_for(items + place, min(some - place, <Py_ssize_t>AHEAD))
                message = <Message>items[place]
                PyList_Append(taken, message)
                Py_DECREF(message)
                place += 1
                body += PyBytes_GET_SIZE(message.body)
                octets += PyBytes_GET_SIZE(message.routing_key) + PyBytes_GET_SIZE(message.properties)
                most -= PyBytes_GET_SIZE(message.body)
                most -= PyBytes_GET_SIZE(message.routing_key) + PyBytes_GET_SIZE(message.properties)
            lane.start += place
            lane.count -= place
            lane.size -= body
            lane.octets -= body + octets
            lane.give_room_back()
            size += body
            held += body + octets + place * self.overhead
            self.held[slot] += place
            self.count -= place
            count -= place
            if lane.count:
                self.enter(slot)
        self.size -= size
        return taken, held

    def hold(self, list messages not None):
        """Messages were taken otherwise, and are unacknowledged."""
        cdef Message message
        for message in messages:
            self.held[self.checked(message.slot)] += 1

    def settle(self, list messages not None):
        """Messages that were taken are unacknowledged no more.

        Returns:
            Whether slots wait for their turn that did not, and slots that are apart and may give again.
        """
        cdef Message message
        cdef Lane lane
        cdef bint freed = False
        cdef unsigned int slot
        cdef set apart = set()
        for message in messages:
            slot = self.checked(message.slot)
            self.held[slot] -= 1
            if self.limit and not self.flags[slot] & QUEUED:
                if self.flags[slot] & APART:
                    apart.add(slot)
                elif (lane := self.lanes[slot]) is not None and lane.count:
                    freed |= self.enter(slot)
        return freed, apart

    # --- lanes that are apart ---

    def set_apart(self, unsigned int slot):
        """Somebody else keeps the slot's messages from now on. Returns its lane, octets of the bodies, and of all with
        what messages take beside."""
        cdef Lane lane = self.lane(self.checked(slot))
        if not self.flags[slot] & APART:
            self.flags[slot] |= APART
            self.count -= lane.count
            self.size -= lane.size
        return lane, lane.size, lane.octets + lane.count * self.overhead

    def rejoin(self, unsigned int slot, long long size, long long held):
        """The slot's messages are those of its lane again.

        Args:
            size, held: as :meth:`set_apart` returns them.
        """
        cdef Lane lane = self.lane(self.checked(slot))
        lane.size, lane.octets = size, held - lane.count * self.overhead
        self.flags[slot] &= ~APART
        self.count += lane.count
        self.size += size

    def reset(self):
        """Forget all messages; those that were taken stay counted."""
        cdef unsigned int slot
        for slot in range(self.slots):
            self.step_back(slot)
            self.lanes[slot] = None
            self.flags[slot] = 0
        self.count = self.size = 0
