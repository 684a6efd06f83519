"""Ring changes of a hash exchange while a consumer group shares its queues.

Topology, queues, ordering barriers, store and group are the broker's own, under a scheduler with any order of
steps.
"""

import contextlib
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.consumer_groups.simulation import ACTIONS as OF_GROUPS
from tests.broker.consumer_groups.simulation import OFTEN, World, key_and_number
from tests.generating import examples
from tests.in_memory import directory_in_memory
from tests.store.opened import Opened
from tests.topology.built import Built

from jumpmq.amqp.messages import Message
from jumpmq.broker.consumer_groups.group import ConsumerGroup
from jumpmq.queues import Outcome, Queue, clock
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.topology import AddVirtualHost, DeleteQueue, Topology
from jumpmq.topology.exchanges import Exchange

KEYS = 12
QUEUES = 6

ARGUMENTS: tuple[dict[str, int], ...] = ({}, {"x-slots": 3}, {}, {"x-slots": 2, "x-in-flight-per-slot": 1})


class RingWorld(World):
    """A hash exchange with up to :data:`QUEUES` queues, in place of queues published to by name.

    Args:
        kind: the exchange's type.
        removal: the ring's way of removing buckets.
    """

    def __init__(self, kind: str, removal: str, directory: Path, stack: ExitStack) -> None:
        self.kind = kind
        self.removal = removal
        self.opened = Opened(directory)
        stack.callback(lambda: self.opened.store.close())
        self.built = self._build()
        arguments = {"ordered-scaling": True, **({"ring-removal": removal} if kind == "x-consistent-hash" else {})}
        self.built.exchange("x", kind, arguments, durable=True)
        super().__init__()

    def _build(self) -> Built:
        self.woken: set[Queue] = set()
        topology = Topology("jumpmq@test", self.opened.store, wake=lambda queue, at: self.woken.add(queue))
        self.definitions = self.opened.store.definitions()
        topology.restore(self.definitions)
        if "/" not in topology.vhosts:
            topology.apply(AddVirtualHost("/"))
        return Built(topology)

    @property
    def exchange(self) -> Exchange:
        return self.built.vhost.exchange("x")

    def bind(self, arguments: dict[str, int]) -> None:
        """Bind a queue that is unbound or missing."""
        bound = {binding.destination for binding in self.exchange.bindings}
        name = next((one for one in map("q{}".format, range(QUEUES)) if one not in bound), None)
        if name is None:
            return
        if name not in self.built.vhost.queues:
            declared = cast("ClassicQueue", self.built.queue(name, ARGUMENTS[int(name[1:]) % 4], durable=True))
            if declared.slots is not None:
                for slot in range(declared.slots.slots):
                    declared.slots.give(slot, None)
            self.sent[name] = 0
        self.built.bind("x", name, "1" if self.sent[name] % 2 else "2")
        self.set_units()

    def unbind(self, place: int) -> None:
        """Unbind a queue, empty or not; or delete a queue, or change its weight."""
        bindings = list(self.exchange.bindings)
        if not bindings:
            return
        binding = bindings[place % len(bindings)]
        self.sent[binding.destination] += 1
        if place % 7 == 0:
            queue = self.built.vhost.queues[binding.destination]
            for messages in queue.view.browse(1, queue.next_seq):
                for message in messages:
                    self.checker.may_go(*key_and_number(message))
            for client in self.clients:
                for feed in client.feeds.values():
                    for message in feed.held if feed.queue is queue else ():
                        self.checker.may_go(*key_and_number(message))
                        self.settled(client.name, message, Outcome.REQUEUED)
                    if feed.queue is queue:
                        feed.held.clear()
            self.built.topology.apply(DeleteQueue("/", queue.name, queue.id))
        else:
            self.built.unbind("x", binding.destination, binding.key.decode())
            if place % 3 == 0:
                self.built.bind("x", binding.destination, "1" if self.sent[binding.destination] % 2 else "2")
        self.set_units()

    def set_units(self) -> None:
        bound = {binding.destination for binding in self.exchange.bindings}
        queues = self.built.vhost.queues.values()
        self.queues = {one.name: cast("ClassicQueue", one) for one in queues if one.name in bound or one.message_count}
        super().set_units()

    def publish(self, place: int, mortal: bool) -> None:
        key = f"k{place % KEYS}"
        if not self.exchange.bindings:
            return
        number = self.checker.publish(key)
        message = Message("x", key.encode(), b"\x10\x00\x02", b"%d" % number, True)
        (queue,) = self.built.route("x", message, plain=True).queues
        if mortal:
            self.checker.may_go(key, number)
            message.expires_at = clock.now() - 1
            queue.expect_expiry()
        queue.push([message])

    def purge(self, place: int) -> None:
        if self.queues:
            super().purge(place)

    def restart(self) -> None:
        """Kill the broker, after its last commit or with uncommitted changes."""
        self.failures.clear()
        for client in list(self.clients):
            self.group.leave(client, self.now, for_good=True)
            self.checker.gone(client.name)
        self.clients.clear()
        self.built.topology.flush_rings()
        self.opened.commit()
        killed = self.opened
        self.opened = killed.crash()
        killed.store.close()
        self.built = self._build()
        topology, definitions = self.built.topology, self.definitions
        topology.fences.restore(definitions)
        records = records_of_queues(definitions, clean=False)
        batches = self.opened.store.batches()
        for queue in self.built.vhost.queues.values():
            queue.restore(batches.get(queue.id, []), records.get(queue.id, QueueRecords()))
        topology.fences.count_restored()
        for queue in self.built.vhost.queues.values():
            if queue.slots is not None:
                for slot in range(queue.slots.slots):
                    queue.slots.give(slot, None)
        self.group = ConsumerGroup("g", rebalance_delay=0.5)
        self.set_units()

    def step(self) -> None:
        self.opened.store.completed()  # messages read back arrive
        while self.woken:
            queue = self.woken.pop()
            if not queue.deleted:
                queue.maintain(clock.now())
        super().step()
        if set(self.queues) != {one.name for one in self.built.vhost.queues.values() if one.message_count} | {
            binding.destination for binding in self.exchange.bindings
        }:
            self.failures.clear()
            self.set_units()
            super().step()

    @property
    def fenced(self) -> int:
        return sum(queue.fenced_count for queue in self.built.vhost.queues.values())


