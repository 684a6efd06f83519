"""The broker: it makes its parts, starts and stops them, and is what the management API asks."""

import asyncio
import contextlib
import itertools
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.broker.bulk.starts import Starts
from jumpmq.broker.bulk.writers import Writers
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.commit.commits import Commits
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.commit.watchdog import Watchdog
from jumpmq.broker.config import HOMES, MEMBERSHIP, Config, default_node
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.forced_closes import ForcedCloses
from jumpmq.broker.connection.handed import Handed
from jumpmq.broker.connection.listeners import CertificateWatch, Listener, Refusals, Refused, connection_limit
from jumpmq.broker.connection.origin import Origin
from jumpmq.broker.connection.pause import STOPPED, Pause
from jumpmq.broker.connection.services import Services
from jumpmq.broker.connection.tls_processes import TLSProcesses
from jumpmq.broker.consumer_groups.live import ConsumerGroups
from jumpmq.broker.dead_letters.dead_lettering import DeadLetters
from jumpmq.broker.errors import BrokerError, NotCommitted
from jumpmq.broker.figures.figures import Figures
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.memory import resources
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.memory.paging import Paging
from jumpmq.broker.routing.elsewhere import Elsewhere, Sent
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.security.passwords import hash_password
from jumpmq.broker.security.tokens import Tokens
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry import audit
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.ring_traffic import RingTraffic
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.timers import Timers
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue, group_offsets
from jumpmq.queues.base import ENTERED
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.priorities import PRIORITIES
from jumpmq.store import Batch, Store, StoreError
from jumpmq.store.definitions import BEHIND, PARTS, named, numbered, part_of
from jumpmq.topology import Topology, changes, records
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.nodes.membership.member import Member
    from jumpmq.nodes.messages.outbox import Outbox
    from jumpmq.nodes.other_homes import OtherHomes
    from jumpmq.nodes.transport.directory import Directory

log = logging.getLogger(__name__)

IDENTITY = "run", "identity"
"""Where the store keeps what tells this broker from all others."""

MARK_TIMEOUT = 2.0
"""Seconds that a start waits for the disk."""

LEAST_BACKLOG = 4 << 20
"""Octets that may wait for the disk, however little memory there is."""

COMMIT_LOOK = 0.5
"""Seconds between two looks whether commits still come, while somebody waits for one."""

STOP_TIMEOUT = 1.5
"""Seconds that the disk, and then clients that are still sent something, have at the broker's stop."""

CLOSE_TIMEOUT = 0.5
"""Seconds that all other clients have to answer that their connection is closed: many are busy, or never read it."""


