"""Publishes dead-lettered messages, and settles the originals afterwards.

A dead letter can itself cause a further one: it overflows a queue, whose own dead letter overflows the next queue. Dead
messages therefore wait in a list. The list is processed in order and in steps, without recursion. A letter is staged
before its original is settled, so no commit settles the original without the letter.

A letter for a queue of another home is staged in the outbox, which delivers the letter once and in order. If the remote
queue may refuse messages, the letter is sent at once, and the original is settled after the answer of the other home.

A queue may dead-letter *at least once*. If such a letter has no destination, or a destination refuses it, the letter is
tried again, and the original is not settled. After a restart the original is in its queue again.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple, Protocol, TypeVar

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import EXPIRATION
from jumpmq.broker.dead_letters.dead_letters import Dead, DeadLetter, DeadLetterOrigin, dead_letters
from jumpmq.broker.dead_letters.due_messages import due_messages, to_pass
from jumpmq.broker.dead_letters.undelivered_dead_letters import UndeliveredDeadLetters
from jumpmq.broker.routing.routing import push_to
from jumpmq.broker.routing.sending import Sender, Sent, may_refuse
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue
from jumpmq.queues.deduplicating import PASSED
from jumpmq.queues.delayed import DUE
from jumpmq.queues.memory import MemoryAccount, held_octets
from jumpmq.queues.runs import settle_stored
from jumpmq.topology import Topology, VirtualHost
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.exchanges.holding import HoldingExchange

log = logging.getLogger(__name__)

SLICE = 0.001
"""Seconds of publishing dead-lettered messages before remaining tasks are served."""

PIECE = 200
"""Dead-lettered messages routed together. The time depends on the destinations, and seldom exceeds a millisecond."""

AWAY = 32 << 20
"""Maximum octets of originals with letters on the way to other homes; at the maximum, dead messages stay in their
queues.
"""

HELD = frozenset({DUE, PASSED})
"""Reasons of messages returning to exchanges after a hold: not dead-lettered messages."""

CYCLES_ALLOWED = HELD | {"rejected"}
"""Reasons for which a message may return to a queue of an earlier death."""

MAX_ROUTING_KEY = 255
"""Maximum octets of a routing key in a delivery. A queue's ``x-dead-letter-routing-key`` may be longer."""


class _SentDeadLetters(NamedTuple):
    """Dead-lettered messages sent to other homes.

    Attributes:
        dead_letters: ``id`` of each dead letter, by the ``id`` of its original.
        kept: the dead letters, kept alive so that each ``id`` stays unique.
    """

    sent: Sent
    dead_letters: dict[int, int]
    kept: list[DeadLetter]


class DeadLetterKeeper(Protocol):
    """Keeps dead-lettered messages for queues of other homes until delivered."""

    @property
    def is_full(self) -> bool:
        """True if the keeper is full, so that no more messages need leave the queues."""

    def add_dead_letters(self, queue: DeclaredQueue, messages: list[Message]) -> None:
        """Keep dead-lettered messages for a queue, in the commit of the current turn."""


