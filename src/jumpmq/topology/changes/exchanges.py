"""Changes of exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import AccessRefused, PreconditionFailed
from jumpmq.topology import equivalence, rules
from jumpmq.topology.changes import holding_queues, resharding
from jumpmq.topology.changes.base import Change, ChangeInSteps, Steps
from jumpmq.topology.changes.preparing import Preparation
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, exchange_type, make_exchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.rights import Right, TopicRight

if TYPE_CHECKING:
    from jumpmq.topology.state import State


@dataclass(frozen=True, slots=True)
class DeclareExchange(ChangeInSteps):
    """Declare an exchange; an existing one must be equivalent."""

    definition: ExchangeDefinition

    def refuse_for_all(self) -> None:
        exchange_type(self.definition.type)
        rules.refuse_default_exchange(self.definition.name)

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        """Yield also the rights of an alternate exchange: to read from the exchange, and to write to the alternate."""
        vhost, name = self.definition.vhost, self.definition.name
        yield Right("configure", vhost, "exchange", name)
        alternate = self.definition.arguments.get("alternate-exchange")
        exists = name in state.vhost(vhost).exchanges
        if alternate is not None and isinstance(alternate.value, str) and not exists:
            yield Right("read", vhost, "exchange", name)
            yield Right("write", vhost, "exchange", alternate.value)

    def check(self, state: State) -> None:
        definition = self.definition
        vhost = state.vhost(definition.vhost)
        self.refuse_for_all()
        current = vhost.exchanges.get(definition.name)
        if current is not None:
            equivalence.check_exchange(current, definition)
            return
        rules.refuse_reserved("exchange", definition.name)
        exchange = make_exchange(definition)  # refuses arguments unknown to the type
        if isinstance(exchange, HoldingExchange):
            # imported like any queue, or of another exchange with a long name
            if exchange.queue_name in vhost.declared:
                raise PreconditionFailed(
                    f"cannot declare exchange '{exchange.name}' in vhost '{vhost.name}': its queue "
                    f"'{exchange.queue_name}' would be one that is there already"
                )
            rules.refuse_beyond_queue_limit(vhost, exchange.queue_name)
        resharding.check_exchange(state, definition)

    def steps(self, state: State) -> Steps:
        vhost, definition = state.vhost(self.definition.vhost), self.definition
        if definition.name in vhost.exchanges:
            return []
        exchange = make_exchange(definition)
        state.records.put_exchange(definition)
        shards = Preparation(state, vhost, vhost.policies, exchange)
        settings = resharding.settings_under(vhost.policies, definition.name)
        resharded = resharding.reshard(state, vhost, exchange, None, settings)
        yield from shards.prepare(chain(resharded, holding_queues.queue_of(state, vhost, exchange)))
        vhost.add_exchange(exchange)
        if isinstance(exchange, ConsistentHashExchange):
            state.records.note_new_ring(exchange)
        shards.publish()
        state.records.hand_over()
        return shards.changes

    def inverse(self, state: State) -> list[Change]:
        definition = self.definition
        if definition.name in state.vhost(definition.vhost).exchanges:
            return []
        return [DeleteExchange(definition.vhost, definition.name)]

    def changes_nothing(self, state: State) -> bool:
        current = state.vhost(self.definition.vhost).exchanges.get(self.definition.name)
        if current is None:
            return False
        equivalence.check_exchange(current, self.definition)
        return True


@dataclass(frozen=True, slots=True)
class DeleteExchange(ChangeInSteps):
    """Delete an exchange and its bindings; no change if the exchange does not exist.

    Attributes:
        if_unused: True to refuse if the exchange has bindings.
    """

    vhost: str
    name: str
    if_unused: bool = False

    def refuse_for_all(self) -> None:
        rules.refuse_default_exchange(self.name)
        if self.name.startswith(rules.RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system exchange '{self.name}' in vhost '{self.vhost}' not allowed")

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        yield Right("configure", self.vhost, "exchange", self.name)

    def check(self, state: State) -> None:
        vhost = state.vhost(self.vhost)
        self.refuse_for_all()
        exchange = vhost.exchanges.get(self.name)
        if exchange is not None and self.if_unused and exchange.bindings:
            raise PreconditionFailed(f"exchange '{self.name}' in vhost '{self.vhost}' in use")

    def steps(self, state: State) -> Steps:
        vhost = state.vhost(self.vhost)
        if self.name in vhost.exchanges:
            yield from vhost.removing_exchange(vhost.exchanges[self.name])
            state.records.hand_over()
        return []
