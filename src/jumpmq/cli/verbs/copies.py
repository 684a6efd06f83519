"""Copies of homes: `list_copies`, `set_copies`, `transfer_leadership`, and RabbitMQ's verbs about quorums."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError, NoQueue, counted
from jumpmq.cli.session import Session
from jumpmq.management import TIMEOUT, Refusal

COLUMNS = ["home", "seat", "served_by", "epoch", "copies", "min", "in_set", "members", "wanted", "troubles"]
STATUS_COLUMNS = ["Node Name", "Raft State", "Membership", "Term"]

RAFT = {
    "leader": ("leader", "voter"),
    "in set": ("follower", "voter"),
    "eligible": ("follower", "promotable"),
    "joining": ("follower", "promotable"),
    "away": ("noproc", "promotable"),
}
"""State of a copy in RabbitMQ's words: of the replica, and of its membership."""

PATIENCE = 120.0
"""Timeout of `await_online_quorum_plus_one`, in seconds, unless `--timeout` is given."""

LOOK = 0.5
"""Interval of polling, in seconds."""

QUORUM = ("health", "checks", "node-is-quorum-critical")

Home = Annotated[int, typer.Argument(metavar="HOME", min=1, help="number of the home, as list_copies shows it")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="name of the queue")]


def list_copies(session: Session) -> None:
    """Lists the homes of the cluster: where each belongs, which node serves it, and the state of its copies.

    `in set` is a copy that stores what is confirmed before that is confirmed, `joining` one that takes what it lacks,
    `away` one whose node does not run. `eligible` copies left a set that fell below `min`, and have all that was
    confirmed. `wanted` is what was asked for and is not so yet. `troubles` says what is wrong with a copy now, or was
    a minute ago.
    """
    session.inform("Listing copies ...")
    found = session.api.get("copies")
    session.table(COLUMNS, [_row(one) for one in found])


def _row(one: dict[str, Any]) -> list[Any]:
    names = ("home", "seat", "leader", "epoch", "copies", "min", "in_set")
    members = ", ".join(f"{member['node']} {member['state']}{_lag(member)}" for member in one["members"])
    wanted = one["wanted"]
    asked = [f"{name} {wanted[name]}" for name in ("copies", "min", "leader") if wanted[name] != one[name]]
    troubles = "; ".join(f"{member['node']}: {member['trouble']}" for member in one["members"] if "trouble" in member)
    return [*(one[name] for name in names), members, ", ".join(asked), troubles]


def _lag(member: dict[str, Any]) -> str:
    return f" ({member['lag_bytes']} bytes behind)" if member.get("lag_bytes") else ""


def set_copies(
    session: Session,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="copies, the home's own included")],
    home: Annotated[
        int | None, typer.Option("--home", min=1, help="number of the home; all homes unless given")
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            "--min", min=1, help="copies that store a message before its confirm; half of the copies unless given"
        ),
    ] = None,
) -> None:
    """Sets the number of copies of a home, or of all homes of the cluster.

    Returns once the wish is recorded; `list_copies` shows the progress. A home that gets copies for the first time has
    its process start again once, which closes the connections to it.
    """
    found = session.api.get("copies")
    if home is not None:
        found = [one for one in found if one["home"] == home] or [{"home": home, "seat": "", "members": []}]
    elif not found:
        raise CommandError("only homes of a cluster's nodes have copies; this broker is no node of a cluster")
    here = session.node_name
    found.sort(key=lambda one: (one["seat"] == here, one["home"]))  # the process that is asked may start again
    session.inform(f"Setting copies of {counted(len(found), 'home')} to {count} ...")
    body = {"copies": count} | ({} if least is None else {"min": least})
    for one in found:
        _change(session, "PUT", str(one["home"]), body=body)
    new = [one["seat"] for one in found if count > 1 and len(one["members"]) == 1]
    if new:
        session.say(
            f"{counted(len(new), 'home')} without copies so far: each process starts again once, which closes the "
            f"connections to {', '.join(dict.fromkeys(new))}. `jumpmqctl list_copies` shows the copies join."
        )
    else:
        session.say("The homes' leaders bring it about; `jumpmqctl list_copies` shows how far it is.")


def transfer_leadership(
    session: Session,
    home: Home,
    member: Annotated[str, typer.Argument(metavar="NODE", help="a member of the home; its seat for the usual place")],
) -> None:
    """Makes a member the leader of a home, as soon as its copy is complete.

    Returns once the wish is recorded. A seat that hands over its home starts its process again, and opens its ports
    only when it leads again.
    """
    session.inform(f"Transferring leadership of home {home} to node {member} ...")
    _change(session, "PUT", str(home), "leader", body={"node": member})
    session.say(f"Node {member} leads home {home} as soon as its copy has all; `jumpmqctl list_copies` shows it.")


def _change(session: Session, method: str, *path: str, body: Any) -> None:
    try:
        session.api.ask(method, "copies", *path, body=body)
    except Refusal as refusal:
        if refusal.code == 404 and refusal.reason:
            raise CommandError(refusal.reason, os.EX_DATAERR) from None
        raise


def quorum_status(session: Session, queue: Queue) -> None:
    """Shows the copies of a queue, which are those of its home, in RabbitMQ's words."""
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise NoQueue
    session.inform(f"Status of queue {queue} on node {session.node_name} ...")
    copies = [one for one in session.api.get("copies") if one["home"] == found.get("home")]
    if not copies:
        session.table(STATUS_COLUMNS, [[found["node"], *RAFT["leader"], ""]])
        return
    home = copies[0]
    session.table(STATUS_COLUMNS, [[one["node"], *RAFT[one["state"]], home["epoch"]] for one in home["members"]])


def check_if_node_is_quorum_critical(session: Session) -> None:
    """Fails if queues would stop, for want of copies, if the node did."""
    session.require_asked()
    node = session.node_name
    session.inform(f"Checking if node {node} is critical for quorum of any quorum queues ...")
    if (reason := _critical(session)) is not None:
        raise CommandError(f"{reason}: `jumpmqctl list_copies` shows the copies")
    session.say(f"Node {node} reported no quorum queues with minimum quorum")


def await_online_quorum_plus_one(session: Session) -> None:
    """Waits until no queue would stop, for want of copies, if the node did: two minutes, or as `--timeout` says."""
    session.require_asked()
    seconds = PATIENCE if session.timeout == TIMEOUT else session.timeout
    session.inform(
        f"Will wait for a quorum + 1 of nodes to be online for all quorum queues for {seconds:.0f} seconds..."
    )
    deadline = time.monotonic() + seconds
    while (reason := _critical(session)) is not None:
        if time.monotonic() > deadline:
            raise CommandError(f"time is up: {reason}")
        time.sleep(LOOK)


def _critical(session: Session) -> str | None:
    """Return why the node may not be stopped; None where it may."""
    try:
        session.api.get(*QUORUM)
    except Refusal as refusal:
        if refusal.code == 503:
            return str(refusal)
        raise
    return None


VERBS = (
    list_copies, set_copies, transfer_leadership, quorum_status, check_if_node_is_quorum_critical,
    await_online_quorum_plus_one,
)  # fmt: skip
