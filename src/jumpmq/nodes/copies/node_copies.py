"""Copies at a process of a node: of the process's own home, and of homes of other nodes.

A process accepts connections for copies at a separate port, announced in etcd (``copies/NODE``), because replicas
communicate before any of them serves its home. The first process of a node keeps the copies of other nodes' homes, in
``copies/H`` of the data directory. When the replica of such a copy becomes the leader, the process serves this home, a
*guest*, in addition to the process's own home (:mod:`~jumpmq.nodes.copies.serving`). A guest has no listener for
clients, and is reached over links.
"""

import asyncio
import contextlib
import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Set
from dataclasses import replace
from typing import Any, Protocol

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.upkeep.ticks import Ticks
from jumpmq.nodes.beginning import listen
from jumpmq.nodes.copies.announced import Announced
from jumpmq.nodes.copies.kept_copy import KeptCopy
from jumpmq.nodes.copies.observed import ObservedCopies
from jumpmq.nodes.copies.succession import Returns, Succession
from jumpmq.nodes.copies.wishes import Wishes
from jumpmq.nodes.entering import LAST_PORT
from jumpmq.nodes.etcd.client import EtcdError, Found, delete
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd, answered_at_start
from jumpmq.nodes.membership.live_homes import ClusterDirectory
from jumpmq.nodes.membership.stall import Stall
from jumpmq.nodes.rebuilding import Rebuilding
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copied_home import CopiedHome
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.timing import TIMING
from jumpmq.nodes.transport.link import SentTurns
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.tls import TLSSockets
from jumpmq.queues.clock import boot_time, until_tick
from jumpmq.replication.configuration import Configuration, ConfigurationError, ReplicaId, node_of
from jumpmq.replication.pace import Times
from jumpmq.serving.process import collect_garbage

PORTS = 100
"""Distance of the port for copies from the port for links, if the settings name a port."""

DIRECTORY = "copies"
"""Subdirectory of the data directory for copies of other nodes' homes."""

LOOK_INTERVAL = 0.5
"""Interval between checks of the wishes for homes led here, in seconds."""

LEASE_INTERVAL = 0.1
"""Interval between checks of the leases of homes led here, in seconds."""

SPARED_AFTER = 10.0
"""Seconds without a change of a home's configuration until the first damaged copy in the set is replaced. For each
further damaged copy, in the order of the set, the wait is longer by the same time.
"""

TOLERATED_AFTER = 30.0
"""Seconds without a change of a home's configuration until a damaged copy is opened in spite of the damage. An
undamaged copy, if any, leads by then.
"""

FAILED_REST = 60.0
"""Seconds for which this node does not lead a home after a failed attempt to serve it."""

NEARLY = 1 << 20
"""Maximum lag in octets of the next leader when the store is closed for a hand-over."""

PATIENCE = 5.0
"""Seconds without leadership of the own home after which a process logs the serving node."""

FAREWELL = 0.05
"""Time in seconds for the last frames of replicas before the connections are closed."""

log = logging.getLogger(__name__)


Extend = Callable[[float, bool], None]
"""Sets the end of a home's lease, by the clock that counts suspended time; the flag is True while fewer than `min`
copies are in the set.
"""


class Guests(Protocol):
    """Server of guests: homes of other nodes served by this process."""

    async def serve(self, copies: "NodeCopies", copy: KeptCopy, worker: int, epoch: int, until: asyncio.Event) -> None:
        """Serve a home with the leading store of its copy. The store is closed on return.

        Args:
            copies: the copies of the process.
            worker: number of the home's process at the home's seat.
            until: set to end the serving.
        """


