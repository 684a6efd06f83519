"""Changes of homes and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.topology import rules
from jumpmq.topology.changes import holding_queues, resharding
from jumpmq.topology.changes.base import Change, ChangeInSteps, Steps
from jumpmq.topology.changes.preparing import Preparation
from jumpmq.topology.changes.queues import DeleteQueue, end_move
from jumpmq.topology.definitions import home_of

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.state import State
    from jumpmq.topology.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class AddHome(ChangeInSteps):
    """A home starts on a node, possibly after a different one; missing shards of the node are made.

    Queues that do not outlive the home's process, transient and exclusive ones, are deleted.

    Attributes:
        home: number of the home, from 1.
    """

    home: int
    node: str

    def check(self, state: State) -> None:
        rules.refuse_forgotten(state.forgotten, self.home)

    def steps(self, state: State) -> Steps:
        if state.homes.get(self.home) != self.node:
            state.homes[self.home] = self.node
            state.records.put_home(self.home, self.node, self.home in state.left)
        prepared = []
        for vhost in state.vhosts.values():
            shards = Preparation(state, vhost, vhost.policies)
            ended = vhost.ended_with(self.home)
            yield from shards.end(ended)
            names = {declared.name for declared in ended}
            missing = chain(resharding.missing(state, vhost, names), holding_queues.missing(state, vhost, names))
            yield from shards.prepare(missing)
            prepared.append(shards)
        # All virtual hosts in one step and one commit, once everything is prepared.
        for vhost, shards in zip(state.vhosts.values(), prepared, strict=True):
            vhost.follow_home(self.home, self.node)
            shards.publish()
        state.records.hand_over()
        return [made for shards in prepared for made in shards.changes]


@dataclass(frozen=True, slots=True)
class ForgetNode(ChangeInSteps):
    """Remove a stopped node from the cluster, with the homes and queues of the node.

    The numbers of its homes are not used again.

    Attributes:
        loss: treatment of a removal that loses confirmed messages, when the change is appended to a cluster's log. The
            log and the records do not have this attribute.
    """

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"loss"})

    node: str
    loss: Literal["unchecked", "refused", "accepted"] = field(default="unchecked", compare=False)

    def to_json(self) -> dict[str, Any]:
        return {"change": type(self).__name__, "node": self.node}

    def check(self, state: State) -> None:
        homes = state.nodes.get(self.node)
        if homes is None:
            raise NotFound(f"node '{self.node}' is not in the cluster")
        if len(state.nodes) == 1:
            raise PreconditionFailed(f"node '{self.node}' is the only one of the cluster")

    def refuse_own_end(self, state: State) -> None:
        if state.homes.get(state.home) == self.node:
            raise PreconditionFailed(f"node '{self.node}' cannot forget itself; where others have, it keeps its data")

    def steps(self, state: State) -> Steps:
        gone = state.nodes[self.node]
        prepared = []
        for vhost in state.vhosts.values():
            shards = Preparation(state, vhost, vhost.policies)
            yield from shards.end(declared for home in gone for declared in vhost.queues_of(home))
            yield from shards.prepare(_holding_elsewhere(state, vhost, shards, gone))
            prepared.append(shards)
        for home in gone:
            del state.homes[home]
            state.left.discard(home)
            state.forgotten[home] = self.node
            state.records.put_forgotten_home(home, self.node)
        for shards in prepared:
            shards.publish()
        for vhost in state.vhosts.values():
            for declared in vhost.declared.values():
                before = declared.definition.before
                if before and home_of(before) in gone:  # the rest at a removed home is gone
                    end_move(state, declared)
        state.records.hand_over()
        return _ended_and_made(prepared)


@dataclass(frozen=True, slots=True)
class HomeDown(ChangeInSteps):
    """Delete the queues that do not outlive the process of a home, after the home has been down for a while.

    Attributes:
        queues: ids of the queues, as known to the proposer; later queues of a restarted home stay.
    """

    home: int
    queues: tuple[int, ...]

    def steps(self, state: State) -> Steps:
        gone = frozenset(self.queues)
        return (yield from _end_queues(state, self.home, lambda declared: declared.id in gone))


@dataclass(frozen=True, slots=True)
class LeaveHome(Change):
    """Vacate a home, or cancel the vacating: no queue is placed in the home, and existing queues move away."""

    home: int
    leaves: bool = True

    def check(self, state: State) -> None:
        if self.home not in state.homes:
            raise NotFound(f"there is no home {self.home}")
        if self.leaves and not state.homes.keys() - state.left - {self.home}:
            raise PreconditionFailed(f"home {self.home} cannot be left: there is no other for its queues")

    def effect(self, state: State) -> None:
        if self.leaves is not (self.home in state.left):
            (state.left.add if self.leaves else state.left.discard)(self.home)
            state.records.put_home(self.home, state.homes[self.home], self.leaves)


@dataclass(frozen=True, slots=True)
class RemoveHome(ChangeInSteps):
    """Remove an empty home from the broker; queues that do not outlive its process are deleted. The number may be used
    again; queue numbers continue.
    """

    home: int

    def check(self, state: State) -> None:
        if self.home not in state.homes:
            return
        if self.home not in state.left:
            raise PreconditionFailed(f"home {self.home} cannot be removed: it is not being removed")
        if self.home < (last := max(state.nodes[state.node_of(self.home)])):
            raise PreconditionFailed(f"home {self.home} cannot be removed before home {last}")
        for vhost in state.vhosts.values():
            for queue in vhost.queue_definitions():
                if (queue.home == self.home and queue.is_kept) or home_of(queue.before) == self.home:
                    raise PreconditionFailed(
                        f"home {self.home} cannot be removed: queue '{queue.name}' in vhost '{vhost.name}' is there"
                    )

    def steps(self, state: State) -> Steps:
        if self.home not in state.homes:
            return []
        del state.homes[self.home]
        state.left.discard(self.home)
        state.records.delete_home(self.home)
        return (yield from _end_queues(state, self.home, lambda declared: True))


def _end_queues(state: State, home: int, ends: Callable[[DeclaredQueue], bool]) -> Steps:
    """Delete queues that end with the process of a home, if selected by ``ends``."""
    prepared = []
    for vhost in state.vhosts.values():
        shards = Preparation(state, vhost, vhost.policies)
        yield from shards.end(declared for declared in vhost.ended_with(home) if ends(declared))
        yield from shards.prepare(_holding_elsewhere(state, vhost, shards, [home]))
        prepared.append(shards)
    for shards in prepared:
        shards.publish()
    state.records.hand_over()
    for declared in [declared for shards in prepared for declared in shards.ended]:
        if declared.contents is not None:
            declared.contents.delete()
    return _ended_and_made(prepared)


def _holding_elsewhere(state: State, vhost: VirtualHost, shards: Preparation, gone: Iterable[int]) -> Iterator[Change]:
    """Return the changes that recreate, at other homes, the queues of exchanges ending with the ``gone`` homes."""
    return holding_queues.missing(state, vhost, {declared.name for declared in shards.ended}, frozenset(gone))


def _ended_and_made(prepared: list[Preparation]) -> list[Change]:
    ended = [declared for shards in prepared for declared in shards.ended]
    deleted = [DeleteQueue(declared.vhost, declared.name, declared.id) for declared in ended]
    return [*deleted, *(made for shards in prepared for made in shards.changes)]
