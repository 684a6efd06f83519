"""Copies of homes: `list_copies`, `set_copies`, `transfer_leadership`, and RabbitMQ's verbs of quorum queues."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError, NoQueue, counted
from jumpmq.cli.session import Session
from jumpmq.management import TIMEOUT, Refusal

COLUMNS = ["home", "seat", "served_by", "epoch", "copies", "min", "in_set", "members", "wanted", "troubles"]
GROWN_COLUMNS = ["home", "members", "queues", "result"]
STATUS_COLUMNS = [
    *("Node Name", "Raft State", "Membership", "Last Log Index", "Last Written", "Last Applied", "Commit Index"),
    *("Snapshot Index", "Term", "Machine Version"),
]
"""Columns of RabbitMQ 4.0's `quorum_status`. Copies have no snapshot and no state machine: these columns are empty."""

RAFT = {
    "leader": ("leader", "voter"),
    "in set": ("follower", "voter"),
    "eligible": ("follower", "promotable"),
    "joining": ("follower", "promotable"),
    "away": ("noproc", "promotable"),
}
"""State of a copy in RabbitMQ's terms: state of the replica, and kind of membership."""

PATIENCE = 120.0
"""Timeout of `await_online_quorum_plus_one`, in seconds, unless `--timeout` is given."""

LOOK = 0.5
"""Interval of polling, in seconds."""

QUORUM = ("health", "checks", "node-is-quorum-critical")


class Strategy(StrEnum):
    """Selection of homes for a further copy: all homes, or homes with an even number of copies."""

    all = "all"
    even = "even"


class MembershipName(StrEnum):
    """RabbitMQ's kinds of members."""

    promotable = "promotable"
    voter = "voter"


Home = Annotated[int, typer.Argument(metavar="HOME", min=1, help="number of the home in list_copies")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="name of the queue")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="name of the node")]
Membership = Annotated[
    MembershipName | None, typer.Option("--membership", help="as RabbitMQ's; a copy counts when it has all messages")
]


def list_copies(session: Session) -> None:
    """Lists the homes of the cluster: seat, serving node, and state of the copies.

    `none` serves a home while its leader is unknown, or waits for copies.
    States of a copy: `in set`: stores each message before the message is confirmed. `joining`: still receives messages
    that it lacks. `away`: its node does not run. `eligible`: left a set that fell below `min`, and has all confirmed
    messages. `wanted` shows requests that are not fulfilled yet, `troubles` problems of a copy within the last minute.
    """
    session.inform("Listing copies ...")
    found = session.api.get("copies")
    session.table(COLUMNS, [_row(one) for one in found])


def _row(one: dict[str, Any]) -> list[Any]:
    first = one["home"], one["seat"], one["leader"] if one.get("running", True) else "none"
    names = ("epoch", "copies", "min", "in_set")
    members = ", ".join(f"{member['node']} {member['state']}{_lag(member)}" for member in one["members"])
    wanted = one["wanted"]
    asked = [f"{name} {wanted[name]}" for name in ("copies", "min", "leader") if wanted[name] != one[name]]
    troubles = "; ".join(f"{member['node']}: {member['trouble']}" for member in one["members"] if "trouble" in member)
    return [*first, *(one[name] for name in names), members, ", ".join(asked), troubles]


def _lag(member: dict[str, Any]) -> str:
    return f" ({member['lag_bytes']} bytes behind)" if member.get("lag_bytes") else ""


