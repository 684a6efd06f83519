"""How definitions are kept: each durable one as (kind, key, JSON value) in a journal, and back.

Kinds: ``vhost``, ``user``, ``permissions``, ``policy``, ``operator_policy``, ``exchange``, ``queue``, ``binding``,
``ring`` and ``counter``. The key only tells one from the other; all that is needed to restore one is in its value.
"""

import json
from dataclasses import asdict
from typing import Any

from jumpmq.queues import Queue
from jumpmq.queues.base import Journal
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import DeclareExchange, DeclareQueue
from jumpmq.topology.exchanges import ConsistentHashExchange, Destination, Exchange
from jumpmq.topology.policies import Policy
from jumpmq.topology.users import User

NEXT_QUEUE_ID = "next-queue-id"


class Records:
    """Writes what changes to the journal, as far as it is durable.

    Args:
        journal: the store, or None to keep nothing.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._changed_rings: dict[ConsistentHashExchange, None] = {}

    def put_virtual_host(self, name: str) -> None:
        self._put("vhost", name, {"name": name})

    def delete_virtual_host(self, name: str) -> None:
        self._delete("vhost", name)

    def put_user(self, user: User) -> None:
        value = {"name": user.name, "password_hash": user.password_hash, "tags": list(user.tags)}
        self._put("user", user.name, value)

    def delete_user(self, name: str) -> None:
        self._delete("user", name)

    def put_permissions(self, user: User, vhost: str) -> None:
        granted = user.permissions[vhost]
        value = {
            "user": user.name,
            "vhost": vhost,
            "configure": granted.configure,
            "write": granted.write,
            "read": granted.read,
        }
        self._put("permissions", _key(user.name, vhost), value)

    def delete_permissions(self, user: str, vhost: str) -> None:
        self._delete("permissions", _key(user, vhost))

    def put_policy(self, policy: Policy, operator: bool) -> None:
        self._put(_policy_kind(operator), _key(policy.vhost, policy.name), asdict(policy))

    def delete_policy(self, policy: Policy, operator: bool) -> None:
        self._delete(_policy_kind(operator), _key(policy.vhost, policy.name))

    def put_exchange(self, exchange: Exchange) -> None:
        if exchange.durable:
            self._put("exchange", _key(exchange.vhost, exchange.name), _exchange_value(exchange))

    def delete_exchange(self, exchange: Exchange) -> None:
        if not exchange.durable:
            return
        self._delete("exchange", _key(exchange.vhost, exchange.name))
        if isinstance(exchange, ConsistentHashExchange):
            self._changed_rings.pop(exchange, None)
            self._delete("ring", _key(exchange.vhost, exchange.name))

    def put_queue(self, queue: Queue, declared: DeclareQueue) -> None:
        if is_kept(queue):
            self._put("counter", NEXT_QUEUE_ID, queue.id + 1)
            self._put("queue", _key(queue.vhost, queue.name), _queue_value(queue, declared))

    def delete_queue(self, queue: Queue) -> None:
        if is_kept(queue):
            self._delete("queue", _key(queue.vhost, queue.name))

    def put_binding(self, source: Exchange, binding: Binding, destination: Destination) -> None:
        self._note_ring(source)
        if source.durable and is_kept(destination):
            self._put("binding", _binding_key(source.vhost, binding), _binding_value(source.vhost, binding))

    def delete_binding(self, source: Exchange, binding: Binding, destination: Destination) -> None:
        self._note_ring(source)
        if source.durable and is_kept(destination):
            self._delete("binding", _binding_key(source.vhost, binding))

    def note_ring(self, exchange: ConsistentHashExchange) -> None:
        """The ring of a durable exchange has changed; :meth:`flush_rings` will write it.

        That is also so where the binding itself is not kept: the order of all changes makes the ring.
        """
        if exchange.durable:
            self._changed_rings[exchange] = None

    def flush_rings(self) -> None:
        """Write each ring that has changed, once, however often it has."""
        for exchange in self._changed_rings:
            value = {"vhost": exchange.vhost, "exchange": exchange.name, "state": exchange.ring.state()}
            self._put("ring", _key(exchange.vhost, exchange.name), value)
        self._changed_rings.clear()

    def _note_ring(self, source: Exchange) -> None:
        if isinstance(source, ConsistentHashExchange):
            self.note_ring(source)

    def _put(self, kind: str, key: str, value: Any) -> None:
        if self._journal is not None:
            self._journal.put(kind, key, value)

    def _delete(self, kind: str, key: str) -> None:
        if self._journal is not None:
            self._journal.delete(kind, key)


def is_kept(destination: Destination) -> bool:
    """Whether a queue or exchange survives a restart. Exclusive queues end with their connection."""
    return destination.durable and not (isinstance(destination, Queue) and destination.exclusive)


def read_exchange(value: dict[str, Any]) -> DeclareExchange:
    """The declaration that an ``exchange`` record keeps."""
    return DeclareExchange(**{**value, "durable": True, "arguments": Arguments.from_json(value["arguments"])})


def read_queue(value: dict[str, Any]) -> tuple[int, str, DeclareQueue]:
    """The number, home node and declaration that a ``queue`` record keeps."""
    declared = DeclareQueue(
        value["vhost"],
        value["name"],
        durable=True,
        auto_delete=value["auto_delete"],
        arguments=Arguments.from_json(value["arguments"]),
    )
    return value["id"], value["node"], declared


def read_binding(value: dict[str, Any]) -> tuple[str, Binding]:
    """The virtual host and binding that a ``binding`` record keeps."""
    binding = Binding(
        value["source"],
        value["kind"],
        value["destination"],
        value["key"].encode(errors="surrogateescape"),
        Arguments.from_json(value["arguments"]),
    )
    return value["vhost"], binding


def _policy_kind(operator: bool) -> str:
    return "operator_policy" if operator else "policy"


def _exchange_value(exchange: Exchange) -> dict[str, Any]:
    return {
        "vhost": exchange.vhost,
        "name": exchange.name,
        "type": exchange.type,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments.to_json(),
    }


def _queue_value(queue: Queue, declared: DeclareQueue) -> dict[str, Any]:
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "id": queue.id,
        "node": queue.node,
        "auto_delete": queue.auto_delete,
        "arguments": declared.arguments.to_json(),
    }


def _binding_value(vhost: str, binding: Binding) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "source": binding.source,
        "kind": binding.kind,
        "destination": binding.destination,
        "key": binding.key.decode(errors="surrogateescape"),
        "arguments": binding.arguments.to_json(),
    }


def _binding_key(vhost: str, binding: Binding) -> str:
    return _key(*_binding_value(vhost, binding).values())


def _key(*parts: Any) -> str:
    return json.dumps(parts, separators=(",", ":"))
