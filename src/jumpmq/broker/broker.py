"""The broker: start and stop of its parts, and the interface for the management API."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.commit.commits import Commits, OpenStore
from jumpmq.broker.config import Config
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.listeners import Listener
from jumpmq.broker.copies import Copies, NoCopies
from jumpmq.broker.errors import BrokerError, NotCommitted
from jumpmq.broker.figures.figures import Figures
from jumpmq.broker.figures.home import HomeFigures
from jumpmq.broker.opening import Opened, kept_identity
from jumpmq.broker.parts import BrokerParts
from jumpmq.broker.peers import Enter, Peers, Restored, alone
from jumpmq.broker.restoring import restore_contents
from jumpmq.broker.routing.sending import Sender, Sent
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.passwords import hash_password
from jumpmq.broker.security.rate import UNLIMITED
from jumpmq.broker.telemetry import audit
from jumpmq.store import Store, StoreError
from jumpmq.store.kinds import IDENTITY, STARTED_AT
from jumpmq.topology import AddHome, AddVirtualHost, PutUser, SetPermissions

log = logging.getLogger(__name__)

MARK_TIMEOUT = 2.0
"""Maximum wait for the disk at a start, in seconds."""

COMMIT_LOOK = 0.5
"""Seconds between two checks of commit progress, while a commit is awaited."""

STOP_TIMEOUT = 1.5
"""Seconds for the disk, and then for clients with pending output, at the broker's stop."""

CLOSE_TIMEOUT = 0.5
"""Maximum wait in seconds for the remaining clients to answer the close of their connections: many are busy, or
never read the close.
"""


