"""Definitions files of RabbitMQ, put into a broker: all of it or nothing.

First every entry is read; what has the wrong shape is refused before anything changes. Then the entries become changes,
applied in one turn of the event loop, so that nobody sees a part. If the topology refuses one, those before are undone,
the last first, which puts hash rings back as they were. The store commits whole turns, so that a crash halves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.users import read_hash
from jumpmq.http.schema.shapes import ARGUMENTS, BOOLEAN, NAME, NUMBER, OBJECT, OBJECTS, TEXT, TEXTS, Shape, one_of
from jumpmq.topology import (
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    PutUser,
    SetOperatorPolicy,
    SetPermissions,
    SetPolicy,
    Topology,
    undo,
)

Entry = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """One list of a definitions file: what an entry may hold, and the change that it is."""

    shape: Shape
    change: Callable[[Entry], Change[Any]]


def _user(entry: Entry) -> Change[Any]:
    return PutUser(entry["name"], read_hash(entry), entry["tags"])


def _permissions(entry: Entry) -> Change[Any]:
    return SetPermissions(entry["user"], entry["vhost"], entry["configure"], entry["write"], entry["read"])


def _operator_policy(entry: Entry) -> Change[Any]:
    value = _POLICY_VALUE.read(entry["value"], "value")
    return SetOperatorPolicy(entry["vhost"], entry["name"], *_policy_parts(value))


def _policy(entry: Entry) -> Change[Any]:
    return SetPolicy(entry["vhost"], entry["name"], *_policy_parts(entry))


def _policy_parts(entry: Entry) -> tuple[str, dict[str, Any], float, str]:
    return entry["pattern"], entry["definition"], entry.get("priority", 0), entry.get("apply-to", "all")


def _queue(entry: Entry) -> Change[Any]:
    return DeclareQueue(
        entry["vhost"],
        entry["name"],
        entry.get("durable", False),
        auto_delete=entry.get("auto_delete", False),
        arguments=entry.get("arguments", Arguments()),
        server_named=True,
    )


def _exchange(entry: Entry) -> Change[Any]:
    return DeclareExchange(
        entry["vhost"],
        entry["name"],
        entry["type"],
        entry.get("durable", False),
        entry.get("auto_delete", False),
        entry.get("internal", False),
        entry.get("arguments", Arguments()),
    )


def _binding(entry: Entry) -> Change[Any]:
    key = entry.get("routing_key", "").encode()
    arguments = entry.get("arguments", Arguments())
    return Bind(
        entry["vhost"],
        Binding(entry["source"], entry.get("destination_type", "queue"), entry["destination"], key, arguments),
    )


_POLICY_VALUE = Shape(
    {"pattern": TEXT, "definition": OBJECT, "priority": NUMBER, "apply-to": TEXT}, required=("pattern", "definition")
)
_DECLARED = {"vhost": NAME, "name": NAME, "durable": BOOLEAN, "auto_delete": BOOLEAN, "arguments": ARGUMENTS}
_BINDING = {
    **dict.fromkeys(("vhost", "source", "destination", "routing_key"), NAME),
    "destination_type": one_of("queue", "exchange"),
    "arguments": ARGUMENTS,
}
_PERMISSIONS = {"user": NAME, "vhost": NAME, "configure": TEXT, "write": TEXT, "read": TEXT}

BROKER_SECTIONS = {
    "vhosts": Section(
        Shape({"name": NAME}, ("name",), ("description", "tags", "metadata", "default_queue_type", "limits")),
        lambda entry: AddVirtualHost(entry["name"]),
    ),
    "users": Section(
        Shape(
            {"name": NAME, "password_hash": TEXT, "hashing_algorithm": TEXT, "tags": TEXTS},
            ("name", "tags"),
            ("limits",),
        ),
        _user,
    ),
    "permissions": Section(Shape(_PERMISSIONS, tuple(_PERMISSIONS)), _permissions),
}
"""What only a file for a whole broker holds, in the order in which it is applied."""

HOST_SECTIONS = {
    "parameters": Section(
        Shape(
            {"vhost": NAME, "component": one_of("operator_policy"), "name": NAME, "value": OBJECT},
            ("vhost", "component", "name", "value"),
        ),
        _operator_policy,
    ),
    "policies": Section(
        Shape({"vhost": NAME, "name": NAME, **_POLICY_VALUE.keys}, ("vhost", "name", "pattern", "definition")), _policy
    ),
    "queues": Section(Shape(_DECLARED, ("vhost", "name"), ("type",)), _queue),
    "exchanges": Section(
        Shape({**_DECLARED, "type": TEXT, "internal": BOOLEAN}, ("vhost", "name", "type")),
        _exchange,
    ),
    "bindings": Section(Shape(_BINDING, ("vhost", "source", "destination")), _binding),
}
"""What is declared in virtual hosts."""

SECTIONS = BROKER_SECTIONS | HOST_SECTIONS
NOTES = ("rabbit_version", "rabbitmq_version", "product_name", "product_version", "original_cluster_name")
FILE = Shape(
    dict.fromkeys([*SECTIONS, "topic_permissions"], OBJECTS),
    ignored=(*NOTES, "global_parameters", "explanation", "vhost", "original_vhost_name", "metadata", "description"),
)


def import_definitions(topology: Topology, found: Entry, vhost: str | None) -> None:
    """Add what a definitions file holds.

    Args:
        found: the file's JSON.
        vhost: the virtual host that everything goes to; None where the entries say.

    Raises:
        BadRequest: an entry is wrong; nothing has changed then.
    """
    changes = list(_changes(FILE.read(found), vhost))
    queues = {host.name: set(host.queues) for host in topology.vhosts.values()}
    undoing: list[Change[Any]] = []
    for subject, change in changes:
        try:
            inverse = undo.inverse(topology, change)
            topology.apply(change)
        except AMQPError as error:
            for back in reversed(undoing):
                topology.apply(back)
            _delete_new_queues(topology, queues)
            raise BadRequest(f"{subject}: {error.text}") from None
        undoing += inverse


def _changes(found: Entry, vhost: str | None) -> Iterator[tuple[str, Change[Any]]]:
    """The changes that the file is, each with the entry that it comes from."""
    if found.get("topic_permissions"):
        raise BadRequest("topic_permissions: there are none here")
    for name, section in SECTIONS.items():
        if vhost is not None and name in BROKER_SECTIONS:
            if found.get(name):
                raise BadRequest(f"{name}: a file for one virtual host has none")
            continue
        for number, entry in enumerate(found.get(name, ())):
            subject = f"{name}[{number}]"
            if vhost is not None and isinstance(entry, dict):
                entry = {**entry, "vhost": vhost}
            read = section.shape.read(entry, subject)
            try:
                yield subject, section.change(read)
            except BadRequest as error:
                raise BadRequest(f"{subject}: {error}") from None


def _delete_new_queues(topology: Topology, before: dict[str, set[str]]) -> None:
    """Take away the shards that policies and exchanges made meanwhile."""
    for vhost, names in before.items():
        for name in [name for name in topology.vhost(vhost).queues if name not in names]:
            topology.apply(DeleteQueue(vhost, name))
