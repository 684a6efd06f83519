# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What queues do with runs of messages, in C. ``_reference.py`` says the same in plain Python and documents it."""

from cpython.bytes cimport PyBytes_GET_SIZE

from jumpmq.amqp._kernel cimport Message


def body_octets(list messages):
    cdef Message message
    cdef Py_ssize_t total = 0
    for message in messages:
        total += PyBytes_GET_SIZE(message.body)
    return total


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