def set_copies(
    session: Session,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="number of copies, the home's own included")],
    home: Annotated[int | None, typer.Option("--home", min=1, help="number of the home; by default all homes")] = None,
    least: Annotated[
        int | None,
        typer.Option(
            "--min",
            min=1,
            help="number of copies that store a message before its confirm; by default half of the copies",
        ),
    ] = None,
) -> None:
    """Sets the number of copies of a home, or of all homes of the cluster.

    Returns once the request is recorded; `list_copies` shows the progress. When a home gets its first copies, its
    process restarts once, which closes its connections.
    """
    found = session.api.get("copies")
    if home is not None:
        found = [one for one in found if one["home"] == home] or [{"home": home, "seat": "", "members": []}]
    elif not found:
        raise CommandError("only homes of a cluster's nodes have copies; this broker is not in a cluster")
    here = session.node_name
    found.sort(key=lambda one: (one["seat"] == here, one["home"]))  # the node itself last: its process may restart
    session.inform(f"Setting copies of {counted(len(found), 'home')} to {count} ...")
    body = {"copies": count} | ({} if least is None else {"min": least})
    for one in found:
        _asked(session, "PUT", "copies", str(one["home"]), body=body)
    new = [one["seat"] for one in found if count > 1 and len(one["members"]) == 1]
    if new:
        session.say(
            f"{counted(len(new), 'home')} without copies so far: each process starts again once, which closes the "
            f"connections to {', '.join(dict.fromkeys(new))}. `jumpmqctl list_copies` shows the progress."
        )
    else:
        session.say("The homes' leaders make the copies; `jumpmqctl list_copies` shows the progress.")


def transfer_leadership(
    session: Session,
    home: Home,
    member: Annotated[
        str, typer.Argument(metavar="NODE", help="a member of the home; the home's seat for the usual leader")
    ],
) -> None:
    """Makes a member the leader of a home, as soon as its copy is complete.

    Returns once the request is recorded. If a home's own node hands over the home, the node restarts its process, and
    opens its ports again when it leads the home again.
    """
    session.inform(f"Transferring leadership of home {home} to node {member} ...")
    _asked(session, "PUT", "copies", str(home), "leader", body={"node": member})
    session.say(
        f"Node {member} leads home {home} as soon as the node's copy is complete; `jumpmqctl list_copies` shows the "
        "leader."
    )


def check_copies(
    session: Session,
    home: Annotated[
        int | None, typer.Argument(metavar="HOME", min=1, help="number of the home; by default all homes with copies")
    ] = None,
) -> None:
    """Compares the copies of a home, or of all homes, octet for octet by checksums.

    Fails if copies differ, or have the same damage. The nodes serve clients meanwhile. Ctrl-C ends the waiting only.
    """
    session.inform("Comparing copies ...")
    found = [one for one in session.api.get("copies") if home in (None, one["home"])]
    copied = {one["home"]: {member["node"] for member in one["members"]} for one in found if len(one["members"]) > 1}
    if home is not None and not copied:
        raise CommandError(f"home {home} has one copy" if found else f"no home {home}", os.EX_DATAERR)
    failed = [one for one, members in copied.items() if not _are_equal(session, one, members)]
    if failed:
        raise CommandError(f"copies of {counted(len(failed), 'home')} differ, are damaged, or could not be compared")


def _are_equal(session: Session, home: int, members: set[str]) -> bool:
    session.api.post("copies", str(home), "check")
    told = -1
    while (check := session.api.get("copies", str(home), "check"))["state"] == "running":
        if check["octets"] and check["compared"] != told:
            told = check["compared"]
            session.inform(f"home {home}: {told} of {check['octets']} bytes")
        time.sleep(LOOK)
    if check["state"] == "failed":
        session.say(f"home {home}: {check['reason']}")
        return False
    if left_out := sorted(members.difference(check["nodes"])):
        session.say(f"home {home}: not compared: {', '.join(left_out)} (node away, or serving no home)")
    where = f"home {home}: copies on {', '.join(check['nodes'])}"
    if check["state"] == "equal":
        session.say(f"{where} are equal: {check['octets']} bytes in {counted(check['files'], 'file')}")
        return True
    session.say(f"{where} differ:" if check["differences"] else f"{where} have the same damage:")
    for one in check["differences"]:
        sums = ", ".join(f"{node} {crc}" for node, crc in one["checksums"].items())
        damaged = f"; damaged: {', '.join(one['damaged'])}" if one["damaged"] else ""
        session.say(f"{one['file']}, {one['length']} bytes from {one['offset']} on: {sums}{damaged}")
    for file in check.get("damaged", ()):
        session.say(f"{file}: damaged in all copies")
    return False


