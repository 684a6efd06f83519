"""Maintenance of a node: startup, listeners, log, name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError, UsageError, counted
from jumpmq.cli.session import Session
from jumpmq.management import TIMEOUT, NoAnswer, Refusal

PATIENCE = 300.0
"""Timeout of `await_startup`, in seconds; further verbs use `--timeout`."""

LEVELS = ("debug", "info", "warning", "error", "critical", "none")


class TimedOut(CommandError):
    """A wait timed out."""


def await_startup(session: Session) -> None:
    """Waits until the broker answers, five minutes at most."""
    _await(session, "await_startup", lambda: _answers(session), PATIENCE)


def await_online_nodes(
    session: Session,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="number of running nodes, this node included")],
) -> None:
    """Waits until COUNT nodes of the cluster run, five minutes or `--timeout` at most."""
    node, seconds = session.node_name, PATIENCE if session.timeout == TIMEOUT else session.timeout
    session.inform(
        f"Will wait for at least {count} nodes to join the cluster of {node}. Timeout: {seconds:.0f} seconds."
    )

    def enough() -> bool:
        return len([one for one in session.api.get("nodes") if one["running"]]) >= count

    try:
        _await(session, "await_online_nodes", enough, seconds)
    except TimedOut:
        text = f"timed out while waiting. Not enough nodes joined {node}'s cluster."
        raise CommandError(text, os.EX_SOFTWARE) from None


AT_ONCE = 20
"""Number of queues that `drain` moves at a time."""

LOOK = 0.2
"""Interval of polling, in seconds."""


def drain(session: Session) -> None:
    """Moves the queues of a node to other nodes, waits until the messages have moved, and lists the queues that stay.

    Queues that end with the node, or with their connections, stay, and are listed. Fails if another queue stays. The
    command may be interrupted and repeated.
    """
    node, api = session.node_name, session.api
    session.inform(f"Moving the queues of node {node} to others ...")
    stay: dict[tuple[str, str], str] = {}
    asked: set[tuple[str, str]] = set()
    told = -1
    while True:
        found = {(one["vhost"], one["name"]): one for one in api.get("queues")}
        for key in asked & found.keys():
            if (reason := found[key].get("move_failed")) is not None:
                stay[key] = reason
        left = [key for key, one in found.items() if one["node"] == node and key not in stay]
        here = [key for key in left if not found[key].get("moving_to")]
        moving = len(left) - len(here) + sum(1 for one in found.values() if one.get("moving_from") == node)
        if not here and not moving:
            break
        if len(here) + moving != told:
            told = len(here) + moving
            session.inform(f"{told} to go")
        if not any(one["running"] and one["name"] != node for one in api.get("nodes")):
            stay |= dict.fromkeys(here, "no other node runs")
            here = []
        for vhost, name in here[: max(0, AT_ONCE - moving)]:
            try:
                api.post("queues", vhost, name, "actions", body={"action": "move"})
                asked.add((vhost, name))
            except Refusal as refusal:
                if "is on its way already" not in str(refusal):
                    stay[vhost, name] = str(refusal)
        time.sleep(LOOK)
    session.inform(f"{counted(len(stay), 'queue stays', 'queues stay')} on the node:" if stay
                   else "No queue is left on the node.")  # fmt: skip
    for (vhost, name), reason in stay.items():
        session.say(f"{vhost}\t{name}\t{reason}")
    kept = sum(1 for key in stay if key in found and found[key]["durable"] and not found[key]["exclusive"])
    if kept:
        text = f"{counted(kept, 'durable queue')} could not be moved: do not forget the node"
        raise CommandError(text)


def set_workers(
    session: Session, count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="number of workers that stay")]
) -> None:
    """Reduces the number of workers: queues of removed workers move to the remaining workers.

    Waits for the moves; Ctrl-C ends the waiting only. From then on, start `jumpmq serve` with the same number. To
    increase the number, restart `jumpmq serve` with more `--workers`.
    """
    session.require_asked()
    session.inform(f"Setting the number of workers to {count} ...")
    session.api.put("workers", body={"count": count})
    told = -1
    while len(there := session.api.get("workers")) > count:
        left = sum(one["queues"] for one in there if one["leaves"])
        if left != told:
            told = left
            session.inform(f"{left} queues to go")
        time.sleep(LOOK)
    session.inform(f"The broker has {len(there)} workers")


def rebalance(
    session: Session,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="all; quorum or stream: leaders only")] = "all",
) -> None:
    """Returns the leadership of each home to its seat, moves queues from the fullest nodes and workers to the
    emptiest, and waits for the moves. With `quorum` or `stream` no queue moves.

    Queues that cannot move stay (`drain` says why). Ctrl-C ends the waiting only.
    """
    if kind not in ("all", "quorum", "stream"):
        raise CommandError(f"type {kind} is not supported. Try one of all, quorum, stream.")
    session.inform("Rebalancing queues ...")
    if kind != "all":
        for one in session.api.get("copies"):
            if one["wanted"]["leader"] != one["seat"]:
                session.api.delete("copies", str(one["home"]), "leader")
        return
    session.api.post("rebalance", "queues", body={})
    while True:
        time.sleep(LOOK)  # first moves begin
        moving = sum(1 for one in session.api.get("queues") if one.get("moving_from") or one.get("moving_to"))
        if not moving:
            break
    session.inform("All moves are complete")


def shutdown(session: Session) -> None:
    """Stops the broker in order, and waits until it no longer answers."""
    session.require_asked()
    session.inform(f"Shutting down node {session.node_name} ...")
    session.api.post("stop", body={})
    _await(session, "shutdown", lambda: not _answers(session), session.timeout)


def wait(
    session: Session,
    pid_file: Annotated[str | None, typer.Argument(metavar="PIDFILE", help="file with the broker's process id")] = None,
    pid: Annotated[int | None, typer.Option("--pid", "-P", min=1, help="process id of the broker")] = None,
) -> None:
    """Waits until the broker answers, or its process ends."""
    if (pid_file is None) == (pid is None):
        raise UsageError("give the file with the process id, or --pid")
    if pid_file is not None:
        session.inform(f"Waiting for pid file '{pid_file}' to appear")
        _await(session, "wait", lambda: _number_in(pid_file) is not None, session.timeout)
        pid = _number_in(pid_file)
    session.inform(f"Waiting for the broker at {session.url.rpartition('@')[2]} while OS process '{pid}' is running")

    def ready() -> bool:
        if not Path(f"/proc/{pid}").exists() and not _runs(pid or 0):
            raise CommandError("process_not_running")
        return _answers(session)

    _await(session, "wait", ready, session.timeout)
    session.inform(f"Node '{session.node_name}' is running")


def suspend_listeners(session: Session) -> None:
    """Stops accepting AMQP connections at the node; open connections stay."""
    node = session.node_name
    session.inform(
        f"Will suspend client connection listeners on node {node}. The node will no longer accept client connections!"
    )
    session.api.put("nodes", node, "listeners", body={"suspended": True})


def resume_listeners(session: Session) -> None:
    """Resumes accepting AMQP connections at the node."""
    node = session.node_name
    session.inform(
        f"Will resume client connection listeners on node {node}. The node will now accept client connections"
    )
    session.api.put("nodes", node, "listeners", body={"suspended": False})


def set_log_level(
    session: Session, level: Annotated[str, typer.Argument(metavar="LEVEL", help=", ".join(LEVELS))]
) -> None:
    """Sets the broker's log level, until the next stop."""
    if level not in LEVELS:
        raise CommandError(f"level {level} is not supported. Try one of {', '.join(LEVELS)}")
    session.inform(f'Setting log level to "{level}" ...')
    session.api.put("nodes", session.node_name, "log-level", body={"level": level})


