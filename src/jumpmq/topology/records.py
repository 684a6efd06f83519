"""Storage of definitions: durable definitions as (kind, key, JSON value) in a journal.

:mod:`jumpmq.store.kinds` has the kinds. A key only identifies a record; the value has everything for restoring.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Protocol

from jumpmq.store import kinds
from jumpmq.store.changes import Definitions, json_text
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.digest import Digest
from jumpmq.topology.exchanges import ConsistentHashExchange, Destination, Exchange
from jumpmq.topology.json_form import from_json, to_json
from jumpmq.topology.limits import LimitValues
from jumpmq.topology.policies import Policy
from jumpmq.topology.users import TopicPermissions, User

SHARED = frozenset(kind.name for kind in kinds.TABLE if kind.in_snapshot)
"""Kinds of definitions."""

NEXT_QUEUE_ID = "next-queue-id"
"""Key of the counter of home 1; those of further homes have the number appended."""

COUNTER = (1 << 40) - 1
"""Bits of a queue's id counted by the queue's home."""


class RecordKeeper(Protocol):
    """Stores records, for example the store."""

    def put(self, kind: str, key: str, value: Any) -> None: ...
    def put_text(self, kind: str, key: str, value: str) -> None: ...
    def change(self, definitions: Definitions) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...


class RecordedHost(Protocol):
    """A virtual host, as seen by its own record; see :class:`~jumpmq.topology.vhost.VirtualHost`."""

    name: str
    default_queue_type: str | None
    description: str
    tags: tuple[str, ...]
    home: int


class Records:
    """Writes durable changes to the journal.

    Args:
        journal: the store; None to keep no records.
        shared: True if other processes share the definitions. Transient definitions are then recorded, too: those of
            another home outlive this process, and the order of all changes determines a ring.
    """

    def __init__(self, journal: RecordKeeper | None, shared: bool = False) -> None:
        self._journal = journal  # the store
        self._shared = shared  # True if transient definitions are recorded, too
        self._changed_rings: dict[ConsistentHashExchange, None] = {}  # rings to be written before the next commit
        self._digest: Digest | None = None  # digest of the records; None without comparisons
        self._undigested_rings: dict[ConsistentHashExchange, None] = {}  # changed since the last digest
        self._set_aside: Definitions | None = None  # records collected for one commit; None outside a change in steps
        self._rings_aside: dict[ConsistentHashExchange, None] = {}  # rings of such a change

    def maintain(self, digest: Digest) -> Digest:
        """Keep a digest of the current records up to date from now on; return the digest."""
        self._digest = digest
        return digest

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Collect records within the block; :meth:`hand_over` then gives them to the journal together. A change that
        takes effect in steps is thus in one commit.
        """
        self._set_aside = Definitions()
        try:
            yield
        finally:
            self._set_aside = None
            self._hand_over_rings()

    def hand_over(self) -> None:
        """Pass the collected records to the journal."""
        self._hand_over_rings()
        kept = self.withdraw()
        if self._digest is not None:
            self._digest.change(kept)
        if kept and self._journal is not None:
            self._journal.change(kept)

    def _hand_over_rings(self) -> None:
        self._changed_rings |= self._rings_aside
        self._rings_aside.clear()

    def withdraw(self) -> Definitions:
        """Take back the collected records, for :meth:`append`, so that records made meanwhile come first."""
        kept, self._set_aside = self._set_aside or Definitions(), Definitions()
        return kept

    def append(self, kept: Definitions) -> None:
        """Collect withdrawn records again."""
        assert self._set_aside is not None
        self._set_aside.absorb(kept)

    def put_virtual_host(self, host: RecordedHost) -> None:
        value = {
            "name": host.name,
            "default_queue_type": host.default_queue_type,
            "description": host.description,
            "tags": list(host.tags),
        }
        self._put(kinds.VHOST, host.name, value | ({"home": host.home} if host.home else {}))

    def delete_virtual_host(self, name: str) -> None:
        self._delete(kinds.VHOST, name)

    def put_tracing(self, vhost: str, enabled: bool) -> None:
        """Record the tracing of a virtual host; only if other processes share the definitions."""
        if self._shared and enabled:
            self._put(kinds.TRACING, vhost, {"name": vhost})
        elif self._shared:
            self._delete(kinds.TRACING, vhost)

    def put_global_parameter(self, name: str, value: Any) -> None:
        self._put(kinds.GLOBAL_PARAMETER, name, {"name": name, "value": value})

    def delete_global_parameter(self, name: str) -> None:
        self._delete(kinds.GLOBAL_PARAMETER, name)

    def put_user(self, user: User) -> None:
        value = {"name": user.name, "password_hash": user.password_hash, "tags": list(user.tags)}
        self._put(kinds.USER, user.name, value)

    def delete_user(self, name: str) -> None:
        self._delete(kinds.USER, name)

    def put_permissions(self, user: User, vhost: str) -> None:
        value = {"user": user.name, "vhost": vhost, **to_json(user.permissions[vhost])}
        self._put(kinds.PERMISSIONS, key_of(user.name, vhost), value)

    def delete_permissions(self, user: str, vhost: str) -> None:
        self._delete(kinds.PERMISSIONS, key_of(user, vhost))

    def put_topic_permissions(self, user: str, vhost: str, exchange: str, granted: TopicPermissions) -> None:
        value = {"user": user, "vhost": vhost, "exchange": exchange, **to_json(granted)}
        self._put(kinds.TOPIC_PERMISSIONS, key_of(user, vhost, exchange), value)

    def delete_topic_permissions(self, user: str, vhost: str, exchange: str) -> None:
        self._delete(kinds.TOPIC_PERMISSIONS, key_of(user, vhost, exchange))

    def put_user_limits(self, user: str, limits: LimitValues) -> None:
        self._put_limits(kinds.USER_LIMITS, user, limits)

    def put_virtual_host_limits(self, vhost: str, limits: LimitValues) -> None:
        self._put_limits(kinds.VHOST_LIMITS, vhost, limits)

    def _put_limits(self, kind: str, name: str, limits: LimitValues) -> None:
        if limits:
            self._put(kind, name, {"name": name, "limits": dict(limits)})
        else:
            self._delete(kind, name)

    def put_policy(self, policy: Policy, operator: bool) -> None:
        self._put(_policy_kind(operator), key_of(policy.vhost, policy.name), asdict(policy))

    def delete_policy(self, policy: Policy, operator: bool) -> None:
        self._delete(_policy_kind(operator), key_of(policy.vhost, policy.name))

    def put_applied(self, number: int) -> None:
        """Record the number of decided changes; only with a shared log."""
        if self._shared:
            self._put(kinds.APPLIED, "", number)

    def put_exchange(self, definition: ExchangeDefinition) -> None:
        if definition.durable or self._shared:
            self._put(kinds.EXCHANGE, key_of(definition.vhost, definition.name), to_json(definition))

    def delete_exchange(self, exchange: Exchange) -> None:
        if not (exchange.durable or self._shared):
            return
        self._delete(kinds.EXCHANGE, key_of(exchange.vhost, exchange.name))
        if isinstance(exchange, ConsistentHashExchange):
            self._changed_rings.pop(exchange, None)
            self._rings_aside.pop(exchange, None)
            self._undigested_rings.pop(exchange, None)
            self._delete(kinds.RING, key_of(exchange.vhost, exchange.name))

    def put_home(self, home: int, node: str, leaves: bool = False) -> None:
        self._put(kinds.HOME, str(home), {"home": home, "node": node} | ({"leaves": True} if leaves else {}))

    def delete_home(self, home: int) -> None:
        self._delete(kinds.HOME, str(home))

    def put_forgotten_home(self, home: int, node: str) -> None:
        self._put(kinds.HOME, str(home), {"home": home, "node": node, "forgotten": True})

    def put_counter(self, home: int, number: int) -> None:
        self._put(kinds.COUNTER, _counter_key(home), number)

    def put_numbered_queue(self, definition: QueueDefinition) -> None:
        """Record a newly numbered queue."""
        if definition.is_kept or self._shared:
            self.put_counter(definition.home, (definition.id & COUNTER) + 1)
        self.put_queue(definition)

    def put_queue(self, definition: QueueDefinition) -> None:
        if definition.is_kept or self._shared:
            value = to_json(definition)
            for name in "before", "original":
                if not value[name]:
                    del value[name]
            self._put(kinds.QUEUE, key_of(definition.vhost, definition.name), value)

    def delete_queue(self, definition: QueueDefinition) -> None:
        if definition.is_kept or self._shared:
            self._delete(kinds.QUEUE, key_of(definition.vhost, definition.name))

    def put_binding(self, source: Exchange, binding: Binding, destination: Destination, user: str) -> None:
        self._note_ring(source)
        if self._keeps(source, destination):
            value = {"vhost": source.vhost, **to_json(binding)}
            self._put(kinds.BINDING, key_of(*value.values()), value | ({"user": user} if user else {}))

    def delete_binding(self, source: Exchange, binding: Binding, destination: Destination) -> None:
        self._note_ring(source)
        if self._keeps(source, destination):
            self._delete(kinds.BINDING, key_of(source.vhost, *to_json(binding).values()))

    def note_ring(self, exchange: ConsistentHashExchange) -> None:
        """Note the changed ring of a durable exchange; :meth:`flush_rings` writes it.

        The ring also changes with a binding that is not recorded: the order of all changes determines the ring.
        """
        self.note_new_ring(exchange)
        if exchange.durable or self._shared:
            (self._changed_rings if self._set_aside is None else self._rings_aside)[exchange] = None

    def note_new_ring(self, exchange: ConsistentHashExchange) -> None:
        """Mark a ring as different from the digest; also a new one."""
        if self._digest is not None:
            self._undigested_rings[exchange] = None

    def flush_rings(self) -> None:
        """Write all changed rings, each once."""
        if self._changed_rings and self._journal is not None:
            rings = Definitions()
            for exchange in self._changed_rings:
                rings.put[kinds.RING, key_of(exchange.vhost, exchange.name)] = _ring_text(exchange)
            self._journal.change(rings)
        self._changed_rings.clear()

    def digest_rings(self) -> None:
        """Update the digest with the changed rings; called at the same point in all processes."""
        assert self._digest is not None
        for exchange in self._undigested_rings:
            self._digest.put(kinds.RING, key_of(exchange.vhost, exchange.name), _ring_text(exchange))
        self._undigested_rings.clear()

    def _keeps(self, source: Exchange, destination: Destination) -> bool:
        return self._shared or (source.durable and _is_kept(destination))

    def _note_ring(self, source: Exchange) -> None:
        if isinstance(source, ConsistentHashExchange):
            self.note_ring(source)

    def _put(self, kind: str, key: str, value: Any) -> None:
        if self._set_aside is not None:
            self._set_aside.put[kind, key] = json_text(value)
            return
        if self._digest is not None:
            text = json_text(value)
            self._digest.put(kind, key, text)
            if self._journal is not None:
                self._journal.put_text(kind, key, text)
        elif self._journal is not None:
            self._journal.put(kind, key, value)

    def _delete(self, kind: str, key: str) -> None:
        if self._set_aside is not None:
            self._set_aside.delete((kind, key))
            return
        if self._digest is not None:
            self._digest.delete(kind, key)
        if self._journal is not None:
            self._journal.delete(kind, key)