ACTIONS: dict[str, Callable[[World, int], None]] = {
    **OF_GROUPS,
    "bind": lambda world, place: world.bind({}),
    "requeue": lambda world, place: _requeue(world, place),
}
del ACTIONS["fail"]


def _requeue(world: World, place: int) -> None:
    """Requeue all deliveries of a client: in a queue without slots, a single one would be overtaken."""
    if world.clients:
        client = world.clients[place % len(world.clients)]
        for feed in client.feeds.values():
            for message in feed.held:
                world.settled(client.name, message, Outcome.REQUEUED)
        client.give_back(Outcome.REQUEUED)


@contextlib.contextmanager
def world_of(kind: str, removal: str) -> Iterator[RingWorld]:
    with directory_in_memory() as directory, ExitStack() as stack:
        yield RingWorld(kind, removal, Path(directory) / "broker", stack)


EXCHANGES = [("x-consistent-hash", "minimal"), ("x-consistent-hash", "shift"), ("x-modulus-hash", "")]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(EXCHANGES),
    st.lists(
        st.tuples(st.sampled_from([*ACTIONS, *OFTEN, "bind", "unbind", "publish", "publish"]), st.integers(0, 1000)),
        min_size=30,
        max_size=300,
    ),
)
def test_keys_stay_in_order_whatever_becomes_of_the_ring(kind: tuple[str, str], actions: list[tuple[str, int]]) -> None:
    with world_of(*kind) as world:
        world.act([(ACTIONS[name], place) for name, place in actions])
        world.come_to_rest()
        for _ in range(3000):
            for client in world.clients:
                client.settle(0, Outcome.ACKNOWLEDGED)
            world.step()
            world.check()
            world.now += 0.1
            if not any(queue.message_count for queue in world.built.vhost.queues.values()):
                break
            if not any(client.count for client in world.clients):
                select.select([world.opened.store.fileno()], [], [], 0.05)
        world.checker.check()
        assert not list(world.built.topology.fences.figures("/"))
        world.restart()
        assert not [kind for kind, _, _ in world.definitions if kind.startswith("fence_")]
