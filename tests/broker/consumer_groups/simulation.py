"""A consumer group and its queues, made of the broker's classes, under a scheduler."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from tests.broker.consumer_groups.checker import Checker
from tests.queues.consumers import Taker

from jumpmq.amqp.messages import Message
from jumpmq.broker.consumer_groups.group import ConsumerGroup, MemberSession, Partition
from jumpmq.queues import Outcome, clock
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.slots import Share

KEYS = 5
"""Number of distinct keys of each queue."""


class Feed(Taker):
    """A session's consumer of one queue."""

    def __init__(self, session: "Client", queue: ClassicQueue) -> None:
        super().__init__(queue)
        self.session = session
        self.share = Share()
        self.units: set[Partition] = set()
        self.waits = False

    def capacity(self) -> int:
        return self.session.prefetch - self.session.count

    def passed_over(self) -> None:
        self.waits = True

    def deliver(self, messages: list[Message]) -> None:
        super().deliver(messages)
        for message in messages:
            self.session.world.checker.delivered(
                self.session.name, next(self.session.world.tags), *key_and_number(message), message.redelivered
            )


class Failure(Exception):
    """Error raised by a session at the start or end of consuming."""


class Client(MemberSession):
    """A session of a member."""

    def __init__(self, world: "World", name: str, prefetch: int, timeout: float | None) -> None:
        self.world, self.name, self.prefetch, self.handover_timeout = world, name, prefetch, timeout
        self.feeds: dict[int, Feed] = {}

    @property
    def reader(self) -> str:
        return "user"

    @property
    def count(self) -> int:
        return sum(len(feed.held) for feed in self.feeds.values())

    def start(self, unit: Partition) -> int:
        self.world.fail()
        queue = self.world.queues[unit.queue]
        feed = self.feeds.setdefault(unit.queue_id, Feed(self, queue))
        first = not feed.units
        feed.units.add(unit)
        if unit.slot is not None:
            assert queue.slots is not None
            queue.slots.give(unit.slot, feed.share)
            if first:
                queue.subscribe(feed, feed.share)
        elif first:
            queue.subscribe(feed)
        queue.dispatch()
        self.world.fail()
        return queue.draw_epoch()

    def stop(self, unit: Partition) -> None:
        self.world.fail()
        feed = self.feeds.get(unit.queue_id)
        if feed is None or unit not in feed.units:
            return
        feed.units.discard(unit)
        if unit.slot is not None and feed.queue.slots is not None:
            feed.queue.slots.give(unit.slot, None)
        if not feed.units:
            feed.queue.unsubscribe(feed)

    def held(self, unit: Partition) -> int:
        feed = self.feeds.get(unit.queue_id)
        if feed is None:
            return 0
        return len(feed.held) if unit.slot is None else sum(one.slot == unit.slot for one in feed.held)

    def evict(self) -> None:
        self.handover_timeout = None
        self.prefetch = 0
        self.world.checker.gone(self.name)
        self.give_back(Outcome.CONSUMER_GONE)

    def give_back(self, outcome: Outcome) -> None:
        for feed in self.feeds.values():
            held, feed.held = feed.held, []
            feed.queue.settle(held, outcome)
            self.released(feed)
        self.serve()

    def settle(self, place: int, outcome: Outcome) -> None:
        """Settle a held delivery."""
        feeds = [feed for feed in self.feeds.values() if feed.held]
        if not feeds:
            return
        feed = feeds[place % len(feeds)]
        message = feed.held.pop(place % len(feed.held))
        self.world.settled(self.name, message, outcome)
        feed.queue.settle([message], outcome)
        self.released(feed)
        self.serve()

    def released(self, feed: Feed) -> None:
        """The session holds fewer messages of a queue."""
        queue = feed.queue
        slots = [None] if queue.slots is None else range(queue.slots.slots)
        self.world.group.released(Partition(queue.name, queue.id, slot) for slot in slots)

    def serve(self) -> None:
        for feed in list(self.feeds.values()):
            if feed.waits and self.count < self.prefetch:
                feed.waits = False
                feed.queue.admit(feed)
                feed.queue.dispatch()


