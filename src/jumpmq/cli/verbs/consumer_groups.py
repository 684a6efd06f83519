"""Consumer groups, and their offsets in streams: `list_consumer_groups`, `list_group_offsets`, ..."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

COLUMNS = ["source", "name", "member", "state", "weight", "units", "unacknowledged", "connection"]
OFFSET_COLUMNS = ["group", "queue", "offset", "end", "lag", "ready", "unacknowledged", "skipped", "members"]
UNIT_COLUMNS = [
    "source",
    "name",
    "queue",
    "slot",
    "owner",
    "seconds",
    "ready",
    "unacknowledged",
    "fenced",
    "draining",
    "offset",
    "owner_epoch",
]


def list_consumer_groups(
    session: Session,
    units: Annotated[bool, typer.Option("--units", help="a row per queue or slot")] = False,
) -> None:
    """Lists the consumer groups of a virtual host, a row a member.

    `units` are the queues, or slots of queues, that a member consumes; a member without units stands by. With
    `--units`, `seconds` is the time for which the owner has had the unit. `draining` is the number of messages that the
    previous owner has not settled, and the time since its last delivery was stopped. `fenced` messages of the queue
    wait for another queue (see `list_fences`). `offset` is the group's lowest unsettled offset in a stream,
    `owner_epoch` the value of the header `x-owner-epoch` in deliveries to the owner.
    """
    session.inform(f"Listing consumer groups for vhost {session.vhost} ...")
    found = session.in_vhost("consumer-groups")
    if units:
        rows = [[one["source"], one["name"], *_unit(unit)] for one in found for unit in one["units"]]
        session.table(UNIT_COLUMNS, rows)
    else:
        rows = [[one["source"], one["name"], *_member(member)] for one in found for member in one["members"]]
        session.table(COLUMNS, rows)


def _member(member: dict[str, object]) -> list[object]:
    details = member.get("channel_details")
    connection = details["connection_name"] if isinstance(details, dict) else ""
    names = ("name", "state", "weight", "units", "messages_unacknowledged")
    return [*(member[name] for name in names), connection]


def _unit(unit: dict[str, object]) -> list[object]:
    drain = unit["draining"]
    draining = f"{drain['messages']} for {drain['seconds']:.0f} s" if isinstance(drain, dict) else ""
    values = [unit[name] for name in ("queue", "slot", "owner", "seconds", "ready", "unacknowledged", "fenced")]
    values += [draining, unit["offset"], unit["owner_epoch"]]
    return ["" if value is None else value for value in values]


def end_group_member(
    session: Session,
    source: Annotated[str, typer.Argument(help="exchange or queue of the group")],
    group: Annotated[str, typer.Argument(help="name of the consumer group")],
    member: Annotated[str, typer.Argument(help="name of the member in `list_consumer_groups`")],
) -> None:
    """Removes a member of a consumer group, even if absent within the grace period: the share goes to the remaining
    members.

    The consumer of a connected member is cancelled, and its unsettled messages are delivered again. The client may join
    again.
    """
    session.inform(f"Ending member {member} of consumer group {group} in vhost {session.vhost} ...")
    found = session.in_vhost("consumer-groups")
    kinds = [one["source_kind"] for one in found if (one["source"], one["name"]) == (source, group)]
    with _reasons():
        for kind in kinds or ["queue"]:
            session.api.delete("consumer-groups", session.vhost, kind, source, group, "members", member)


Group = Annotated[str, typer.Argument(help="name of the consumer group")]
Streams = Annotated[list[str] | None, typer.Argument(help="streams; by default all with an offset of the group")]


def list_group_offsets(session: Session) -> None:
    """Lists the offsets of consumer groups in the streams of a virtual host, groups without members included.

    `offset` is the group's lowest unsettled offset, `end` the offset of the stream's next message, `lag` the number of
    unsettled messages. `skipped` messages were lost to retention or damage before the group received them.
    """
    session.inform(f"Listing offsets of consumer groups for vhost {session.vhost} ...")
    found = session.in_vhost("group-offsets")
    session.table(OFFSET_COLUMNS, [[one[name] for name in OFFSET_COLUMNS] for one in found])


def set_group_offset(
    session: Session,
    group: Group,
    offset: Annotated[
        str, typer.Argument(help="first, last, next, an offset, an age such as 2h, or a time such as 2026-01-31T12:00")
    ],
    streams: Streams = None,
) -> None:
    """Sets the positions of a consumer group in streams, with members or without.

    Unsettled deliveries of the members no longer count: messages from the new offset on are delivered again. A time
    without a zone is local.
    """
    session.inform(f"Setting offsets of consumer group {group} in vhost {session.vhost} ...")
    body = _start(offset)
    for stream in streams or _streams(session, group):
        with _reasons():
            session.api.put("group-offsets", session.vhost, stream, group, body=body)


def delete_group_offset(session: Session, group: Group, streams: Streams = None) -> None:
    """Deletes the offsets of a consumer group without members: a later member begins as in a new group."""
    session.inform(f"Deleting offsets of consumer group {group} in vhost {session.vhost} ...")
    for stream in streams or _streams(session, group):
        with _reasons():
            session.api.delete("group-offsets", session.vhost, stream, group)


def _streams(session: Session, group: str) -> list[str]:
    """Return the streams with an offset of a group."""
    found = [one["queue"] for one in session.in_vhost("group-offsets") if one["group"] == group]
    if not found:
        raise CommandError(f"consumer group '{group}' has no offset in vhost '{session.vhost}'", os.EX_DATAERR)
    return found


def _start(offset: str) -> dict[str, Any]:
    if "T" in offset:
        try:
            return {"timestamp": datetime.fromisoformat(offset).timestamp()}
        except ValueError:
            raise CommandError(f"'{offset}' is no time such as 2026-01-31T12:00", os.EX_DATAERR) from None
    return {"offset": offset}


@contextlib.contextmanager
def _reasons() -> Iterator[None]:
    """Report missing objects with the broker's text."""
    try:
        yield
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError(refusal.reason, os.EX_DATAERR) from None
        raise


VERBS = (list_consumer_groups, end_group_member, list_group_offsets, set_group_offset, delete_group_offset)
