"""Warnings grouped by cause: an incident per cause, with symptoms, and a single incident for many similar queues.

Several warnings may have one cause: a hot key makes a queue long, and the long queue becomes full. Many queues with
similar names and the same warning are one incident, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumpmq.http.warnings.warning import Warning

DatedWarning = tuple["Warning", float]
"""A warning, and its start in seconds since the epoch."""

CAUSES = (
    "hot-key",
    "missing-header",
    "skew",
    "hidden-queue",
    "shard-without-consumer",
    "queue-without-consumer",
    "dead-letters-wait",
    "replies-wait",
    "slow-consumer",
    "queue-full",
    "keys-wait",
    "move-stands-still",
)
"""Kinds of warnings about queues, causes first: each kind can cause the later kinds at the same queue."""

_ORDER = {kind: place for place, kind in enumerate(CAUSES)}

ALIKE = 3
"""Number of queues, with similar names and an equal kind of warning, that make a single incident."""

NAMED = 20
"""Maximum number of similar queues named."""


@dataclass
class Incident:
    """A cause with its symptoms.

    Attributes:
        cause: the warning of the cause; the first of several similar warnings.
        since: time of the first observation, in seconds since the epoch.
        symptoms: further warnings, caused by ``cause``.
        alike: similar warnings shown together, ``cause`` included.
    """

    cause: Warning
    since: float
    symptoms: list[Warning] = field(default_factory=list)
    alike: list[Warning] = field(default_factory=list)

    @property
    def severity(self) -> str:
        """Severity of the worst warning in the incident."""
        return min(one.severity for one in (self.cause, *self.symptoms, *self.alike))

    @property
    def queues(self) -> list[Warning]:
        """Warnings with a number of waiting messages."""
        return self.alike or [one for one in (self.cause, *self.symptoms) if one.messages][:1]

    def shown(self) -> dict[str, Any]:
        """Return JSON for the API: the cause's warning with ``symptoms``, ``count``, ``pattern`` and ``names``."""
        queues = self.queues
        shown = self.cause.shown() | {
            "severity": self.severity,
            "since": round(self.since, 3),
            "messages": sum(one.messages for one in queues),
            "growth": round(sum(one.growth for one in queues), 1),
            "full_in": min((one.full_in for one in queues if one.full_in is not None), default=None),
            "symptoms": [one.shown() for one in self.symptoms],
            "count": len(self.alike) or 1,
            "names": [one.name for one in self.alike[:NAMED]],
            "pattern": "",
        }
        if self.alike:
            pattern = pattern_of(self.cause.name)
            shown |= {"name": pattern, "pattern": pattern, "text": _text_of_many(self.alike, pattern)}
        return shown


def by_cause(warnings: Iterable[DatedWarning]) -> list[Incident]:
    """Group warnings into incidents, most urgent first: alarms, with nodes before queues; then by time until full; then
    by growth; then by age."""
    in_queues: dict[tuple[str, str], list[DatedWarning]] = {}
    incidents: list[Incident] = []
    for one, since in warnings:
        if one.queue:
            in_queues.setdefault((one.vhost, one.queue), []).append((one, since))
        else:
            incidents.append(Incident(one, since))
    for found in in_queues.values():
        (cause, since), *others = sorted(found, key=lambda item: _ORDER.get(item[0].kind, len(CAUSES)))
        incidents.append(Incident(cause, since, [one for one, _ in others]))
    together = list(_together(incidents))
    return sorted(together, key=_urgency)


def _urgency(one: Incident) -> tuple[Any, ...]:
    full_in = min((each.full_in for each in one.queues if each.full_in is not None), default=math.inf)
    growth = sum(each.growth for each in one.queues)
    # Rounded, so that similar incidents do not change places at each check.
    soon = math.inf if full_in == math.inf else round(math.log2(max(full_in, 1)))
    fast = round(math.log2(growth)) if growth > 1 else 0
    return one.severity, one.cause.object != "node", soon, -fast, one.since, one.cause.identity


def _together(incidents: Iterable[Incident]) -> Iterable[Incident]:
    groups: dict[tuple[str, ...], list[Incident]] = {}
    for one in incidents:
        name = pattern_of(one.cause.name) if one.cause.object == "queue" else one.cause.name
        groups.setdefault((one.cause.kind, one.cause.object, one.cause.vhost, name), []).append(one)
    for group in groups.values():
        if len(group) < ALIKE:
            yield from group
            continue
        longest = sorted(group, key=lambda one: -one.cause.messages)
        symptoms = [symptom for one in longest for symptom in one.symptoms]
        alike = [one.cause for one in longest]
        yield Incident(alike[0], min(one.since for one in group), symptoms, alike)


def pattern_of(name: str) -> str:
    """Return the common part of similar names: without the last part, or without the number at the end.

    ``log.app`` and ``log.web`` are ``log.*``, ``orders-1`` is ``orders-*``, and ``part2`` is ``part*``.
    """
    parts = re.fullmatch(r"(.*[.\-_:/])[^.\-_:/]+", name, flags=re.DOTALL)
    if parts is not None:
        return parts[1] + "*"
    return re.sub(r"\d+$", "*", name)


def _text_of_many(alike: list[Warning], pattern: str) -> str:
    messages = sum(one.messages for one in alike)
    what = {
        "queue-without-consumer": "have no consumer",
        "slow-consumer": "have consumers that are too slow",
        "dead-letters-wait": "hold dead letters",
        "replies-wait": "belong to connections without a consumer for the queue",
        "queue-full": "are full",
        "keys-wait": "have messages that wait for other queues",
        "move-stands-still": "are moving from home to home, without progress",
    }.get(alike[0].kind, "are concerned")
    return f"{len(alike)} queues '{pattern}' {what}: {messages:,} messages wait."