class Broker:
    """A broker in the running event loop. Its parts are there once it is started.

    Args:
        directory: where homes of other machines are; None where all homes are on this one.

    Attributes:
        node: name of this node; once started, the one that the data directory keeps, unless another was given.
        boot: tells this run of the process from all others.
        pause: has all clients wait.
        other_homes: the other processes of this broker; None where it is alone.
        identity: tells this broker from all others, also after a restart; None where everything is in memory.
        listeners: where it listens, the management port's listeners among them.
        certificates: renews those of listeners with TLS.
        started_at: seconds since the epoch.
        store: where durable things are; None where everything is in memory.
        topology: virtual hosts, exchanges, queues, bindings, users.
        turns: every change of the broker's state is made in one.
        memory: what is held for messages; the holder charges it.
        alarms: whether memory or disk is short.
        watchdog: whether commits come.
        set_workers: has the node be served by so many processes; None where it is one process.
        on_failure: called with a sentence when commits cannot come any more; the process has to end. Set it before the
            start.
        before_listening: called once the broker is restored, before clients are let in; what it raises ends the start.
        consumer_groups: who shares which queues.
        starts: those that the data directory has had.
        reader_groups: who holds reservations.
        dead_letters: publishes those of the queues.
        ring_traffic: counts the keys of hash exchanges.
        writers: how far those have got that publish in batches.
        slices: when who has long work to do may go on.
        authorization, authenticator: what users may do, and who they are.
        connections: the open connections.
        churn: how much comes and goes.
        figures: what the management API and metrics show, as values; where several homes are shown together, theirs.
        node_figures: the same of this node.
        home_figures: the same of this home alone.
        spans: tells of messages that are traced; None without tracing.
    """

    topology: Topology
    turns: Turns
    alarms: Alarms
    dead_letters: DeadLetters
    ring_traffic: RingTraffic
    authorization: Authorization
    authenticator: Authenticator
    consumer_groups: ConsumerGroups

    def __init__(self, config: Config, directory: "Directory | None" = None) -> None:
        self.config = config
        self._directory = directory  # where homes of other machines are; None where all are on this one
        self._member: Member | None = None  # this node in its cluster; None where it is alone
        self.node = config.node or default_node()
        self.identity = None if config.data_dir is None else uuid.uuid4().hex
        self.listeners: list[Listener] = []
        self.certificates = CertificateWatch()
        self.started_at = 0.0
        self._begun = time.monotonic()  # when it was started
        try:
            self.memory = MemoryAccount(resources.memory_limit(config.memory_limit) // config.homes)
            # Octets that are to stay free.
            self._disk_free_limit = resources.disk_free_limit(config.disk_free_limit)
        except ValueError as error:
            raise BrokerError(str(error)) from None
        self.connections: set[Connection] = set()
        self.churn = Churn()
        self.home_figures = HomeFigures(self)
        self.figures: Figures = self.home_figures
        self.node_figures: Figures = self.home_figures
        self.spans: Spans | None = None
        self.boot = uuid.uuid4().hex
        self.other_homes: OtherHomes | None = None
        self.starts = Starts(self.boot)
        self.reader_groups = ReaderGroups(self)
        self.writers = Writers()
        self.slices = Slices()
        self.on_failure: Callable[[str], None] = lambda reason: None
        self.before_listening: Callable[[Broker], Awaitable[None]] | None = None
        self.set_workers: Callable[[int], None] | None = None
        self.watchdog: Watchdog
        self._refusals = Refusals()  # connections beyond the limit
        self._is_restored = False  # whether the queues have what was kept
        self._is_stopping = False  # whether no more clients are taken
        self._closing: asyncio.Task[None] | None = None  # closes them
        self._joining: set[asyncio.Task[Any]] = set()  # clients that were handed over and are not connected yet
        self._tls_processes: TLSProcesses | None = None  # which do TLS for clients of AMQP
        self._commits: Commits  # the broker's side of the store
        self._services: Services  # what connections and channels share
        self._timers: Timers  # what happens by the clock
        self._upkeep: Upkeep  # what queues need by the clock, and long work in steps

    @property
    def cluster_name(self) -> str:
        """The name of the cluster: the node's, unless another was set."""
        return self.topology.cluster_name

    @property
    def uptime(self) -> float:
        """Seconds since the start, also where the clock was set since."""
        return time.monotonic() - self._begun

    @property
    def store(self) -> Store | None:
        """Where durable things are; None where everything is in memory."""
        return self._commits.store

    # --- life ---

    async def start(self) -> None:
        """Restore what was kept, and listen.

        Raises:
            BrokerError: the store cannot be opened, or the port is taken.
        """
        self.started_at, self._begun = time.time(), time.monotonic()
        self._commits = Commits()
        self._commits.on_failure = self.on_failure
        try:
            definitions = self._open_store()
            self.turns = Turns(self._commits, self._write_backlog)
            if self.config.cluster is None:
                _require_no_cluster(definitions)
            else:
                definitions = await self._join_cluster(definitions)
            if self.config.homes > 1 or self._member is not None:
                definitions = await self._find_other_homes(definitions)
            else:
                _require_all_homes(definitions)
                definitions = records.alone(definitions, self.store)
            if self.config.node is None:
                kept = records.kept_node(definitions, self.config.home)
                if kept is None and self._directory is None:  # the other homes are on this machine
                    kept = records.kept_node(definitions, 1)
                self.node = kept or self.node
            self._make_parts()
            try:
                self._restore(definitions)
            except StoreError as error:
                raise BrokerError(str(error)) from None
            self._is_restored = True
            await self._mark_started()
            if self.other_homes is not None:
                self.other_homes.served_channels.serve(self._services, self.memory)
                await self.other_homes.join(self.topology, self.node, self._services.deliver_reply)
                self.other_homes.ring_changes.serve(self.topology, self.pause)
                self.other_homes.usage.serve(self._services.user_limits)
                self.other_homes.moves.serve(
                    self.topology,
                    self._channels,
                    self.consumer_groups.queue_moved,
                    self._commits.streams,
                    lambda: self.alarms.disk_free_limit,
                    self,
                )
                self.other_homes.relocating.serve(self.topology, self)
                self.other_homes.take_clients(self.topology, self._take_handed)
            if (member := self._member) is not None:
                pause = self.pause
                pause.on_late = lambda: member.after_stop(lambda: pause.end(STOPPED))
            if self.config.worker == 1 and (
                self.config.home == 1 or self._member is not None
            ):  # every home hears of all
                self.topology.listeners.append(audit.recording(self.topology))
            self.topology.listeners.append(lambda change, asker: self.churn.follow(self.topology, change))
            if self.before_listening is not None:
                await self.before_listening(self)
            await self._listen()
        except BaseException:
            self._stop_listening()
            if self._tls_processes is not None:
                await self._tls_processes.stop()
            if self.other_homes is not None:
                await self.other_homes.stop()
            if self._is_restored:
                self._checkpoint()
            await self._commits.close(clean=self._is_restored or (self.store is not None and self.store.clean))
            raise
        if self.config.key_sketches == "on":
            self.ring_traffic.start()
        self._timers.start()
        self.reader_groups.start()

    def _open_store(self) -> list[tuple[str, str, Any]]:
        """Open the store, if there is to be one; returns the definitions that it keeps."""
        if self.config.data_dir is None:
            return []
        try:
            self._commits.open(self.config.data_dir, self._write_backlog // 2)
        except StoreError as error:
            raise BrokerError(str(error)) from None
        assert self.store is not None
        return self.store.definitions()

    async def _join_cluster(self, definitions: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
        try:
            from jumpmq.nodes.membership.starting import enter  # here, so that a node alone does not load it
        except ModuleNotFoundError as error:
            raise BrokerError(f"a cluster needs {error.name}: pip install 'jumpmq[cluster]'") from None

        member, definitions = await enter(
            self.config, self.boot, self.store, self.turns, definitions, self._commits.fail
        )
        self.config = replace(self.config, home=member.me.home, node=member.me.node)
        self.node, self.identity = member.me.node, member.me.id
        self._member = self._directory = member
        return definitions

    async def _find_other_homes(self, definitions: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
        from jumpmq.nodes.other_homes import OtherHomes  # here, so that a process alone does not load it

        identity = _kept_identity(definitions)
        self.other_homes = OtherHomes(
            self.config,
            self.boot,
            self.turns,
            self.memory,
            self.store,
            identity,
            self._commits.fail,
            self._directory,
            self._member,
        )
        definitions = await self.other_homes.definitions(definitions)
        self.identity = self.other_homes.identity or self.identity
        return definitions

    @property
    def is_clustered(self) -> bool:
        """Whether this is one of several nodes."""
        return self._directory is not None

    @property
    def running_homes(self) -> set[int]:
        """The numbers of the homes that answer, this one among them."""
        return {self.config.home} if self.other_homes is None else {self.config.home, *self.other_homes.links.homes}

    @property
    def running_nodes(self) -> list[str]:
        """The nodes of this cluster that answer, this one among them, in the order of joining."""
        up = self.running_homes
        return [node for node, homes in self.topology.nodes.items() if not up.isdisjoint(homes)]

    @property
    def standstill(self) -> str | None:
        """Why definitions cannot be changed, a sentence; None while they can."""
        return None if self._member is None else self._member.standstill.reason

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Sends messages to queues of other homes; None where this process is alone."""
        return None if self.other_homes is None else self.other_homes.enqueue

    @property
    def outbox(self) -> "Outbox | None":
        """Keeps batches and dead letters for queues of other homes; None where this process is alone."""
        return None if self.other_homes is None else self.other_homes.outbox

    @property
    def _write_backlog(self) -> int:
        """Octets that may wait for the disk: most of a small memory limit is for messages that are on it."""
        return min(self.config.write_backlog, max(self.memory.limit // 8, LEAST_BACKLOG))

    def _make_parts(self) -> None:
        if self.config.otlp_endpoint is not None:
            self.spans = Spans(self.config.otlp_endpoint, self.node)
        self.alarms = Alarms(self.memory, self._commits, self.config.data_dir, self._disk_free_limit)
        self._upkeep = Upkeep(self.turns)
        self.dead_letters = DeadLetters(self._upkeep, self.memory, self._commits.streams, self.spans)
        self.topology = Topology(
            self.node,
            self.store,
            streams=self._commits.streams,
            memory=self.memory,
            dead_letters=self.dead_letters,
            wake=self._upkeep.wake,
            later=self._upkeep.work,
            home=self.config.home,
            shared=self.other_homes is not None,
        )
        if self.store is not None:
            self.store.name_queues(self._queue_name)
        self.topology.locator = self.config.queue_leader_locator
        self.dead_letters.topology = self.topology
        if self.outbox is not None:
            self.dead_letters.elsewhere = self.elsewhere
            self.dead_letters.keep = self.outbox.add_letters
            self.dead_letters.is_full = lambda: self.outbox is not None and self.outbox.is_full
        self.ring_traffic = RingTraffic(self.topology)
        self._upkeep.on_lease_end = self._delete_unused
        self._commits.before_flush = self.topology.flush_rings
        self.authorization = Authorization(self.topology)
        self.authenticator = Authenticator(self.topology, self._tokens())
        self.consumer_groups = ConsumerGroups(
            *(self.topology, self.turns, self.authorization),
            *(self.config.consumer_group_member_max, self.config.consumer_group_max_per_user),
        )
        self.consumer_groups.reader_of = self.reader_groups.reader_of
        self.pause = Pause()
        self.dead_letters.is_held_up = lambda: self.pause.active
        self._services = Services(
            config=self.config,
            topology=self.topology,
            turns=self.turns,
            upkeep=self._upkeep,
            authorization=self.authorization,
            user_limits=UserLimits(self.topology, self.connections),
            churn=self.churn,
            groups=self.consumer_groups,
            elsewhere=self.elsewhere,
            remote=None if self.other_homes is None else self.other_homes.channels.of,
            spans=self.spans,
            connections=self.connections,
            identities=(f"{self.boot}.{counter}" for counter in itertools.count(1)),
            memory=self.memory,
            alarms=self.alarms,
            authenticator=self.authenticator,
            pause=self.pause,
            hand_over=None if self.other_homes is None else self.other_homes.hand_over,
        )
        self.topology.listeners.append(self._services.run_sizes.follow)
        self._forced_closes = ForcedCloses(self.connections, self.turns)
        self.topology.listeners.append(self._forced_closes.follow)
        self.topology.leaving.append(self._forced_closes.leave)
        self.topology.listeners.append(self._services.user_limits.follow)
        self.topology.listeners.append(self.writers.follow)
        self.topology.listeners.append(self.consumer_groups.follow)
        paging = Paging(self._upkeep, self.memory, self._queues, self._deliveries, self.reader_groups.places)
        self.watchdog = Watchdog(self._commits, lambda: not self._upkeep.idle)
        self._timers = Timers(self._services, self._commits, self.watchdog, paging, self.dead_letters)

    def _tokens(self) -> Tokens | None:
        """What reads tokens, where they are logins.

        Raises:
            BrokerError: the settings lack one, or the keys cannot be used.
        """
        resource, keys = self.config.oauth_resource, self.config.oauth_keys
        if resource is None and keys is None:
            return None
        if resource is None or keys is None:
            raise BrokerError("tokens need both oauth-resource and oauth-keys")
        return Tokens(resource, keys)

    def _delete_unused(self, queue: Queue) -> None:
        self.topology.propose(changes.DeleteQueue(queue.vhost, queue.name, queue.id))

    def _restore(self, definitions: list[tuple[str, str, Any]]) -> None:
        self.topology.restore(definitions)
        if self.config.home == 1 and self._member is None:
            if self.other_homes is not None:
                self.identity = _kept_identity(definitions) or self.identity or uuid.uuid4().hex
                self.other_homes.order(self.topology, definitions, self.identity)
            self.topology.apply(changes.AddHome(1, self.node))
        batches = {} if self.store is None else self.store.batches()
        if self.other_homes is not None:
            self.other_homes.outbox.restore(self.topology, definitions, batches)
            self.other_homes.taking.restore(self.topology, definitions)
            self.other_homes.moves.streams.restore(definitions)
            self.other_homes.taking.is_short = lambda: self.alarms.active
            self.other_homes.enqueue.alarms = self.alarms
        if self.store is not None:
            self._restore_contents(self.store, definitions, batches)
        if self.config.home == 1 and self._member is None and not self.topology.vhosts and not self.topology.users:
            self._create_defaults()

    def _restore_contents(
        self, store: Store, definitions: list[tuple[str, str, Any]], batches: dict[int, list[Batch]]
    ) -> None:
        for queue in self._queues():
            waits = not queue.id & BEHIND and queue.id | BEHIND in batches
            if waits and queue.behind is None:  # all has come from where it was, and this had not entered yet
                definition = self.topology.vhosts[queue.vhost].definition(queue)
                queue.put_behind(self.topology.make_behind(definition, queue.id))
        next_seqs = {key: value for kind, key, value in definitions if kind == "sequence"}
        delivered = {key: value for kind, key, value in definitions if kind == "delivered"}
        with_priorities = {key for kind, key, _ in definitions if kind == PRIORITIES}
        attempts: dict[int, dict[int, int]] = {}
        for kind, key, value in definitions:
            if kind == "attempts":
                queue_id, seq = map(int, key.split())
                attempts.setdefault(queue_id, {})[seq] = value
        offsets: dict[int, dict[str, Any]] = {}
        for kind, key, value in definitions:
            if kind == group_offsets.KIND:
                queue_number, _, group = key.partition(" ")
                offsets.setdefault(int(queue_number), {})[group] = value
        entered = {key: value for kind, key, value in definitions if kind == ENTERED}
        self.topology.fences.restore(definitions)
        for queue in self._queues():
            if queue.append_only and (offset := entered.get(str(queue.id))) is not None:
                queue.restore_entered(offset)
            delivered_seq = delivered.get(str(queue.id), 0) if store.clean else None
            next_seq = next_seqs.get(str(queue.id), 1)
            if str(queue.id) in with_priorities:
                queue.expect_priorities()
            queue.restore(batches.get(queue.id, []), next_seq, delivered_seq, attempts.get(queue.id, {}))
            if queue.offsets is not None:
                queue.restore_offsets(offsets.get(queue.id, {}), clean=store.clean)
        self.topology.fences.count_restored()
        known = {queue.id for queue in self._queues()}
        for number, lost in batches.items():
            if number not in known:
                count = sum(batch.remaining for batch in lost)
                store.losses.add(f"the definition of {numbered(number)} is lost, and with it {count} messages")
        if store.whole:  # else one of them may be a stream whose definition was lost
            self._commits.streams.set_unclaimed_aside()
        self.identity = _kept_identity(definitions) or self.identity
        self.starts.begin(store, definitions)
        self.reader_groups.restore(definitions, {queue.id: queue for queue in self._queues()})
        self.writers.restore(definitions, store)

    def _create_defaults(self) -> None:
        """What a new broker begins with: virtual host ``/`` and the default user, who may do everything in it."""
        user, password = self.config.default_user, self.config.default_pass
        with self.turns.turn():
            self.topology.apply(changes.AddVirtualHost("/"))
            self.topology.apply(changes.PutUser(user, hash_password(password), ("administrator",)))
            self.topology.apply(changes.SetPermissions(user, "/", ".*", ".*", ".*"))

    async def _mark_started(self) -> None:
        """Put a first commit on disk: from now on messages are delivered, so that the last stop, if it was clean, no
        longer says which of them were. A disk that takes nothing does not keep consumers from what is on it."""
        if self.store is not None:
            self.store.put("run", "started_at", self.started_at)
            self.store.put(*IDENTITY, self.identity)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._commits.wait(), MARK_TIMEOUT)
                if self._member is not None:
                    self._member.sight = partial(self.starts.sight, self.store)

    async def _listen(self) -> None:
        config = self.config
        if config.port is not None:
            await self.listen(Listener("amqp", config.host, config.port, self.accept))
        if config.tls is not None and config.tls_port is not None:
            if config.tls_processes:
                self._tls_processes = TLSProcesses(config.tls_processes, config.tls, self.accept)
            where = config.host, config.tls_port
            await self.listen(Listener("amqp/ssl", *where, self.accept, config.tls, self._tls_processes))

    async def listen(self, listener: Listener) -> None:
        """Start a listener; it is closed with the broker.

        Raises:
            BrokerError: it cannot listen.
        """
        await listener.start()
        self.listeners.append(listener)
        self.certificates.add(listener)

    async def suspend(self, suspended: bool) -> None:
        """Listen for clients of AMQP no more, or again at the same ports. Who is connected stays so.

        Raises:
            BrokerError: somebody else has taken a port meanwhile.
        """
        for listener in self.listeners:
            if listener.protocol.startswith("amqp") and listener.is_suspended != suspended:
                if suspended:
                    listener.close()
                else:
                    await listener.start()

    def port_of(self, protocol: str) -> int:
        """The port where a protocol is spoken; 0 if it is nowhere."""
        return next((listener.port for listener in self.listeners if listener.protocol == protocol), 0)

    @property
    def port(self) -> int:
        """Where AMQP is spoken without TLS; 0 if it is nowhere."""
        return self.port_of("amqp")

    def accept(self, origin: Origin | None = None, handed: Handed | None = None) -> asyncio.BaseProtocol:
        """The protocol of a new client of AMQP.

        Args:
            origin: whence it comes; None where its socket says so.
            handed: what is known of it, where another process has served it so far.
        """
        if self._is_stopping:  # what it would be delivered is not told by the mark of a clean stop
            return Refused()
        if len(self.connections) < connection_limit():
            return Connection(self._services, origin, handed)
        return self._refusals.accept()

    def _take_handed(self, client: socket.socket, known: bytes) -> None:
        """Serve a client that another process of this broker has handed over."""
        handed, loop = Handed.unpacked(known), asyncio.get_running_loop()
        client.setblocking(False)
        task = loop.create_task(loop.connect_accepted_socket(lambda: self.accept(handed=handed), client))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def _stop_listening(self) -> None:
        for listener in self.listeners:
            listener.close()

    async def stop(self) -> None:
        """Stop listening, close the connections, and put everything on disk."""
        self.close_clients()
        await self.certificates.stop()
        await self.reader_groups.stop()
        assert self._closing is not None
        await self._closing
        if self._tls_processes is not None:
            await self._tls_processes.stop()
        if self.other_homes is not None:
            await self.other_homes.stop()
        self._timers.stop()
        self.consumer_groups.stop()
        self._upkeep.stop()
        await asyncio.to_thread(self.authenticator.close)
        if self.store is not None:
            with self.turns.turn():
                self._upkeep.finish()
            if self.dead_letters.unwritten:
                with contextlib.suppress(TimeoutError, NotCommitted):
                    await asyncio.wait_for(self.committed(), STOP_TIMEOUT)
            self._checkpoint()
        try:
            await self._commits.close()
        except StoreError as error:
            log.error("%s", error)
        if self.spans is not None:
            with contextlib.suppress(TimeoutError):  # nor must a collector
                await asyncio.wait_for(asyncio.to_thread(self.spans.close), STOP_TIMEOUT)

    def close_clients(self) -> None:
        """Begin to stop: listen no more, and close the connections once what was sent so far is on disk. :meth:`stop`
        does the rest; until then other homes are served."""
        if self._closing is None:
            self._is_stopping = True
            self._stop_listening()
            self._closing = asyncio.get_running_loop().create_task(self._close_clients(), name="closing clients")

    async def _close_clients(self) -> None:
        with contextlib.suppress(
            TimeoutError, NotCommitted
        ):  # a disk that takes nothing must not keep it from stopping
            await asyncio.wait_for(self.committed(), STOP_TIMEOUT)
        self.close_connections("broker forced connection closure with reason 'shutdown'", lambda connection: True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for seconds in (CLOSE_TIMEOUT, STOP_TIMEOUT):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(began + seconds):
                    await asyncio.gather(*(connection.closed.wait() for connection in self.connections))
            for connection in list(self.connections):
                if seconds == STOP_TIMEOUT or not connection.writing.waiting:
                    connection.abort()

    def _checkpoint(self) -> None:
        """Have the store know where queues stand, as the mark of a clean stop says that it does."""
        with self.turns.turn():
            self.dead_letters.settle_written()
            for queue in self._queues():
                queue.checkpoint()

    def _queue_name(self, number: int) -> str:
        """What the log calls a queue. Any thread may ask."""
        if number & PARTS:
            return part_of(number, self._queue_name)
        found = [one for host in list(self.topology.vhosts.values()) for one in list(host.queues.values())]
        return next((named(one.name, one.vhost) for one in found if one.id == number), numbered(number))

    def _deliveries(self) -> list[Deliveries]:
        return [channel.unacknowledged for one in self.connections for channel in one.channels.values()]

    def _channels(self) -> list[Channel]:
        own = [channel for one in self.connections for channel in one.channels.values()]
        return own if self.other_homes is None else [*own, *self.other_homes.served_channels.channels()]

    def _queues(self) -> list[Queue]:
        """All contents, those of queues that move among them."""
        hosts = self.topology.vhosts.values()
        found = [queue for host in hosts for one in (host.queues, host.departed) for queue in one.values()]
        return [*found, *(queue.behind for queue in found if queue.behind is not None)]

    # --- what the management API asks ---

    @property
    def losses(self) -> list[tuple[str, float]]:
        """What is missing from the data directory and not acknowledged: sentences, each with when it was found."""
        return self._commits.losses

    async def acknowledge_losses(self) -> None:
        """Tell of what is missing no longer, in later runs neither."""
        if self.store is not None:
            with self.turns.turn():
                self.store.acknowledge_losses()
            await self.committed()

    async def committed(self) -> None:
        """End the turn, and wait until all that was changed is on disk.

        Raises:
            NotCommitted: the disk takes nothing, for so long that the watchdog says so.
        """
        waiting = asyncio.ensure_future(self.turns.committed())
        try:
            while not (await asyncio.wait((waiting,), timeout=COMMIT_LOOK))[0]:
                if self.watchdog.complaint is not None:
                    raise NotCommitted(f"{self.watchdog.complaint}; it may be done all the same")
            waiting.result()
        finally:
            waiting.cancel()

    def refused(self, sent: Sent) -> asyncio.Future[bool]:
        """Tells whether any of what was sent to other homes was refused, once that is known.

        It has to be asked for before anything else is awaited: later it is forgotten.
        """
        assert self.elsewhere is not None
        known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered() -> None:
            if not known.done():
                known.set_result(any(sent.was_refused(message) for message in sent.sources))

        with self.turns.turn():
            self.elsewhere.when_answered(sent, answered)
        return known

    async def authenticate(self, user: str, password: str, peer_host: str) -> Principal:
        """The user, if the password is right.

        Raises:
            AccessRefused: it is not, or the user may not log in from there.
        """
        found = await self.authenticator.authenticate(user, password, peer_host)
        if found is None:
            raise AccessRefused("Login failed")
        return found

    async def count_published(self, user: Principal, messages: int) -> None:
        """Wait until the user may publish again, and count so many messages that are published now."""
        rate = self._services.user_limits.rate(user)
        if rate is not None:
            seconds = rate.wait()
            rate.count(messages)
            await asyncio.sleep(seconds)

    def set_limits(self, memory: int | None = None, disk_free: int | None = None) -> None:
        """Change the limits of memory and of free disk until the broker stops: octets, None leaves one as it is."""
        with self.turns.turn():
            if memory is not None:
                self.memory.limit = memory
            if disk_free is not None:
                self.alarms.disk_free_limit = disk_free
            self.alarms.look()

    def reader_of(self, queue: str, vhost: str) -> str | None:
        """The reader group that has messages of a queue here reserved; None where none has."""
        host = self.topology.vhosts.get(vhost)
        contents = None if host is None else host.queues.get(queue)
        group = None if contents is None else self.reader_groups.reader_of(contents)
        return None if group is None else group.shown_name

    def begin_move(self, definition: QueueDefinition, home: int) -> bool:
        """Have a stream here that is to move to another machine be copied there, after which it moves; returns whether
        it is one. Any other queue moves by a change alone.

        Raises:
            PreconditionFailed: it cannot.
        """
        queue = self.topology.vhosts[definition.vhost].declared[definition.name]
        if self.other_homes is None or not self.other_homes.moves.streams.is_for(queue, home):
            return False
        with self.turns.turn():
            self.other_homes.moves.streams.begin(queue, home)
        return True

    def is_copied(self, definition: QueueDefinition) -> bool:
        """Whether it is a stream that is being copied so."""
        return self.other_homes is not None and self.other_homes.moves.streams.is_under_way(definition)

    def stop_move(self, definition: QueueDefinition) -> None:
        """Have a stream here stay that is being copied."""
        if self.other_homes is not None:
            self.other_homes.moves.streams.end(self.topology.vhosts[definition.vhost].declared[definition.name])

    async def rebalance(self) -> None:
        """Begin to have queues of this home move to homes that have fewer."""
        if self.other_homes is not None:
            self.other_homes.relocating.rebalance()

    def close_all(self, reason: str) -> int:
        """Close all connections; returns how many there were."""
        return self.close_connections(reason, lambda connection: True)

    def close_connections(self, reason: str, chosen: Callable[[Connection], bool]) -> int:
        """Close connections on an operator's behalf; returns how many.

        Args:
            reason: what the clients are told, after ``CONNECTION_FORCED``.
        """
        return self._forced_closes.close(reason, chosen)


def _kept_identity(definitions: list[tuple[str, str, Any]]) -> str | None:
    return next((value for kind, key, value in definitions if (kind, key) == IDENTITY), None)


def _require_no_cluster(definitions: list[tuple[str, str, Any]]) -> None:
    """
    Raises:
        BrokerError: the data directory is that of a node.
    """
    for kind, key, value in definitions:
        if (kind, key) == MEMBERSHIP:
            name = value["cluster"]
            raise BrokerError(
                f"the data directory is that of a node of cluster '{name}': serve it with --cluster {name}"
            )


def _require_all_homes(definitions: list[tuple[str, str, Any]]) -> None:
    """
    Raises:
        BrokerError: the data directory is that of one home of several: alone it would lack the messages of the others.
    """
    homes = next((value for kind, key, value in definitions if (kind, key) == HOMES), 1)
    if homes != 1:
        raise BrokerError(f"the data directory is one of {homes} homes: serve it with --workers {homes} or more")
