"""How many examples the generators of tests make: fewer in `make test` than in `make test-all`."""

from hypothesis import settings


def examples(count: int) -> int:
    """So many of `count` as the profile in use makes of 100."""
    return max(1, count * settings().max_examples // 100)
