"""Copies of a RabbitMQ's definitions, rings and shards included, to a JumpMQ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jumpmq.cli.migration.rings import Rings, differences, in_order
from jumpmq.management import ManagementClient


@dataclass
class CopiedDefinitions:
    """Result of a copy of definitions.

    Attributes:
        skipped: definitions not supported by JumpMQ, as texts.
        notes: differences to the RabbitMQ, as texts.
        names: new names of renamed queues, by virtual host and old name.
    """

    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the lines to print."""
        return [f"skipped: {what}" for what in self.skipped] + [f"note: {what}" for what in self.notes]


def copy_definitions(
    found: dict[str, Any], new: ManagementClient, vhost: str | None, rings: Rings, *, checks_rings: bool = True
) -> CopiedDefinitions:
    """Import definitions, in addition to existing definitions.

    Args:
        found: definitions of a RabbitMQ; the order of the bindings is changed.
        vhost: virtual host of the definitions, created if missing; None for all virtual hosts.
        rings: known rings of the RabbitMQ.
        checks_rings: True to add notes on keys routed to other destinations than on the RabbitMQ.

    Raises:
        ManagementError: the JumpMQ refuses the definitions, or does not answer.
    """
    if vhost is not None and vhost not in {one["name"] for one in new.get("vhosts")}:
        new.put("vhosts", vhost, body={})
    there = {(one["vhost"], one["name"]) for one in new.get("exchanges")} if checks_rings else set()
    wanted = in_order(found, vhost, rings)
    answer = new.post("definitions", *(() if vhost is None else (vhost,)), body=found) or {}
    names = {(one["vhost"], one["from"]): one["to"] for one in answer.get("renamed", ())}
    notes = list(answer.get("notes", ()))
    if checks_rings:
        asked = {name: bound for name, bound in wanted.items() if name in rings or name not in there}
        notes += differences(new, asked, rings, names)
    return CopiedDefinitions(list(answer.get("skipped", ())), notes, names)
