"""Number of examples of the tests' generators: fewer in `make test` than in `make test-all`."""

from hypothesis import settings


def examples(count: int) -> int:
    """Return `count`, scaled by the profile's number of examples relative to 100."""
    return max(1, count * settings().max_examples // 100)