def kept_node(definitions: Iterable[tuple[str, str, Any]], home: int) -> str | None:
    """Return the recorded node of a home; None if not recorded.

    In data directories from before homes were recorded, each queue has the node.
    """
    node = None
    for kind, key, value in definitions:
        if kind == kinds.HOME and key == str(home):
            return str(value["node"])
        if kind == kinds.QUEUE and value.get("home", 1) == home:
            node = value.get("node") or node
    return node


def alone(definitions: list[tuple[str, str, Any]], journal: RecordKeeper | None) -> list[tuple[str, str, Any]]:
    """Return formerly shared definitions without the records that a single process does not keep; the journal
    deletes these records, too.
    """
    if journal is None or not any(kind == kinds.APPLIED for kind, _, _ in definitions):
        return definitions
    gone: set[tuple[str, str, str]] = set()  # transient queues and exchanges, by kind, virtual host and name
    for kind, _, value in definitions:
        match kind:
            case "queue" if not read_queue(value).is_kept:
                gone.add((kind, value["vhost"], value["name"]))
            case "exchange" if not read_exchange(value).durable:
                gone.add((kind, value["vhost"], value["name"]))

    def is_gone(kind: str, value: Any) -> bool:
        match kind:
            case "queue" | "exchange":
                return (kind, value["vhost"], value["name"]) in gone
            case "ring":
                return ("exchange", value["vhost"], value["exchange"]) in gone
            case "binding":
                host, binding, _ = read_binding(value)
                ends = ("exchange", host, binding.source), (binding.kind, host, binding.destination)
                return not gone.isdisjoint(ends)
        return kind in (kinds.APPLIED, kinds.ENTRY, kinds.LET_GO, kinds.TRACING)

    kept = []
    for kind, key, value in definitions:
        if is_gone(kind, value):
            journal.delete(kind, key)
        else:
            kept.append((kind, key, value))
    return kept


