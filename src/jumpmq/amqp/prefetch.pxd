"""Asks the processor for the memory of messages before it is needed.

A queue's messages lie among those of other queues in memory, where the processor does not guess what comes next: each
would be waited for, some 80 ns for each of its parts.
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
    """The message at a place, as far ahead as ``FAR``."""
    cdef char* at
    if place < len(messages):
        at = <char*>item_of(<PyObject*>messages, place)
        prefetch(at)
        prefetch(at + 64)


cdef inline void prefetch_octets(list messages, Py_ssize_t place, int field) noexcept:
    """The beginning of a field of a message that has come, as far ahead as ``NEAR``; body, routing key, properties and
    exchange are 0 to 3.
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
