"""Sum of all homes' counts on a hash ring. Publishers of the ring may be connected to any home."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass

from jumpmq.broker.figures.values import RingTrafficFigures
from jumpmq.topology.exchanges.traffic import CountedKeys, FrequentKey, distinct_of


@dataclass(frozen=True)
class RingCounts:
    """Recent counts.

    Attributes:
        counted: messages, and the frequent keys.
        keys: estimated number of distinct keys by destination; empty unless registers were requested.
        missing_since_start: messages without the hashed header or property, since the homes started.
    """

    counted: CountedKeys
    keys: dict[str, int]
    missing_since_start: int


def together(parts: Iterable[RingTrafficFigures], names: list[str]) -> RingCounts | None:
    """Merge the homes' counts of a ring.

    Args:
        names: the ring's current destinations; counts of an earlier ring are left out.

    Returns:
        The sums; None without counts of the current ring.
    """
    everywhere = list(parts)
    found = [one for one in everywhere if one.names == names and one.since is not None]
    if not found:
        return None
    messages = [sum(column) for column in zip(*(one.messages for one in found), strict=True)]
    registers = [[b64decode(text) for text in one.registers] for one in found]
    told = min(len(one) for one in registers)
    distinct = [distinct_of([one[place] for one in registers]) for place in range(told)]
    keys = dict(zip(names, distinct[1:], strict=True)) if told > 1 else {}
    counted = CountedKeys(
        min(one.since for one in found if one.since is not None),
        names,
        messages,
        distinct[0] if distinct else 0,
        sum(one.missing for one in found),
        sum(one.noted for one in found),
        _frequent(found),
    )
    return RingCounts(counted, keys, sum(one.missing_since_start for one in everywhere))


def _frequent(parts: list[RingTrafficFigures]) -> list[FrequentKey]:
    """Return the frequent keys of all homes, most messages first.

    A home reports only its most frequent keys. A key's ``messages`` can therefore be too low, if the key is missing in
    the report of a home. ``messages - error`` is a lower bound in any case.
    """
    found: dict[str, FrequentKey] = {}
    for part in parts:
        for key, destination, messages, error in part.frequent:
            known = found.get(key)
            if known is not None:
                messages, error = messages + known.messages, error + known.error
            found[key] = FrequentKey(bytes.fromhex(key), destination, messages, error)
    return sorted(found.values(), key=lambda one: -one.messages)
