"""Prefetch the memory of messages into the processor's cache.

In memory, a queue's messages lie between messages of other queues, and the processor does not predict the next address:
without a prefetch, each part of a message takes some 80 ns.
"""

from cpython.ref cimport PyObject

from jumpmq.amqp._kernel cimport Message

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define jumpmq_prefetch(address) __builtin_prefetch(address)
    #else
    #define jumpmq_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "jumpmq_prefetch"(const void* address) noexcept nogil

cdef extern from "Python.h":
    PyObject* item_of "PyList_GET_ITEM"(PyObject* items, Py_ssize_t place) noexcept

cdef enum:
    FAR = 24
    NEAR = 12


cdef inline void prefetch_message(list messages, Py_ssize_t place) noexcept:
    """Prefetch the message at an index; to be called ``FAR`` messages ahead."""
    cdef char* at
    if place < len(messages):
        at = <char*>item_of(<PyObject*>messages, place)
        prefetch(at)
        prefetch(at + 64)


cdef inline void prefetch_octets(list messages, Py_ssize_t place, int field) noexcept:
    """Prefetch the beginning of a field of a prefetched message; to be called ``NEAR`` messages ahead. The fields are
    0 to 3: body, routing key, properties, exchange.
    """
    cdef Message message
    cdef char* at
    if place < len(messages):
        message = <Message>item_of(<PyObject*>messages, place)
        if field == 0:
            at = <char*><PyObject*>message.body
        elif field == 1:
            at = <char*><PyObject*>message.routing_key
        elif field == 2:
            at = <char*><PyObject*>message.properties
        else:
            at = <char*><PyObject*>message.exchange
        prefetch(at)
        prefetch(at + 64)
