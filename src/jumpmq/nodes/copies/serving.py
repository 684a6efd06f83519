"""Serving of homes in a cluster: a process's own home, with or without copies, and guests."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

from jumpmq.broker.broker import Broker
from jumpmq.broker.commit.commits import OpenStore
from jumpmq.broker.config import Config
from jumpmq.broker.connection.listeners import require_free
from jumpmq.broker.connection.pause import LEASE
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.memory import resources
from jumpmq.nodes.copies.kept_copy import KeptCopy
from jumpmq.nodes.copies.lost_disk import replace_lost_disk
from jumpmq.nodes.copies.node_copies import PORTS, NodeCopies
from jumpmq.nodes.copies.operating import OperatedCopies
from jumpmq.nodes.entering import LAST_PORT
from jumpmq.nodes.joining.member_file import prepare, read_member
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.rebuilding import require_cluster
from jumpmq.queues import clock
from jumpmq.serving.server import Control
from jumpmq.store import Store, StoreError

log = logging.getLogger(__name__)

Stop = Callable[[], None]

ServesHome = Callable[[Config, Stop | None, int, OpenStore], AbstractAsyncContextManager[Control]]
"""Serves a home in an epoch (0 without copies) until the block ends."""


@asynccontextmanager
async def serving_node(
    config: Config, stop: Stop | None, again: Callable[[str, bool], None], home: ServesHome
) -> AsyncIterator[Control]:
    """Serve the home of a process: at once without copies; with copies, as soon as the local replica leads.

    Args:
        again: restarts the process; see :func:`jumpmq.nodes.serving.serving`.

    Raises:
        BrokerError: the broker cannot start.
    """
    try:
        me = None if config.data_dir is None else read_member(config.data_dir)
        me = me or await replace_lost_disk(config)
        if me is not None:
            await require_cluster(config, me)
    except (StoreError, OSError) as error:
        raise BrokerError(str(error)) from None

    def end(reason: str) -> None:
        again(reason, False)

    guests = ServedGuests(config, home)
    if me is None:
        async with home(config, stop, 0, Store.open) as control:
            me = _others(control.broker).membership
            copies = NodeCopies(config, me, uuid.uuid4().hex, guests, again, end)
            try:
                await copies.start(lambda: _prepare(control.broker))
                _attach(copies, control.broker)
                yield control
            finally:
                await copies.stop()
        return
    # Without this check, the process could take the home from another node, and then end because of a taken port.
    with_tls = {"amqp/ssl": config.tls_port, "https": config.https_port} if config.tls else {}
    require_free(config.host, {"amqp": config.port, "http": config.http_port} | with_tls)
    copies = NodeCopies(config, me, uuid.uuid4().hex, guests, again, end)
    try:
        await copies.start()
        copy = await copies.lead()
        assert copy.leading is not None
        async with home(config, stop, copies.epoch_of(copy), copy.leading.open) as control:
            _attach(copies, control.broker, copy)
            yield control
        await copies.release_own()
    finally:
        await copies.stop()


def _others(broker: Broker) -> OtherHomes:
    assert isinstance(broker.peers, OtherHomes)
    return broker.peers


def _attach(copies: NodeCopies, broker: Broker, copy: KeptCopy | None = None) -> None:
    """Connect a started broker with the copies of the process.

    Args:
        copy: the copy whose replica leads the broker's home; None for a home without copies.
    """
    operated = OperatedCopies(copies, broker.topology)
    broker.serve_copies(operated, copies.me.node)
    _others(broker).know_copies(copies.has_copies, copies.comes_back, operated.count)
    if copy is not None:
        copies.gate(copy.number, LeasedDeliveries(broker).extend)


def _prepare(broker: Broker) -> None:
    """Prepare a home for copies from its next start on.

    Raises:
        OSError: a file cannot be written.
    """
    directory, store = broker.config.data_dir, broker.store
    assert directory is not None and store is not None
    others = _others(broker)
    prepare(directory, others.membership, others.links.epoch, store)


class LeasedDeliveries:
    """Restricts the deliveries of a home to the lease of the home's replica. Without a lease, and before the first one,
    clients are paused.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_held = True

    def extend(self, until: float, is_short: bool) -> None:
        """Set the time at which the lease ends.

        Args:
            is_short: True while the set has fewer copies than `min`.
        """
        broker = self._broker
        if is_short is not broker.alarms.copies:
            with broker.turns.turn():
                broker.alarms.note_copies(is_short)
        is_held = clock.boot_time() >= until
        if is_held and not self._is_held:
            log.warning("home %d: no other copy answers, and another node may lead: clients wait", broker.config.home)
            broker.pause.begin(LEASE)
        gate = broker.topology.delivery_gate
        with broker.turns.turn() if gate.is_waited_for else nullcontext():
            gate.extend(until)
        if self._is_held and not is_held:
            broker.pause.end(LEASE)
        self._is_held = is_held


def guest_port(cluster_port: int, taken: Container[int]) -> int:
    """Return the port for a guest's links: the first free port above the ports of workers, copies and other guests, so
    that firewalls between nodes can allow the port. Return 0, for any free port, if the settings have no port for
    links.
    """
    ports = range(cluster_port + 2 * PORTS, LAST_PORT + 1) if cluster_port else ()
    return next((port for port in ports if port not in taken), 0)


class ServedGuests:
    """Serves homes of other nodes in the running event loop. See :class:`~jumpmq.nodes.copies.node_copies.Guests`.

    Args:
        config: settings of the process.
        home: serves one home.
    """

    def __init__(self, config: Config, home: ServesHome) -> None:
        self._config = config
        self._home = home
        self._ports: set[int] = set()  # used ports of the range for guests' links

    async def serve(self, copies: NodeCopies, copy: KeptCopy, worker: int, epoch: int, until: asyncio.Event) -> None:
        """See :class:`~jumpmq.nodes.copies.node_copies.Guests`."""
        assert copy.leading is not None
        port = guest_port(self._config.cluster_port, self._ports)
        self._ports.add(port)
        try:
            async with self._home(self._of(copy, worker, port), None, epoch, copy.leading.open) as control:
                _attach(copies, control.broker, copy)
                await until.wait()
        finally:
            self._ports.discard(port)

    def _of(self, copy: KeptCopy, worker: int, port: int) -> Config:
        """Return the settings for a guest: no clients, half of the memory, and the node's name recorded in the home's
        data.
        """
        config = self._config
        return replace(
            config,
            port=None,
            http_port=None,
            tls_port=None,
            https_port=None,
            tls_processes=0,
            data_dir=copy.directory,
            workers=1,
            worker=worker,
            homes=1,
            node=None,
            links=None,
            begins=False,
            cluster_port=port and port - worker + 1,  # worker N listens at this port plus N - 1
            recover_cluster=False,
            rejoin_cluster=False,
            load_definitions=None,
            memory_limit=str(resources.memory_limit(config.memory_limit) // 2),
        )
