"""Preview of a change to a hash exchange's destinations, without applying it.

A sample of keys is routed before and after the change, on outlines of rings, which have no buckets. The minimum to move
follows from the shares alone: destinations that gain need keys from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jumpmq.hashing import MAX_WEIGHT, modulus_array
from jumpmq.hashing.functions import HashFunction
from jumpmq.hashing.outline import RingOutline
from jumpmq.hashing.ring import RingRemoval

SAMPLE = 1 << 17
"""Number of sample keys: shares are within 0.3 % of all keys, with a probability of 95 %."""

OCTETS_A_KEY, OCTETS_A_DESTINATION = 200, 2000
"""Maximum memory of a plan per sample key and per destination, in octets."""

Way = Literal["minimal", "shift", "modulus"]


class Step(NamedTuple):
    """A change: a destination is bound with a weight, unbound (weight 0), or given a new weight."""

    destination: str
    weight: int


class MovedShare(NamedTuple):
    """Share of all keys that moves between two destinations."""

    source: str
    target: str
    share: float


@dataclass(frozen=True)
class RemovalOutcome:
    """Moves caused by a method of removing destinations.

    Attributes:
        moved: share of all keys that moves.
        moves: moves by descending share.
    """

    moved: float
    moves: list[MovedShare]


def ring_outcomes(state: dict[str, Any], steps: Sequence[Step]) -> dict[Way, RemovalOutcome]:
    """Return the moves of steps on a ring, by method of removing.

    The ring's own method starts with the ring as it is; the other method starts with a new ring of the same
    destinations.

    Args:
        state: state of the ring.

    Raises:
        ValueError: a step is impossible.
    """
    keys, found = _keys(), dict[Way, RemovalOutcome]()
    ways: tuple[RingRemoval, ...] = ("minimal", "shift")
    for removal in ways:
        before = RingOutline.restore(state)
        if before.removal != removal:
            before = _made(removal, before.function, dict(before.destinations))
        after = RingOutline.restore(before.state())
        for step in steps:
            _take(after, step)
        found[removal] = _outcome(_routed(before, keys), _routed(after, keys))
    return found


def modulus_outcomes(
    before: Sequence[str], after: Sequence[str], function: HashFunction = "phash2"
) -> dict[Way, RemovalOutcome]:
    """Return the moves of keys spread by remainder over destinations in the given order."""
    keys = _keys()
    return {"modulus": _outcome(_by_modulus(before, keys, function), _by_modulus(after, keys, function))}


def least(before: dict[str, int], after: dict[str, int]) -> float:
    """Return the minimal share of keys to move, by any method, from the old to the new weights."""
    total, wanted = sum(before.values()), sum(after.values())
    if not total or not wanted:
        return 0.0
    gains = (after[name] / wanted - before.get(name, 0) / total for name in after)
    return sum(gain for gain in gains if gain > 0)


def weights_after(before: dict[str, int], steps: Sequence[Step]) -> dict[str, int]:
    """Return the weights of destinations after the steps.

    Raises:
        ValueError: a step is impossible.
    """
    found = dict(before)
    for name, weight in steps:
        if not 0 <= weight <= MAX_WEIGHT:
            raise ValueError(f"a weight is an integer from 1 to {MAX_WEIGHT}, or 0 to unbind, not {weight}")
        if not weight and name not in found:
            raise ValueError(f"{name!r} is not bound")
        found.pop(name, None)
        if weight:
            found[name] = weight
    return found


def _keys() -> pa.Array:
    return pc.cast(pa.array(range(SAMPLE), pa.int32()), pa.string())


def _made(removal: RingRemoval, function: HashFunction, weights: dict[str, int]) -> RingOutline:
    ring = RingOutline(removal, function)
    for name, weight in weights.items():
        ring.add(name, weight)
    return ring


def _take(ring: RingOutline, step: Step) -> None:
    if step.destination in ring:
        ring.remove(step.destination)
    if step.weight:
        ring.add(step.destination, step.weight)


def _routed(ring: RingOutline, keys: pa.Array) -> pa.Array | None:
    return ring.route_array(keys) if len(ring) else None


def _by_modulus(names: Sequence[str], keys: pa.Array, function: HashFunction) -> pa.Array | None:
    if not names:
        return None
    return pa.DictionaryArray.from_arrays(modulus_array(keys, len(names), function), pa.array(names, pa.string()))


def _outcome(before: pa.Array | None, after: pa.Array | None) -> RemovalOutcome:
    """Return the differences; keys without destination before or after have not moved."""
    if before is None or after is None:
        return RemovalOutcome(0.0, [])
    sources, targets = before.dictionary.to_pylist(), after.dictionary.to_pylist()
    pairs = pc.add(pc.multiply(pc.cast(before.indices, pa.int64()), len(targets)), pc.cast(after.indices, pa.int64()))
    moves = []
    values, counts = pc.value_counts(pairs).flatten()
    for value, count in zip(values.to_pylist(), counts.to_pylist(), strict=True):
        source, target = divmod(value, len(targets))
        if sources[source] != targets[target]:
            moves.append(MovedShare(sources[source], targets[target], count / len(pairs)))
    moves.sort(key=lambda move: -move.share)
    return RemovalOutcome(sum(move.share for move in moves), moves)
