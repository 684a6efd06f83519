"""This node in its cluster: the log of changes in etcd, who else lives, and where.

Tasks of the event loop work on etcd: one appends what is asked for here, one follows where the others are, and one
keeps this node's lease alive. What was appended is told over links; one more looks into etcd now and then, for what was
not. What fails is tried again, at another member; after :data:`~jumpmq.nodes.membership.standstill.PATIENCE` seconds
clients are told that definitions cannot be changed, and at once where etcd lacks what this node has applied. Messages
flow on.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from jumpmq.broker.bulk.starts import Sight
from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.etcd.client import (
    Compacted,
    Etcd,
    EtcdError,
    Event,
    Found,
    Value,
    absent,
    delete,
    end_of,
    get,
    has,
    never,
    present,
    put,
)
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.log.cluster_log import ClusterLog, Entry
from jumpmq.nodes.membership.compacting import compact_aside
from jumpmq.nodes.membership.joining import Membership, knows_more, resign, set_back
from jumpmq.nodes.membership.keys import Keys, number_of
from jumpmq.nodes.membership.lost import Look, SetBack
from jumpmq.nodes.membership.snapshots import SnapshotHead
from jumpmq.nodes.membership.standstill import PATIENCE, Standstill
from jumpmq.nodes.transport.directory import Address
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import LOG
from jumpmq.topology import Topology, changes
from jumpmq.topology.snapshot import digest_of

log = logging.getLogger(__name__)

T = TypeVar("T")

LEASE = 10
"""Seconds after which etcd takes a node that is not heard of for dead."""

ALIVE_INTERVAL = LEASE / 4
"""Seconds between two signs of life."""

NOTE_INTERVAL = 60.0
"""Seconds between two notes in etcd of what is on disk here, beside those at starts and clean stops. Each makes a
revision, which etcd keeps until that is compacted."""

GRACE = 60.0
"""Seconds without a sign of life of a node after which those of its queues that do not outlive its process are gone."""

MOST_QUEUES = 20_000
"""Such queues that go with one change."""

SLOW = 1.0
"""Seconds that an answer waits for homes that have not applied a change, while etcd answers."""

REFUSED = 0.35
"""The same for homes without a link that take no connection: their processes have ended, in all likelihood."""

LATE = 0.3
"""Seconds after which a home with a link is told over etcd, too."""

SWIFT = 0.5
"""Seconds in which etcd answers, unless something is wrong with it."""

HEARD = 0.05
"""Seconds between two looks at what others say in etcd, while somebody waits for that."""

PAUSES = 0.1, 1.0
"""Seconds between two attempts to ask etcd, at first and at most."""

LINKS_TIMEOUT = 2.0
"""Seconds that a start, and what follows a stop, waits for the links to the nodes that live."""

NOTICED_AFTER = 0.05
"""Seconds after a stop, in which it is seen which links have broken."""

STOP_TIMEOUT = 5.0
"""Seconds that clients wait at most, after this process was stopped for a while."""

RETURN_TIMEOUT = 1.5
"""Seconds of these in which etcd may tell who lives."""

LOOKS = 2.5, 0.25
"""Seconds between two looks at the log, where links to all homes are up, and where one is not."""

FAREWELL = 0.1
"""Seconds that a home which was removed has links, to tell the others of that."""

COMPACT_EVERY = 5000
"""Entries behind the snapshot after which another one is made."""

COMPACT_INTERVAL = 10.0
"""Seconds between two looks at how long the log is."""

PART = 100
"""Entries that are read together."""

RECENT = 1000
"""Changes of the last entries that are kept for homes whose links were down."""


class Member:
    """The node. It is the :class:`~jumpmq.nodes.transport.directory.Directory` of its links, too.

    Args:
        settings: where etcd is.
        etcd: a client of it.
        host: where other machines reach this one.
        boot: tells this run of the process from all others.
        on_failure: called with a sentence when this node can no longer be part of the cluster; the process has to end.

    Attributes:
        me: who this node is.
        cluster, secret: see the directory.
        on_change: the same.
        log: the log of changes, once it is followed.
        is_connected: whether etcd has answered the last call.
        standstill: whether definitions can be changed.
        sight: tells what the data directory has on disk, once that has a record of this start.
        had: whether the data directory has had a start, by its boot id.
        begins: whether this is the node's first worker, and no other of them runs yet.
        is_ready: whether another home has its queues, so that others may be there.
    """

    log: ClusterLog

    def __init__(
        self,
        settings: EtcdSettings,
        etcd: Etcd,
        me: Membership,
        secret: str,
        host: str,
        boot: str,
        turns: Turns,
        on_failure: Callable[[str], None],
    ) -> None:
        self.cluster = me.id
        self.secret = secret
        self.on_change: list[Callable[[], None]] = []
        self.is_connected = True
        self.standstill = Standstill(self._stand_still, lambda: self.log.go_on())
        self.sight: Callable[[], Sight] = dict
        self.had: Callable[[str], bool] = lambda start: start == boot
        self._seen: Sight = {}  # what etcd knows of that
        self._seen_at = 0.0  # since when, by the loop's clock
        self.begins = False
        self.is_ready: Callable[[int], bool] = lambda home: True
        self._failed_at = 0.0  # when it last ceased to, by the loop's clock
        self._settings = settings  # where etcd is
        self._etcd = etcd  # a client of it
        self._keys = Keys(settings.cluster)  # what the cluster keeps there
        self._compacted = 0  # the last entry of the snapshot, when this node looked
        self.me = me
        self._host = host  # where others reach this machine
        self._boot = boot  # tells this run from all others
        self._turns = turns  # those of the broker
        self._on_failure = on_failure  # ends the process
        self._addresses: dict[int, Address] = {}  # where homes are or, if they are down, were
        self._live_value = b""  # of this node's key, once it listens for links
        self._lease = 0  # of this node's keys; 0 before it has one
        self._look_now = asyncio.Event()  # set when etcd answers again
        self._live_homes: dict[str, int] = {}  # those that etcd knows to live, by key
        self._live_revision = 0  # of etcd, at which that was so
        self._serving: set[int] = set()  # homes at which something was declared, since etcd was asked who lives
        self._links: Links  # to the other homes
        self._topology: Topology  # where entries take effect
        self._missed: dict[int, float] = {}  # by home, since when its node has not been seen, by the loop's clock
        self._suspected: dict[int, set[int]] = {}  # by home that says so, the homes that it takes for dead
        self._asked = asyncio.Event()  # set when there is something to append
        self._linked = asyncio.Event()  # set when a link is up
        self._waits = asyncio.Event()  # set when somebody may wait for more than what links carry
        self._said = 0  # the last entry that this one has said in etcd to have applied
        self._wanted = 0  # the last entry that others have said there
        self._early: dict[int, Entry] = {}  # that came before others, by number
        self._recent: deque[tuple[int, Entry]] = deque()  # the last that were applied
        self._recent_changes = 0  # how many changes these hold
        self._is_behind = asyncio.Event()  # set when entries are known to be missing here
        self._stops = 0  # how often this process was stopped
        self._tasks: list[asyncio.Task[None]] = []  # run until the node stops

    # --- the directory ---

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Where links to each home go."""
        return self._addresses

    def announce(self, home: int, port: int) -> None:
        """See :meth:`~jumpmq.nodes.transport.directory.Directory.announce`; in etcd once :meth:`start` returns."""
        value = {"home": home, "boot": self._boot, "host": self._host, "port": port}
        self._live_value = json.dumps(value).encode()

    def _found_live(self, found: Found) -> None:
        """Who lives, at a revision of etcd; nothing older is looked at afterwards."""
        if found.revision < self._live_revision:
            return
        self._live_revision = found.revision
        before = self._live_homes.copy(), self._addresses.copy()
        for key in self._live_homes.keys() - {value.key for value in found.values}:
            self._found_alive(Event(key, None, found.revision))
        for value in found.values:
            self._found_alive(value)
        if before != (self._live_homes, self._addresses):
            self._tell_of_live()

    def _found_alive(self, found: Value | Event) -> None:
        """The key of a node that lives has a value."""
        if found.value is None:
            gone = self._live_homes.pop(found.key, 0)
            if gone not in self._topology.homes:
                self._addresses.pop(gone, None)
            return
        said = json.loads(found.value)
        self._live_homes[found.key] = int(said["home"])
        if said["home"] != self.me.home:
            self._addresses[int(said["home"])] = str(said["host"]), int(said["port"])
        elif self._live_value and said["boot"] != self._boot and not self.had(said["boot"]):
            self._on_failure(self._superseded)

    def _tell_of_live(self) -> None:
        self._tell_of_addresses()
        with self._turns.turn():
            self.log.look()
        self._waits.set()

    def _tell_of_addresses(self) -> None:
        for told in list(self.on_change):
            told()

    # --- life ---

    async def start(self, topology: Topology, links: Links) -> None:
        """Be seen by the others, and apply what the log has; returns when that is done, and all that comes follows.

        The links listen already.
        """
        self._topology, self._links = topology, links
        digest = topology.records.digest = digest_of(topology)

        def current() -> int:
            topology.records.digest_rings()
            return digest.value

        def ready() -> list[int]:
            return [home for home in links.homes if self.is_ready(home)]

        self.log = ClusterLog(topology, self.me.home, self._boot, ready, current)
        self.log.awaited = lambda: {*links.homes, *self._unlinked}
        self.log.on_ask = self._asked.set
        self.log.on_applied = self._applied
        self.log.on_forgotten = self._on_failure
        topology.log = self.log
        links.handlers[LOG] = self._receive
        links.on_up.append(self._up)
        links.on_down.append(self._down)
        topology.listeners.append(self._follow)
        if self.begins:
            await self._again_and_again(self._bury_workers)
        await self._again_and_again(lambda: self._live(starts=True))
        await self._again_and_again(self._note_seen)
        await self._again_and_again(self._catch_up)
        self._run(self._follow_log(), "log")
        self._run(self._follow_live(self._live_revision), "nodes")
        self._run(self._follow_said(self._live_revision), "what others say")
        self._run(self._hear_of_all(), "answers")
        self._run(self._keep_alive(), "lease")
        self._run(self._look_at_etcd(), "etcd")
        self._run(self._append(), "append")
        self._run(self._compact(), "compaction")
        await self.catch_up()
        await self._drop_forgotten()

    async def _bury_workers(self) -> None:
        """Have etcd know that no other worker of this node runs, which may have died a moment ago: nothing is to wait
        for them."""
        found = await self._etcd.folder(f"{self._keys.live_node(self.me.node)}/")
        if found.values:
            await self._etcd.transaction([], [delete(one.key) for one in found.values])

    def is_dead(self, home: int) -> bool:
        """Whether a home's node has ended, as far as etcd knows."""
        if self.standstill.set_back is not None:
            return False
        return home not in self._serving and home not in self._live_homes.values()

    @property
    def _unlinked(self) -> set[int]:
        """The homes that live, as far as etcd knows, and whose links are down."""
        return {home for home in self._live_homes.values() if home != self.me.home and self._links.to(home) is None}

    async def catch_up(self) -> None:
        """Learn what was decided while links were down."""
        await self._wait_for_links()
        await self._again_and_again(self._catch_up)

    def after_stop(self, end: Callable[[], None]) -> None:
        """This process was stopped for a while: learn what was decided meanwhile, if that does not take too long.

        Args:
            end: called then.
        """

        self._stops += 1
        stop = self._stops
        is_cut_off = not self.is_connected and asyncio.get_running_loop().time() - self._failed_at > NOTICED_AFTER

        async def learn() -> None:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT):
                        await asyncio.sleep(NOTICED_AFTER)
                        if is_cut_off:  # before the stop already: others tell over links what they have decided
                            await self._wait_for_links()
                            return
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(RETURN_TIMEOUT):
                                await self._again_and_again(self._return)
                        await self.catch_up()
            finally:
                if stop == self._stops:
                    with self._turns.turn():
                        end()

        log.warning("this process was stopped for a while; clients wait until it knows what was decided meanwhile")
        self._run(learn(), "after a stop")

    async def _wait_for_links(self) -> None:
        """Wait a while for links to the nodes that live: what clients send at once goes over them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINKS_TIMEOUT):
                while not self._addresses.keys() <= set(self._links.homes):
                    self._linked.clear()
                    await self._linked.wait()

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"cluster {name}")
        self._tasks.append(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("what follows the cluster has failed", exc_info=error)
            self._on_failure(f"what follows the cluster has failed: {error!r}")

    async def stop(self) -> None:
        """Leave: the others know at once."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.standstill.stop()
        if self._lease:
            with contextlib.suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._note_seen()
                    await self._etcd.revoke(self._lease)
        await self._etcd.close()

    # --- etcd, that may fail ---

    async def _again_and_again(self, call: Callable[[], Awaitable[T]], most: float = PAUSES[1]) -> T:
        """Call until etcd answers; ``most`` are the seconds between two attempts."""
        pause = PAUSES[0]
        while True:
            try:
                answer = await call()
            except EtcdError as error:
                if not isinstance(error, SetBack):
                    self._fails(error)
                elif self.standstill.set_back is None:
                    self._look_now.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            else:
                self._answers()
                return answer

    def _fails(self, error: EtcdError) -> None:
        if self.is_connected:
            self.is_connected = False
            self._failed_at = asyncio.get_running_loop().time()
        self.standstill.failed(error)

    def _answers(self) -> None:
        if not self.is_connected:
            self.is_connected = True
            self._look_now.set()

    def _stand_still(self, told: str) -> None:
        with self._turns.turn():
            self.log.stand_still(told)
            self.log.answer_to(self.log.applied)

    # --- etcd, that may have lost something ---

    @property
    def _is_ours(self) -> dict[str, Any]:
        """Holds while etcd has this cluster."""
        return has(self._keys.id, self.me.id)

    async def _look_at_etcd(self) -> None:
        """See every few seconds whether etcd takes changes, and has all that was applied here."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_INTERVAL):
                    await self._look_now.wait()
            self._look_now.clear()
            await self._again_and_again(self._look)

    async def _look(self) -> None:
        """Ask etcd for a transaction that would put something, and does not: it is refused where no change is taken,
        goes through etcd's own log, and makes no revision."""
        number, entry = self._recent[-1] if self._recent else (self.log.entry, None)
        look, known = Look(self._keys, self.me, number, entry), self._live_revision
        reads = [*look.reads, self._get_live]
        _, (*found, live) = await self._etcd.transaction([never(look.key)], [put(look.key, "")], reads)
        lacks, is_told = look.lacks(found)
        had = self.standstill.set_back
        self.standstill.lacks(lacks)
        self.standstill.changed(self._etcd.url)
        if live.revision < known:  # what was learnt before is of no revision that there is
            self._live_revision = 0
        if is_told:
            await self._tell_of_loss(look)
        elif any(one.key == look.key for one in found[-1].values):
            await self._etcd.transaction([], [delete(look.key)])
        if lacks is None:
            if had is not None:
                await self._live()
            self._found_live(live)

    async def _tell_of_loss(self, look: Look) -> None:
        """Announce to all other nodes what etcd lacks, under this node's lease."""
        if not await self._etcd.keep_alive(self._lease):
            self._lease = await self._etcd.grant(LEASE)
        await self._etcd.transaction([], [put(look.key, look.value, self._lease)])

    # --- being alive ---

    @property
    def _superseded(self) -> str:
        return f"another process serves {self.me} with its data directory, or a copy of that, and was started later"

    async def _live(self, *, starts: bool = False) -> None:
        """Put this process's key, with a new lease. The process ends where one that was started later has the data
        directory: however long etcd was not reached, of two processes the older one ends.

        Args:
            starts: whether it is put for the first time: the process is the one that was started last.

        Raises:
            SetBack: etcd has lost the cluster.
            EtcdError: it cannot be asked.
        """
        served = self._keys.served(self.me.process)
        found = None if starts else await self._etcd.get(served)
        if found is not None and not self.had(found.value.decode()):
            self._on_failure(self._superseded)
            await asyncio.Event().wait()
        same = [] if starts else [absent(served) if found is None else has(served, found.value)]
        lease = await self._etcd.grant(LEASE)
        puts = [put(self._keys.live_node(self.me.process), self._live_value, lease), put(served, self._boot)]
        done, read = await self._etcd.transaction([self._is_ours, *same], puts, [get(self._keys.id)])
        if not done:
            await self._etcd.revoke(lease)
            if [one.value.decode() for one in read[0].values] != [self.me.id]:
                raise SetBack(set_back(self.me.cluster, 0))
            raise EtcdError(f"another process of {self.me} was announced at the same time")
        self._lease = lease

    async def _return(self) -> None:
        """Be seen by the others again, so that they wait for this node, and see where they are."""
        if not await self._etcd.keep_alive(self._lease):
            await self._live()
        self._found_live(await self._etcd.folder(self._keys.live))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_INTERVAL)
            is_alive = await self._again_and_again(lambda: self._etcd.keep_alive(self._lease))
            if not is_alive and self.standstill.set_back is None:
                log.warning("etcd has taken %s for dead; it is announced again", self.me)
                await self._again_and_again(self._live)
            await self._again_and_again(self._look_for_dead)
            if asyncio.get_running_loop().time() >= self._seen_at + NOTE_INTERVAL:
                with contextlib.suppress(EtcdError):
                    await self._note_seen()

    async def _note_seen(self) -> None:
        """Have etcd know what this process has on disk: an older copy of it is then refused.

        Raises:
            EtcdError: it cannot be asked.
        """
        seen = self.sight()
        if seen == self._seen:
            return
        value = json.dumps({"at": time.time(), "sight": seen})
        mine = [self._is_ours, has(self._keys.live_node(self.me.process), self._live_value)]
        if (await self._etcd.transaction(mine, [put(self._keys.seen(self.me.process), value)]))[0]:
            self._seen, self._seen_at = seen, asyncio.get_running_loop().time()

    async def _live_key(self, home: int) -> str:
        """What is in etcd while a home lives."""
        found = await self._etcd.folder(self._keys.members)
        names = {int(json.loads(one.value)["home"]): one.key.removeprefix(self._keys.members) for one in found.values}
        return self._keys.live_node(names.get(home, self._topology.node_of(home)))

    async def _look_for_dead(self) -> None:
        """End what does not outlive a node that is dead: by etcd, for want of a link, and by a second witness if a
        third node lives. Etcd alone may have taken a living one for dead, when its disk was slow; a node without links
        may itself be cut off, with all its workers."""
        if self.standstill.set_back is not None:  # etcd knows nothing of who lives
            self._missed.clear()
            return
        self._found_live(await self._etcd.folder(self._keys.live))
        seen = {self.me.home, *self._live_homes.values(), *self._links.homes}
        now = asyncio.get_running_loop().time()
        self._missed = {home: self._missed.get(home, now) for home in self._topology.homes if home not in seen}
        dead = {home for home, since in self._missed.items() if now - since >= GRACE}
        with self._turns.turn():
            for home in self._links.homes:
                self._say(home, {"dead": sorted(dead)})
            elsewhere = {home for home in self._topology.homes if self._topology.node_of(home) != self.me.node}
            others = [self._suspected.get(home, set()) for home in self._links.homes if home in elsewhere]
            is_last = not others and not self._unlinked & elsewhere
            if self.me.home == min([self.me.home, *self._links.homes]):
                for home in dead:
                    if is_last or any(home in suspected for suspected in others):
                        self._end(home)

    def _end(self, home: int) -> None:
        ended = [one.id for vhost in self._topology.vhosts.values() for one in vhost.ended_with(home)]
        if ended:
            log.warning("home %d is dead: %d queues that do not outlive it are gone", home, len(ended))
            self._topology.propose(changes.HomeDown(home, tuple(ended[:MOST_QUEUES])))

    async def _follow_live(self, revision: int) -> None:
        async for events in self._watched(self._keys.live, revision):
            known = self._live_revision
            for event in events:
                if event.revision > known:
                    self._found_alive(event)
                    self._live_revision = max(self._live_revision, event.revision)
            self._tell_of_live()

    async def _watched(self, folder: str, revision: int) -> AsyncIterator[list[Event]]:
        """What happens in a folder after a revision, for ever; after a break, what it has then."""
        while True:
            try:
                async for events in self._etcd.watch(folder, revision + 1):
                    self._answers()
                    yield events
                raise EtcdError(f"etcd at {self._etcd.url} has ended a watch")
            except EtcdError as error:
                if not isinstance(error, Compacted):
                    self._etcd.next_member()
                    self._fails(error)
                await asyncio.sleep(PAUSES[0])
            found = await self._again_and_again(lambda: self._etcd.folder(folder))
            revision = found.revision
            yield [Event(one.key, one.value, one.revision) for one in found.values]

    # --- the log ---

    async def _catch_up(self) -> None:
        """Apply what the log has by now."""
        while True:
            wanted = self.log.entry + 1
            entries = get(self._keys.entry(wanted), end_of(self._keys.log), PART)
            asked = self._serving.copy()
            done, read = await self._etcd.transaction(
                [self._is_ours], [entries, get(self._keys.recovered), self._get_live]
            )
            if not done:
                raise SetBack(set_back(self.me.cluster, 0))
            found, recovered, live = read
            begin = int(recovered.values[0].value) if recovered.values else 0
            if (more := knows_more(self.me, self.log.entry, begin)) is not None:
                raise SetBack(more)
            self._found_live(live)
            self._serving -= asked
            if found.values and number_of(found.values[0].key) > wanted:
                self._on_failure(f"entry {wanted} of the cluster's log is not kept any more: the node starts again")
                await asyncio.Event().wait()
            self._take(found.values)
            if len(found.values) < PART:
                return

    @property
    def _get_live(self) -> dict[str, Any]:
        """Of a transaction after which something may be answered: that waits for all that lived then."""
        return get(self._keys.live, end_of(self._keys.live))

    async def _follow_log(self) -> None:
        """Read what was not told over links: it costs etcd and this node less than a watch of all that was."""
        while True:
            is_told = self._topology.homes.keys() <= {self.me.home, *self._links.homes}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOKS[0] if is_told else LOOKS[1]):
                    await self._is_behind.wait()
            self._is_behind.clear()
            await self._again_and_again(self._catch_up, LOOKS[1])
            if self._unlinked or self._wanted > self._said:
                with contextlib.suppress(EtcdError):  # it is said after the next look
                    await self._say_in_etcd()

    async def _say_in_etcd(self) -> None:
        """Have those know what this home has applied to whom no link tells it, and what they are to apply."""
        if self._said < (applied := self.log.applied):
            said = json.dumps({"home": self.me.home, "applied": applied})
            said_here = put(self._keys.applied_by(self.me.process), said, self._lease)
            await self._etcd.transaction([self._is_ours], [said_here])
            self._said = applied

    async def _follow_said(self, revision: int) -> None:
        async for events in self._watched(self._keys.applied, revision):
            for event in events:
                if event.value is not None:
                    self._hear(event.value)

    def _hear(self, value: bytes) -> None:
        """Another home has said in etcd what it has applied."""
        said = json.loads(value)
        if said["home"] != self.me.home:
            with self._turns.turn():
                self.log.others_applied(said["home"], said["applied"])
            self._wanted = max(self._wanted, said["applied"])
            if self._wanted > self._said:
                self._is_behind.set()

    async def _hear_of_all(self) -> None:
        """Where an answer waits for homes that no link tells of a change, or whose links carry nothing, tell them over
        etcd, and hear of them there. Those that say nothing for long enough, while etcd answers, are not waited for."""
        now = asyncio.get_running_loop().time
        while True:
            await self._waits.wait()
            self._waits.clear()
            first: dict[int, float] = {}  # when it was seen that an entry is waited for, by number
            since: dict[int, float] = {}  # the same, since etcd has answered without a pause
            while numbers := self.log.unanswered:
                began = now()
                found = await self._again_and_again(self._tell_and_hear)
                if now() - began > SWIFT:
                    since.clear()
                for value in found.values:
                    self._hear(value.value)
                first = {number: first.get(number, began) for number in numbers}
                since = {number: since.get(number, began) for number in numbers}
                untold = [number for number in numbers if began - since[number] >= REFUSED]
                slow = [one for one in untold if began - since[one] >= SLOW or began - first[one] >= PATIENCE]
                for home in self.log.behind if untold else ():
                    if late := untold if await self._is_refused(home) else slow:
                        with self._turns.turn():
                            self.log.others_applied(home, late[-1])
                await asyncio.sleep(HEARD)

    async def _tell_and_hear(self) -> Found:
        await self._say_in_etcd()
        return await self._etcd.folder(self._keys.applied)

    async def _is_refused(self, home: int) -> bool:
        """Whether a home has no link, and nothing listens where it takes links."""
        if self._links.to(home) is not None or (address := self._addresses.get(home)) is None:
            return False
        try:
            async with asyncio.timeout(SWIFT):
                _, writer = await asyncio.open_connection(*address)
        except (OSError, TimeoutError) as error:
            return isinstance(error, ConnectionRefusedError)
        writer.transport.abort()
        return False

    def _take(self, values: list[Value]) -> None:
        """Apply entries that are in the log, as far as none is missing before them."""
        with self._turns.turn():
            for value in values:
                number = number_of(value.key)
                try:
                    self._take_one(number, json.loads(value.value))
                except (ValueError, LookupError, TypeError) as error:
                    self._cannot_read(number, error)
                    return

    def _cannot_read(self, number: int, error: Exception) -> None:
        self._on_failure(f"entry {number} of the cluster's log cannot be read: {error!r}")

    def _take_one(self, number: int, entry: Entry) -> None:
        """Apply an entry, and those behind it that came before it; what was asked for here is told over links."""
        if number > self.log.entry:
            self._early[number] = entry
        while (following := self._early.pop(self.log.entry + 1, None)) is not None:
            if following["home"] == self.me.home:
                for home in self._links.homes:
                    self._say(home, {"number": self.log.entry + 1, "entry": following})
            self._keep(self.log.entry + 1, following)
            self.log.receive(self.log.entry + 1, following)
        self._early = {one: entry for one, entry in self._early.items() if one > self.log.entry}
        if self._early:
            self._is_behind.set()

    def _keep(self, number: int, entry: Entry) -> None:
        self._recent.append((number, entry))
        self._recent_changes += len(entry["changes"])
        while self._recent_changes > RECENT:
            self._recent_changes -= len(self._recent.popleft()[1]["changes"])

    async def _append(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            while (entry := self.log.to_append()) is not None:
                await self._again_and_again(lambda entry=entry: self._try_to_append(entry))  # type: ignore[misc]

    async def _try_to_append(self, entry: Entry) -> None:
        """Append an entry where the log is known to end; where it does not, learn what is there."""
        number = self.log.entry + 1
        key, value = self._keys.entry(number), json.dumps(entry, separators=(",", ":")).encode()
        live = self._keys.live_node(self.me.process)
        before = [present(self._keys.entry(number - 1))] if number > 1 else []
        lost = self._keys.lost_of(self.me.id)
        compare = [absent(key), *before, has(live, self._live_value), self._is_ours, absent(lost, end_of(lost))]
        failure = [get(self._keys.id), get(key, end_of(self._keys.log), PART), self._get_live]
        other = ""
        if (down := self.log.taken_for_dead) is not None:
            other = await self._live_key(down)
            compare.append(absent(other))
        try:
            done, read = await self._etcd.transaction(compare, [put(key, value), self._get_live], failure)
        except EtcdError:
            await self._catch_up()  # it may be in the log all the same
            raise
        if done:
            self.standstill.changed(self._etcd.url)
            self._found_live(read[-1])
            self._take([Value(key, value, 0)])
            return
        identity, entries, alive = read[0].values, read[1].values, {one.key: one.value for one in read[-1].values}
        if [one.value.decode() for one in identity] != [self.me.id]:
            raise SetBack(set_back(self.me.cluster, 0))
        self._found_live(read[-1])
        self._take(entries)
        if entries:
            return
        if other in alive:
            log.warning("home %d lives again: its queues stay", down)
            self.log.withdraw()
        elif alive.get(live) != self._live_value:  # etcd has taken this node for dead, or was set back to another start
            await self._live()
        else:
            await self._look()
            raise SetBack(self.standstill.set_back or f"the log of cluster '{self.me.cluster}' has changed")

    async def _compact(self) -> None:
        """Have the log compacted now and then, by the first of the nodes that are up."""
        while True:
            await asyncio.sleep(COMPACT_INTERVAL)
            is_first = self.me.home == min([self.me.home, *self._links.homes])
            is_due = self.log.applied - self._compacted >= COMPACT_EVERY
            if is_first and is_due and self.standstill.reason is None:
                try:
                    await self._compact_once()
                except EtcdError as error:
                    log.warning("%s", error)

    async def _compact_once(self) -> None:
        head = await self._etcd.get(self._keys.snapshot_head)
        self._compacted = 0 if head is None else SnapshotHead.read(head.value).entry
        if self.log.applied - self._compacted >= COMPACT_EVERY:
            await compact_aside(self._settings)

    # --- other homes ---

    def _applied(self, entry: int, asker: int) -> None:
        """An entry has been applied: who has asked for it is told."""
        if asker == self.me.home:
            asyncio.get_running_loop().call_later(0.0 if self._unlinked else LATE, self._waits.set)
        else:
            self._say(asker, {"applied": entry, "digest": self.log.digests[entry]})
            if self._said < entry <= self._wanted:
                self._is_behind.set()

    def _say(self, home: int, message: dict[str, Any]) -> None:
        link = self._links.to(home)
        if link is not None:
            link.send(LOG, json.dumps(message, separators=(",", ":")).encode())

    def _up(self, link: Link) -> None:
        self._linked.set()
        self._say(link.peer, {"applied": self.log.applied, "joins": True})

    def _tell_missed(self, home: int, applied: int) -> None:
        """Tell a home whose link was down what it has missed, if that is kept here: etcd may not answer it now."""
        if self._recent and self._recent[0][0] <= applied + 1:
            for number, entry in self._recent:
                if number > applied:
                    self._say(home, {"number": number, "entry": entry})

    def _compare(self, home: int, entry: int, digest: int | None) -> None:
        """Of two nodes whose definitions differ, the one with the higher number ends: the other is the older one."""
        if None in (digest, own := self.log.digests.get(entry)) or digest == own:
            return
        if home < self.me.home:
            self._differs(home, entry)
        else:
            self._say(home, {"differs": entry})

    def _differs(self, home: int, entry: int) -> None:
        self._on_failure(
            f"after entry {entry} of the cluster's log the definitions here differ from those of home {home}: "
            "its node keeps its data; please report this, and have it join with an empty directory"
        )

    def _down(self, link: Link) -> None:
        self._suspected.pop(link.peer, None)
        self.log.left(link.peer)
        self._waits.set()

    def _receive(self, link: Link, payload: memoryview) -> None:
        said = json.loads(bytes(payload))
        match said:
            case {"applied": number}:
                self.log.others_applied(link.peer, number)
                if number > self.log.entry:
                    self._is_behind.set()
                if said.get("joins"):
                    self._tell_missed(link.peer, number)
                self._compare(link.peer, number, said.get("digest"))
            case {"differs": number}:
                self._differs(link.peer, number)
            case {"number": number, "entry": entry}:
                try:
                    self._take_one(number, entry)
                except (ValueError, LookupError, TypeError) as error:  # it is of a later release, perhaps
                    self._cannot_read(number, error)
            case {"dead": homes}:
                self._suspected[link.peer] = set(homes)

    # --- nodes that are forgotten ---

    def _follow(self, change: changes.Change, asker: object) -> None:
        if isinstance(change, changes.DeclareQueue) and self.is_dead(home := change.definition.home):
            self._serving.add(home)  # its process has started again: news of that are on their way
            self._is_behind.set()
        elif isinstance(change, changes.RemoveHome):
            self._addresses.pop(change.home, None)
            if change.home == self.me.home:  # once the others have been told
                asyncio.get_running_loop().call_later(FAREWELL, self._part)
            else:
                self._tell_of_addresses()
        elif isinstance(change, changes.ForgetNode):
            for home in self._addresses.keys() & self._topology.forgotten.keys():
                del self._addresses[home]
            self._tell_of_addresses()
            self._run(self._drop_forgotten(), "forgotten")

    def _part(self) -> None:
        """Make no links to others any more, who would refuse them."""
        self._addresses.clear()
        self._tell_of_addresses()

    async def resign(self) -> None:
        """Be no member any more: this home was removed."""
        await self._again_and_again(lambda: resign(self._etcd, self._keys, self.me))

    async def _drop_forgotten(self) -> None:
        """Have etcd name the members no more that were forgotten: another node may come with such a name."""
        found = await self._again_and_again(lambda: self._etcd.folder(self._keys.members))
        for member in found.values:
            if int(json.loads(member.value)["home"]) in self._topology.forgotten:
                process = member.key.removeprefix(self._keys.members)
                gone = [member.key, self._keys.seen(process), self._keys.served(process)]
                drop = [has(member.key, member.value)], [delete(key) for key in gone]
                await self._again_and_again(lambda drop=drop: self._etcd.transaction(*drop))  # type: ignore[misc]
