"""Metrics of the copies of homes. Each node tells of all homes, since the leader of one may be what is missing."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.requests import Request

from jumpmq.broker.copies import HomeCopies
from jumpmq.http.plumbing import requested

OF_HOME: dict[str, tuple[str, Callable[[HomeCopies], int]]] = {
    "jumpmq_copies_members": ("Nodes that are to have a copy of a home", lambda one: len(one.members)),
    "jumpmq_copies_in_set": ("Copies of a home that store what is confirmed", lambda one: one.in_set),
    "jumpmq_copies_min": ("Copies in the set below which nothing is confirmed", lambda one: one.min),
    "jumpmq_copies_epoch": ("Number of the life of a home's leader", lambda one: one.epoch),
}


def copies(request: Request) -> list[Metric]:
    """Metrics of homes with copies; empty where no home has any."""
    found = [one for one in requested.broker(request).copies.listed() if len(one.members) > 1]
    if not found:
        return []
    families: list[Metric] = []
    for name, (about, read) in OF_HOME.items():
        families.append(family := GaugeMetricFamily(name, about, labels=("home",)))
        for one in found:
            family.add_metric((str(one.home),), read(one))
    about = "Octets of the log that a copy has not stored, at the process that serves the home"
    lag = GaugeMetricFamily("jumpmq_copies_lag_bytes", about, labels=("home", "node"))
    for one in found:
        for node, octets in one.lag_octets.items():
            lag.add_metric((str(one.home), node), octets)
    about = "1 for a copy with which something is wrong; list_copies says what"
    troubled = GaugeMetricFamily("jumpmq_copies_troubled", about, labels=("home", "node"))
    for one in found:
        for node in one.troubles:
            troubled.add_metric((str(one.home), node), 1)
    return [*families, lag, troubled]