def _asked(session: Session, method: str, *path: str, body: Any = None) -> Any:
    """Return the answer to a request.

    Raises:
        CommandError: an object in the request does not exist; the text is the broker's.
    """
    try:
        return session.api.ask(method, *path, body=body)
    except Refusal as refusal:
        if refusal.code == 404 and refusal.reason:
            raise CommandError(refusal.reason, os.EX_DATAERR) from None
        raise


def quorum_status(session: Session, queue: Queue) -> None:
    """Shows the copies of a queue (the copies of the queue's home), in RabbitMQ's terms.

    Classic queues and streams have copies, too; RabbitMQ's command fails with 69 for them.
    """
    found = session.api.find("queues", session.vhost, queue)
    if found is None:
        raise NoQueue
    kind = "quorum queue" if found["type"] == "quorum" else "queue"
    session.inform(f"Status of {kind} {queue} on node {session.node_name} ...")
    copies = [one for one in session.api.get("copies") if one["home"] == found.get("home")]
    if not copies:
        session.table(STATUS_COLUMNS, [[found["node"], *RAFT["leader"], *[""] * 7]])
        return
    home = copies[0]
    positions = {one["node"]: one for one in session.api.find("copies", str(home["home"]), "positions") or []}
    rows = [_status(one, positions.get(one["node"]), home["epoch"]) for one in home["members"]]
    session.table(STATUS_COLUMNS, rows)


def _status(member: dict[str, Any], position: dict[str, Any] | None, epoch: int) -> list[Any]:
    """Return a copy's row of `quorum_status`. Only the leader applies commits to queues."""
    raft, membership = RAFT[member["state"]]
    if position is None:
        return [member["node"], raft, membership, "", "", "", "", "", epoch, ""]
    complete = position["complete"]
    applied = complete if raft == "leader" else ""
    known = [position["written"], position["stored"], applied, complete]
    return [member["node"], raft, membership, *known, "", epoch, ""]


def add_member(session: Session, queue: Queue, member: Node, membership: Membership = None) -> None:
    """Adds a copy of a queue's home, with all durable queues there, on a node.

    Returns once the request is recorded; `list_copies` shows the progress. As in RabbitMQ, the command succeeds if the
    node has a copy already, and fails with 64 for a node outside the cluster. Classic queues and streams are accepted,
    too.
    """
    _require_member(session, member)
    session.inform(f"Adding a replica for queue {queue} on node {member}...")
    _add_member(session, queue, member)


def add_replica(session: Session, stream: Queue, member: Node) -> None:
    """Adds a copy of a stream's home, with all durable queues there, on a node, like `add_member`."""
    _require_member(session, member)
    session.inform(f"Adding a replica for queue {stream} on node {member}...")
    _add_member(session, stream, member)


def _add_member(session: Session, queue: str, node: str) -> None:
    if session.api.find("queues", session.vhost, queue) is None:
        raise NoQueue
    told = session.api.post("queues", "quorum", session.vhost, queue, "replicas", "add", body={"node": node})
    others = counted(told["queues"] - 1, "other queue")
    session.say(f"home {told['home']} gets copies on {', '.join(told['members'])}, with {others}")


def _require_member(session: Session, node: str) -> None:
    """
    Raises:
        CommandError: a node is not in the cluster; text and status are RabbitMQ's.
    """
    if not any(one["name"] == node for one in session.api.get("nodes")):
        raise CommandError(f"node {node} is not a member of the cluster", os.EX_USAGE)


