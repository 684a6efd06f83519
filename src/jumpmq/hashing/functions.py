"""The hash functions of exchanges and rings, by their names in the declare argument ``hash-function``.

``phash2``
    The hash of RabbitMQ, 27 bits.
``xxh64``
    XXH64, seed 0.
``murmur2``
    The hash of Kafka's partitioner: MurmurHash2 with Kafka's seed, the sign bit cleared.
``murmur3``
    The hash of RabbitMQ's clients for super streams: MurmurHash3 of 32 bits, seed 104729.
"""

import re
from typing import Literal, get_args

HashFunction = Literal["phash2", "xxh64", "murmur2", "murmur3"]

NAMES: tuple[HashFunction, ...] = get_args(HashFunction)
"""Names of the hash functions, indexed by number."""

NUMBERS: dict[HashFunction, int] = {name: number for number, name in enumerate(NAMES)}
"""Numbers of the hash functions, as used by kernels."""

_CHOICE = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"
_DIGITS = re.compile(rb"([0-9]+)")


def hash_function(name: str) -> HashFunction:
    """Return a name after validation.

    Raises:
        ValueError: unknown function; the text lists the known functions.
    """
    if name not in NAMES:
        raise ValueError(f"{name}; expected {_CHOICE}")
    return name


def modulus_place(label: str, function: HashFunction = "phash2") -> tuple[object, ...]:
    """Return the sort key of a destination of a modulus hash exchange: exchanges before queues, by name.

    With ``murmur2`` and ``murmur3`` digits in names are compared as numbers, so that ``orders-10`` comes after
    ``orders-9``: the order of a topic's or super stream's partitions.

    Args:
        label: the name of a queue, or ``exchange:NAME``.
    """
    is_queue, name = not label.startswith("exchange:"), label.removeprefix("exchange:").encode()
    if function not in ("murmur2", "murmur3"):
        return is_queue, name
    parts = _DIGITS.split(name)  # digits at odd indexes
    return is_queue, [int(part) if place % 2 else part for place, part in enumerate(parts)], name
