# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Messages laid out as Arrow columns, in C. ``_reference.py`` says the same in plain Python and documents it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.string cimport memcpy

from jumpmq.amqp._kernel cimport Message

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef inline const char* octets_of(Message message, int field, Py_ssize_t* size) except NULL:
    """A field's octets, 0 to 3 being body, routing key, properties and exchange."""
    cdef bytes value
    if field == 3:
        return PyUnicode_AsUTF8AndSize(message.exchange, size)
    value = message.body if field == 0 else message.routing_key if field == 1 else message.properties
    size[0] = PyBytes_GET_SIZE(value)
    return PyBytes_AS_STRING(value)


def binary_column(list messages, str name):
    cdef int field = ("body", "routing_key", "properties", "exchange").index(name)
    cdef Message message
    cdef Py_ssize_t total = 0, size
    cdef const char* value
    cdef bytes octets, offsets = PyBytes_FromStringAndSize(NULL, 4 * (len(messages) + 1))
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef char* at
    offset[0] = 0
    for message in messages:
        octets_of(message, field, &size)
        total += size
        if total > INT32_MAX:
            raise OverflowError("a binary column holds less than 2 GiB")
        offset += 1
        offset[0] = <int32_t>total
    octets = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(octets)
    for message in messages:
        value = octets_of(message, field, &size)
        memcpy(at, value, size)
        at += size
    return offsets, octets


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