class DeadLetters:
    """The dead letters of a broker.

    Args:
        upkeep: continues the work if many messages died at once.
        account: charged, as ``staged``, for waiting messages.
        sender: sends dead letters to queues of other homes that may refuse messages.
        keeper: keeps dead letters for other queues of other homes.
        is_held_up: returns True while nothing may be published.
        spans: records spans of traced messages.

    Attributes:
        counts: number of dead messages, by queue type, reason, and dead-lettering strategy: ``disabled``,
            ``at_most_once`` or ``at_least_once`` (RabbitMQ's terms).
        arrived: number of messages dead-lettered at least once whose letters have reached all their queues.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        account: MemoryAccount,
        sender: Sender,
        keeper: DeadLetterKeeper,
        is_held_up: Callable[[], bool],
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans  # records spans of traced messages
        self._upkeep = upkeep  # continues work that is too long for a turn
        self._account = account  # charged for waiting messages
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.arrived = 0
        self._topology: Topology  # has the exchanges
        self._sender = sender  # for queues of other homes that may refuse letters
        self._keeper = keeper  # keeps dead letters for other queues of other homes
        self._is_held_up = is_held_up  # returns True while nothing may be published
        self._kept: set[int] = set()  # ids of queues with kept letters since the keeper last had room
        self._waiting: deque[Dead] = deque()  # dead messages to publish
        self._publishing = False  # True while publishing
        self._continuing = False  # True while the upkeep continues the publishing
        self._failed: set[int] = set()  # queues with a logged failure
        self._undelivered = UndeliveredDeadLetters()  # dead letters to try again
        self._away_octets = 0  # octets of originals with letters that other homes have not answered

    def serve(self, topology: Topology) -> None:
        """Publish to the exchanges of a topology. Call this before messages die in the topology's queues."""
        self._topology = topology

    def is_behind(self, queue: Queue) -> bool:
        """Return True if dead-lettered messages wait to be published, or many wait for the disk, or for the destination
        of a queue's dead-lettered messages.
        """
        if self._waiting or self._away_octets > AWAY:
            return True
        return queue.id in self._kept and self._keeper.is_full

    def publish(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Dead-letter undelivered messages removed from a queue, and settle the originals; messages without a
        dead-letter exchange are dropped.

        Args:
            reason: ``expired``, ``maxlen``, ``rejected`` or ``delivery_limit``; or one of :data:`HELD`.
        """
        # Taken at the death: a later change of the policy does not redirect waiting letters.
        limits = queue.limits
        key = limits.dead_letter_routing_key
        octets = None if key is None else key.encode(errors="surrogateescape")
        origin = DeadLetterOrigin(queue.name, limits.dead_letter_exchange or "", octets)
        strategy = "at_least_once" if limits.dead_letters_at_least_once else "at_most_once"
        if reason not in HELD:
            self.counts[queue.type, reason, strategy] += len(messages)
        self._account.charge("staged", held_octets(messages))
        queue.dead_count += len(messages)
        self._waiting.append(Dead(queue, origin, messages, reason, limits.dead_letters_at_least_once))
        self._publish_soon()

    def count_discarded(self, queue: Queue, count: int, reason: str) -> None:
        """Count messages that left a queue without a dead-letter exchange, and were dropped."""
        self.counts[queue.type, reason, "disabled"] += count

    def look(self) -> None:
        """Retry due dead-lettered messages."""
        if due := list(self._undelivered.due()):
            self._waiting += due
            self._publish_soon()

    def _count_away(self, octets: int) -> None:
        self._away_octets += octets
        self._account.charge("staged", octets)

    def _publish_soon(self) -> None:
        # A letter may cause further letters during its publishing: these join the list, without recursion.
        if self._publishing or self._continuing:
            return
        self._publish_some()
        if self._waiting:
            self._continuing = True
            self._upkeep.work("dead-lettering", self._go_on())

    def _go_on(self) -> Iterator[None]:
        while self._waiting:
            self._publish_some()
            yield
        self._continuing = False

    def _publish_some(self) -> None:
        self._publishing = True
        try:
            until = time.perf_counter() + SLICE
            while self._waiting and not self._is_held_up():
                dead, rest = self._waiting.popleft().cut(PIECE)
                if rest is not None:
                    # The rest stays first, so that the letters of a queue keep their order.
                    self._waiting.appendleft(rest)
                self._account.charge("staged", -held_octets(dead.messages))
                self._publish(dead)
                if time.perf_counter() > until:
                    break
        finally:
            self._publishing = False

    def _publish(self, dead: Dead) -> None:
        vhost = self._topology.vhosts.get(dead.queue.vhost)
        if dead.at_least_once:
            self._publish_at_least_once(vhost, dead)
            return
        exchange = vhost.exchanges.get(dead.origin.exchange) if vhost is not None else None
        sent = None
        if vhost is not None and exchange is not None:
            try:
                sent = self._send(vhost, exchange, dead)
            # A defective destination must not stop the dead-lettering of other queues.
            except Exception as error:
                self._fail(dead, error)
        # Behind the push: the commit that settles the originals has the letters, too.
        if sent is None:
            _settle_dead(dead.queue, dead.messages)
        else:
            self._settle_answered(dead, dead.messages, sent)

    def _fail(self, dead: Dead, error: Exception) -> None:
        if dead.queue.id not in self._failed:
            self._failed.add(dead.queue.id)
            where = (dead.queue.name, dead.queue.vhost)
            log.error("dead letters of queue %r in vhost %r are lost", *where, exc_info=error)

    def _settle_answered(self, dead: Dead, messages: list[Message], sent: "_SentDeadLetters") -> None:
        """Settle the originals of delivered letters; those sent to other homes are settled after the answers.

        Letters are tried again if the other home failed, or if at-least-once dead-lettering requires it after a
        refusal.
        """
        away = [message for message in messages if id(message) in sent.dead_letters]
        _settle_dead(dead.queue, [message for message in messages if id(message) not in sent.dead_letters])
        octets = held_octets(away)
        self._count_away(octets)

        def answered() -> None:
            self._count_away(-octets)
            must_retry = sent.sent.was_refused if dead.at_least_once else sent.sent.was_lost
            again = {id(message) for message in away if must_retry(sent.dead_letters[id(message)])}
            done = [message for message in away if id(message) not in again]
            if dead.at_least_once:
                self._undelivered.forget(done)
                self.arrived += len(done)
            _settle_dead(dead.queue, done)
            if again:
                lost = any(sent.sent.was_lost(sent.dead_letters[one]) for one in again)
                left = [message for message in away if id(message) in again]
                self._try_again(dead._replace(messages=left, is_again=dead.is_again or lost))

        self._sender.when_answered(sent.sent, answered)

    def _try_again(self, dead: Dead) -> None:
        # The originals are gone with their queue, so their letters are not tried again.
        if dead.queue.deleted:
            _settle_dead(dead.queue, dead.messages)
            return
        self._account.charge("staged", held_octets(dead.messages))
        self._undelivered.keep(dead)

    def _publish_at_least_once(self, vhost: VirtualHost | None, dead: Dead) -> None:
        if vhost is None or dead.queue.deleted:
            self._undelivered.forget(dead.messages)
            _settle_dead(dead.queue, dead.messages)
            return
        exchange = vhost.exchanges.get(dead.origin.exchange)
        left, sent = dead.messages, None
        if exchange is not None:
            left, sent = self._left(vhost, exchange, dead)
        left_ids = set(map(id, left))
        done = [message for message in dead.messages if id(message) not in left_ids]
        at_once = done if sent is None else [message for message in done if id(message) not in sent.dead_letters]
        self._undelivered.forget(at_once)
        self.arrived += len(at_once)
        if sent is None:
            _settle_dead(dead.queue, done)
        else:
            self._settle_answered(dead, done, sent)
        if left:
            self._account.charge("staged", held_octets(left))
            self._undelivered.keep(dead._replace(messages=left))
        else:
            self._undelivered.hurry(dead.queue)

    def _left(
        self, vhost: VirtualHost, exchange: Exchange, dead: Dead
    ) -> tuple[list[Message], "_SentDeadLetters | None"]:
        """Send dead-lettered messages; return the originals of messages missing in some local queue, and the messages
        sent to other homes."""
        found = dead_letters(dead.origin, dead.messages, dead.reason)
        routed = vhost.route(exchange, [letter.message for letter in found])
        routed.strip()
        self._tell(dead, found, routed.queues)
        originals = {id(letter.message): original for letter, original in zip(found, dead.messages, strict=True)}
        reached: set[int] = set()
        refused: set[int] = set()
        for target, share in routed.queues.items():
            reached.update(map(id, share))
            wanted = share if dead.reason == "rejected" else _without_circles(share, found, target.name)
            # A retry must not double the letter in queues that have it.
            wanted = [one for one in wanted if not self._undelivered.has_reached(originals[id(one)], target.name)]
            for one in wanted:
                one.routing_key = one.routing_key[:MAX_ROUTING_KEY]
            back = set(map(id, target.push(wanted))) if wanted else set()
            refused |= back
            self._undelivered.reached([originals[id(one)] for one in wanted if id(one) not in back], target.name)
        sent = self._send_away(vhost, dead, found, routed.remote)
        # Letters for other homes count as reached: the outbox keeps them, or an answer decides later.
        for share in (routed.remote or {}).values():
            reached.update(map(id, share))
        left = [original for letter, original in originals.items() if letter in refused or letter not in reached]
        return left, sent

    def _send_away(
        self, vhost: VirtualHost, dead: Dead, found: list[DeadLetter], routes: dict[DeclaredQueue, list[Message]] | None
    ) -> "_SentDeadLetters | None":
        """Send dead-lettered messages to queues of other homes; return those sent to queues that may refuse. The rest
        are kept until delivered."""
        if routes is None:
            return None
        wanted = {}
        for target, share in routes.items():
            share = share if dead.reason in CYCLES_ALLOWED else _without_circles(share, found, target.name)
            for one in share:
                one.routing_key = one.routing_key[:MAX_ROUTING_KEY]
            if may_refuse(vhost, target):
                wanted[target] = share
                for one in share if dead.is_again else ():
                    one.redelivered = True
            elif new := self._new(dead, found, share, target.name):
                if not self._keeper.is_full:
                    self._kept.clear()
                self._kept.add(dead.queue.id)
                self._keeper.add_dead_letters(target, new)
        wanted = {target: share for target, share in wanted.items() if share}
        if not wanted:
            return None
        sent = self._sender.send(wanted, EXPIRATION)
        both = zip(found, dead.messages, strict=True)
        dead_letters = {
            id(original): id(letter.message) for letter, original in both if id(letter.message) in sent.sources
        }
        return _SentDeadLetters(sent, dead_letters, found)

    def _new(self, dead: Dead, found: list[DeadLetter], share: list[Message], target: str) -> list[Message]:
        """Return a queue's letters that the queue has not received yet. A letter that missed another queue is tried
        again.
        """
        if not dead.at_least_once:
            return share
        originals = {id(letter.message): original for letter, original in zip(found, dead.messages, strict=True)}
        new = [one for one in share if not self._undelivered.has_reached(originals[id(one)], target)]
        self._undelivered.reached([originals[id(one)] for one in new], target)
        return new

    def _send(self, vhost: VirtualHost, exchange: Exchange, dead: Dead) -> "_SentDeadLetters | None":
        """Send dead-lettered messages; return the messages sent to other homes."""
        is_due = dead.reason in HELD
        found = (
            due_messages(dead.queue.name, dead.messages, dead.reason)
            if is_due
            else dead_letters(dead.origin, dead.messages, dead.reason)
        )
        messages = [letter.message for letter in found]
        with exchange.passing() if isinstance(exchange, HoldingExchange) and is_due else nullcontext():
            routed = vhost.route(exchange, messages)
        routed.strip()
        if is_due:
            vhost.past.channels.drop_unroutable += len(routed.unroutable)
            _pass_on(found, routed.queues)
            _pass_on(found, routed.remote or {})
        else:
            self._tell(dead, found, routed.queues)
        for message in messages:
            if len(message.routing_key) > MAX_ROUTING_KEY:
                message.routing_key = message.routing_key[:MAX_ROUTING_KEY]
        for target, share in routed.queues.items():
            if dead.reason not in CYCLES_ALLOWED:
                share = _without_circles(share, found, target.name)
            if share:
                push_to(target, share, EXPIRATION if any(one.expires_at for one in share) else 0)
        # Messages routed before the error are pushed; only the others are lost.
        if routed.error is not None:
            self._fail(dead, routed.error)
        return self._send_away(vhost, dead, found, routed.remote)

    def _tell(self, dead: Dead, found: list[DeadLetter], routes: dict[Queue, list[Message]]) -> None:
        if self._spans is not None:
            self._spans.dead_lettered(dead.origin.queue, dead.reason, [letter.message for letter in found], routes)


Target = TypeVar("Target", Queue, DeclaredQueue)


def _pass_on(found: list[DeadLetter], routes: dict[Target, list[Message]]) -> None:
    """Prepare messages for the queue of another exchange: note the exchanges passed so far.

    Messages that have passed that exchange before are dropped, so exchanges bound in a ring pass a message once each.
    """
    targets = [one for one in routes if one.is_internal]
    dead_letters = {id(letter.message): letter for letter in found} if targets else {}
    for target in targets:
        fresh = _without_circles(routes[target], found, target.name)
        routes[target] = to_pass(dead_letters[id(message)] for message in fresh)


def _settle_dead(queue: Queue, messages: list[Message]) -> None:
    """Settle messages dead in a queue."""
    queue.dead_count -= len(messages)
    settle_stored(messages)


def _without_circles(share: list[Message], found: list[DeadLetter], queue: str) -> list[Message]:
    """Return a queue's share without dead-lettered messages in a cycle."""
    verdicts: dict[int, bool] = {}  # neighbours mostly share their deaths
    circling = set()
    for letter in found:
        verdict = verdicts.get(id(letter.deaths))
        if verdict is None:
            verdict = verdicts[id(letter.deaths)] = letter.comes_back_to(queue)
        if verdict:
            circling.add(id(letter.message))
    return [message for message in share if id(message) not in circling] if circling else share
