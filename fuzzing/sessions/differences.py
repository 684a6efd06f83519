"""The differences that have a name: each is told of in docs/differences.md.

A session in which one shows ends there, and counts as good.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzzing.sessions.pair import Difference

NAMED: dict[str, Callable[[Difference], bool]] = {}
"""By what docs/differences.md calls it, whether a difference is that one."""


def name_of(difference: Difference) -> str | None:
    """What docs/differences.md calls it; None where it has no name."""
    for name, matches in NAMED.items():
        if matches(difference):
            return name
    return "found before" if signature(difference) in passed_over else None


passed_over: set[tuple[str, ...]] = set()
"""Signatures of differences that were found in this run already."""


def signature(difference: Difference) -> tuple[str, ...]:
    """What two findings of the same difference have in common: the method, and the kinds and texts of what came."""
    return type(difference.step.method).__name__, _outline(difference.reference), _outline(difference.ours)


def _outline(seen: Any) -> str:
    said, counts = seen
    events = sorted({_VARYING.sub("_", repr(event[:3])) for events in said.values() for event in events})
    return f"{events} {'counts' if counts else ''}"


_VARYING = re.compile(r"'[^' ]*' in|\d+")
