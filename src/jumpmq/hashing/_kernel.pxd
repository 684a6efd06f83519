"""Declarations of the hash functions for other compiled kernels."""

from libc.stdint cimport uint8_t, uint64_t


cdef uint64_t hash_xxh64(const uint8_t* octets, Py_ssize_t length, uint64_t seed) noexcept nogil
