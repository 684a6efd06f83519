"""Import of RabbitMQ's definitions files: atomic, except for skipped entries.

First every entry is read; an entry with the wrong shape is refused before anything changes. Then the entries become
changes, made in steps, with other clients served in between. If the topology refuses a change, earlier changes are
undone in reverse order, which also restores hash rings. After a crash during an import, the file can be imported again.

Policies that shard exchanges are applied last, when the shards in the file are bound in the order of the file's
bindings. Shards of other nodes are renamed (:mod:`jumpmq.http.resources.import_shards`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.import_shards import Renaming, shards_renamed
from jumpmq.http.resources.users import read_hash
from jumpmq.http.schema.shapes import (
    ANY,
    BOOLEAN,
    EXPORTED_ARGUMENTS,
    HOME,
    NAME,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXTS,
    Shape,
    one_of,
    shown,
)
from jumpmq.topology import (
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    ChangePrincipal,
    DeclareExchange,
    DeclareQueue,
    ExchangeDefinition,
    Pending,
    PutUser,
    SetGlobalParameter,
    SetOperatorPolicy,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    SetUserLimit,
    SetVirtualHostLimit,
    Topology,
)
from jumpmq.topology.changes.undoing import inverse, inverse_of_effects

Entry = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A list of a definitions file: shape of the entries, and resulting changes."""

    shape: Shape
    changes: Callable[[Topology, Entry], list[Change]]


def _virtual_host(topology: Topology, entry: Entry) -> list[Change]:
    default = entry.get("default_queue_type", "undefined")  # RabbitMQ's word for no default
    metadata = {name: value for name, value in entry.get("metadata", {}).items() if _METADATA.knows(name)}
    words = {**_METADATA.read(metadata, "metadata"), **entry}
    made = AddVirtualHost(
        entry["name"],
        None if default == "undefined" else default,
        words.get("description"),
        words.get("tags"),
        entry.get("home"),
    )
    return [made, *_virtual_host_limits(entry["name"], entry.get("limits", {}))]


def _virtual_host_limits(vhost: str, limits: Entry) -> list[Change]:
    return [SetVirtualHostLimit(vhost, limit, value) for limit, value in limits.items()]


def _user(topology: Topology, entry: Entry) -> list[Change]:
    name, limits = entry["name"], entry.get("limits", {})
    limited = [SetUserLimit(name, limit, value) for limit, value in limits.items()]
    return [PutUser(name, read_hash(entry), entry["tags"]), *limited]


def _parameter(topology: Topology, entry: Entry) -> list[Change]:
    if entry["component"] == "vhost-limits":
        return _virtual_host_limits(entry["vhost"], entry["value"])
    value = _POLICY_VALUE.read(entry["value"], "value")
    return [SetOperatorPolicy(entry["vhost"], entry["name"], *_policy_parts(value))]


def _policy(topology: Topology, entry: Entry) -> list[Change]:
    return [SetPolicy(entry["vhost"], entry["name"], *_policy_parts(entry))]


def _policy_parts(entry: Entry) -> tuple[str, dict[str, Any], float, str]:
    return entry["pattern"], entry["definition"], entry.get("priority", 0), entry.get("apply-to", "all")


def _queue(topology: Topology, entry: Entry) -> list[Change]:
    return [DeclareQueue(topology.define_queue(**entry), server_named=True)]


def _binding(topology: Topology, entry: Entry) -> list[Change]:
    key = entry.get("routing_key", "").encode()
    arguments = entry.get("arguments", Arguments())
    kind = entry.get("destination_type", "queue")
    return [Bind(entry["vhost"], Binding(entry["source"], kind, entry["destination"], key, arguments))]


_METADATA = Shape({"description": TEXT, "tags": TEXTS})
_POLICY_VALUE = Shape(
    {"pattern": TEXT, "definition": OBJECT, "priority": NUMBER, "apply-to": TEXT}, required=("pattern", "definition")
)
COMPONENTS = ("operator_policy", "vhost-limits")
"""Supported parameters; parameters of plugins are skipped."""

_DECLARED = {"vhost": NAME, "name": NAME, "durable": BOOLEAN, "auto_delete": BOOLEAN, "arguments": EXPORTED_ARGUMENTS}
_BINDING = {
    **dict.fromkeys(("vhost", "source", "destination", "routing_key"), NAME),
    "destination_type": one_of("queue", "exchange"),
    "arguments": EXPORTED_ARGUMENTS,
}
_PERMISSIONS = {"user": NAME, "vhost": NAME, "configure": TEXT, "write": TEXT, "read": TEXT}
_TOPIC_PERMISSIONS = {"user": NAME, "vhost": NAME, "exchange": NAME, "write": TEXT, "read": TEXT}

