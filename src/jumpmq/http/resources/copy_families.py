"""Metrics of the copies of homes. Each node reports all homes, because a home's leader may be missing."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq.broker.copies import HomeCopies
from jumpmq.http.plumbing import requested

OF_HOME: dict[str, tuple[str, Callable[[HomeCopies], int]]] = {
    "jumpmq_copies_members": ("Nodes that should have a copy of a home", lambda one: len(one.members)),
    "jumpmq_copies_in_set": ("Copies of a home that store confirmed messages", lambda one: one.in_set),
    "jumpmq_copies_min": ("Copies in the set below which nothing is confirmed", lambda one: one.min),
    "jumpmq_copies_epoch": ("Epoch of a home's leader", lambda one: one.epoch),
}


def copies(request: Request) -> list[Metric]:
    """Return the metrics of homes with copies; empty without such homes."""
    found = [one for one in requested.broker(request).copies.listed() if len(one.members) > 1]
    return families(found) if found else []


def families(found: list[HomeCopies]) -> list[Metric]:
    """Return all families, with a sample per home."""
    made: list[Metric] = []
    for name, (about, read) in OF_HOME.items():
        made.append(family := GaugeMetricFamily(name, about, labels=("home",)))
        for one in found:
            family.add_metric((str(one.home),), read(one))
    return [*made, *_lags(found), *_changes(found)]


def _lags(found: list[HomeCopies]) -> list[Metric]:
    """Return the lag of followers and the remaining lease of the leader, as known to the serving process."""
    about = "Octets of the log not yet stored by a copy, at the process that serves the home"
    octets = GaugeMetricFamily("jumpmq_copies_lag_bytes", about, labels=("home", "node"))
    about = "Age of the oldest octets not yet stored by a copy, at the process that serves the home"
    seconds = GaugeMetricFamily("jumpmq_copies_lag_seconds", about, labels=("home", "node"))
    about = "Remaining lease: time for which the serving process may deliver without answers of other copies"
    lease = GaugeMetricFamily("jumpmq_copies_lease_left_seconds", about, labels=("home",))
    for one in found:
        for node, behind in one.lag_octets.items():
            octets.add_metric((str(one.home), node), behind)
        for node, age in one.lag_seconds.items():
            seconds.add_metric((str(one.home), node), age)
        if one.lease_left is not None and isfinite(one.lease_left):
            lease.add_metric((str(one.home),), round(one.lease_left, 3))
    about = "1 for a copy with a problem; list_copies has the reason"
    troubled = GaugeMetricFamily("jumpmq_copies_troubled", about, labels=("home", "node"))
    for one in found:
        for node in one.troubles:
            troubled.add_metric((str(one.home), node), 1)
    return [octets, seconds, lease, troubled]


def _changes(found: list[HomeCopies]) -> list[Metric]:
    """Return the changes of set and leader since the start of the local process."""
    labels = ("home", "change")
    changes = CounterMetricFamily("jumpmq_copies_set_changes", "Copies that joined or left the set", labels=labels)
    about = "Unplanned takeovers of a home, at another node or the same node"
    failovers = CounterMetricFamily("jumpmq_copies_failovers", about, labels=("home",))
    handovers = CounterMetricFamily("jumpmq_copies_handovers", "Planned changes of the leader", labels=("home",))
    for one in found:
        home, seen = str(one.home), one.changes
        changes.add_metric((home, "joined"), seen.joined)
        changes.add_metric((home, "left"), seen.left)
        failovers.add_metric((home,), seen.failovers)
        handovers.add_metric((home,), seen.handovers)
    return [changes, failovers, handovers]
