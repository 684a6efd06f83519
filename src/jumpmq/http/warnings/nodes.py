"""Warnings of nodes: down, short of memory or disk, or without commits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jumpmq.broker.figures.values import HomeState, NodeFigures
from jumpmq.http.warnings.absences import Absence, Absences
from jumpmq.http.warnings.warning import Warning

if TYPE_CHECKING:
    from jumpmq.broker import Broker

STARTED_TOGETHER = 10.0
"""Seconds within which the workers of a node start."""

RESTARTED_FOR = 600.0
"""Duration of the warning about a restarted worker, in seconds."""

NAMED = 3
"""Maximum number of rings named in a warning."""


def of_nodes(broker: Broker, absences: Absences) -> Iterator[Warning]:
    """Yield the warnings of all nodes, as seen by this node."""
    for node, homes in broker.topology.nodes.items():
        if away := [absences.of[home] for home in homes if home in absences.of]:
            yield _down(node, homes, away, _copies_of(broker, [one.home for one in away]))
    states = broker.figures.states()
    for name, node_figures in broker.figures.nodes().items():
        yield from _alarms(node_figures)
        complaint = next((one.complaint for one in states if one.node.name == name and one.complaint), None)
        if complaint is not None:
            advice = "Check the log of the node: the disk may be full, read-only or broken."
            text = f"Messages published at {name} are not committed: {complaint}."
            yield Warning("commits", "alarm", "node", "", name, text, advice)
        workers = [one.node for one in states if one.node.name == name == broker.topology.node_of(one.home)]
        yield from _restarted(name, workers)
    yield from _stall(states)
    yield from _unlinked(broker, absences)


def _restarted(node: str, workers: list[NodeFigures]) -> Iterator[Warning]:
    """Yield a warning for workers restarted recently while other workers of the node kept running."""
    first = min((one.started_at for one in workers), default=0.0)
    again = [one.started_at for one in workers if one.started_at - first > STARTED_TOGETHER]
    lately = [started_at for started_at in again if time.time() - started_at < RESTARTED_FOR]
    if lately:
        were, at = "was" if len(lately) == 1 else "were", time.strftime("%H:%M:%S", time.localtime(max(lately)))
        text = f"{_count(len(lately), 'worker')} of {node} died and {were} restarted, the last at {at}."
        advice = "The clients have reconnected. The log of the node has the reason."
        yield Warning("worker-restarted", "warning", "node", "", node, text, advice)


def _stall(states: list[HomeState]) -> Iterator[Warning]:
    """Yield a warning per reason why definitions cannot be changed. Several nodes may have the same reason."""
    found: dict[str, HomeState] = {}
    for state in states:
        if state.stall is not None:
            found.setdefault(state.stall, state)
    for reason, state in found.items():
        yield _of_node(
            state.node,
            "definitions-stand-still",
            "alarm",
            f"Definitions cannot be changed: {reason}.",
            "Messages are still delivered. Check etcd: members, space (`etcdctl alarm list`), data. If etcd has lost "
            "entries, restore a newer backup, or recover the cluster from the node with the most entries.",
        )


def _copies_of(broker: Broker, homes: list[int]) -> list[str]:
    """Return the other nodes that have a copy of one of a node's homes."""
    listed = (one for one in broker.copies.listed() if one.home in homes)
    return sorted({node for one in listed for node in one.members if node != one.seat})


def _down(node: str, homes: list[int], away: list[Absence], copies: list[str]) -> Warning:
    queues, messages = sum(one.queues for one in away), sum(one.messages for one in away)
    is_whole = len(away) == len(homes)
    if is_whole:
        kind, who = "node-down", f"Node {node} does not answer"
    else:
        workers = ", ".join(str(homes.index(one.home) + 1) for one in away)
        kind, who = (
            "worker-down",
            f"{_count(len(away), 'worker')} of {node} (number {workers}) {_does(len(away))} not answer",
        )
    text = f"{who}: {_count(queues, 'queue')} {_is(queues)} down"
    if messages:
        text += f", with {_count(messages, 'message')} when last seen"
    text += "." + _holes(away)
    if is_whole and copies:
        advice = (
            "Start the node, or wait some seconds: another node serves the queues if its copy is complete, and enough "
            f"copies are there. `jumpmqctl list_copies` has the states of the copies at {', '.join(copies)}. If the "
            f"node is lost for good: `jumpmqctl drain --node {node}`, and then `jumpmqctl forget_cluster_node {node}`."
        )
    elif is_whole:
        advice = (
            "Start the node: its queues return with their messages. Until then publishes to these queues are refused, "
            "and their consumers are cancelled. If the node is lost for good: jumpmqctl forget_cluster_node."
        )
    else:
        advice = "A dead worker is restarted. If the worker does not return, the log of the node has the reason."
    return Warning(kind, "alarm", "node", "", node, text, advice, messages=messages)