def set_cluster_name(session: Session, name: Annotated[str, typer.Argument(help="name shown to clients")]) -> None:
    """Names the cluster."""
    session.inform(f"Setting cluster name to {name} ...")
    session.api.put("cluster-name", body={"name": name})


def list_node_auth_attempt_stats(session: Session) -> None:
    """Lists the numbers of attempted logins by protocol."""
    node = session.node_name
    session.inform(f'Listing authentication\n attempts for node "{node}" ...')
    names = ["protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"]
    session.table(names, [[one[name] for name in names] for one in session.api.get("auth", "attempts", node)])


def list_losses(session: Session) -> None:
    """Lists unacknowledged losses of the data directory."""
    session.inform("Listing losses ...")
    names = ["found_at", "loss"]
    session.table(names, [[one[name] for name in names] for one in session.api.get("losses")])


def acknowledge_losses(session: Session) -> None:
    """Acknowledges all losses: health checks and metrics recover."""
    session.inform("Acknowledging losses ...")
    session.api.delete("losses")


def _await(session: Session, verb: str, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut(f"operation {verb} timed out. Timeout value used: {seconds * 1000:.0f}", os.EX_TEMPFAIL)
        time.sleep(0.2)


def _answers(session: Session) -> bool:
    try:
        session.api.get("whoami")
    except NoAnswer:
        return False
    except Refusal:
        pass  # a refusal is an answer
    return True


def _number_in(file: str) -> int | None:
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


VERBS = (
    await_startup,
    await_online_nodes,
    wait,
    suspend_listeners,
    resume_listeners,
    drain,
    rebalance,
    set_workers,
    set_log_level,
    shutdown,
    set_cluster_name,
    list_node_auth_attempt_stats,
    list_losses,
    acknowledge_losses,
)
