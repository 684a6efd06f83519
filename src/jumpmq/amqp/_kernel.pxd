"""Declarations of messages for other compiled kernels."""

cdef extern from "stdbool.h":
    ctypedef bint flag "_Bool"  # a bint takes four octets


cdef class Message:
    cdef public str exchange
    cdef public bytes routing_key
    cdef public bytes properties
    cdef public bytes body
    cdef public flag persistent
    cdef public flag redelivered
    cdef public unsigned short slot
    cdef public int attempts
    cdef public unsigned int paged
    cdef public double published_at
    cdef public double expires_at
    cdef public long long seq
    cdef public object queue
    cdef public object consumer
    cdef public object batch
