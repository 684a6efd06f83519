"""The columns that rabbitmqctl's listings accept, and where each stands in the management API's answer.

A column that the API does not give for an object (a classic queue has no `members`, say) is listed empty,
as by rabbitmqctl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Listed = Mapping[str, Any]
Column = Callable[[Listed], Any]


class UnknownColumn(ValueError):
    """A column that this listing does not have; the text is rabbitmqctl's."""


@dataclass(frozen=True)
class Listing:
    """What one `list_*` command can show: its columns by name, and those it shows unless told."""

    kind: str
    purpose: str
    columns: Mapping[str, Column]
    default: tuple[str, ...]

    def choose(self, words: list[str]) -> list[str]:
        """The columns named on the command line, where commas may separate them as well as spaces.

        Raises:
            UnknownColumn: one or more of them do not exist.
        """
        names = [name for word in words for name in word.split(",") if name]
        unknown = [name for name in names if name not in self.columns]
        if unknown:
            raise UnknownColumn(f"Info key(s) {','.join(unknown)} are not supported")
        return names or list(self.default)

    def rows(self, objects: list[dict[str, Any]], names: list[str]) -> list[list[Any]]:
        """One row an object, in the order of the names."""
        return [[self.columns[name](listed) for name in names] for listed in objects]


def _field(name: str) -> Column:
    return lambda listed: listed.get(name, "")


def _same(names: str) -> dict[str, Column]:
    return {name: _field(name) for name in names.split()}


QUEUES = Listing(
    "queues",
    "Lists queues and their properties.",
    _same(
        "arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable "
        "exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader members memory "
        "message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready message_bytes_unacknowledged "
        "messages messages_persistent messages_ram messages_ready messages_ready_ram messages_unacknowledged "
        "messages_unacknowledged_ram name online owner_pid pid policy slave_pids state synchronised_slave_pids "
        "type"
    ),
    default=("name", "messages"),
)

EXCHANGES = Listing(
    "exchanges",
    "Lists exchanges.",
    _same("arguments auto_delete durable internal name policy type"),
    default=("name", "type"),
)

BINDINGS = Listing(
    "bindings",
    "Lists all bindings of a virtual host.",
    {
        "source_name": _field("source"),
        "source_kind": lambda listed: "exchange",
        "destination_name": _field("destination"),
        "destination_kind": _field("destination_type"),
        "routing_key": _field("routing_key"),
        "arguments": _field("arguments"),
    },
    default=("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
)
