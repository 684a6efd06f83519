"""Number of examples of the tests' generators: fewer in `make test` than in `make test-all`."""

from hypothesis import settings


def examples(count: int) -> int:
    """So many of `count` as the profile in use makes of 100."""
    return max(1, count * settings().max_examples // 100)
