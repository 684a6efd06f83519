"""All definitions of a broker, and the one way to change them.

A change is a value (:mod:`jumpmq.topology.changes`). :meth:`Topology.apply` checks it against the rules, applies it to
the state in memory, and has it recorded in the journal as far as it is durable. A change that is refused changes
nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from jumpmq.amqp.errors import NotAllowed, NotFound, PreconditionFailed
from jumpmq.queues import Queue, make_queue
from jumpmq.queues.base import DEFAULT_BUDGET, DeadLetter, Journal, drop_dead_letters
from jumpmq.topology import changes, records, rules
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange
from jumpmq.topology.policies import Policy
from jumpmq.topology.sharding import Sharding
from jumpmq.topology.users import Permissions, User
from jumpmq.topology.vhost import VirtualHost

R = TypeVar("R")


class Topology:
    """Virtual hosts with what is in them, and users.

    Args:
        node: name of this broker's node, home of the queues declared here.
        journal: where durable definitions, and the queues' messages, are kept; None keeps nothing.
        queue_memory: octets of memory for a queue's ready messages.
        dead_letter: told of messages that expired, overflowed or were rejected, see :class:`Queue`.

    Attributes:
        vhosts, users: by name.
        sharding: knows the shards of exchanges.
    """

    def __init__(
        self,
        node: str,
        journal: Journal | None = None,
        *,
        queue_memory: int = DEFAULT_BUDGET,
        dead_letter: DeadLetter = drop_dead_letters,
    ) -> None:
        self.node = node
        self._queue_memory = queue_memory
        self._dead_letter = dead_letter
        self.vhosts: dict[str, VirtualHost] = {}
        self.users: dict[str, User] = {}
        self._journal = journal
        self._records = records.Records(journal)
        self._next_queue_id = 1
        self.sharding = Sharding(node, self._declare_queue)
        self._appliers: dict[type[changes.Change[Any]], Callable[[Any], Any]] = {
            changes.AddVirtualHost: self._add_virtual_host,
            changes.DeleteVirtualHost: self._delete_virtual_host,
            changes.PutUser: self._put_user,
            changes.DeleteUser: self._delete_user,
            changes.SetPermissions: self._set_permissions,
            changes.ClearPermissions: self._clear_permissions,
            changes.SetPolicy: lambda change: self._set_policy(change, operator=False),
            changes.SetOperatorPolicy: lambda change: self._set_policy(change, operator=True),
            changes.ClearPolicy: lambda change: self._clear_policy(change, operator=False),
            changes.ClearOperatorPolicy: lambda change: self._clear_policy(change, operator=True),
            changes.DeclareExchange: self._declare_exchange,
            changes.DeleteExchange: self._delete_exchange,
            changes.DeclareQueue: self._declare_queue,
            changes.DeleteQueue: lambda change: rules.delete_queue(self.vhost(change.vhost), change),
            changes.Bind: lambda change: rules.bind(self.vhost(change.vhost), change),
            changes.Unbind: lambda change: rules.unbind(self.vhost(change.vhost), change),
        }

    def vhost(self, name: str) -> VirtualHost:
        """The virtual host of this name.

        Raises:
            NotAllowed: there is none.
        """
        try:
            return self.vhosts[name]
        except KeyError:
            raise NotAllowed(f"vhost {name} not found") from None

    def user(self, name: str) -> User:
        """The user of this name.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.users[name]
        except KeyError:
            raise NotFound(f"no user '{name}'") from None

    def apply(self, change: changes.Change[R]) -> R:
        """Make a change.

        Returns:
            What the kind of change says: the queue or exchange declared, the number of messages deleted.

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        return cast(R, self._appliers[type(change)](change))

    def flush_rings(self) -> None:
        """Hand the hash rings that changed to the journal; to be called before each of its commits.

        A burst of bindings so writes its ring once.
        """
        self._records.flush_rings()

    # --- virtual hosts and users ---

    def _add_virtual_host(self, change: changes.AddVirtualHost) -> VirtualHost:
        if change.name not in self.vhosts:
            self._insert_virtual_host(change.name)
            self._records.put_virtual_host(change.name)
        return self.vhosts[change.name]

    def _insert_virtual_host(self, name: str) -> None:
        self.vhosts[name] = VirtualHost(name, self._records)

    def _delete_virtual_host(self, change: changes.DeleteVirtualHost) -> None:
        vhost = self.vhost(change.name)
        for operator in (False, True):
            for policy in vhost.policies.all(operator):
                self._records.delete_policy(policy, operator)
        vhost.clear()
        for user in self.users.values():
            self._clear_permissions(changes.ClearPermissions(user.name, change.name))
        del self.vhosts[change.name]
        self._records.delete_virtual_host(change.name)

    def _put_user(self, change: changes.PutUser) -> None:
        user = self.users.setdefault(change.name, User(change.name, ""))
        user.password_hash, user.tags = change.password_hash, change.tags
        self._records.put_user(user)

    def _delete_user(self, change: changes.DeleteUser) -> None:
        for vhost in list(self.user(change.name).permissions):
            self._clear_permissions(changes.ClearPermissions(change.name, vhost))
        del self.users[change.name]
        self._records.delete_user(change.name)

    def _set_permissions(self, change: changes.SetPermissions) -> None:
        user = self.user(change.user)
        self.vhost(change.vhost)
        user.permissions[change.vhost] = Permissions(change.configure, change.write, change.read)
        self._records.put_permissions(user, change.vhost)

    def _clear_permissions(self, change: changes.ClearPermissions) -> None:
        if self.user(change.user).permissions.pop(change.vhost, None) is not None:
            self._records.delete_permissions(change.user, change.vhost)

    # --- policies ---

    def _set_policy(self, change: changes.SetPolicy | changes.SetOperatorPolicy, operator: bool) -> None:
        vhost = self.vhost(change.vhost)
        policy = Policy(vhost.name, change.name, change.pattern, change.definition, change.priority, change.apply_to)
        policy.check(operator)
        if not operator:
            self.sharding.check_policy(vhost, policy)
        vhost.policies.put(policy, operator)
        self._records.put_policy(policy, operator)
        self._follow_policies(vhost)

    def _clear_policy(self, change: changes.ClearPolicy | changes.ClearOperatorPolicy, operator: bool) -> None:
        vhost = self.vhost(change.vhost)
        self._records.delete_policy(vhost.policies.remove(change.name, operator), operator)
        self._follow_policies(vhost)

    def _follow_policies(self, vhost: VirtualHost) -> None:
        for exchange, before in vhost.follow_policies():
            self.sharding.follow(vhost, exchange, before)

    # --- exchanges and queues ---

    def _declare_exchange(self, change: changes.DeclareExchange) -> Exchange:
        vhost = self.vhost(change.vhost)
        if change.name in vhost.exchanges:
            return rules.declare_exchange(vhost, change)
        exchange = rules.declare_exchange(vhost, change)
        try:
            self.sharding.check(vhost, exchange)
        except PreconditionFailed:
            vhost.remove_exchange(exchange)
            raise
        self.sharding.follow(vhost, exchange, None)
        return exchange

    def _delete_exchange(self, change: changes.DeleteExchange) -> None:
        vhost = self.vhost(change.vhost)
        rules.delete_exchange(vhost, change)
        self.sharding.release(vhost, change.name)

    def _declare_queue(self, change: changes.DeclareQueue) -> Queue:
        return rules.declare_queue(self.vhost(change.vhost), change, self._make_queue)

    def _make_queue(self, declared: changes.DeclareQueue) -> Queue:
        queue = self._new_queue(self._next_queue_id, self.node, declared)
        self._next_queue_id += 1
        return queue

    def _new_queue(self, number: int, node: str, declared: changes.DeclareQueue) -> Queue:
        return make_queue(
            declared.vhost,
            declared.name,
            id=number,
            durable=declared.durable,
            exclusive=declared.exclusive,
            auto_delete=declared.auto_delete,
            arguments=declared.arguments.plain(),
            node=node,
            journal=self._journal,
            owner=declared.connection if declared.exclusive else None,
            budget=self._queue_memory,
            dead_letter=self._dead_letter,
        )

    # --- restart ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Rebuild what the journal kept, into an empty topology. Records of kinds that are not definitions are skipped.

        Args:
            definitions: (kind, key, value), in the order in which they were first put.
        """
        found: dict[str, list[Any]] = defaultdict(list)
        for kind, key, value in definitions:
            found[kind].append((key, value) if kind == "counter" else value)
        for value in found["vhost"]:
            self._insert_virtual_host(value["name"])
        for value in found["user"]:
            self.users[value["name"]] = User(value["name"], value["password_hash"], tuple(value["tags"]))
        for value in found["permissions"]:
            granted = Permissions(value["configure"], value["write"], value["read"])
            self.users[value["user"]].permissions[value["vhost"]] = granted
        self._restore_policies(found)
        for value in found["exchange"]:
            self.vhosts[value["vhost"]].insert_exchange(records.read_exchange(value))
        for value in found["queue"]:
            self._restore_queue(value)
        for value in found["binding"]:
            vhost, binding = records.read_binding(value)
            self.vhosts[vhost].insert_binding(binding)
        for value in found["ring"]:
            self._restore_ring(self.vhosts[value["vhost"]].exchanges[value["exchange"]], value["state"])
        counters = dict(found["counter"])
        self._next_queue_id = max(self._next_queue_id, counters.get(records.NEXT_QUEUE_ID, 1))
        for host in self.vhosts.values():
            for exchange in list(host.exchanges.values()):
                self.sharding.follow(host, exchange, None)

    def _restore_policies(self, found: dict[str, list[Any]]) -> None:
        for kind, operator in (("policy", False), ("operator_policy", True)):
            for value in found[kind]:
                self.vhosts[value["vhost"]].policies.put(Policy(**value), operator)
        for host in self.vhosts.values():
            for exchange in host.exchanges.values():  # the predeclared ones
                host.follow_exchange(exchange)

    def _restore_queue(self, value: dict[str, Any]) -> None:
        number, node, declared = records.read_queue(value)
        self.vhosts[declared.vhost].insert_queue(self._new_queue(number, node, declared), declared)
        self._next_queue_id = max(self._next_queue_id, number + 1)

    def _restore_ring(self, exchange: Exchange, state: dict[str, Any]) -> None:
        if isinstance(exchange, ConsistentHashExchange):
            exchange.restore_ring(state)
            if exchange.ring.state() != state:
                self._records.note_ring(exchange)
