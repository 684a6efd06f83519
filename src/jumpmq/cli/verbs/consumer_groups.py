"""Consumer groups: `list_consumer_groups`."""

from __future__ import annotations

from typing import Annotated

import typer

from jumpmq.cli.session import Session

COLUMNS = ["source", "name", "member", "state", "weight", "units", "unacknowledged", "connection"]
UNIT_COLUMNS = ["source", "name", "queue", "slot", "owner", "seconds", "ready", "unacknowledged", "draining"]


def list_consumer_groups(
    session: Session,
    units: Annotated[bool, typer.Option("--units", help="a row a queue or slot instead")] = False,
) -> None:
    """Lists the consumer groups of a virtual host, a row a member.

    `units` are the queues (or slots of queues) that a member is fed from; a member without one stands by. With
    `--units`, `seconds` is for how long a unit has been its owner's, and `draining` says how many messages its last
    holder still has, and for how long it is fed no more.
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
    values = [unit[name] for name in ("queue", "slot", "owner", "seconds", "ready", "unacknowledged")]
    return [*("" if value is None else value for value in values), draining]


VERBS = (list_consumer_groups,)