def _holes(away: list[Absence]) -> str:
    """Return a sentence about the rings with unavailable destinations; empty without such rings."""
    gone: dict[tuple[str, str], int] = {}
    of_all = {}
    for one in away:
        for vhost, name, count, total in one.rings:
            gone[vhost, name] = gone.get((vhost, name), 0) + count
            of_all[vhost, name] = total
    if not gone:
        return ""
    worst = sorted(gone, key=lambda ring: -gone[ring])
    shown = [f"{gone[ring]} of {_count(of_all[ring], 'queue')} of '{ring[1]}'" for ring in worst[:NAMED]]
    more = f", and of {len(worst) - NAMED} more exchanges" if len(worst) > NAMED else ""
    return f" Rings have holes: {', '.join(shown)}{more}."


def _unlinked(broker: Broker, absences: Absences) -> Iterator[Warning]:
    pairs = dict[tuple[str, str], None]()
    for one, other in absences.unlinked():
        pairs[broker.node_serving(one), broker.node_serving(other)] = None
    for one_node, other_node in pairs:
        where = (
            f"{one_node} has no link to {other_node}"
            if one_node != other_node
            else f"Workers of {one_node} have no link to each other"
        )
        text = f"{where}, but both answer: queues of one are down for clients of the other."
        yield Warning(
            "link-down",
            "alarm",
            "node",
            "",
            one_node,
            text,
            "Check the network between them, and the logs of both.",
        )


def _alarms(node: NodeFigures) -> Iterator[Warning]:
    held = f"{octets(node.memory)} of {octets(node.memory_limit)} are held for messages"
    if node.memory_alarm:
        yield _of_node(
            node,
            "memory-alarm",
            "alarm",
            f"Memory is short: {held}. Publishers are blocked ({node.blocked} connections).",
            "Drain the fullest queues: add consumers, or purge unneeded messages. The limit is --memory-limit.",
        )
    elif node.memory > 0.8 * node.memory_limit:
        yield _of_node(
            node,
            "memory",
            "warning",
            f"Memory is getting short: {held}.",
            "Check the fullest queues below before publishers are blocked.",
        )
    if node.losses:
        yield _of_node(
            node,
            "losses",
            "alarm",
            f"Messages or definitions are missing from the data directory: {node.losses} losses were found.",
            "`jumpmqctl list_losses` names the losses, `jumpmqctl acknowledge_losses` ends this alarm. Only a backup "
            "has the missing data.",
        )
    if node.disk_free is None:
        return
    free = f"{octets(node.disk_free)} of disk are free, the limit is {octets(node.disk_free_limit)}"
    if node.disk_alarm:
        text = f"The disk is short: {free}. Publishers are blocked ({node.blocked} connections)."
        advice = "Free disk space, or drain durable queues: the files of an empty queue are deleted."
        yield _of_node(node, "disk-alarm", "alarm", text, advice)
    elif node.disk_free < 3 * node.disk_free_limit:
        advice = "Free disk space before publishers are blocked. The limit is set with --disk-free-limit."
        yield _of_node(node, "disk", "warning", f"The disk is getting short: {free}.", advice)


def _of_node(node: NodeFigures, kind: str, severity: str, text: str, advice: str) -> Warning:
    return Warning(kind, severity, "node", "", node.name, text, advice)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _does(number: int) -> str:
    return "does" if number == 1 else "do"


def octets(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1000 and unit < 4:
        size, unit = size / 1000, unit + 1
    return f"{size:,.1f} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}" if unit else f"{count} B"
