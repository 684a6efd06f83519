"""Broker in several processes, with a home per process, and the supervisor of the processes.

The supervisor listens for AMQP clients, and passes each to the process with the fewest clients. The first process
serves HTTP. The processes communicate over links of their own, or, as a node of a cluster, over the links between
nodes. The supervisor restarts a process that has died; the other processes go on. The supervisor has no state: if it
dies, all processes stop in order.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import logging
import os
import pickle
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jumpmq._child_processes import SHORT_LIFE, StartedChild, ended, pause_after, start_again, start_child
from jumpmq.broker import BrokerError, Config
from jumpmq.broker.config import OTHER_HOMES, default_node, homes_in
from jumpmq.broker.connection.listeners import FULL_PAUSE, bind
from jumpmq.nodes.processes.worker import CLIENT, CLOSE, END, LEAVE, LENGTH, RELOAD, SPARE, STAY, TLS_CLIENT, Assignment
from jumpmq.serving.process import restart_pause
from jumpmq.serving.server import RunningBroker

log = logging.getLogger(__name__)

SILENCE = 3.0
"""Seconds without a message after which a process is given no clients: it may be suspended."""

UNTAKEN = 1.0
"""Seconds after which a process that has not accepted a given client gets no further clients. A running process
reports an accepted client at once.
"""

SHORT_LIVES = 6
"""See :class:`Workers`."""

END_TIMEOUT = 30.0
"""Time for a process to end before being killed, in seconds."""

LEFT = "left"
"""Suffix of the directory of a removed home, for data that could not be moved."""

READ = 1 << 16

MODULE = "jumpmq.nodes.processes.worker"
"""Module run by the processes."""


def config_of(config: Config, home: int, homes: int, links: Path) -> Config:
    """Return the settings of a home's process. The first home's data is at the path used by a broker with one home."""
    data_dir = config.data_dir
    if data_dir is not None and home > 1:
        data_dir = data_dir / OTHER_HOMES / str(home)
    if home > 1:
        config = replace(config, http_port=None, https_port=None)
    return replace(
        config,
        port=None,
        tls_port=None,
        tls_processes=0,
        data_dir=data_dir,
        worker=home,
        home=home,
        homes=homes,
        links=links,
    )


class Workers:
    """The supervisor.

    Args:
        config: settings of the broker.
        count: number of processes, and of homes. If the data directory has more homes, the others are removed: they
            have processes until their queues have moved.
        stop: called when an administrator requests over HTTP that the broker stops.
        fail: called with the reason when the broker cannot go on.
        short_lives: number of consecutive short lives of a process before the broker gives up.
        short_life: a process that ends within so many seconds had a short life.

    Attributes:
        endpoints: addresses of the broker, once it listens.
        pids: the number of each home's process, 0 between two.
    """

    endpoints: RunningBroker

    def __init__(
        self,
        config: Config,
        count: int,
        stop: Callable[[], None],
        fail: Callable[[str], None],
        short_lives: int = SHORT_LIVES,
        short_life: float = SHORT_LIFE,
    ) -> None:
        self.short_lives, self.short_life = short_lives, short_life
        self.config = config
        self.count = count
        self.stop_broker = stop
        self.fail = fail
        self.links = Path(tempfile.mkdtemp(prefix="jumpmq-"))
        self._lock = os.open(self.links, os.O_RDONLY)  # prevents systemd-tmpfiles from deleting the directory's files
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._sockets: dict[bytes, list[socket.socket]] = {}  # listening sockets, by kind of client
        self._listens = False  # True while the event loop watches the sockets
        self._suspended = False  # True while an operator has suspended listening
        self._full = False  # True while the process has no file descriptors for clients
        self._workers = [_Worker(self, home) for home in range(1, max(count, homes_in(config.data_dir)) + 1)]
        self._removing: set[asyncio.Task[None]] = set()  # removals of homes in progress
        self._spare: StartedChild | None = None
        self._sparing: asyncio.Task[None] | None = None  # starts the spare process

    @property
    def pids(self) -> list[int]:
        """Process id per home; 0 for an ending process."""
        return [worker.pid for worker in self._workers]

    @property
    def all_ready(self) -> bool:
        """Return True if all processes are serving."""
        return all(worker.is_ready for worker in self._workers)

    async def start(self) -> None:
        """Start all processes, and listen when all are ready.

        Raises:
            BrokerError: a port cannot be listened on, or a process cannot start.
        """
        config = self.config
        if config.port is not None:
            self._sockets[CLIENT] = _bound(config.host, config.port)
        if config.tls is not None and config.tls_port is not None:
            self._sockets[TLS_CLIENT] = _bound(config.host, config.tls_port)
        starting = [asyncio.ensure_future(worker.first_start()) for worker in self._workers]
        try:
            ready = await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            raise
        first = ready[0]
        self.config = replace(
            self.config,
            http_port=first["http_port"] or config.http_port,
            https_port=first["https_port"] or config.https_port,
        )
        self.endpoints = RunningBroker(
            first["node"],
            "127.0.0.1" if config.host == "localhost" else config.host,
            self.port(CLIENT) or 0,
            first["http_port"],
            config.data_dir,
            self.port(TLS_CLIENT) or 0,
            first["https_port"],
            config.tls_ca,
        )
        self.look()

    async def may_join(self, home: int) -> None:
        """Wait until the preceding home's process is serving, if this is a node of a cluster: the first process makes
        or joins the cluster and keeps the node's name, and every process gets a higher number there than its
        predecessor."""
        if self.config.cluster is not None:
            for worker in self._workers[:]:
                if worker.home < home:
                    await worker.begun.wait()

    def begin(self, worker: _Worker, said: dict[str, Any]) -> None:
        """Handle the first start of a process's service."""
        if self.config.cluster is not None and worker.home == 1:
            self.config = replace(self.config, node=said["node"], recover_cluster=False)
        worker.begun.set()

    def port(self, kind: bytes) -> int | None:
        """Return the port for clients of a kind; None if not accepted."""
        sockets = self._sockets.get(kind)
        return None if sockets is None else int(sockets[0].getsockname()[1])

    def assignment(self, home: int) -> Assignment:
        """Return the arguments for starting the process of a home."""
        addresses = [str(one.getsockname()[0]) for one in self._sockets.get(CLIENT, [])]
        config = config_of(self.config, home, len(self._workers), self.links)
        begins = self.config.cluster is not None and not self._workers[0].begun.is_set()
        return Assignment(replace(config, begins=begins), self.port(CLIENT), self.port(TLS_CLIENT), addresses)

    async def started(self) -> StartedChild:
        """Return a process without an assignment: the spare process, with all imports done, or a new process.

        Raises:
            OSError: no process can be started.
        """
        spare, self._spare = self._spare, None
        if spare is not None and spare[0].poll() is None:
            return spare
        return await asyncio.to_thread(start_child, MODULE)

    def prepare_spare(self) -> None:
        """Start a spare process in a node whose homes have copies: other nodes serve a home three seconds after the end
        of its process, and the imports of a new one may take as long.
        """
        if self.config.cluster is not None and self._spare is None and self._sparing is None:
            self._sparing = asyncio.get_running_loop().create_task(self._start_spare(), name="spare process")

    async def _start_spare(self) -> None:
        from jumpmq.nodes.joining.member_file import FILE  # here, so that brokers without a cluster do not load it

        homes = [config_of(self.config, worker.home, worker.home, self.links).data_dir for worker in self._workers]
        try:
            if any(directory is not None and (directory / FILE).exists() for directory in homes):
                self._spare = await asyncio.to_thread(start_child, MODULE, SPARE)
        except OSError as error:
            log.warning("there is no spare process: %s", error.strerror)
        finally:
            self._sparing = None

    async def reload_certificates(self) -> None:
        """Reload certificates in all processes."""
        for worker in self._workers:
            worker.send(RELOAD)

    def resize(self, count: int) -> None:
        """Change the number of serving processes, up to the existing number. Homes with higher numbers are removed."""
        self.count = count
        for worker in self._workers:
            worker.send(LEAVE if worker.leaves else STAY)
        self.look()

    def remove(self, worker: _Worker, whole: bool) -> None:
        """Remove a left home: the process ends, and the data is deleted, unless some could not be moved."""
        if worker in self._workers:
            self._workers.remove(worker)
            removing = asyncio.get_running_loop().create_task(self._remove(worker, whole), name="home that was left")
            self._removing.add(removing)
            removing.add_done_callback(self._removing.discard)

    async def _remove(self, worker: _Worker, whole: bool) -> None:
        await worker.stop()
        directory = config_of(self.config, worker.home, worker.home, self.links).data_dir
        if directory is None or not directory.is_dir():
            return
        aside = next(path for number in itertools.count(1) if not (path := _aside(directory, number)).exists())
        directory.rename(aside)
        if whole:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
        else:
            log.warning("%s was removed; data that could not be moved, if any, is in %s", worker, aside)
        if len(self._workers) == 1:
            with suppress(OSError):  # an earlier copy may exist
                directory.parent.rmdir()

    def suspend(self, suspended: bool) -> None:
        """Stop or resume accepting clients."""
        self._suspended = suspended
        self.look()

    def look(self) -> None:
        """Accept clients while a process is ready to take clients, else leave clients waiting."""
        ready = any(worker.is_ready and not worker.leaves for worker in self._workers)
        able = not self._full and not self._suspended and ready
        if able is self._listens:
            return
        self._listens = able
        loop = asyncio.get_running_loop()
        for kind, sockets in self._sockets.items():
            for listening in sockets:
                if able:
                    loop.add_reader(listening, self._take, kind, listening)
                else:
                    loop.remove_reader(listening)

    def _take(self, kind: bytes, listening: socket.socket) -> None:
        """Accept a client, and pass the client to the process with the fewest clients."""
        try:
            client, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it is gone
            return
        except OSError as error:
            log.error("clients of port %d must wait: %s", listening.getsockname()[1], error.strerror)
            self._full = True
            asyncio.get_running_loop().call_later(FULL_PAUSE, self._go_on)
            self.look()
            return
        with client:
            for worker in sorted(self._workers, key=lambda one: (one.is_silent, one.clients)):
                if worker.is_ready and not worker.leaves and worker.give(kind, client):
                    return

    def _go_on(self) -> None:
        self._full = False
        self.look()

    async def stop(self) -> None:
        """Stop accepting clients, and end all processes: the first process last if its log orders the
        changes of all.
        """
        self._suspended = True
        self.look()
        for sockets in self._sockets.values():
            for listening in sockets:
                listening.close()
        if self._sparing is not None:
            await self._sparing
        if self._spare is not None:
            self._spare[1].close()  # ends the spare process
        await asyncio.gather(*self._removing)
        first, *others = self._workers
        if self.config.cluster is None:
            first.send(CLOSE)
            await asyncio.gather(*(worker.stop() for worker in others))
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        if self._spare is not None:
            await asyncio.to_thread(ended, self._spare[0], END_TIMEOUT)
        shutil.rmtree(self.links, ignore_errors=True)
        os.close(self._lock)


