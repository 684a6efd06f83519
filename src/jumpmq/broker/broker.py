"""The broker: it owns the state, the store, the sockets and the clock, and brings them together.

Work comes in turns: what one read of a connection asks for, or one tick of the clock. :meth:`Broker.finish` ends a
turn. It hands what was staged to the store, and writes what there is to send; what depends on the disk (confirms,
answers to changes of definitions) is sent when the store reports its commit.
"""

import asyncio
import contextlib
import logging
import platform
import secrets
import time
from collections.abc import Callable
from typing import Any

from jumpmq._version import __version__
from jumpmq.amqp.errors import AccessRefused, AMQPError, ConnectionForced, NotAllowed
from jumpmq.amqp.messages import Message
from jumpmq.broker import declarations
from jumpmq.broker.channel import Channel
from jumpmq.broker.config import Config
from jumpmq.broker.connection import Connection
from jumpmq.broker.deadletter import dead_letters
from jumpmq.broker.direct_reply import ReplyQueue
from jumpmq.broker.login import Authenticator
from jumpmq.broker.passwords import hash_password
from jumpmq.broker.reader_groups import ReaderGroups
from jumpmq.queues import Queue
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.reader import restore_readers
from jumpmq.store import Store, StoreError
from jumpmq.topology import Topology, VirtualHost, changes
from jumpmq.topology.users import Operation

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between looks at the clock: expiry, heartbeats, settlements."""

QUEUES_A_TICK = 1000
"""Queues that are looked after at once; 10,000 would hold up deliveries for 6 ms."""

SETTLE_INTERVAL = 0.5
"""Seconds between commits that are made for acknowledgements alone."""

BACKLOG = 1024
"""Connections that may wait to be accepted."""

STOP_TIMEOUT = 1.5
"""Seconds that the disk, and then the clients, have to answer at the broker's stop."""


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""