def home_of_counter(key: str) -> int:
    """Return the home that a ``counter`` record belongs to."""
    return int(key.removeprefix(NEXT_QUEUE_ID) or 1)


def _counter_key(home: int) -> str:
    return NEXT_QUEUE_ID if home == 1 else f"{NEXT_QUEUE_ID} {home}"


def read_exchange(value: dict[str, Any]) -> ExchangeDefinition:
    """Parse an ``exchange`` record."""
    return from_json(ExchangeDefinition, {"durable": True} | value)


def read_queue(value: dict[str, Any]) -> QueueDefinition:
    """Parse a ``queue`` record."""
    return from_json(QueueDefinition, {"durable": True} | value)


def read_binding(value: dict[str, Any]) -> tuple[str, Binding, str]:
    """Parse a ``binding`` record: virtual host, binding, creating user."""
    parts = {name: value[name] for name in value if name not in ("vhost", "user")}
    return value["vhost"], from_json(Binding, parts), value.get("user", "")


def _is_kept(destination: Destination) -> bool:
    """Return True if a queue or exchange survives a restart."""
    return destination.durable and (isinstance(destination, Exchange) or not destination.exclusive)


def _policy_kind(operator: bool) -> str:
    return kinds.OPERATOR_POLICY if operator else kinds.POLICY


def _ring_text(exchange: ConsistentHashExchange) -> str:
    """Return a ring's record as JSON text, around the ring's own text: a ring of 10,000 queues is recorded at every
    binding.
    """
    where = json_text({"vhost": exchange.vhost, "exchange": exchange.name})
    return f'{where[:-1]},"state":{exchange.ring.state_text()}}}'


def key_of(*parts: Any) -> str:
    """Return the key of a record, from its identifying parts."""
    return json_text(parts)
