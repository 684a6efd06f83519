"""Process serving one home of a broker: ``python -m jumpmq.nodes.processes.worker DESCRIPTOR [spare]``.

`DESCRIPTOR` is one end of a socket; the supervisor (:mod:`jumpmq.nodes.processes.workers`) has the other end. The
supervisor sends the settings, pickled and preceded by their length, and then commands of one octet: a client without or
with TLS, each with its socket; reload certificates; leave the home, or stay; close all clients before the end; end.

The worker sends lines of JSON: ``ready`` with the ports of HTTP, or the ``error`` that prevents the start; the number
of clients received in all (``taken``) and connected now (``open``), at least once a second; ``listen`` to start or stop
accepting clients; ``stop``, or a number of ``workers``, on an administrator's request; ``left`` once the home was
removed, with True if no data was lost, so that the directory can be deleted.

The worker stops in order when the supervisor tells it to end, or is gone: no part of a broker runs alone. Signals other
than SIGKILL do not end it, because a terminal or systemd sends them to all processes, including the supervisor.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import shutil
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from jumpmq.broker import Broker, BrokerError, Config
from jumpmq.broker.connection.given_clients import GivenClients
from jumpmq.broker.connection.proxied import trusted
from jumpmq.broker.errors import HomeLeft
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.serving import load_cluster, serving
from jumpmq.serving.process import calm_garbage_collection, end_at_once, keep_memory, prepare, until_stopped
from jumpmq.serving.server import Control
from jumpmq.store import DirectoryInUse, DirectoryLock, StoreError

log = logging.getLogger("jumpmq.nodes.processes.worker")  # ``__name__`` is ``__main__``

CLIENT, TLS_CLIENT, RELOAD, LEAVE, STAY, CLOSE, END = b"c", b"t", b"r", b"l", b"s", b"d", b"e"

SPARE = "spare"
"""Argument of a process that has time until it is given an assignment."""

LENGTH = 4
"""Octets in front of the settings."""

AT_ONCE = 64
"""Number of supervisor messages read together."""

LOOK_INTERVAL = 0.1
"""Interval between polls of the number of clients, in seconds."""

PREDECESSOR_TIMEOUT = 15.0
"""Maximum wait for the end of a killed supervisor's process, in seconds, before the data directory is reported as in
use.
"""

SPEAK_INTERVAL = 1.0
"""Interval between reports of an unchanged number to the supervisor, in seconds."""


@dataclass(frozen=True)
class Assignment:
    """Arguments of a started worker.

    Attributes:
        config: settings of the home.
        port, tls_port: ports at which the supervisor listens for AMQP clients; None for none.
        addresses: addresses of these ports.
    """

    config: Config
    port: int | None
    tls_port: int | None
    addresses: list[str]


class WorkerProcess:
    """A worker's process.

    Args:
        supervisor: socket to the supervisor.
    """

    def __init__(self, supervisor: socket.socket, assignment: Assignment) -> None:
        self._supervisor = supervisor  # socket to the supervisor
        self._assignment = assignment  # settings
        self._ended = asyncio.Event()  # set when the process has to end
        self._in_order = False  # True if the supervisor has requested the end
        self._listeners: dict[int, GivenClients] = {}  # by the command that accompanies their clients
        self._taken = 0  # clients received
        self._control: Control | None = None  # control of the broker; None during the start
        self._started = asyncio.Event()  # set once the broker serves
        self._reloading: asyncio.Future[None] | None = None  # current reload of certificates

    async def serve(self) -> None:
        """Serve until told to end, or the supervisor is gone.

        Raises:
            BrokerError: the broker cannot start.
        """
        self._supervisor.setblocking(False)
        asyncio.get_running_loop().add_reader(self._supervisor.fileno(), self._take)
        links = self._assignment.config.links
        try:
            await until_stopped(self._serve_home(), self._ended, self._started)
        finally:
            if not self._in_order and links is not None:
                shutil.rmtree(links, ignore_errors=True)

    async def _serve_home(self) -> None:
        await _until_free(self._assignment.config.data_dir)
        try:
            config, stop = self._assignment.config, lambda: self._say(stop=True)
            async with serving(config, stop, end_at_once, self._start_again) as control:
                self._control = control
                self._started.set()
                await self._serve(control)
        except HomeLeft:  # the supervisor was killed before it knew of the removal
            self._say(left=False)
            await self._ended.wait()
        except BrokerError as error:
            self._say(error=str(error))
            raise

    def _start_again(self, reason: str, in_order: bool) -> None:
        """End this process, to be started again by the supervisor."""
        log.warning("%s: the process starts again", reason)
        self._say(again=True)
        if not in_order:
            end_at_once(reason)
        self._in_order = True
        self._ended.set()

    async def _serve(self, control: Control) -> None:
        await self._listen(control)
        calm_garbage_collection()
        keeping = keep_memory(control.memory)
        speaking = asyncio.create_task(self._tell_of_clients(control), name="clients")
        self._follow_leaving(control.broker)
        where = control.endpoints
        self._say(ready={"node": where.node, "http_port": where.http_port, "https_port": where.https_port})
        await self._ended.wait()
        for task in (keeping, speaking):
            task.cancel()
        self._listen_no_more()

    def _listen_no_more(self) -> None:
        """Stop telling the supervisor about closed listeners, as the whole process is ending."""
        for listener in self._listeners.values():
            listener.ask_no_more()

    def _decide(self, leaves: bool) -> None:
        """Start or stop leaving the home."""
        if self._control is not None and isinstance(others := self._control.broker.peers, OtherHomes):
            others.relocating.decide(leaves)

    def _follow_leaving(self, broker: Broker) -> None:
        if not isinstance(broker.peers, OtherHomes):  # a former worker, served alone since its restart
            return
        broker.peers.relocating.listen(on_left=lambda: self._say(left=not broker.losses))
        broker.let_workers(lambda count: self._say(workers=count))

    async def _listen(self, control: Control) -> None:
        broker, given = control.broker, self._assignment
        config = given.config
        proxies = trusted(config.proxy_protocol_from)
        if given.port is not None:
            self._listeners[CLIENT[0]] = GivenClients(
                *("amqp", config.host, given.port, broker.listening.accept),
                proxies=proxies,
                given_addresses=given.addresses,
            )
        if given.tls_port is not None:
            self._listeners[TLS_CLIENT[0]] = GivenClients(
                *("amqp/ssl", config.host, given.tls_port, broker.listening.accept, config.tls),
                proxies=proxies,
                given_addresses=given.addresses,
            )
        for listener in self._listeners.values():
            await broker.listening.listen(listener)
            listener.ask_through(lambda listening: self._say(listen=listening))

    def _say(self, **message: Any) -> None:
        with suppress(OSError):  # a supervisor that is gone, or stopped
            self._supervisor.send(json.dumps(message).encode() + b"\n")

    async def _tell_of_clients(self, control: Control) -> None:
        told, silent = (-1, -1), 0.0
        while True:
            joining = sum(listener.joining for listener in self._listeners.values())
            now = self._taken, len(control.broker.connections) + joining
            if now != told or silent >= SPEAK_INTERVAL:
                self._say(taken=now[0], open=now[1])
                told, silent = now, 0.0
            await asyncio.sleep(LOOK_INTERVAL)
            silent += LOOK_INTERVAL

    def _take(self) -> None:
        """Read the messages of the supervisor."""
        try:
            octets, descriptors, _, _ = socket.recv_fds(self._supervisor, AT_ONCE, AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            octets, descriptors = b"", []
        if END in octets or not octets:
            self._in_order = END in octets
            if not self._in_order:
                log.error("the supervisor has ended: this process ends, too, because it gets no more clients")
            asyncio.get_running_loop().remove_reader(self._supervisor.fileno())
            self._ended.set()
        if RELOAD in octets and self._control is not None:
            self._reloading = asyncio.ensure_future(self._control.reload_certificates())
        if CLOSE in octets and self._control is not None:
            self._listen_no_more()
            self._control.broker.close_clients()
        for octet in octets:
            if octet in (LEAVE[0], STAY[0]):
                self._decide(octet == LEAVE[0])
        kinds = [octet for octet in octets if octet in (CLIENT[0], TLS_CLIENT[0])]
        for kind, descriptor in zip(kinds, descriptors, strict=True):
            self._taken += 1
            self._listeners[kind].take(socket.socket(fileno=descriptor))


async def _until_free(directory: Path | None) -> None:
    """Wait until the data directory is unused by processes, only for the time allowed to an ending process."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PREDECESSOR_TIMEOUT
    while directory is not None and loop.time() < end:
        try:
            DirectoryLock(directory).release()
        except DirectoryInUse:
            await asyncio.sleep(LOOK_INTERVAL)
        except StoreError:
            return  # the opening reports the reason
        else:
            return


def main() -> None:
    """Run the worker."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if SPARE in sys.argv[2:]:
        load_cluster()
    with socket.socket(fileno=int(sys.argv[1])) as supervisor, supervisor.makefile("rb", buffering=0) as file:
        octets = file.read(LENGTH) or b""
        length, pickled = int.from_bytes(octets), b""
        while len(pickled) < length and (piece := file.read(length - len(pickled))):
            pickled += piece
        if len(octets) < LENGTH or len(pickled) < length:
            return  # the supervisor is gone
        assignment: Assignment = pickle.loads(pickled)
        prepare(assignment.config, (assignment.config.process, assignment.config.worker))
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(supervisor, assignment))
        except BrokerError:
            sys.exit(1)


async def _serve(supervisor: socket.socket, assignment: Assignment) -> None:
    await WorkerProcess(supervisor, assignment).serve()


if __name__ == "__main__":
    main()