class Broker(BrokerParts):
    """A broker in the running event loop; :func:`start` makes a serving broker.

    Attributes:
        figures: statistics for the management API and metrics; in a broker of several homes, of all homes.
        node_figures: statistics of this node.
        home_figures: statistics of this home alone.
        copies: the copies of the cluster's homes.
        at: name of the node that runs this process. A process that serves a home of another node has a different
            ``node``.
        set_workers: changes the number of the node's processes; None for a single process. See :meth:`let_workers`.
    """

    def __init__(self, opened: Opened, peers: Peers) -> None:
        super().__init__(opened, peers)
        self.home_figures = HomeFigures(self)
        self.figures: Figures = self.home_figures
        self.node_figures: Figures = self.home_figures
        self.copies: Copies = NoCopies()
        self.at = self.node
        self.set_workers: Callable[[int], None] | None = None
        self._is_restored = False  # True once the queues are restored
        self._closing: asyncio.Task[None] | None = None  # closes the clients' connections

    @property
    def cluster_name(self) -> str:
        """Name of the cluster: by default the node's name."""
        return self.topology.cluster_name

    @property
    def uptime(self) -> float:
        """Seconds since the start, independent of changes of the clock."""
        return time.monotonic() - self._begun

    @property
    def running_homes(self) -> set[int]:
        """Numbers of the responding homes, including the local home."""
        return self.peers.homes

    @property
    def running_nodes(self) -> list[str]:
        """Responding nodes of the cluster, including the local node, in the order of joining."""
        up = {self.node_serving(home) for home in self.running_homes}
        return [node for node in self.topology.nodes if node in up]

    def node_serving(self, home: int) -> str:
        """Return the node that serves a home, or should serve it. A home with copies may be served by another node
        than its own.
        """
        return self.copies.leader_of(home) or self.topology.node_of(home)

    @property
    def sender(self) -> Sender:
        """Sender of messages to queues of other homes."""
        return self.peers.sender

    @property
    def listeners(self) -> list[Listener]:
        """Listeners of the broker, including the listeners of the management port."""
        return self.listening.listeners

    @property
    def port(self) -> int:
        """Port of AMQP without TLS; 0 if not served."""
        return self.listening.port_of("amqp")

    # --- several processes ---

    def show(self, figures: Figures, node_figures: Figures | None) -> None:
        """Show the statistics of all homes in the management API.

        Args:
            figures: statistics of all homes, merged with those of this home.
            node_figures: statistics of this node; None for those of this home.
        """
        self.figures = figures
        self.node_figures = node_figures or self.home_figures

    def serve_copies(self, copies: Copies, node: str) -> None:
        """Set the copies of the cluster's homes, for a home with copies.

        Args:
            copies: the copies of all homes.
            node: name of the node that runs this process.
        """
        self.copies, self.at = copies, node

    def let_workers(self, set_workers: Callable[[int], None]) -> None:
        """Set the function called with the number of processes that an administrator requests for the node."""
        self.set_workers = set_workers

    # --- life ---

    async def serve(self, before_listening: "Callable[[Broker], Awaitable[None]] | None" = None) -> None:
        """Restore the stored state, and listen: see :func:`start`."""
        try:
            self._restore()
        except StoreError as error:
            raise BrokerError(str(error)) from None
        self._is_restored = True
        await self._mark_started()
        await self.peers.lifecycle.join(
            Restored(
                topology=self.topology,
                node=self.node,
                services=self._services,
                streams=self._commits.streams,
                users=self,
                channels=self._channels,
                queue_moved=self.consumer_groups.queue_moved,
                disk_free_limit=lambda: self.alarms.disk_free_limit,
                take_client=self.listening.take_client,
                fingerprint=self.reader_groups.fingerprint,
                had=self.starts.had,
            )
        )
        if self.peers.local.records_audit:
            self.topology.listeners.append(audit.recording(self.topology))
        self.topology.listeners.append(lambda change, principal: self.churn.follow(self.topology, change))
        if before_listening is not None:
            await before_listening(self)
        await self.listening.start()
        if self.config.key_sketches == "on":
            self.ring_traffic.start()
        self._timers.start()
        self.reader_groups.start()

    def _restore(self) -> None:
        definitions, store = self.peers.local.definitions, self.store
        self.topology.restore(definitions)
        self.peers.lifecycle.order(self.topology)
        if self.peers.local.founds:
            self.topology.apply(AddHome(1, self.node))
        batches = {} if store is None else store.batches()
        self.peers.lifecycle.restore(self.topology, batches, self.alarms)
        if store is not None:
            restore_contents(self.topology, store, self._commits.streams, definitions, batches)
            self.identity = kept_identity(definitions) or self.identity
            self.starts.begin(store, definitions)
            self.reader_groups.restore(definitions, {queue.id: queue for queue in self._queues()})
            self.writers.restore(definitions, store)
        if self.peers.local.founds and not self.topology.vhosts and not self.topology.users:
            self._create_defaults()

    def _create_defaults(self) -> None:
        """Create the defaults of a new broker: virtual host ``/``, and the default user with all permissions in the
        virtual host.
        """
        user, password = self.config.default_user, self.config.default_pass
        with self.turns.turn():
            self.topology.apply(AddVirtualHost("/"))
            self.topology.apply(PutUser(user, hash_password(password), ("administrator",)))
            self.topology.apply(SetPermissions(user, "/", ".*", ".*", ".*"))

    async def _mark_started(self) -> None:
        """Put a first commit on disk before messages are delivered. After it, the marker of a clean stop no longer
        describes which messages were delivered. A disk that refuses writes does not prevent deliveries of stored
        messages.
        """
        if self.store is not None:
            self.store.put(*STARTED_AT, self.started_at)
            self.store.put(*IDENTITY, self.identity)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._commits.wait(), MARK_TIMEOUT)

    async def give_up(self) -> None:
        """Undo a failed start, except for the store; the store stays open."""
        self.listening.close()
        await self.listening.stop_processes()
        await self.peers.lifecycle.stop()
        if self._is_restored:
            self._checkpoint()

    @property
    def is_clean(self) -> bool:
        """True if the store may be marked as cleanly closed."""
        return self._is_restored or (self.store is not None and self.store.clean)

    async def stop(self) -> None:
        """Stop listening, close the connections, and put everything on disk."""
        self.close_clients()
        await self.listening.certificates.stop()
        await self.reader_groups.stop()
        assert self._closing is not None
        await self._closing
        await self.listening.stop_processes()
        await self.peers.lifecycle.stop()
        self._timers.stop()
        self.consumer_groups.stop()
        self._upkeep.stop()
        await asyncio.to_thread(self.authenticator.close)
        if self.store is not None:
            with self.turns.turn():
                self._upkeep.finish()
            self._checkpoint()
        try:
            await self._commits.close()
        except StoreError as error:
            log.error("%s", error)
        if self.spans is not None:
            with contextlib.suppress(TimeoutError):  # a collector must not delay the stop
                await asyncio.wait_for(asyncio.to_thread(self.spans.close), STOP_TIMEOUT)

    def close_clients(self) -> None:
        """Stop listening, and close the connections once all output so far is on disk. Other homes are still served
        until :meth:`stop`.
        """
        if self._closing is None:
            self.listening.refuse_all()
            self._closing = asyncio.get_running_loop().create_task(self._close_clients(), name="closing clients")

    async def _close_clients(self) -> None:
        with contextlib.suppress(TimeoutError, NotCommitted):  # a disk that accepts no writes must not delay the stop
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
        """Store the positions of queues, as promised by the marker of a clean stop."""
        with self.turns.turn():
            for queue in self._queues():
                queue.checkpoint()

    # --- what the management API asks ---

    @property
    def losses(self) -> list[tuple[str, float]]:
        """Unacknowledged losses of the data directory: sentences, with the time of detection."""
        return self._commits.losses

    async def acknowledge_losses(self) -> None:
        """Stop reporting known losses, in later runs as well."""
        if self.store is not None:
            with self.turns.turn():
                self.store.acknowledge_losses()
            await self.committed()

    async def committed(self) -> None:
        """End the turn, and wait until all changes are on disk.

        Raises:
            NotCommitted: the disk has accepted no writes for the watchdog's limit.
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
        """Return a future: True if another home has refused any of the messages sent.

        Call this before the next ``await``: the results are kept only until then.
        """
        known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered() -> None:
            if not known.done():
                known.set_result(any(sent.was_refused(message) for message in sent.sources))

        with self.turns.turn():
            self.sender.when_answered(sent, answered)
        return known

    async def authenticate(self, user: str, password: str, peer_host: str) -> Principal:
        """Return the user with the given password.

        Raises:
            AccessRefused: the password is wrong, or the user may not log in from this address.
        """
        found = await self.authenticator.authenticate(user, password, peer_host)
        if found is None:
            raise AccessRefused("Login failed")
        return found

    def publishable_within(self, user: Principal, seconds: float) -> int:
        """Return the number of messages that the user's ``max-publish-rate`` allows in some seconds, at least one."""
        rate = self._services.user_limits.rate(user)
        return UNLIMITED if rate is None else rate.within(seconds)

    async def count_published(self, user: Principal, messages: int) -> None:
        """Wait until the user may publish again, and count the given messages as published."""
        rate = self._services.user_limits.rate(user)
        if rate is not None:
            seconds = rate.wait()
            rate.count(messages)
            await asyncio.sleep(seconds)

    def set_limits(self, memory: int | None = None, disk_free: int | None = None) -> None:
        """Change the limits of memory and free disk, in octets, until the broker stops; None for no change."""
        with self.turns.turn():
            if memory is not None:
                self.memory.limit = memory
            if disk_free is not None:
                self.alarms.disk_free_limit = disk_free
            self.alarms.look()

    def reader_of(self, queue: str, vhost: str) -> str | None:
        """Return the reader group that holds messages of a queue here; None without one."""
        host = self.topology.vhosts.get(vhost)
        contents = None if host is None else host.queues.get(queue)
        group = None if contents is None else self.reader_groups.reader_of(contents)
        return None if group is None else group.shown_name

    def close_all(self, reason: str) -> int:
        """Close all connections; return the number of connections."""
        return self.close_connections(reason, lambda connection: True)

    def close_connections(self, reason: str, chosen: Callable[[Connection], bool]) -> int:
        """Close connections for an operator; return the number of connections.

        Args:
            reason: reply text for the clients, after ``CONNECTION_FORCED``.
        """
        return self._forced_closes.close(reason, chosen)


async def start(
    config: Config,
    enter: Enter = alone,
    *,
    on_failure: Callable[[str], None] = lambda reason: None,
    before_listening: Callable[[Broker], Awaitable[None]] | None = None,
    open_store: OpenStore = Store.open,
) -> Broker:
    """Start a broker in the running event loop.

    Args:
        enter: makes the broker's peers; by default those of a broker of one process.
        on_failure: called with the reason when no commit can complete any more; the process has to end.
        before_listening: called after the restore, before the broker accepts clients; an exception ends the start.
        open_store: opens the store of the data directory.

    Raises:
        BrokerError: the store cannot be opened, or a port is not available.
    """
    commits, broker = Commits(open_store, on_failure), None
    try:
        opened = Opened(config, commits)
        peers = await enter(opened)
        try:
            broker = Broker(opened, peers)
        except BaseException:
            await peers.lifecycle.stop()
            raise
        await broker.serve(before_listening)
    except BaseException:
        if broker is not None:
            await broker.give_up()
            await commits.close(clean=broker.is_clean)
        else:
            await commits.close(clean=commits.store is not None and commits.store.clean)
        raise
    return broker