BROKER_SECTIONS = {
    "vhosts": Section(
        Shape(
            {
                "name": NAME,
                "limits": OBJECT,
                "default_queue_type": TEXT,
                "metadata": OBJECT,
                "description": TEXT,
                "tags": TEXTS,
                "home": HOME,
            },
            ("name",),
        ),
        _virtual_host,
    ),
    "users": Section(
        Shape(
            {"name": NAME, "password_hash": TEXT, "hashing_algorithm": TEXT, "tags": TEXTS, "limits": OBJECT},
            ("name", "tags"),
        ),
        _user,
    ),
    "permissions": Section(Shape(_PERMISSIONS, tuple(_PERMISSIONS)), lambda topology, entry: [SetPermissions(**entry)]),
    "global_parameters": Section(
        Shape({"name": NAME, "value": ANY}, ("name", "value")),
        lambda topology, entry: [SetGlobalParameter(entry["name"], entry["value"])],
    ),
    "topic_permissions": Section(
        Shape(_TOPIC_PERMISSIONS, tuple(_TOPIC_PERMISSIONS)), lambda topology, entry: [SetTopicPermissions(**entry)]
    ),
}
"""Sections of files for a whole broker, in order of application."""

HOST_SECTIONS = {
    "parameters": Section(
        Shape(
            {"vhost": NAME, "component": one_of(*COMPONENTS), "name": NAME, "value": OBJECT},
            ("vhost", "component", "name", "value"),
        ),
        _parameter,
    ),
    "policies": Section(
        Shape({"vhost": NAME, "name": NAME, **_POLICY_VALUE.keys}, ("vhost", "name", "pattern", "definition")), _policy
    ),
    "queues": Section(Shape(_DECLARED, ("vhost", "name"), ("type",)), _queue),
    "exchanges": Section(
        Shape({**_DECLARED, "type": TEXT, "internal": BOOLEAN}, ("vhost", "name", "type")),
        lambda topology, entry: [DeclareExchange(ExchangeDefinition(**entry))],
    ),
    "bindings": Section(Shape(_BINDING, ("vhost", "source", "destination")), _binding),
}
"""Sections of virtual hosts."""

SECTIONS = BROKER_SECTIONS | HOST_SECTIONS
NOTES = (
    "rabbit_version",
    "rabbitmq_version",
    "rabbitmq_definition_format",
    "product_name",
    "product_version",
    "original_cluster_name",
)
FILE = Shape(
    dict.fromkeys(SECTIONS, OBJECTS),
    ignored=(*NOTES, "explanation", "vhost", "original_vhost_name", "metadata", "description"),
    tolerant=True,
)


AHEAD = 1000
"""Maximum number of proposed, undecided changes."""


def import_definitions(
    topology: Topology,
    principal: ChangePrincipal,
    found: Entry,
    vhost: str | None,
    skipped: list[str] | None = None,
    *,
    unchanged_too: bool = True,
    renaming: Renaming | None = None,
) -> Iterator[Pending | None]:
    """Import a definitions file, with a pause after every entry, so that the event loop serves other clients. A yielded
    change must be decided before the next step.

    Args:
        principal: principal of the changes.
        found: the file's JSON.
        vhost: the virtual host for all entries; None for the virtual hosts named by the entries.
        skipped: receives a line for each skipped key or entry; None to refuse unknown keys and entries.
        renaming: receives the new names of other nodes' shards.
        unchanged_too: True to propose also changes without effect, so that they are in the audit log.

    Raises:
        BadRequest: an entry is wrong; all changes made so far have been undone.
    """
    wanted: deque[tuple[str, Change]] = deque()
    read = _read(FILE, found, "", skipped)
    renaming = Renaming() if renaming is None else renaming
    for _ in shards_renamed(topology, {**read, **_product(found)}, vhost, renaming):
        yield None
    for entry in _changes(topology, read, vhost, skipped, renaming):
        wanted.append(entry)
        yield None
    undoing: list[Change] = []
    proposed: deque[tuple[str, Pending, list[Change]]] = deque()
    refusal: BadRequest | None = None
    while wanted or proposed:
        if wanted and _may_propose(wanted[0][1], proposed[-1][1] if proposed else None, len(proposed)):
            subject, change = wanted.popleft()
            try:
                if not unchanged_too and change.changes_nothing(topology):
                    yield None
                    continue
                undo = inverse(topology, change)
                proposed.append((subject, topology.propose(change, principal), undo))
            except AMQPError as error:
                refusal = refusal or BadRequest(f"{subject}: {error.text}")
                wanted.clear()
            yield None
            continue
        subject, pending, undo = proposed.popleft()
        yield pending
        try:
            pending.result()
            undoing += [*undo, *inverse_of_effects(pending.effects)]
        except AMQPError as error:
            refusal = refusal or BadRequest(f"{subject}: {error.text}")
            wanted.clear()
    if refusal is not None:
        for back in reversed(undoing):
            yield topology.propose(back, principal)  # refused if the subject was deleted in the meantime
        raise refusal
    while undoing:  # freed in steps: freeing many at once takes long
        undoing.pop()
        yield None