def grow(
    session: Session,
    member: Node,
    strategy: Annotated[Strategy, typer.Argument(help="all matching homes, or homes with an even number of copies")],
    vhost_pattern: Annotated[str, typer.Option("--vhost-pattern", help="regular expression of virtual hosts")] = ".*",
    queue_pattern: Annotated[str, typer.Option("--queue-pattern", help="regular expression of durable queues")] = ".*",
    membership: Membership = None,
    errors_only: Annotated[bool, typer.Option("--errors-only", help="list only refused homes")] = False,
) -> None:
    """Adds copies of all homes, or of homes with a matching queue, on a node. A copy has all of the durable queues.

    Returns once the request is recorded; `list_copies` shows the progress. As in RabbitMQ, the command fails with 64
    for a node outside the cluster. Unlike in RabbitMQ, it fails with 69 if a home cannot have the copy.
    """
    _require_member(session, member)
    session.inform(f"Growing {strategy} quorum queues on {member}...")
    body = {"strategy": strategy.value, "vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    _changed(
        session, _asked(session, "POST", "queues", "quorum", "replicas", "on", member, "grow", body=body), errors_only
    )


def shrink(
    session: Session,
    member: Node,
    errors_only: Annotated[bool, typer.Option("--errors-only", help="list only refused homes")] = False,
) -> None:
    """Removes the copies of other nodes' homes from a node, or from a removed node. The node's own homes stay.

    As in RabbitMQ, the command succeeds for a node outside the cluster. Unlike in RabbitMQ, it fails with 69 if a home
    has to keep its copy.
    """
    session.inform(f"Shrinking quorum queues on {member}...")
    homes = session.api.ask("DELETE", "queues", "quorum", "replicas", "on", member, "shrink")
    if not homes:
        session.inform(f"no home of another node has a copy on {member}")
    _changed(session, homes, errors_only)


def _changed(session: Session, homes: list[dict[str, Any]], errors_only: bool) -> None:
    """List the changed homes, with their members.

    Raises:
        CommandError: at least one home could not be changed.
    """
    rows = [
        [one["home"], ", ".join(one["members"]), one["queues"], f"error: {one['error']}" if "error" in one else "ok"]
        for one in homes
        if "error" in one or not errors_only
    ]
    session.table(GROWN_COLUMNS, rows)
    if failed := sum("error" in one for one in homes):
        raise CommandError(f"{counted(failed, 'home')} could not be changed")


def check_if_new_quorum_queue_replicas_have_finished_initial_sync(session: Session) -> None:
    """Fails if copies on the node do not have all messages of their homes yet."""
    node = session.node_name
    joining = [
        str(one["home"])
        for one in session.api.get("copies")
        for member in one["members"]
        if member["node"] == node and member["state"] in ("joining", "eligible")
    ]
    if joining:
        raise CommandError(f"Node {node} reported some queues with promotable replicas: of homes {', '.join(joining)}")
    session.say(f"Node {node} reported no queues with promotable replicas")


def check_if_node_is_quorum_critical(session: Session) -> None:
    """Fails if a stop of the node would stop queues, for want of copies."""
    session.require_asked()
    node = session.node_name
    session.inform(f"Checking if node {node} is critical for quorum of any quorum queues ...")
    if (reason := _critical(session)) is not None:
        raise CommandError(f"{reason}: `jumpmqctl list_copies` shows the copies")
    session.say(f"Node {node} reported no quorum queues with minimum quorum")


def await_online_quorum_plus_one(session: Session) -> None:
    """Waits until a stop of the node would stop no queue, for want of copies: two minutes, or `--timeout`."""
    session.require_asked()
    seconds = PATIENCE if session.timeout == TIMEOUT else session.timeout
    session.inform(
        f"Will wait for a quorum + 1 of nodes to be online for all quorum queues for {seconds:.0f} seconds..."
    )
    deadline = time.monotonic() + seconds
    while (reason := _critical(session)) is not None:
        if time.monotonic() > deadline:
            raise CommandError(f"timed out: {reason}")
        time.sleep(LOOK)


def _critical(session: Session) -> str | None:
    """Return the reason against a stop of the node; None without a reason."""
    try:
        session.api.get(*QUORUM)
    except Refusal as refusal:
        if refusal.code == 503:
            return str(refusal)
        raise
    return None


VERBS = (
    list_copies, set_copies, transfer_leadership, check_copies, grow, shrink, add_member, add_replica, quorum_status,
    check_if_node_is_quorum_critical, check_if_new_quorum_queue_replicas_have_finished_initial_sync,
    await_online_quorum_plus_one,
)  # fmt: skip