class NodeCopies:
    """Copies at a process.

    Args:
        config: settings of the process.
        me: the process as a member of its cluster.
        boot: identity of this run of the process.
        guests: serves homes of other nodes.
        again: restarts the process, because its home will be served with copies, or by another node. Called with the
            reason, and True to stop the broker in order first.
        fail: ends the process at once.
        guests_timeout: maximum seconds for an orderly end of guests. A starting guest may wait for absent copies.

    Attributes:
        known: configurations of all homes, by number, as last seen in etcd.
        copies: the copies at this process, by number of the home.
        racks: known racks of nodes.
        wishes: wishes for homes, of operators or from the settings.
        observed: observations of homes' copies over time, by number of the home.
    """

    def __init__(
        self,
        config: Config,
        me: Membership,
        boot: str,
        guests: Guests,
        again: Callable[[str, bool], None],
        fail: Callable[[str], None],
        guests_timeout: float = 10.0,
    ) -> None:
        self._guests_timeout = guests_timeout
        self.me = me
        self.known: dict[int, Configuration] = {}
        self.copies: dict[int, KeptCopy] = {}
        self.racks = {me.node: config.rack or ""}
        self.fail = fail
        self._config = config
        self._boot = boot
        self._guests = guests
        self._again = again
        self._led: dict[int, asyncio.Event] = {}  # events that end the serving of led homes, by number of the home
        self._gates: dict[int, Extend] = {}  # callbacks for the leases of led homes, by number of the home
        self.observed: defaultdict[int, ObservedCopies] = defaultdict(ObservedCopies)
        # Current configuration of a led home, and the time of its begin, by number of the home.
        self._since: dict[int, tuple[Configuration, float]] = {}
        self._changed: dict[int, float] = {}  # time of the last change of a home's configuration
        self._returns: dict[int, Returns] = {}  # changes of leader, by number of the home
        self._own: asyncio.Future[KeptCopy] = asyncio.get_running_loop().create_future()
        self._keys = Keys(me.cluster)
        self._etcd = ClusterEtcd(
            EtcdSettings.of(config, me.id).client(),
            self._keys,
            me,
            Stall(_say_nothing, _do_nothing, TIMING.patience),
            fail,
        )
        self.wishes = Wishes(self._etcd, self._keys)
        self._succession = Succession(me.node, self.wishes, self.damaged_at)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leases: Ticks | None = None  # renews the leases of homes led here
        self._links: Links
        self._sessions: ReplicaSessions
        self._announced: Announced | None = None  # None before the start
        self._is_stopping = False
        self._prepare: Callable[[], None] | None = None
        self._target: ReplicaId | None = None  # the next leader of the own home

    # --- life ---

    async def start(self, prepare: Callable[[], None] | None = None) -> None:
        """Listen for other processes, and keep the copies named in etcd. Waits for etcd.

        Args:
            prepare: prepares the process's own home for copies from the next start on; None if the home has copies.

        Raises:
            BrokerError: the port for copies is not available, or etcd's values are sealed with another secret.
        """
        self._prepare = prepare
        secret = await answered_at_start(self._secret)
        config = self._config
        port = config.cluster_port and config.cluster_port + PORTS + self.me.worker - 1
        if port > LAST_PORT:
            raise BrokerError(f"cluster-port {config.cluster_port} leaves no port for copies: {port} is not a port")
        directory = ClusterDirectory(f"{self.me.id} copies", secret, config.cluster_host, self._boot)
        ways = TLSSockets(directory, self.me.home, config.cluster_host, port)
        self._links = Links(ways, self.me.home, self._boot, SentTurns())
        announced = Announced(self._etcd, self._keys, self.me, directory, self.racks)
        self._sessions = ReplicaSessions(self._links, announced.node_at)
        await listen(self._links)
        self._announced = announced
        await self._etcd.until_answered(announced.announce)
        assert config.data_dir is not None
        directories, without = (config.data_dir, config.data_dir / DIRECTORY), config.recover_without
        same = self._etcd.is_ours
        self._run("rebuilding", Rebuilding(self._etcd.client, self._keys, self.me, directories, same, without).run())
        await self._follow(self._keys.copies, announced.take)
        await self._follow(self._keys.all_wanted, self.wishes.take)
        if prepare is None:
            self._keep(self.me.home, self.me.member)
        await self._follow(self._keys.all_homes, self._take_home)
        self._run("alive", announced.keep_alive())
        self._run("led", self._tend())
        self._leases = Ticks(LEASE_INTERVAL, self._renew_leases)

    async def lead(self) -> KeptCopy:
        """Wait until the replica of the own home leads; return the copy, with the leading store."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(self._own)
        known = self.known.get(self.me.home)
        where = "no node" if known is None else f"node '{node_of(known.leader)}'"
        log.warning("%s follows home %d, served by %s", self.me, self.me.home, where)
        return await asyncio.shield(self._own)

    def epoch_of(self, copy: KeptCopy) -> int:
        """Return the epoch of a leading copy."""
        return self.known[copy.number].epoch

    async def release_own(self) -> None:
        """Give up the leadership of the own home, after the home's store was closed."""
        await self._own.result().release(self._target, ends=True)
        await asyncio.sleep(FAREWELL)

    async def stop(self) -> None:
        """End all guests in order, so that other nodes lead their homes, and then all tasks."""
        self._is_stopping = True
        for until in self._led.values():
            until.set()
        guests = [task for name, task in self._tasks.items() if name.startswith("guest")]
        if guests:
            _, late = await asyncio.wait(guests, timeout=self._guests_timeout)
            for task in late:
                log.warning("%s does not end in order, and is cancelled", task.get_name())
            await asyncio.sleep(FAREWELL)
        if self._leases is not None:
            self._leases.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._guests_timeout)
        if self._announced is not None:
            await self._links.stop()
            with contextlib.suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._announced.revoke()
        self._etcd.stall.stop()
        await self._etcd.client.close()

    async def _secret(self) -> str:
        identity = await self._etcd.client.get(self._keys.id)
        secret = await self._etcd.client.get(self._keys.secret)
        if identity is None or secret is None or identity.value.decode() != self.me.id:
            raise EtcdError(f"etcd does not have cluster '{self.me.cluster}' of {self.me}")
        return secret.value.decode()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"copies {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda task: self._done(name, task))

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("a task of copies has failed", exc_info=error)
            self.fail(f"a task of copies has failed: {error!r}")

    # --- etcd ---

    async def _follow(self, folder: str, take: Callable[[str, bytes | None], None]) -> None:
        """Process all values of a folder, and then each change."""
        found = await self._etcd.until_answered(lambda: self._etcd.client.folder(folder))
        for value in found.values:
            take(value.key.removeprefix(folder), value.value)

        async def follow() -> None:
            async for events in self._etcd.watched(folder, found.revision):
                for event in events:
                    take(event.key.removeprefix(folder), event.value)

        self._run(folder, follow())

    def _take_home(self, name: str, value: bytes | None) -> None:
        home = int(name)
        if value is None:  # the home or its node was removed
            self.known.pop(home, None)
            self._changed.pop(home, None)
            if home != self.me.home and home in self._led:
                self._led.pop(home).set()  # the copy is dropped after the end of the guest
            else:
                self._drop(home)
            return
        try:
            known = Configuration.from_json(value)
        except ConfigurationError as error:
            log.error("home %d: %s", home, error)
            return
        before, self.known[home] = self.known.get(home, known), known
        self._see(home, before, known)
        if (copy := self.copies.get(home)) is None:
            if self._is_kept_here(known):
                self._keep(home, known.log)
        elif home != self.me.home and not self._is_kept_here(known):
            self._drop(home)
        elif copy.home is not None:
            copy.home.on_value(known)

    def _see(self, home: int, before: Configuration, known: Configuration) -> None:
        if before != known or home not in self._changed:
            self._changed[home] = asyncio.get_running_loop().time()
        asked, returns = self.wishes.leader_of(home), self._returns.setdefault(home, Returns(self._config.return_after))
        copied = self.copies[home].home if home in self.copies else None
        resigned = copied is not None and copied.roles.resigned == before.epoch
        returns.see(before, known, asked, asyncio.get_running_loop().time(), resigned=resigned)
        self.observed[home].on_configuration(before, known)

    def _is_kept_here(self, known: Configuration) -> bool:
        """Return True if a configuration places a copy of another home at this node."""
        node = self.me.node
        return self.me.worker == 1 and node in known.members and node != known.seat

    # --- copies ---

    def _keep(self, home: int, log_id: str) -> None:
        assert self._config.data_dir is not None
        directory = self._config.data_dir
        if home != self.me.home:
            directory = directory / DIRECTORY / str(home)
        keys = self._keys
        key = ConfigurationKey(self._etcd.client, keys.home(home), [self._etcd.is_ours], keys.led(home))
        times = Times(failover=float(self._config.failover_after))  # a leader's lease is two seconds for every value
        copy = KeptCopy(home, log_id, directory, self.me.node, key, self._sessions, times, self)
        self.copies[home] = copy
        self._run(f"copy {home}", copy.keep())

    def _drop(self, home: int) -> None:
        """Stop keeping the copy of a home. The files stay: they may be the last copy."""
        if home in self.copies and home != self.me.home and home not in self._led:
            directory = self.copies.pop(home).directory
            self._tasks[f"copy {home}"].cancel()
            log.warning("this node no longer keeps a copy of home %d; %s may be deleted", home, directory)

    def serve(self, copy: KeptCopy) -> None:
        """See :class:`~jumpmq.nodes.copies.kept_copy.HomeServer`."""
        assert copy.home is not None and copy.home.roles.known is not None
        known = copy.home.roles.known
        self._see(copy.number, self.known.get(copy.number, known), known)
        self.known[copy.number] = known
        log.info("home %d is led here, in epoch %d", copy.number, known.epoch)
        self._since.pop(copy.number, None)
        self._led[copy.number] = until = asyncio.Event()
        if copy.number != self.me.home:
            self._run(f"guest {copy.number}", self._guest(copy, known.epoch, until))
        elif not self._own.done():
            self._own.set_result(copy)

    def spares(self, number: int) -> bool:
        """See :class:`~jumpmq.nodes.copies.kept_copy.HomeServer`."""
        known = self.known.get(number)
        if known is None or self._announced is None:
            return False
        leader, others = node_of(known.leader), [one for one in known.set if node_of(one) != self.me.node]
        is_well = leader in self._announced.nodes and leader not in self._announced.troubles_of(number)
        if leader == self.me.node or not is_well:
            return False
        electable = [*map(node_of, known.electable)]
        if leader in self._announced.damaged_at(number):
            # This copy may have what the leader's lacks, unless it can neither lead nor follow.
            return self.me.node not in electable and self.copies[number].hides
        if self.me.node not in electable:
            return True
        # Several copies may be damaged. They are given up one after another, by rank.
        return self._is_quiet(number, SPARED_AFTER * (1 + electable.index(self.me.node))) and len(others) >= known.min

    def lacks(self, number: int, *, hides: bool) -> bool:
        """See :class:`~jumpmq.nodes.copies.kept_copy.HomeServer`."""
        known = self.known.get(number)
        if known is None or self._announced is None:
            return False
        others = {node_of(one) for one in known.electable} - {self.me.node}
        if hides or not others:
            return not others
        # All complete copies are damaged, or the others are down.
        return others <= self._announced.damaged_at(number) or self._is_quiet(number, TOLERATED_AFTER)

    def _is_quiet(self, number: int, seconds: float) -> bool:
        """Return True if a home's configuration has not changed for some time."""
        return asyncio.get_running_loop().time() - self._changed.get(number, math.inf) >= seconds

    async def _guest(self, copy: KeptCopy, epoch: int, until: asyncio.Event) -> None:
        rest = 0.0
        log.warning("home %d of node '%s' is served here", copy.number, self.known[copy.number].seat)
        try:
            worker = await self._worker_of(copy.number)
            await self._guests.serve(self, copy, worker, epoch, until)
        except BrokerError as error:
            log.error("home %d cannot be served here, and another copy may lead: %s", copy.number, error)
            rest = FAILED_REST
        finally:
            self._led.pop(copy.number, None)
        if copy.number not in self.known:
            await copy.release(ends=True)
            self._gates.pop(copy.number, None)
            self._drop(copy.number)
            return
        known = self.known[copy.number]
        is_spared = len(known.set) > known.min and bool(self._succession.sound_others(copy.number, known))
        if copy.is_doubted and is_spared:  # a smaller set completes nothing without this copy
            rest = FAILED_REST
        heir = None
        if not self._is_stopping:
            heir = (self._succession.heir(copy, any_node=True) if copy.is_doubted else None) or self._succession.heir(
                copy
            )
        await copy.release(heir, ends=self._is_stopping, rest=rest)
        self._gates.pop(copy.number, None)
        if not self._is_stopping:
            collect_garbage()

    async def _worker_of(self, home: int) -> int:
        """Return the number of a home's process at the home's seat."""
        members = await self._etcd.until_answered(lambda: self._etcd.client.folder(self._keys.members))
        for member in members.values:
            _, _, worker = member.key.removeprefix(self._keys.members).partition("/")
            if int(json.loads(member.value)["home"]) == home and worker:
                return int(worker)
        return 1

    # --- homes led by this process ---

    def gate(self, home: int, extend: Extend) -> None:
        """Restrict the deliveries of a locally led home to the lease of its replica (R8)."""
        self._gates[home] = extend
        self._renew_lease(home)

    def _renew_leases(self) -> None:
        try:
            for home in list(self._gates):
                self._renew_lease(home)
        except Exception as error:
            log.critical("the leases of homes led here are not renewed", exc_info=error)
            self.fail(f"the leases of homes led here are not renewed: {error!r}")

    def _renew_lease(self, home: int) -> None:
        if (copied := self.copies[home].home) is not None and home in self._led:
            known = copied.roles.known
            self._gates[home](copied.delivers_until, known is not None and known.short)
        else:
            del self._gates[home]

    async def _tend(self) -> None:
        """Change the configurations of locally led homes towards the wishes of operators, step by step."""
        while True:
            await asyncio.sleep(until_tick(LOOK_INTERVAL, asyncio.get_running_loop().time()))
            await self._adjust_wishes()
            if self._announced is not None:
                troubles = {home: copy.trouble for home, copy in self.copies.items()}
                damaged = [home for home, copy in self.copies.items() if copy.is_doubted]
                closed = [home for home in damaged if self.copies[home].hides]
                opened = {home: copy.home.me for home, copy in self.copies.items() if copy.home is not None}
                await self._announced.tell(troubles, damaged, closed, opened)
            wanted = self.wishes.of(self.me.home)
            if self._prepare is not None and wanted is not None and wanted.copies > 1:
                try:
                    self._prepare()
                except OSError as error:
                    log.error("home %d cannot have copies: %s", self.me.home, error)
                    await asyncio.sleep(FAILED_REST)
                    continue
                self._again(f"home {self.me.home} gets copies", True)
                return
            for copy in self.copies.values():
                copy.replace_if_damaged()
            for home in list(self._led):
                if home in self.copies and (copied := self.copies[home].home) is not None:
                    self._tend_home(copied, self.copies[home])
            for home in self.copies.keys() - self._led.keys():
                self._tend_waiting(home)
            if wanted is not None and wanted.leader == self.me.node and self.me.home in self._led:
                await self.wishes.replace(self.me.home, wanted, replace(wanted, leader=""))

    async def _adjust_wishes(self) -> None:
        """Adjust the wishes to the settings and the nodes.

        The number of copies in the settings becomes a wish once the cluster has enough nodes, unless an operator has
        set another wish. Nodes that have been down for long are replaced.
        """
        nodes = self.nodes
        await self.wishes.begin(self.me.home, self.me.node, nodes, self._config.copies, self.racks)
        announced, after = self._announced, self._config.replace_after or math.inf
        for home in [home for home in self.wishes.homes & self.known.keys() if self._leads(home)]:
            wanted, known = self.wishes.of(home), self.known[home]
            if wanted is None:  # removed meanwhile
                continue
            gone = set() if announced is None else announced.gone(wanted.members, after, boot_time())
            if (instead := wanted.replaced(known, nodes, gone, self.racks)) is not None:
                log.warning("home %d is to have copies at %s", home, ", ".join(instead.members))
                await self.wishes.replace(home, wanted, instead)

    def _tend_home(self, copied: CopiedHome, copy: KeptCopy) -> None:
        known, now, leader = copied.roles.known, asyncio.get_running_loop().time(), copied.roles.leader
        if known is None or leader is None:
            return
        stored = {one: leader.stored.get(one, 0) for one in leader.following}
        self.observed[copy.number].on_stored(leader.copy.end, stored, now)
        home, returns = copy.number, self._returns[copy.number]
        before, since = self._since.get(home, (None, now))
        since = since if before == known else now
        self._since[home] = known, since
        self.wishes.step(copied, known)
        is_damaged = copy.leading is not None and copy.leading.is_damaged
        if is_damaged and not copy.is_doubted:
            copy.doubt("its store has losses")
        # Damage in all copies must not move the home from node to node repeatedly. If the set needs this copy, the copy
        # continues to serve, unless its damage keeps further copies from joining.
        leaves = copy.is_doubted and not returns.is_restless(now) and (len(known.set) > known.min or copy.blocks)
        copied.fills_damaged = copy.is_doubted and not self._succession.sound_others(home, known)
        is_asked = self.wishes.leader_of(home) not in ("", self.me.node)
        heir = self._succession.heir(copy, NEARLY, any_node=True) if leaves else None
        if heir is None and (is_asked or returns.is_due(since, now)):
            heir = self._succession.heir(copy, NEARLY)
        if heir is None:
            return
        log.info("home %d is handed over to %s", home, heir)
        self._led.pop(home).set()
        if home == self.me.home:
            self._target = heir
            self._again(f"home {home} is handed over to node '{node_of(heir)}'", True)

    def _tend_waiting(self, home: int) -> None:
        """Change the configuration of a home that this process leads but cannot serve, because copies are missing. The
        change follows the wish: a smaller ``min``, or members with running nodes.
        """
        copied = self.copies[home].home
        if copied is not None and copied.roles.leader is not None:
            self.wishes.step(copied, copied.roles.leader.known)

    def _leads(self, home: int) -> bool:
        """Return True if this process leads a home, whether it serves the home or waits for copies."""
        copied = self.copies[home].home if home in self.copies else None
        return home in self._led or (copied is not None and copied.roles.leader is not None)

    # --- requests of operators ---

    async def end(self, home: int) -> None:
        """Remove a home: afterwards no node serves the home or keeps its copies.

        Raises:
            EtcdError: etcd does not answer.
        """
        gone = self._keys.home(home), self._keys.led(home), self._keys.wanted(home)
        await self._etcd.client.transaction([self._etcd.is_ours], [delete(key) for key in gone])

    async def read(self, reads: list[dict[str, Any]]) -> list[Found]:
        """Read values in etcd, at a single revision.

        Raises:
            EtcdError: etcd does not answer.
        """
        return (await self._etcd.client.transaction([], reads))[1]

    @property
    def nodes(self) -> list[str]:
        """Names of the reachable nodes with copies, in the order of joining."""
        return [self.me.node] if self._announced is None else self._announced.nodes

    def troubles_of(self, home: int) -> Mapping[str, str]:
        """Return the problems of a home's copies, by node."""
        return {} if self._announced is None else self._announced.troubles_of(home)

    def damaged_at(self, home: int) -> Set[str]:
        """Return the nodes with a damaged copy of a home."""
        return frozenset() if self._announced is None else self._announced.damaged_at(home)

    def has_copies(self, home: int) -> bool:
        """Return True if a home has copies, or will soon have them."""
        known = self.known.get(home)
        return home in self.wishes.homes or (known is not None and len(known.members) > 1)

    def comes_back(self, home: int) -> bool:
        """Return True if another node is expected to take over a lost home."""
        known = self.known.get(home)
        return known is not None and known.copies > 1 and (not known.short or bool(known.eligible))


def _say_nothing(told: str) -> None:
    """Ignore a stall: the cluster's member reports it."""


def _do_nothing() -> None:
    pass