class Broker:
    """A broker in the running event loop.

    Attributes:
        topology: virtual hosts, exchanges, queues, bindings, users.
        store: where durable things are; None where everything is in memory.
        memory: what is held for messages; whoever holds some charges it.
        connections: the open connections.
        port: where AMQP is served, once started.
        node: name of this node.
        started_at: seconds since the epoch.
        reply_queues: direct reply-to addresses in use.
        reader_groups: who holds reservations.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.node = config.node
        self.port = config.port
        self.started_at = 0.0
        self.store: Store | None = None
        self.topology: Topology
        self.authenticator: Authenticator
        self.memory = MemoryAccount()
        self.connections: set[Connection] = set()
        self.reply_queues: dict[bytes, ReplyQueue] = {}
        self.reader_groups = ReaderGroups(self)
        self._loop: asyncio.AbstractEventLoop
        self._server: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._marked: set[Connection] = set()
        self._holding: set[Connection] = set()
        self._held: set[Connection] = set()
        self._confirming: set[Channel] = set()
        self._unconfirmed: set[Channel] = set()
        self._commit_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._reading_paused = False
        self._settled_at = 0.0
        self._next_queue = 0

    # --- life ---

    async def start(self) -> None:
        """Restore what was kept, and listen.

        Raises:
            BrokerError: the store cannot be opened, or the port is taken.
        """
        self._loop = asyncio.get_running_loop()
        self.started_at = time.time()
        try:
            self._restore()
            self._server = await self._listen()
        except BaseException:
            if self.store is not None:
                self.store.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._tick = self._loop.call_later(TICK, self._on_tick)
        self.reader_groups.start()
        self._note_start()

    def _note_start(self) -> None:
        """Put a first commit on disk: from now on messages are delivered, so that the last stop, if it was clean, no
        longer says which of them were."""
        if self.store is not None:
            self.store.put("run", "started_at", self.started_at)
            self.finish(None)

    def _restore(self) -> None:
        if self.config.data_dir is not None:
            try:
                self.store = Store.open(
                    self.config.data_dir, on_commit=self._on_commit_in_thread, on_error=self._on_store_error
                )
            except StoreError as error:
                raise BrokerError(str(error)) from None
        self.topology = Topology(
            self.node, self.store, queue_memory=self.config.queue_memory, dead_letter=self._publish_dead_letters
        )
        self.authenticator = Authenticator(self.topology)
        if self.store is not None:
            self._restore_definitions(self.store)
        if not self.topology.vhosts:
            self._set_up()

    def _restore_definitions(self, store: Store) -> None:
        definitions, batches = store.definitions(), store.batches()
        self.topology.restore(definitions)
        next_seqs = {key: value for kind, key, value in definitions if kind == "sequence"}
        delivered = {key: value for kind, key, value in definitions if kind == "delivered"}
        for queue in self._queues():
            delivered_seq = delivered.get(str(queue.id), 0) if store.clean else None
            queue.restore(batches.get(queue.id, []), next_seqs.get(str(queue.id), 1), delivered_seq)
        records = [(key, value) for kind, key, value in definitions if kind == "reservation"]
        for key in restore_readers(records, {queue.id: queue for queue in self._queues()}):
            store.delete("reservation", key)

    def _set_up(self) -> None:
        """What a new broker begins with: virtual host ``/`` and user guest, who may do everything from loopback."""
        self.topology.apply(changes.AddVirtualHost("/"))
        self.topology.apply(changes.PutUser("guest", hash_password("guest"), ("administrator",)))
        self.topology.apply(changes.SetPermissions("guest", "/", ".*", ".*", ".*"))
        self.finish(None)

    async def _listen(self) -> asyncio.Server:
        host, port = self.config.host, self.config.port
        try:
            return await self._loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise BrokerError(f"cannot listen on {host}:{port}: {reason}") from None
        except OverflowError:
            raise BrokerError(f"cannot listen on {host}:{port}: there is no such port") from None

    async def stop(self) -> None:
        """Stop listening, say goodbye to the clients, and put everything on disk."""
        if self._server is not None:
            self._server.close()
        await self.reader_groups.stop()
        with contextlib.suppress(TimeoutError):  # a disk that takes nothing must not keep the broker from stopping
            await asyncio.wait_for(self.committed(), STOP_TIMEOUT)
        for connection in list(self.connections):
            connection.close(ConnectionForced("broker forced connection closure with reason 'shutdown'"))
        self.finish(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await asyncio.gather(*(connection.closed.wait() for connection in self.connections))
        for connection in list(self.connections):
            connection.abort()
        if self._tick is not None:
            self._tick.cancel()
        self.authenticator.close()
        if self.store is not None:
            for queue in self._queues():
                queue.checkpoint()
            self.finish(None)
            try:
                await asyncio.to_thread(self.store.close)
            except StoreError as error:
                log.error("%s", error)
            self.store = None

    # --- turns ---

    def mark(self, connection: Connection) -> None:
        """The connection has something to send."""
        self._marked.add(connection)

    def hold(self, connection: Connection) -> None:
        """What the connection has to send leaves only when this turn's changes are on disk."""
        if self.store is not None:
            self._holding.add(connection)

    def await_commit(self, channel: Channel) -> None:
        """The channel's publishes of this turn are to be confirmed."""
        self._confirming.add(channel)

    def finish(self, reader: Connection | None) -> None:
        """End a turn: stage, confirm, write.

        Args:
            reader: the connection whose read this was.
        """
        commit = self._flush(settlements=False)
        if self._holding:
            for connection in self._holding:
                connection.hold_until(commit)
            self._held |= self._holding
            self._holding.clear()
            self._release()
        if self._confirming:
            for channel in self._confirming:
                assert channel.confirms is not None
                channel.confirms.seal(commit)
                if channel.answer_confirms(self.committed_number):
                    self._unconfirmed.add(channel)
            self._confirming.clear()
        while self._marked:
            self._marked.pop().write()
        if reader is not None and self.store is not None and self.store.staged_bytes > self.config.write_backlog:
            self._reading_paused = True
            reader.pause_reading()

    def _flush(self, settlements: bool) -> int:
        """Hand what was staged to the store; returns the commit that covers it.

        Args:
            settlements: whether what was acknowledged is worth a commit of its own.
        """
        if self.store is None:
            return 0
        self.topology.flush_rings()
        return self.store.flush(settlements=settlements)

    @property
    def committed_number(self) -> int:
        """The last commit on disk."""
        return self.store.committed if self.store is not None else 0

    async def committed(self) -> None:
        """Wait until everything staged so far is on disk."""
        commit = self._flush(settlements=True)
        if commit > self.committed_number:
            waiter = self._loop.create_future()
            self._commit_waiters.append((commit, waiter))
            await waiter

    def _on_commit_in_thread(self, commit: int) -> None:
        self._loop.call_soon_threadsafe(self._on_commit)

    def _on_commit(self) -> None:
        """A commit is on disk: answer who waited for it."""
        committed = self.committed_number
        self._release()
        for channel in list(self._unconfirmed):
            if not channel.answer_confirms(committed):
                self._unconfirmed.discard(channel)
        waiters, self._commit_waiters = self._commit_waiters, []
        for number, waiter in waiters:
            if number > committed:
                self._commit_waiters.append((number, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        if (
            self._reading_paused
            and self.store is not None
            and self.store.staged_bytes <= self.config.write_backlog // 2
        ):
            self._reading_paused = False
            for connection in list(self.connections):
                connection.resume_reading()
        self.finish(None)

    def _release(self) -> None:
        committed = self.committed_number
        for connection in [one for one in self._held if one.release(committed)]:
            self._held.discard(connection)
            self._marked.add(connection)

    def _on_store_error(self, error: StoreError) -> None:
        log.error("%s", error)

    def _on_tick(self) -> None:
        """What happens by the clock."""
        self._tick = self._loop.call_later(TICK, self._on_tick)
        now, monotonic = time.time(), time.monotonic()
        for connection in list(self.connections):
            connection.beat(monotonic)
        self._look_after_queues(now)
        if monotonic - self._settled_at >= SETTLE_INTERVAL:
            self._settled_at = monotonic
            self._flush(settlements=True)
        self.finish(None)

    def _look_after_queues(self, now: float) -> None:
        """Let go of what has expired in the next queues in turn, and of queues that have."""
        queues = self._queues()
        first = self._next_queue if self._next_queue < len(queues) else 0
        self._next_queue = first + QUEUES_A_TICK
        for queue in queues[first : self._next_queue]:
            if queue.expiring:
                queue.trim(now)
            expires = queue.limits.expires
            if expires is not None and not queue.consumers and now - queue.last_used > expires / 1000:
                declarations.delete_queue(self, queue)

    def _publish_dead_letters(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Publish what left a queue undelivered to its dead letter exchange; where that is missing it is gone."""
        vhost = self.topology.vhosts[queue.vhost]
        exchange = vhost.exchanges.get(queue.limits.dead_letter_exchange or "")
        found = dead_letters(queue, messages, reason) if exchange is not None else []
        if exchange is not None and found:
            for target, share in vhost.route(exchange, found).queues.items():
                target.push(share)

    def _queues(self) -> list[Queue]:
        return [queue for vhost in self.topology.vhosts.values() for queue in vhost.queues.values()]

    # --- what connections ask ---

    def random_name(self) -> str:
        """A name that nobody else has."""
        return secrets.token_urlsafe(16)

    def server_properties(self) -> dict[str, Any]:
        """What the broker says of itself in ``connection.start``."""
        return {
            "cluster_name": self.node,
            "copyright": "The JumpMQ authors",
            "information": "Licensed under the Apache License 2.0",
            "platform": f"Python {platform.python_version()}",
            "product": "JumpMQ",
            "version": __version__,
        }

    def virtual_host(self, name: str, user: str) -> VirtualHost:
        """The virtual host that a user opens.

        Raises:
            NotAllowed: there is none of that name, or the user has no permissions in it.
        """
        vhost = self.topology.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        if name not in self.topology.user(user).permissions:
            raise NotAllowed(f"access to vhost '{name}' refused for user '{user}'")
        return vhost

    def check_permission(self, user: str, vhost: str, kind: Operation, name: str) -> None:
        """Whether the user may ``configure``, ``write`` or ``read`` the resource.

        Raises:
            AccessRefused: the user may not.
        """
        found = self.topology.users.get(user)
        permissions = found.permissions.get(vhost) if found is not None else None
        if permissions is None or not permissions.allows(kind, name):
            raise AccessRefused(
                f"{kind} access to resource '{name or 'amq.default'}' in vhost '{vhost}' refused for user '{user}'"
            )

    async def authenticate(self, user: str, password: str, peer_host: str) -> str:
        """The user's name, if the password is right.

        Raises:
            AccessRefused: it is not, or the user may not log in from there.
        """
        if not await self.authenticator.authenticate(user, password, peer_host):
            raise AccessRefused("Login failed")
        return user

    def close_connections(self, reason: str, chosen: Callable[[Connection], bool]) -> int:
        """Close connections on an operator's behalf; returns how many.

        Args:
            reason: what the clients are told, after ``CONNECTION_FORCED``.
        """
        found = [connection for connection in self.connections if chosen(connection)]
        for connection in found:
            connection.close(ConnectionForced(reason))
        self.finish(None)
        return len(found)

    def delete_exclusive_queues(self, connection: Connection) -> None:
        """The connection is gone, and so are the queues that were its own."""
        vhost = getattr(connection, "vhost", None)
        if vhost is None:
            return
        for queue in vhost.exclusive_queues(connection.name):
            try:
                declarations.delete_queue(self, queue)
            except AMQPError as error:
                log.error("cannot delete exclusive queue %r: %s", queue.name, error.text)