def _product(found: Entry) -> Entry:
    return {"product_name": found["product_name"]} if "product_name" in found else {}


def _may_propose(change: Change, last: Pending | None, waiting: int) -> bool:
    """Return True if a change may be proposed before earlier changes are decided. In a shared log a decision takes
    time; independent changes of one kind are decided together.
    """
    if last is None:
        return True
    is_alike = type(change) is type(last.change) and isinstance(change, DeclareQueue | DeclareExchange | Bind)
    return is_alike and not last.decided and waiting < AHEAD


def lists_of(found: Entry) -> list[list[Any]]:
    """Return the non-empty sections of a definitions file."""
    return [section for section in found.values() if isinstance(section, list)]


def check_definitions(topology: Topology, found: Entry) -> Iterator[None]:
    """Read every entry of a definitions file, a step each, and change nothing.

    Raises:
        BadRequest: an entry is wrong.
    """
    skipped: list[str] = []
    for _ in _changes(topology, _read(FILE, found, "", skipped), None, skipped):
        yield


def _read(shape: Shape, found: Any, subject: str, skipped: list[str] | None) -> Entry:
    """Return the values of an object. With ``skipped``, unknown keys are left out and noted.

    Raises:
        BadRequest: the object has another shape.
    """
    if skipped is not None and isinstance(found, dict):
        for key in [key for key in found if not shape.knows(key)]:
            skipped.append(f"{subject}: key {shown(key)}" if subject else f"key {shown(key)}")
            found = {name: value for name, value in found.items() if name != key}
    return shape.read(found, subject)


def _changes(
    topology: Topology, found: Entry, vhost: str | None, skipped: list[str] | None, renaming: Renaming | None = None
) -> Iterator[tuple[str, Change]]:
    """Yield the changes of a file, with the originating entries."""
    sharding: list[tuple[str, Change]] = []
    for subject, change in _in_order(topology, found, vhost, skipped, renaming):
        if isinstance(change, SetPolicy) and "shards-per-node" in change.definition:
            sharding.append((subject, change))
        else:
            yield subject, change
    yield from sharding


def _in_order(
    topology: Topology, found: Entry, vhost: str | None, skipped: list[str] | None, renaming: Renaming | None
) -> Iterator[tuple[str, Change]]:
    """Yield the changes in the order of sections and entries."""
    for name, section in SECTIONS.items():
        if vhost is not None and name in BROKER_SECTIONS:
            if found.get(name):
                raise BadRequest(f"{name}: not allowed in a file for one virtual host")
            continue
        for number, entry in enumerate(found.get(name, ())):
            subject = f"{name}[{number}]"
            if vhost is not None and isinstance(entry, dict):
                entry = {**entry, "vhost": vhost}
            if skipped is not None and name == "parameters" and _is_of_plugin(entry):
                skipped.append(f"{subject}: {_plugins_parameter(entry)}")
                continue
            if renaming is not None:
                entry = renaming.entry(name, entry)
            read = _read(section.shape, entry, subject, skipped)
            try:
                for change in section.changes(topology, read):
                    yield subject, change
            except BadRequest as error:
                raise BadRequest(f"{subject}: {error}") from None


def _plugins_parameter(parameter: Entry) -> str:
    if parameter["component"] == "shovel":
        return f"shovel {shown(parameter.get('name'))} is not run: `jumpmq migrate --follow` replaces shovels"
    return f"component {shown(parameter['component'])}"


def _is_of_plugin(parameter: Any) -> bool:
    component = parameter.get("component") if isinstance(parameter, dict) else None
    return isinstance(component, str) and component not in COMPONENTS