class _Worker:
    """Process of the broker, as seen by the supervisor.

    Attributes:
        home: number of the home.
        clients: number of its clients, including clients passed to it just now.
        is_ready: True if it accepts clients.
        begun: set at the first start of its service.
    """

    def __init__(self, workers: Workers, home: int) -> None:
        self._workers = workers  # the supervisor
        self.home = home
        self._socket: socket.socket | None = None  # to the process
        self._child: subprocess.Popen[bytes] | None = None  # the process
        self._unread = b""  # start of an incomplete line
        self._started_at = self._heard_at = 0.0  # by the monotonic clock
        self._given = self._taken = 0  # clients, since its start
        self._untaken_since = 0.0  # earliest time at which a client was passed that is not accepted yet
        self._short_lives = 0  # in a row
        self._restarts = 0  # restarts requested by the process soon after its start, in a row
        self._is_meant = False  # True if the process has requested its restart
        self._restart: asyncio.Task[None] | None = None  # under way after its end
        self._ready: asyncio.Future[Any] | None = None  # result: the first report
        self.clients = 0
        self.is_ready = False
        self.begun = asyncio.Event()

    def __str__(self) -> str:
        return f"{self._workers.config.process} {self.home}"

    @property
    def pid(self) -> int:
        """Process id; 0 for an ending process."""
        return 0 if self._child is None or self._socket is None else self._child.pid

    @property
    def leaves(self) -> bool:
        """Return True if the process's home is being left."""
        return self.home > self._workers.count

    @property
    def is_silent(self) -> bool:
        """Return True if the process has sent nothing for a while, or has not taken a given client."""
        now = time.monotonic()
        return now - self._heard_at > SILENCE or (self._given > self._taken and now - self._untaken_since > UNTAKEN)

    async def first_start(self) -> dict[str, Any]:
        """Start the process, and wait until serving; return the process's description of itself.

        Raises:
            BrokerError: it cannot.
        """
        self._ready = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except OSError as error:
            raise BrokerError(f"the process of {self} cannot be started: {error.strerror}") from None
        said: dict[str, Any] = await self._ready
        self._workers.begin(self, said)
        return said

    async def _start(self) -> None:
        self._child, ours = await self._workers.started()
        try:
            await self._workers.may_join(self.home)
            pickled = pickle.dumps(self._workers.assignment(self.home))
            with suppress(OSError):  # it has died already
                ours.sendall(len(pickled).to_bytes(LENGTH) + pickled)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._socket, self._started_at = ours, time.monotonic()
        self._unread, self._given, self._taken, self.clients = b"", 0, 0, 0
        asyncio.get_running_loop().add_reader(ours, self._take)

    def send(self, octets: bytes) -> None:
        """Send octets to the process; nothing to an ending process."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(octets)

    def give(self, kind: bytes, client: socket.socket) -> bool:
        """Pass a client to the process, unless no clients are accepted there."""
        assert self._socket is not None
        try:
            socket.send_fds(self._socket, [kind], [client.fileno()])
        except OSError:
            return False
        if self._given == self._taken:
            self._untaken_since = time.monotonic()
        self._given += 1
        self.clients += 1
        return True

    async def stop(self) -> None:
        """End it."""
        if self._restart is not None:
            self._restart.cancel()
        self.send(END)
        self._disconnect()
        if self._child is not None:
            await asyncio.to_thread(ended, self._child, END_TIMEOUT)

    def _take(self) -> None:
        """Read the messages of the process."""
        assert self._socket is not None
        try:
            octets = self._socket.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        self._heard_at = time.monotonic()
        if not octets:
            self._end()
            return
        *lines, self._unread = (self._unread + octets).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"taken": int(taken), "open": int(clients)}:
                self.clients = clients + self._given - taken
                if taken != self._taken:
                    self._taken, self._untaken_since = taken, time.monotonic()
            case {"ready": ready}:
                self.is_ready = True
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(ready)
                self.send(LEAVE if self.leaves else STAY)  # it may have changed since it was started
                self._workers.look()
                self._workers.prepare_spare()
            case {"workers": int(count)}:
                self._workers.resize(count)
            case {"left": bool(whole)}:
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result({})
                self._workers.remove(self, whole)
            case {"error": str(text)}:
                if self._ready is not None and not self._ready.done():
                    self._ready.set_exception(BrokerError(text))
                else:
                    log.error("%s cannot start: %s", self, text)
            case {"listen": bool(listen)}:
                self._workers.suspend(not listen)
            case {"again": True}:
                self._is_meant = True
            case {"stop": True}:
                self._workers.stop_broker()

    def _end(self) -> None:
        """Handle the end, current or imminent, of the process."""
        self._disconnect()
        if self._ready is not None and not (
            self._ready.cancelled() or (self._ready.done() and self._ready.exception())
        ):
            self._restart = asyncio.get_running_loop().create_task(self._start_again(), name=str(self))

    def _disconnect(self) -> None:
        self.is_ready = False
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._workers.look()

    async def _start_again(self) -> None:
        assert self._child is not None
        status = await asyncio.to_thread(ended, self._child, END_TIMEOUT)
        is_meant, self._is_meant = self._is_meant, False
        is_short = time.monotonic() - self._started_at < self._workers.short_life
        self._restarts = self._restarts + 1 if is_short and is_meant else 0
        self._short_lives = self._short_lives + 1 if is_short and not is_meant else 0
        if self._short_lives >= self._workers.short_lives:
            reason = f"the process of {self} has ended {self._short_lives} times soon after its start"
            log.critical("%s; the broker stops", reason)
            assert self._ready is not None
            if self._ready.done():
                self._workers.fail(reason)
            else:
                self._ready.set_exception(BrokerError(reason))
            return
        pause = max(pause_after(self._short_lives), restart_pause(self._restarts))
        level = logging.INFO if is_meant else logging.ERROR
        log.log(level, "%s: its process has ended with status %d; started again in %g s", self, status, pause)
        await start_again(self._start, pause, str(self), log)


@dataclass(frozen=True)
class SeveralControl:
    """Control interface of a broker in several processes."""

    endpoints: RunningBroker
    workers: Workers

    async def reload_certificates(self) -> None:
        """Reload certificates in all processes."""
        await self.workers.reload_certificates()


@asynccontextmanager
async def serving_workers(
    config: Config,
    count: int,
    stop: Callable[[], None] = lambda: None,
    fail: Callable[[str], None] = lambda reason: None,
    **lives: Any,
) -> AsyncIterator[SeveralControl]:
    """Serves with so many processes until the block is left; see :func:`jumpmq.serving.server.serving`.

    Args:
        lives: see :class:`Workers`.

    Raises:
        BrokerError: a process cannot start; the text is the process's error.
    """
    config = replace(config, node=config.node or (default_node() if config.data_dir is None else None))
    workers = Workers(config, count, stop, fail, **lives)
    try:
        await workers.start()
        yield SeveralControl(workers.endpoints, workers)
    finally:
        await workers.stop()


def _aside(directory: Path, number: int) -> Path:
    return directory.with_name(f"{directory.name}.{LEFT}" + (f"-{number}" if number > 1 else ""))


def _bound(host: str, port: int) -> list[socket.socket]:
    try:
        sockets = bind(host, port)
    except (OSError, OverflowError) as error:
        reason = "there is no such port" if isinstance(error, OverflowError) else error.strerror or str(error)
        raise BrokerError(f"cannot listen for amqp on {host}:{port}: {reason}") from None
    for listening in sockets:
        listening.setblocking(False)
    return sockets
