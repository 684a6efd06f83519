"""The compiled kernel or, if not built, the reference implementation: equal results, some 150 times slower."""

import warnings

try:
    from jumpmq.hashing._kernel import (
        MISSING,
        Buckets,
        KeyCounts,
        RunBuckets,
        jump,
        jump64,
        moduli,
        modulus_of_arrow,
        murmur2,
        murmur3,
        phash2,
        phash2_list,
        xxh64,
    )

    COMPILED = True
except ImportError:
    from jumpmq.hashing._reference import (  # type: ignore[assignment]
        MISSING,
        Buckets,
        KeyCounts,
        RunBuckets,
        jump,
        jump64,
        moduli,
        modulus_of_arrow,
        murmur2,
        murmur3,
        phash2,
        phash2_list,
        xxh64,
    )

    COMPILED = False
    warnings.warn(
        "jumpmq's hash kernel is not compiled: routing is correct but slow. Install a C compiler and reinstall jumpmq.",
        RuntimeWarning,
        stacklevel=2,
    )

__all__ = [
    "COMPILED",
    "MISSING",
    "Buckets",
    "KeyCounts",
    "RunBuckets",
    "jump",
    "jump64",
    "moduli",
    "modulus_of_arrow",
    "murmur2",
    "murmur3",
    "phash2",
    "phash2_list",
    "xxh64",
]
