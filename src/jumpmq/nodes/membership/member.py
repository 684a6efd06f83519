"""Membership of a node: its lease, the live homes, and the log of definitions in etcd.

Tasks of the event loop keep lease, live homes and log up to date. Messages are still delivered while etcd does not
answer. Changes of definitions are refused after ``Timing.patience`` seconds without an answer, and at once if etcd
lacks entries applied by this node.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from jumpmq.broker.bulk.starts import Fingerprint
from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, has
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.forgetting import Removal
from jumpmq.nodes.joining.joining import Membership, resign
from jumpmq.nodes.log.cluster_log import ClusterLog
from jumpmq.nodes.membership.answers import Answers
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.entries import EtcdEntries
from jumpmq.nodes.membership.lease import Lease, Promise, superseded
from jumpmq.nodes.membership.live_homes import ClusterDirectory, LiveHomes
from jumpmq.nodes.membership.lost import EtcdWatch
from jumpmq.nodes.membership.peers import PeerMessages
from jumpmq.nodes.membership.stall import Stall
from jumpmq.nodes.membership.witness import Witness
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import LOG
from jumpmq.topology import Change, DeclareQueue, ForgetNode, RemoveHome, Topology
from jumpmq.topology.snapshot import digest_of

log = logging.getLogger(__name__)

LINKS_TIMEOUT = 2.0
"""Maximum wait for links to live nodes at a start, and for the end of a stop, in seconds."""

NOTICED_AFTER = 0.05
"""Time in seconds for the detection of broken links after this process was suspended (SIGSTOP)."""

STOP_TIMEOUT = 5.0
"""Maximum time in seconds for which clients wait after this process was suspended."""

RETURN_TIMEOUT = 1.5
"""Part of :data:`STOP_TIMEOUT` for reading the live nodes from etcd, in seconds."""

FAREWELL = 0.1
"""Time in seconds for which a removed home keeps its links, to notify peers of the removal."""


class Member:
    """Local node as a cluster member.

    Args:
        settings: the settings of etcd.
        client: the client of etcd.
        me: identity of the node.
        secret: the secret of the links.
        host: address of this machine for other machines.
        boot: identity of this run of the process.
        turns: those of the broker.
        on_failure: called with the reason when this node cannot be part of the cluster any more; the process has to
            end.
        promise: stores the epoch of this process on disk.
        timing: of the node.
        begins: True for the node's first worker, which starts before the other workers.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.

    Attributes:
        me: identity of the node.
        leads: epoch that the home's replica has claimed; 0 in a home without copies.
        directory: addresses of all homes, for links.
        stall: the stall of definition changes, if any.
        etcd: calls of etcd.
        log, live, lease, entries, answers, witness, peers: parts of the member; from :meth:`start` on.
    """

    log: ClusterLog
    live: LiveHomes
    lease: Lease
    entries: EtcdEntries
    answers: Answers
    witness: Witness
    peers: PeerMessages

    def __init__(
        self,
        settings: EtcdSettings,
        client: Etcd,
        me: Membership,
        secret: str,
        host: str,
        boot: str,
        turns: Turns,
        on_failure: Callable[[str], None],
        promise: Promise,
        timing: Timing,
        *,
        begins: bool = False,
        leads: int = 0,
    ) -> None:
        self.me = me
        self.directory = ClusterDirectory(me.id, secret, host, boot)
        self.stall = Stall(self._stall, lambda: self.log.go_on(), timing.patience)
        self.etcd = ClusterEtcd(client, Keys(settings.cluster), me, self.stall, on_failure)
        self._promise = promise  # stores the epoch
        self._timing = timing  # of this node
        self._begins = begins  # starts before the other workers of the node
        self.leads = leads
        self._settings = settings  # of etcd
        self._boot = boot  # identity of this run
        self._turns = turns  # those of the broker
        self._topology: Topology  # decides entries, from the start on
        self._links: Links  # to the other homes, from the start on
        self._linked = asyncio.Event()  # set when a link is up
        self._stops = 0  # number of suspensions of this process
        self._tasks: list[asyncio.Task[None]] = []  # run until the node stops

    # --- life ---

    async def start(
        self,
        topology: Topology,
        links: Links,
        is_ready: Callable[[int], bool],
        copies_of: Callable[[int], int],
        fingerprint: Callable[[], Fingerprint],
        had: Callable[[str], bool],
    ) -> None:
        """Announce the node, and apply the entries of the log; later entries are applied as received.

        Args:
            links: the links to other homes, listening already.
            is_ready: tells whether another home has restored its queues, so that new queues may be placed there.
            copies_of: returns the number of copies of a home.
            fingerprint: returns the fingerprint of the data directory, including a record of this start.
            had: tells whether the data directory has a record of the start with the given boot id.
        """
        self._topology, self._links = topology, links
        self._make(topology, links, is_ready, copies_of, fingerprint, had)
        topology.order_by(self.log)
        links.handlers[LOG] = self.peers.receive
        links.on_up += self._up, self.peers.up
        links.on_down.append(self.peers.down)
        topology.listeners.append(self._follow)
        until_answered = self.etcd.until_answered
        if self._begins and not self.leads:  # otherwise other nodes may serve the node's other homes
            await until_answered(self.lease.forget_dead_workers)
        await until_answered(self.lease.claim)
        links.epoch = self.lease.epoch
        await until_answered(self.lease.note)
        await until_answered(self.entries.catch_up)
        self._run(self._follow_log(), "log")
        self._run(self.live.follow(), "nodes")
        self._run(self.answers.follow(self.live.revision), "what others say")
        self._run(self.answers.collect(), "answers")
        self._run(self._keep_alive(), "lease")
        self._run(EtcdWatch(self.etcd, self.entries, self.live, self.lease).watch(), "etcd")
        self._run(self.entries.append(), "append")
        self._run(self.entries.compact(self._is_first, self._settings), "compaction")
        await self.catch_up()
        await self._drop_forgotten()

    def _make(
        self,
        topology: Topology,
        links: Links,
        is_ready: Callable[[int], bool],
        copies_of: Callable[[int], int],
        fingerprint: Callable[[], Fingerprint],
        had: Callable[[str], bool],
    ) -> None:
        """Make and wire the parts."""

        def own(boot: str) -> None:
            if boot != self._boot and not had(boot):
                self.etcd.on_failure(superseded(self.etcd))

        def lives() -> None:
            self.directory.tell()
            with self._turns.turn():
                self.log.everywhere.look()
            self.answers.wait.set()

        self.live = live = LiveHomes(self.etcd, self.directory, links, topology, lives, own)
        self.log = log = self._log_of(topology, links, is_ready, copies_of)
        self.lease = Lease(self.etcd, self.directory.own, self._promise, fingerprint, had, self.leads)
        self.entries = EtcdEntries(
            self.etcd,
            log,
            live,
            self.lease,
            self._turns,
            self._timing,
            lambda change: Removal.of(self.etcd.keys, topology, change),
        )
        behind = self.entries.behind
        self.answers = Answers(
            self.etcd, log, self.directory, links, self.lease, self._turns, behind, self._timing.patience
        )
        self.witness = Witness(self.etcd, live, links, topology, self._turns, self._timing)
        self.peers = PeerMessages(
            self.etcd, links, log, self.lease, self.entries, self.answers, self.witness, lambda: bool(live.unlinked)
        )
        self.entries.listen(on_own=self.peers.tell_own)
        log.listen(on_ask=self.entries.asked.set, on_applied=self.peers.applied)

    def _is_first(self) -> bool:
        """Return True if this home has the lowest number among linked homes."""
        return self.me.home == min([self.me.home, *self._links.homes])

    def _log_of(
        self, topology: Topology, links: Links, is_ready: Callable[[int], bool], copies_of: Callable[[int], int]
    ) -> ClusterLog:
        digest, live = topology.records.maintain(digest_of(topology)), self.live

        def current() -> int:
            topology.records.digest_rings()
            return digest.value

        def ready() -> list[int]:
            return [home for home in links.homes if is_ready(home)]

        def awaited() -> set[int]:
            return {*links.homes, *live.unlinked}

        forgotten = self.etcd.on_failure
        return ClusterLog(topology, self.me.home, self._boot, ready, current, copies_of, forgotten, awaited)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"cluster {name}")
        self._tasks.append(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the task that follows the cluster has failed", exc_info=error)
            self.etcd.on_failure(f"the task that follows the cluster has failed: {error!r}")

    async def stop(self) -> None:
        """Leave the cluster, with immediate notification of peers."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.stall.stop()
        if hasattr(self, "lease"):  # else the start has failed
            with contextlib.suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.lease.end()
        await self.etcd.client.close()

    async def resign(self) -> None:
        """Leave the cluster after the removal of the home."""
        await self.etcd.until_answered(lambda: resign(self.etcd.client, self.etcd.keys, self.me))

    def is_dead(self, home: int) -> bool:
        """Return True if a home's process has ended, according to etcd."""
        return self.live.is_dead(home)

    def _stall(self, reply: str) -> None:
        with self._turns.turn():
            self.log.stall(reply)
            self.log.everywhere.answer_to(self.log.applied)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._timing.alive_interval)
            is_alive = await self.etcd.until_answered(self.lease.renew)
            if not is_alive and self.stall.set_back is None:
                log.warning("etcd has taken %s for dead; it is announced again", self.me)
                await self.etcd.until_answered(self.lease.announce)
            await self.etcd.until_answered(self.witness.look)
            with contextlib.suppress(EtcdError):
                await self.lease.note_in_time()

    # --- catching up ---

    async def catch_up(self) -> None:
        """Apply the entries appended while links were down."""
        await self._wait_for_links()
        await self.etcd.until_answered(self.entries.catch_up)

    async def _follow_log(self) -> None:
        """Poll for entries that were not received over links. Polls cost etcd and this node less than a watch."""
        while True:
            all_linked = self._topology.homes.keys() <= {self.me.home, *self._links.homes}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.linked_look if all_linked else self._timing.unlinked_look):
                    await self.entries.behind.wait()
            self.entries.behind.clear()
            await self.etcd.until_answered(self.entries.catch_up, self._timing.unlinked_look)
            if self.live.unlinked or self.answers.wanted > self.answers.said:
                with contextlib.suppress(EtcdError):  # published after the next poll
                    await self.answers.say()

    def after_stop(self, end: Callable[[], None]) -> None:
        """Catch up after this process was suspended, within :data:`STOP_TIMEOUT`.

        Args:
            end: called at the end.
        """
        self._stops += 1
        stop, etcd = self._stops, self.etcd
        is_cut_off = not etcd.is_connected and asyncio.get_running_loop().time() - etcd.failed_at > NOTICED_AFTER

        async def learn() -> None:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT):
                        await asyncio.sleep(NOTICED_AFTER)
                        if is_cut_off:  # etcd was unreachable before: peers send their entries over links
                            await self._wait_for_links()
                            return
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(RETURN_TIMEOUT):
                                await etcd.until_answered(self._return)
                        await self.catch_up()
            finally:
                if stop == self._stops:
                    with self._turns.turn():
                        end()

        log.warning("this process was stopped for a while; clients wait until it knows what was decided meanwhile")
        self._run(learn(), "after a stop")

    async def _return(self) -> None:
        """Announce the node again, so that peers wait for it, and read the peers' addresses."""
        if not await self.lease.renew():
            await self.lease.announce()
        await self.live.refresh()

    async def _wait_for_links(self) -> None:
        """Wait for links to live nodes, with a limit: the first messages of clients may need these links."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINKS_TIMEOUT):
                while not self.directory.addresses.keys() <= set(self._links.homes):
                    self._linked.clear()
                    await self._linked.wait()

    def _up(self, link: Link) -> None:
        self._linked.set()

    # --- homes and nodes that come, or are gone for good ---

    def _follow(self, change: Change, principal: object) -> None:
        if isinstance(change, DeclareQueue) and self.is_dead(home := change.definition.home):
            self.live.serving.add(home)  # its process has restarted; etcd's event is still to come
            self.entries.behind.set()
        elif isinstance(change, RemoveHome):
            if change.home == self.me.home:  # once the peers are notified
                asyncio.get_running_loop().call_later(FAREWELL, self._part)
                self.directory.addresses.pop(change.home, None)
            else:
                self.directory.remove(change.home)
        elif isinstance(change, ForgetNode):
            self.directory.remove(*self._topology.forgotten)
            self._run(self._drop_forgotten(), "forgotten")

    def _part(self) -> None:
        """Stop connecting to peers: peers now refuse this node."""
        self.directory.remove(*self.directory.addresses)

    async def _drop_forgotten(self) -> None:
        """Delete removed members in etcd, so that a new node may join with the name."""
        client, keys = self.etcd.client, self.etcd.keys
        found = await self.etcd.until_answered(lambda: client.folder(keys.members))
        for member in found.values:
            if int(json.loads(member.value)["home"]) in self._topology.forgotten:
                process = member.key.removeprefix(keys.members)
                home = int(json.loads(member.value)["home"])
                gone = [member.key, keys.seen(process), keys.served(process), keys.home(home)]
                gone += [keys.led(home), keys.wanted(home)]
                drop = [has(member.key, member.value)], [delete(key) for key in gone]
                await self.etcd.until_answered(lambda drop=drop: client.transaction(*drop))  # type: ignore[misc]
