"""The differences that have a name: each is told of in docs/differences.md.

A session in which one shows ends there, and counts as good.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzzing.sessions.pair import Difference


def _is_turn_under_a_shared_limit(difference: Difference) -> bool:
    """The same messages went to other consumers, some of which share a prefetch with others of their channel."""
    shared = any(getattr(step.method, "global_", False) for step in difference.session)
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    return shared and their_counts == our_counts and _bodies(theirs) == _bodies(ours)


def _bodies(said: Any) -> list[Any] | None:
    """The messages delivered, whoever got them; None where something else was said."""
    events = [event for events in said.values() for event in events]
    return sorted(event[-1] for event in events) if all(event[0] == "basic.deliver" for event in events) else None


NAMED: dict[str, Callable[[Difference], bool]] = {
    "Timing and order: whose turn it is under a global prefetch": _is_turn_under_a_shared_limit,
}
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
