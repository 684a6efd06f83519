"""Moves of queues to another home: messages follow in order and without duplicates.

A move has these steps:

1. The change :class:`~jumpmq.topology.changes.MoveQueue` gives the queue its new home. Messages published from now on
   go to the new home, and wait there (:attr:`~jumpmq.queues.Queue.behind`).
2. Once all homes have applied the change, the old home cancels the queue's consumers, and takes back deliveries that
   are not settled soon (``Timing.settle_grace``, :mod:`jumpmq.nodes.timing`).
3. The old home sends the queue's messages through the :mod:`~jumpmq.nodes.messages.outbox`. The messages enter the
   queue at the new home, and are delivered at once.
4. When the old home has no messages left, and no other home can still send any to the old home, the change
   :class:`~jumpmq.topology.changes.EndMove` ends the move. The messages that waited since step 1 enter the queue.

For a stream, step 3 concerns files. On one machine the new home takes over the directory (:data:`HAND`), after the last
message for the old home. To another machine, and from or to a home with copies, the files are copied: nearly all of
them before step 1 (:mod:`jumpmq.nodes.moves.stream_moves`), the rest in step 3.

The definitions and the stores of both homes record the state of a move. After a kill of any process, the move
continues.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.group_consumer import MemberChannel
from jumpmq.broker.channel.returning import give_back
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.consumer_groups.group import GroupCounts
from jumpmq.broker.peers import MoveFigures
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.log.log_link import OnDisk
from jumpmq.nodes.messages.outbox import Outbox, ahead_of
from jumpmq.nodes.moves.move_tasks import MoveTasks
from jumpmq.nodes.moves.stream_copies import StreamCopies
from jumpmq.nodes.moves.stream_moves import Readers, StreamMoves
from jumpmq.nodes.moves.stream_offers import CopyRefused, StreamOffers
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import EPOCH, FILES, HAND, MOVE_ANSWER, MOVED, OWNED, QUESTION
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.stream import Stream
from jumpmq.store import Store, StoreError
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import Change, ChangePrincipal, DeleteQueue, EndMove, MoveQueue, Topology
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import home_of

SLICE = 1000
"""Maximum number of messages moved together."""

PAUSE = 0.02
"""Interval between checks of an awaited condition, in seconds."""

log = logging.getLogger(__name__)


class Moves:
    """Moves with the local home as source or destination.

    Args:
        store: records pending moves of streams to other machines; None if everything is in memory.

    Attributes:
        streams: moves of streams whose files are copied first.
    """

    def __init__(
        self,
        links: Links,
        turns: Turns,
        outbox: Outbox,
        store: Store | None,
        on_disk: OnDisk,
        has_copies: Callable[[int], bool],
    ) -> None:
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._on_disk = on_disk  # calls back once a change is on disk
        self._outbox = outbox  # messages in flight to peers
        self._topology: Topology  # knows the queues
        self._channels: Callable[[], Iterable[MemberChannel]]  # all channels that may hold deliveries
        self._on_moved: Callable[[Queue], object]  # called after a queue has moved
        self._files: StreamFiles  # of the local streams
        self._serves = False  # whether the local queues are loaded
        self._tasks = MoveTasks(links.timing.stalled_move)  # by the current id of the queue
        self._offers = StreamOffers(links, turns)  # sends files to homes on other machines
        self._copies = StreamCopies(links, turns, self._awaiting)  # incoming copies of peers' streams
        self.streams = StreamMoves(self._offers, self._tasks, turns, store, links.timing.near_octets, has_copies)
        self._leaving: dict[int, Queue] = {}  # parts left behind of moving queues, by the new id
        self._answered: dict[bytes, set[int]] = {}  # homes that have answered, by question
        links.handlers[MOVED] = self._asked
        links.handlers[MOVE_ANSWER] = self._answer
        links.handlers[HAND] = self._handed
        links.handlers[OWNED] = self._owned
        self._taking: dict[int, asyncio.Task[None]] = {}  # tasks that take over files, by the stream's id

    def serve(
        self,
        topology: Topology,
        channels: Callable[[], Iterable[MemberChannel]],
        on_moved: Callable[[Queue], object],
        files: StreamFiles,
        disk_limit: Callable[[], int],
        readers: Readers,
    ) -> None:
        """Continue pending moves, and start accepting new moves.

        Args:
            channels: returns all channels that may hold deliveries of queues here.
            on_moved: called with a queue that has moved away, before its consumers are cancelled.
            files: the files of the local streams.
            disk_limit: returns the octets of disk that have to stay free.
            readers: know the queues with messages held by reader groups.
        """
        self._topology, self._channels, self._on_moved, self._serves = topology, channels, on_moved, True
        topology.listeners.append(self._follow)
        self._files = files
        declared = [one.definition for host in topology.vhosts.values() for one in host.declared.values()]
        self._copies.serve(files, disk_limit, {number for one in declared for number in (one.id, one.before)})
        for one in declared:
            if one.home == topology.home and one.before:
                self._copies.expect(one.id, one.before)
        for host in topology.vhosts.values():
            for name, departed in host.departed.items():
                self._leave(host.declared[name])
                self._follow_up(departed)
            for name, queue in host.queues.items():
                if not host.declared[name].definition.before:
                    self._follow_up(queue)
                    if isinstance(queue, Stream) and queue.behind is None:
                        queue.move.forget()
        self.streams.serve(topology, readers)

    def stop(self) -> None:
        """Cancel all tasks; the next run of the process continues the moves."""
        self._tasks.stop()
        self._offers.stop()
        self._copies.stop()
        for task in self._taking.values():
            task.cancel()

    def _follow(self, change: Change, principal: ChangePrincipal) -> None:
        self.streams.follow(change)
        if isinstance(change, MoveQueue):
            self._expect(change)
        match change:
            case MoveQueue(vhost, name) if name in self._topology.vhosts[vhost].departed:
                if (queue := self._topology.vhosts[vhost].declared[name]).id not in self._leaving:
                    self._leave(queue)
            case EndMove(vhost, name, number):
                self._leaving.pop(number, None)
                declared = self._topology.vhosts[vhost].declared.get(name)
                if declared is not None and declared.id == number and declared.contents is not None:
                    self._follow_up(declared.contents)
            case DeleteQueue(id=number):
                self._tasks.end(number)
                self._copies.forget(number)
                if (contents := self._leaving.pop(number, None)) is not None:
                    if (host := self._topology.vhosts.get(contents.vhost)) is not None:
                        host.departed.pop(contents.name, None)
                    contents.delete()

    def figures(self) -> list[MoveFigures]:
        """Return the moving queues, from and to the local home."""
        return self._tasks.figures()

    def _expect(self, change: MoveQueue) -> None:
        """Expect the files of a queue that may have moved here."""
        declared = self._topology.vhosts[change.vhost].declared.get(change.name)
        if declared is not None and isinstance(declared.contents, Stream) and declared.contents.move.awaits:
            self._copies.expect(declared.id, declared.definition.before)

    # --- at the old home ---

    def _leave(self, queue: DeclaredQueue) -> None:
        contents = self._topology.vhosts[queue.vhost].departed[queue.name]
        self._leaving[queue.id] = contents
        # The number of this change: all homes have to apply it before the first message is sent.
        self._tasks.run(queue, self._send(queue, contents, self._topology.applied))

    async def _send(self, queue: DeclaredQueue, contents: Queue, applied: int) -> None:
        # First all homes route to the new home: whatever is published later comes there, behind these messages.
        await self._ask(queue, QUESTION.pack(queue.definition.before, applied, False))
        with self._turns.turn():
            contents.moved = True
            contents.tell_gone()
            self._on_moved(contents)
            contents.leave_consumers()
        # Before any message: the owners that the new home names must have higher numbers than those named here.
        owned = EPOCH.pack(queue.id, self._topology.epochs.last)
        await self._ask(queue, owned, [queue.definition.home], OWNED)
        if isinstance(contents, Stream):
            await self._hand_over(queue, contents, applied)
        else:
            assert isinstance(contents, ClassicQueue)
            await self._send_messages(queue, contents, applied)
        # Last: the new home lets in what was published meanwhile once the move has ended.
        self._tasks.wait(queue, "a change of definitions")
        pending = self._topology.propose(EndMove(queue.vhost, queue.name, queue.id))
        await decided(pending)
        pending.result()

    async def _hand_over(self, queue: DeclaredQueue, contents: Stream, applied: int) -> None:
        """Hand over a stream's files to the new home."""
        before, home = queue.definition.before, queue.definition.home
        if any(position.unacknowledged for position in contents.offsets):
            await self._take_back(queue, contents)
        await self._ask(queue, QUESTION.pack(before, applied, True), self._topology.homes)
        while contents.behind is not None:  # published here during the move
            self._tasks.wait(queue, "messages published during its move to enter it", contents.next_seq)
            await asyncio.sleep(PAUSE)
        # The new home takes the files as they are: whatever was confirmed has to be in them, synced, before they go.
        await self._turns.committed()
        await asyncio.to_thread(contents.move.sync_files)
        must_copy = self.streams.must_copy
        with self._turns.turn():
            directory = contents.move.hand_over(leave=not must_copy(home))
        await self._turns.committed()  # a start after a crash must not open files that another home has taken
        if not must_copy(home):
            path = os.fsencode(directory.absolute())
            asking = self._ask(queue, FILES.pack(before, queue.id) + path, [home], HAND, lambda: must_copy(home))
            # An answer means that the new home has the directory. Without one, the home now needs a copy of the files.
            if await asking:
                return
        await self._copy_rest(queue, contents)

    async def _copy_rest(self, queue: DeclaredQueue, contents: Stream) -> None:
        """Copy all of a stream's remaining files to the new home."""
        home, octets = queue.definition.home, sum(extent.size for extent in contents.move.extents)
        problem = ""

        def tell(sent: int) -> None:
            self._tasks.wait(queue, f"home {home} to copy its {octets} octets{problem}", sent)

        while True:
            try:
                await self._offers.copied(contents, home, queue.id, tell)
                return
            except CopyRefused as error:
                log.error(
                    "the files of %r cannot be copied to home %d: %s; the copy is tried again", queue, home, error
                )
                problem = f", which it refused: {error}"
                await asyncio.sleep(self._links.timing.asked_again)

    async def _send_messages(self, queue: DeclaredQueue, contents: ClassicQueue, applied: int) -> None:
        before, ahead = queue.definition.before, ahead_of(queue)
        await self._take_back(queue, contents)
        while True:
            await self._send_all(queue, contents, ahead)
            # Each link keeps the order: once a home has answered, all messages that it sent before have arrived here.
            await self._ask(queue, QUESTION.pack(before, applied, True), self._topology.homes)
            # Messages may have come during the last pass. Only a queue that is empty after all answers stays empty.
            if not contents.message_count and not contents.dead_count:
                break

    async def _send_all(self, queue: DeclaredQueue, contents: ClassicQueue, ahead: DeclaredQueue) -> None:
        """Send all messages; return once on disk at the new home."""
        home = ahead.definition.home
        while contents.message_count or contents.dead_count or self._outbox.has_for(ahead.id):
            left = contents.message_count + self._outbox.count_for(ahead.id)
            dead = f"{contents.dead_count} dead letters to reach their queues"
            self._tasks.wait(queue, f"home {home} to store {left} messages" if left else dead)
            is_full = self._outbox.full_home([ahead.definition.home]) is not None
            if is_full or not self._send_some(contents, ahead):
                await asyncio.sleep(PAUSE)
            await self._turns.committed()

    async def _take_back(self, queue: DeclaredQueue, contents: Queue) -> None:
        """Take back unsettled deliveries, after consumers had ``Timing.settle_grace`` seconds to settle them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._links.timing.settle_grace
        while count := contents.unacknowledged_count:
            self._tasks.wait(queue, f"consumers to settle {count} messages, or to commit their transactions")
            if loop.time() >= until:
                # Consumers may hold messages for hours. The move takes them back, and the new home redelivers.
                self._claim(contents)
                until = loop.time() + self._links.timing.settle_grace
            await asyncio.sleep(PAUSE)

    def _claim(self, contents: Queue) -> None:
        """Take back deliveries held by consumers, except deliveries settled in an uncommitted transaction."""
        for channel in list(self._channels()):
            with self._turns.turn():
                tags = [tag for tag, message in channel.unacknowledged.items() if message.queue is contents]
                if tags:
                    taken = Deliveries()
                    taken.put(tags, channel.unacknowledged.claim(tags))
                    channel.revoke(tags, GroupCounts())
                    give_back(channel.upkeep, taken, Outcome.CONSUMER_GONE)

    def _send_some(self, contents: ClassicQueue, ahead: DeclaredQueue) -> bool:
        """Put some messages into the outbox; return True if any existed."""
        with self._turns.turn(), self._turns.together():
            messages = contents.take_for_delivery(SLICE)
            if messages:
                # One commit for both: after a crash a message is in the queue or in the outbox, never in both.
                self._outbox.add(self._outbox.forwarding(), ahead, contents.departing(messages))
                contents.settle(messages, Outcome.ACKNOWLEDGED)
                # The move is no delivery: the queue's statistics count consumers' deliveries only.
                contents.delivered -= len(messages)
                contents.acknowledged -= len(messages)
        return bool(messages)

    async def _ask(
        self,
        queue: DeclaredQueue,
        question: bytes,
        homes: Iterable[int] | None = None,
        kind: int = MOVED,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send a question to other homes, repeatedly, until all have answered or the question is pointless. Return
        True if all have answered.

        Args:
            homes: the homes to ask; by default all linked homes.
            is_over: tells whether the question is pointless by now.
        """
        answered, again = self._answered.setdefault(question, set()), 0.0
        try:
            while True:
                missing = {*(self._links.homes if homes is None else homes)} - answered - {self._topology.home}
                if not missing or is_over():
                    return not missing
                self._tasks.wait(queue, f"home {', '.join(map(str, sorted(missing)))} to answer")
                now = asyncio.get_running_loop().time()
                if now >= again:
                    again = now + self._links.timing.asked_again
                    with self._turns.turn():
                        for link in filter(None, map(self._links.to, missing)):
                            link.send(kind, question)
                await asyncio.sleep(PAUSE)
        finally:
            del self._answered[question]

    def _answer(self, link: Link, payload: memoryview) -> None:
        if (answered := self._answered.get(bytes(payload))) is not None:
            answered.add(link.peer)

    # --- at other homes ---

    def _asked(self, link: Link, payload: memoryview) -> None:
        question = bytes(payload)
        before, applied, is_empty = QUESTION.unpack(question)

        def look() -> None:
            if not (link.up and self._serves):  # the question comes again
                return
            # The answer promises that nothing more comes from here for the previous id.
            if self._topology.applied < applied or (is_empty and self._outbox.has_for(before)):
                asyncio.get_running_loop().call_later(PAUSE, look)
                return
            with self._turns.turn():
                link.send(MOVE_ANSWER, question)

        look()

    # --- at the new home ---

    def _awaiting(self, number: int) -> Stream | None:
        """Return the local stream that waits for copied files, found by its previous or current id; None if no stream
        waits.
        """
        for host in self._topology.vhosts.values():
            for queue in host.queues.values():
                numbers = host.declared[queue.name].definition.before, queue.id
                if isinstance(queue, Stream) and queue.move.awaits and number in numbers:
                    return queue
        return None

    def _owned(self, link: Link, payload: memoryview) -> None:
        """Record the sender's highest owner epoch. Answer when the owners of the moved queue have higher epochs, stored
        on disk.
        """
        number, epoch = EPOCH.unpack(payload)
        if not self._serves:
            return
        # First the higher number, then the renewal: the renewed owners' epochs are above those of the old home.
        self._topology.epochs.observe(epoch)
        question = bytes(payload)

        def answer() -> None:
            if link.up:
                link.send(MOVE_ANSWER, question)

        for host in self._topology.vhosts.values() if number else ():
            for queue in [one for one in host.queues.values() if one.id == number]:
                queue.renew_owners()
                self._on_disk(answer)

    def _handed(self, link: Link, payload: memoryview) -> None:
        question = bytes(payload)
        _, number = FILES.unpack_from(question)
        if self._serves and not self._files.is_copied and number not in self._taking:  # else the question comes again
            directory = Path(os.fsdecode(question[FILES.size :]))
            taking = asyncio.get_running_loop().create_task(self._take_files(link, question, number, directory))
            self._taking[number] = taking
            taking.add_done_callback(lambda task: self._taking.pop(number))

    async def _take_files(self, link: Link, question: bytes, number: int, directory: Path) -> None:
        """Take over a stream's files if the stream still waits for them. Answer when the takeover is on disk."""
        found = [one for host in self._topology.vhosts.values() for one in host.queues.values() if one.id == number]
        stream = found[0] if found else None
        try:
            # The question repeats: a stream that has its files already only sends the answer again.
            if isinstance(stream, Stream) and stream.move.awaits:
                brought = await asyncio.to_thread(stream.move.brought, directory)
                if not stream.deleted:
                    with self._turns.turn():
                        stream.move.take_over(brought)
        except (OSError, StoreError) as error:
            log.error("the files of %r cannot be taken over from %s: %s; this is tried again", stream, directory, error)
            return
        if link.up:
            with self._turns.turn():
                link.send(MOVE_ANSWER, question)

    def _follow_up(self, contents: Queue) -> None:
        if contents.behind is not None:
            self._tasks.run(contents, self._enter(contents))

    async def _enter(self, contents: Queue) -> None:
        """Move the messages that waited for the end of the move into the queue."""
        while contents.behind is not None and not contents.deleted:
            before = self._topology.vhosts[contents.vhost].declared[contents.name].definition.before
            what = (
                f"home {home_of(before)} to send its remaining messages"
                if before
                else "messages published during its move to enter it"
            )
            self._tasks.wait(contents, what, contents.next_seq)
            with self._turns.turn(), self._turns.together():
                some = contents.follow_up(SLICE)
            await self._turns.committed()
            if not some:
                await asyncio.sleep(PAUSE)
        if isinstance(contents, Stream) and not contents.deleted and not contents.moved:
            with self._turns.turn():
                contents.move.forget()
