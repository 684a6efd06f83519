"""Queues of message-holding exchanges: one per exchange, derived from the exchange as shards are derived from a
policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from jumpmq.topology.arguments import Arguments
from jumpmq.topology.changes.base import Change
from jumpmq.topology.changes.queues import DeclareQueue
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.state import State


def missing(
    state: State, vhost: VirtualHost, ended: Set[str] = frozenset(), gone: Set[int] = frozenset()
) -> Iterator[Change]:
    """Yield the changes that create missing queues of holding exchanges in a virtual host.

    Args:
        ended: names of existing queues that are about to be deleted.
        gone: homes where no queue may be placed.
    """
    for exchange in vhost.exchanges.values():
        yield from queue_of(state, vhost, exchange, ended, gone)


def queue_of(
    state: State,
    vhost: VirtualHost,
    exchange: Exchange,
    ended: Set[str] = frozenset(),
    gone: Set[int] = frozenset(),
) -> Iterator[Change]:
    """Yield the change that creates the missing queue of an exchange: at the home with the fewest queues, and as
    durable as the exchange."""
    if not isinstance(exchange, HoldingExchange):
        return
    name = exchange.queue_name
    if name in vhost.declared and name not in ended:
        return
    counts = state.holdings.queues_by_home
    homes = state.homes.keys() - state.left - gone or state.homes.keys() - gone or state.homes.keys()
    home = min(homes, key=lambda one: (counts[one], one), default=state.home)
    arguments = Arguments.of(exchange.queue_arguments)
    defined = state.define_queue(vhost.name, name, durable=exchange.durable, arguments=arguments, home=home)
    yield DeclareQueue(state.number(defined))
