"""Columns of rabbitmqctl's listings, and the management API fields behind the columns.

As in rabbitmqctl, a column without a value in the API is empty, such as `members` of a classic queue. The column `pid`
has the name of the connection or channel, instead of the id of an Erlang process: `close_connection` takes the name,
as rabbitmqctl's verb takes the id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jumpmq.cli.errors import UsageError
from jumpmq.cli.formatters import Atoms

Listed = Mapping[str, Any]
Column = Callable[[Listed], Any]


@dataclass(frozen=True)
class Listing:
    """Columns of a `list_*` command by name, and the default columns.

    Attributes:
        kind: kind of the objects, as in the path of the management API.
        banner: first line of the output. With `{vhost}`, the listing is restricted to one virtual host.
    """

    kind: str
    purpose: str
    banner: str
    columns: Mapping[str, Column]
    default: tuple[str, ...]

    def choose(self, words: list[str]) -> list[str]:
        """Parse the columns named on the command line, separated by commas or spaces.

        Raises:
            UsageError: one or more of the columns do not exist.
        """
        names = [name for word in words for name in word.split(",") if name]
        unknown = [name for name in names if name not in self.columns]
        if unknown:
            raise UsageError(f"Info key(s) {','.join(unknown)} are not supported")
        return names or list(self.default)

    @property
    def is_of_vhost(self) -> bool:
        """True if the listing is restricted to one virtual host."""
        return "{vhost}" in self.banner

    def rows(self, objects: list[dict[str, Any]], names: list[str]) -> list[list[Any]]:
        """Return a row per object, with columns in the order of ``names``."""
        return [[self.columns[name](listed) for name in names] for listed in objects]


def _field(name: str) -> Column:
    return lambda listed: listed.get(name, "")


def _inside(holder: str, name: str) -> Column:
    return lambda listed: listed.get(holder, {}).get(name, "")


def _protocol(listed: Listed) -> str:
    """Format `AMQP 0-9-1` as rabbitmqctl does: `{0,9,1}`."""
    name, _, version = str(listed.get("protocol", "")).partition(" ")
    return f"{{{version.replace('-', ',')}}}" if name == "AMQP" else name


def _same(names: str) -> dict[str, Column]:
    return {name: _field(name) for name in names.split()}


QUEUES = Listing(
    "queues",
    "Lists queues and their properties.",
    "Listing queues for vhost {vhost} ...",
    _same(
        "arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable "
        "exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp home leader members memory "
        "message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready message_bytes_unacknowledged "
        "messages messages_persistent messages_ram messages_ready messages_ready_ram messages_unacknowledged "
        "messages_unacknowledged_ram name node online owner_pid pid policy slave_pids state synchronised_slave_pids "
        "type"
    ),
    default=("name", "messages"),
)

EXCHANGES = Listing(
    "exchanges",
    "Lists exchanges.",
    "Listing exchanges for vhost {vhost} ...",
    _same("arguments auto_delete durable internal name policy type"),
    default=("name", "type"),
)

BINDINGS = Listing(
    "bindings",
    "Lists all bindings of a virtual host.",
    "Listing bindings for vhost {vhost}...",
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

CONNECTIONS = Listing(
    "connections",
    "Lists clients' connections.",
    "Listing connections ...",
    _same(
        "auth_mechanism channel_max channels client_properties connected_at frame_max host name node peer_cert_issuer "
        "peer_cert_subject peer_cert_validity peer_host peer_port port recv_cnt recv_oct send_cnt send_oct "
        "send_pend ssl ssl_cipher ssl_hash ssl_key_exchange ssl_protocol state timeout user vhost"
    )
    | {"pid": _field("name"), "protocol": _protocol},
    default=("user", "peer_host", "peer_port", "state"),
)

CHANNELS = Listing(
    "channels",
    "Lists clients' channels.",
    "Listing channels ...",
    _same(
        "acks_uncommitted confirm consumer_count global_prefetch_count messages_unacknowledged messages_uncommitted "
        "messages_unconfirmed name node number prefetch_count transactional user vhost"
    )
    | {"pid": _field("name"), "connection": _inside("connection_details", "name")},
    default=("pid", "user", "consumer_count", "messages_unacknowledged"),
)

CONSUMERS = Listing(
    "consumers",
    "Lists the consumers of a virtual host.",
    "Listing consumers in vhost {vhost} ...",
    _same("ack_required active activity_status arguments consumer_tag prefetch_count")
    | {"queue_name": _inside("queue", "name"), "channel_pid": _inside("channel_details", "name")},
    default=("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"),
)

VHOSTS = Listing(
    "vhosts",
    "Lists virtual hosts.",
    "Listing vhosts ...",
    _same("cluster_state default_queue_type description name tracing")
    | {"home": lambda listed: listed.get("home", 0), "tags": lambda listed: Atoms(listed.get("tags", []))},
    default=("name",),
)