class World:
    """Queues, a group, and its clients."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.now = 0.0
        self.tags = itertools.count(1)
        self.names = itertools.count(1)
        self.group = ConsumerGroup("g", rebalance_delay=0.5)
        self.queues: dict[str, ClassicQueue] = {}
        self.clients: list[Client] = []
        self.sent: dict[str, int] = {}
        self.failures: list[bool] = []
        for arguments in ({}, {"x-slots": 3}, {"x-slots": 4, "x-in-flight-per-slot": 1}):
            self.bind(arguments)

    def bind(self, arguments: dict[str, int]) -> None:
        name = f"q{len(self.sent)}"
        self.sent[name] = 0
        queue = self.queues[name] = ClassicQueue("/", name, id=len(self.sent), arguments=arguments)
        if queue.slots is not None:
            for slot in range(queue.slots.slots):
                queue.slots.give(slot, None)
        self.set_units()

    def fail(self) -> None:
        """Raise an error, if due."""
        if self.failures and self.failures.pop():
            raise Failure

    def step(self) -> None:
        """Perform the group's due work in slices, the shortest first, until no session raises."""
        for length in itertools.count(1):
            left = itertools.count(length, -1)
            try:
                if self.group.step(self.now, lambda left=left: next(left) > 0) > self.now:  # type: ignore[misc]
                    return
            except Failure:
                continue

    def set_units(self) -> None:
        shared = {queue.id for queue in self.queues.values()}
        for queue_id in {unit.queue_id for unit in self.group.places} - shared:
            self.group.forget_queue(queue_id, self.now)
        for queue in self.queues.values():
            slots = [None] if queue.slots is None else range(queue.slots.slots)
            self.group.set_queue(tuple(Partition(queue.name, queue.id, slot) for slot in slots), frozenset(), self.now)

    def publish(self, place: int, mortal: bool) -> None:
        queue = list(self.queues.values())[place % len(self.queues)]
        key = f"{queue.name}/{place % KEYS}"
        number = self.checker.publish(key)
        message = Message("", key.encode(), b"\0\0", b"%d" % number)
        if mortal:
            self.checker.may_go(key, number)
            message.expires_at = clock.now() - 1
            queue.expect_expiry()
        queue.push([message])

    def purge(self, place: int) -> None:
        queue = list(self.queues.values())[place % len(self.queues)]
        for message in queue.peek(1, queue.next_seq):
            self.checker.may_go(*key_and_number(message))
        queue.purge()

    def unbind(self, place: int) -> None:
        """Unbind a queue, and delete it if empty."""
        queue = list(self.queues.values())[place % len(self.queues)]
        if len(self.queues) > 1 and not queue.message_count:
            del self.queues[queue.name]
            self.failures.clear()
            self.set_units()

    def join(self, place: int) -> None:
        if len(self.clients) < 6:
            client = Client(self, f"c{next(self.names)}", 1 + place % 7, 0.7 if place % 3 == 0 else None)
            named = place % 5 == 0
            name, grace = (f"named{place % 2}", 2.0) if named else (client.name, 0.0)
            self.clients.append(client)
            self.group.join(client, name, 1 + place % 3, grace, self.now)

    def leave(self, place: int, end: bool) -> None:
        """Cancel a client's consumer, or end the client."""
        if self.clients:
            client = self.clients[place % len(self.clients)]
            with contextlib.suppress(Failure):
                self.group.leave(client, self.now)
            if end:
                self.end(client)

    def end(self, client: Client) -> None:
        client.prefetch = 0
        self.checker.gone(client.name)
        self.clients.remove(client)
        client.give_back(Outcome.CONSUMER_GONE)

    def restart(self) -> None:
        """Kill the broker: all sessions end, and a new group starts."""
        self.failures.clear()
        for client in list(self.clients):
            self.group.leave(client, self.now, for_good=True)
            self.end(client)
        self.step()
        assert not self.group._draining
        self.group = ConsumerGroup("g", rebalance_delay=0.5)
        self.set_units()

    def settled(self, name: str, message: Message, outcome: Outcome) -> None:
        found = key_and_number(message)
        tag = next(tag for tag, one in self.checker._open.items() if tag[0] == name and one == found)
        if outcome is Outcome.ACKNOWLEDGED:
            self.checker.acknowledge(*tag)
        else:
            self.checker.requeue(*tag)

    def act(self, actions: list[tuple[Callable[[Any, int], None], int]]) -> None:
        """Perform actions in turn; each may fail."""
        for act, place in actions:
            with contextlib.suppress(Failure):
                act(self, place)
            self.step()
            self.check()

    def come_to_rest(self) -> None:
        """End clients without membership, add a member, then wait without further actions."""
        for client in list(self.clients):
            if self.group.member_of(client) is None:
                self.end(client)
        self.join(1)
        for _ in range(20):
            self.now += 1.0
            self.step()
            self.check()

    def check(self) -> None:
        """Check the invariants."""
        assert not self.checker.faults, self.checker.faults
        for unit, place in self.group.places.items():
            holders = [client for client in self.clients if client.held(unit)]
            assert len(holders) <= 1
            assert not holders or holders[0] is place.holder
            fed = [client for client in self.clients if any(unit in feed.units for feed in client.feeds.values())]
            assert fed == ([place.holder] if place.holder is not None and place.draining_since is None else [])


def key_and_number(message: Message) -> tuple[str, int]:
    return message.routing_key.decode(), int(message.body)


ACTIONS: dict[str, Callable[[World, int], None]] = {
    "publish": lambda world, place: world.publish(place, False),
    "publish one that expires": lambda world, place: world.publish(place, True),
    "join": World.join,
    "cancel": lambda world, place: world.leave(place, False),
    "crash": lambda world, place: world.leave(place, True),
    "purge": World.purge,
    "unbind": World.unbind,
    "bind": lambda world, place: world.bind({"x-slots": 2} if place % 2 else {}) if len(world.queues) < 5 else None,
    "restart": lambda world, place: world.restart() if place % 20 == 0 else None,
    "acknowledge": lambda world, place: _settle(world, place, Outcome.ACKNOWLEDGED),
    "requeue": lambda world, place: _settle(world, place, Outcome.REQUEUED),
    "fail": lambda world, place: world.failures.extend(map(bool, (place & 1, place & 2, place & 4, place & 8))),
    "wait": lambda world, place: setattr(world, "now", world.now + place % 10 / 10),
}

OFTEN = ["publish", "acknowledge", "acknowledge", "publish", "wait", "join"]


def _settle(world: World, place: int, outcome: Outcome) -> None:
    if world.clients:
        world.clients[place % len(world.clients)].settle(place, outcome)
