"""Changes that make, bind and unbind the shards of all nodes, after changes of policies, exchanges and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.base import Change
from jumpmq.topology.changes.bindings import Bind, Unbind
from jumpmq.topology.changes.queues import DeclareQueue
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange, make_exchange
from jumpmq.topology.policies import InvalidPolicy, Policies, Policy
from jumpmq.topology.shards import MAX_NAME, MAX_SHARDS, ShardSettings, shard_name
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.state import State


def check_policy(state: State, policy: Policy) -> None:
    """Refuse a policy that shards an unsuitable exchange, or makes too many shards.

    Raises:
        InvalidPolicy: with the reason.
    """
    vhost = state.vhost(policy.vhost)
    if (settings := ShardSettings.of(policy.definition)) is None:
        return
    policies, new_shards = vhost.policies.with_policy(policy), 0
    for exchange in vhost.exchanges.values():
        if not exchange.name or policies.in_force("exchange", exchange.name).policy is not policy:
            continue
        if (problem := _problem(state, exchange, settings)) is not None:
            raise InvalidPolicy(problem)
        before = vhost.in_force.sharding(exchange)
        new_shards += max(0, settings.count - (before.count if before is not None else 0))
    if new_shards > MAX_SHARDS:
        raise InvalidPolicy(f"policy would make {new_shards} shards, at most {MAX_SHARDS} may be made at once")
    if (problem := _beyond_limits(vhost, "policy", new_shards * len(state.nodes))) is not None:
        raise InvalidPolicy(problem)


def check_exchange(state: State, definition: ExchangeDefinition) -> None:
    """Refuse a new exchange unsuitable for sharding by the policy in force.

    Raises:
        PreconditionFailed: with the reason.
    """
    vhost = state.vhost(definition.vhost)
    settings = settings_under(vhost.policies, definition.name)
    if settings is None:
        return
    if (problem := _problem(state, make_exchange(definition), settings)) is not None:
        raise PreconditionFailed(problem)
    new_shards = settings.count * len(state.nodes)
    if (problem := _beyond_limits(vhost, f"exchange '{definition.name}'", new_shards)) is not None:
        raise PreconditionFailed(problem)


def follow(state: State, vhost: VirtualHost, policies: Policies) -> Iterator[Change]:
    """Yield the changes that follow from new policies: shards are made, bound and unbound."""
    for exchange in vhost.exchanges.values():
        if exchange.name:
            after = settings_under(policies, exchange.name)
            yield from reshard(state, vhost, exchange, vhost.in_force.sharding(exchange), after)


def missing(state: State, vhost: VirtualHost, ended: Set[str]) -> Iterator[Change]:
    """Yield the changes that make and bind missing shards, for example the shards of a new node.

    Args:
        ended: names of queues that still exist, and are about to be deleted.
    """
    for exchange in vhost.exchanges.values():
        yield from reshard(state, vhost, exchange, None, vhost.in_force.sharding(exchange), ended)


def reshard(
    state: State,
    vhost: VirtualHost,
    exchange: Exchange,
    before: ShardSettings | None,
    after: ShardSettings | None,
    ended: Set[str] = frozenset(),
) -> Iterator[Change]:
    """Yield the changes from one sharding of an exchange to the next; correct shards stay.

    Args:
        before, after: the settings; None without sharding.
        ended: as in :func:`missing`.
    """
    if before is not None and (after is None or _binding_key(exchange, after) != _binding_key(exchange, before)):
        for binding, _ in _bindings(state, exchange, before):
            if binding in exchange.bindings:
                yield Unbind(vhost.name, binding)
    if after is None or _problem(state, exchange, after) is not None:
        return
    for binding, home in _bindings(state, exchange, after):
        is_new = binding.destination in ended or binding.destination not in vhost.declared
        if is_new:
            yield DeclareQueue(_shard(state, exchange, after, binding.destination, home))
        # A queue about to be deleted takes its bindings along, so that its replacement is bound again.
        if is_new or binding not in exchange.bindings:
            yield Bind(vhost.name, binding)


def settings_under(policies: Policies, exchange: str) -> ShardSettings | None:
    """Return the sharding of an exchange under policies; None if not sharded, as always for the default exchange."""
    return ShardSettings.of(policies.in_force("exchange", exchange).definition) if exchange else None


def _shard(state: State, exchange: Exchange, settings: ShardSettings, name: str, home: int) -> QueueDefinition:
    """Return a shard's definition: durable if the exchange is, or if the queue type requires durability."""
    durable, arguments = exchange.durable, NO_ARGUMENTS
    if settings.queue_type is not None:
        durable = durable or QUEUE_TYPES[settings.queue_type].always_durable
        arguments = Arguments.of({"x-queue-type": settings.queue_type})
    defined = state.define_queue(exchange.vhost, name, durable=durable, arguments=arguments, home=home)
    return state.number(defined)


def _bindings(state: State, exchange: Exchange, settings: ShardSettings) -> Iterator[tuple[Binding, int]]:
    """Yield the bindings of an exchange's shards, with the shards' homes: round robin over the homes of a node."""
    key = _binding_key(exchange, settings)
    for node, found in state.nodes.items():
        homes = [home for home in found if home not in state.left] or found
        for number in range(settings.count):
            name = shard_name(exchange.name, node, number)
            yield Binding(exchange.name, "queue", name, key), homes[number % len(homes)]


def _problem(state: State, exchange: Exchange, settings: ShardSettings) -> str | None:
    """Return the reason against sharding an exchange; None if there is none."""
    if not settings.count:
        return None
    subject = f"exchange '{exchange.name}' in vhost '{exchange.vhost}' cannot be sharded"
    for node in state.nodes:
        last = shard_name(exchange.name, node, settings.count - 1)
        if len(last.encode()) > MAX_NAME:
            return f"{subject}: its shards' names would be longer than {MAX_NAME} octets"
    try:
        binding = Binding(exchange.name, "queue", last, _binding_key(exchange, settings))
        exchange.check(binding, settings.queue_type or DEFAULT_QUEUE_TYPE)
    except PreconditionFailed as error:
        return f"{subject}: {error.text}"
    return None


def _beyond_limits(vhost: VirtualHost, subject: str, new_shards: int) -> str | None:
    """Return the reason if a virtual host may not have ``new_shards`` more shards; otherwise None."""
    for what, count in (("queue", len(vhost.declared)), ("binding", vhost.binding_count)):
        limit = vhost.limits.get(f"max-{what}s", -1)
        if new_shards and 0 <= limit < count + new_shards:
            return (
                f"{subject} would make {new_shards} shards, beyond the {what} limit in vhost '{vhost.name}' ({limit})"
            )
    return None


def _binding_key(exchange: Exchange, settings: ShardSettings) -> bytes:
    """Return the binding key of shards: by default empty, but weight 1 on a consistent hash exchange."""
    if settings.routing_key is not None:
        return settings.routing_key.encode()
    return b"1" if isinstance(exchange, ConsistentHashExchange) else b""
