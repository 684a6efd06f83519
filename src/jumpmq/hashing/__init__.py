"""Mapping of keys to destinations: RabbitMQ's hash functions, and a hash ring that moves as few keys as possible.

>>> ring = HashRing()
>>> ring.add("q1", 1)
>>> ring.add("q2", 2)
>>> ring.route(b"N14228")
'q2'
"""

from jumpmq.hashing.functions import HashFunction
from jumpmq.hashing.kernel import COMPILED, jump, jump64, murmur2, murmur3, phash2, phash2_list, xxh64
from jumpmq.hashing.ring import MAX_WEIGHT, HashRing
from jumpmq.hashing.terms import MISSING, header_key, moduli, modulus, modulus_array, timestamp_key

__all__ = [
    "COMPILED",
    "MAX_WEIGHT",
    "MISSING",
    "HashFunction",
    "HashRing",
    "header_key",
    "jump",
    "jump64",
    "moduli",
    "modulus",
    "modulus_array",
    "murmur2",
    "murmur3",
    "phash2",
    "phash2_list",
    "timestamp_key",
    "xxh64",
]
