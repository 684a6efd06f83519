"""Management of a broker with several homes: every home answers its peers, and either a single home or all homes answer
clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from jumpmq.broker import Broker
from jumpmq.http.plumbing.forwarding import LOCAL
from jumpmq.http.server import HTTPServer
from jumpmq.nodes.management.acting import ask
from jumpmq.nodes.management.asking import AskedHomes
from jumpmq.nodes.management.client import HomeClient
from jumpmq.nodes.management.clients import HomeClients
from jumpmq.nodes.management.directory import HomesDirectory
from jumpmq.nodes.management.listener import PrivateListener
from jumpmq.nodes.management.merged import MergedFigures
from jumpmq.nodes.management.passing import Passing
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.transport.link import Link

FRONT = 1
"""Worker answering clients."""

Stop = Callable[[], None]


@asynccontextmanager
async def managed(
    broker: Broker, others: OtherHomes, directory: HomesDirectory, stop_broker: Stop | None = None
) -> AsyncIterator[None]:
    """Serve the management of a started broker, one of several homes on a machine, until the block ends.

    Raises:
        BrokerError: an address is not available.
    """
    listener = PrivateListener(broker, directory.secret, directory.socket(directory.home))
    await listener.start()
    try:
        if directory.home == FRONT:
            clients = HomeClients(lambda: broker.topology.homes.keys() - {FRONT}, directory.client)
            async with _answering(broker, others, clients, Passing(FRONT, clients), stop_broker):
                yield
        else:
            yield
    finally:
        await listener.stop()


@asynccontextmanager
async def managed_node(broker: Broker, others: OtherHomes, stop_broker: Stop | None = None) -> AsyncIterator[None]:
    """Serve the management of a started broker that is a node of a cluster, until the block ends. The first worker of a
    node answers clients.

    Raises:
        BrokerError: an address is not available.
    """
    links, own = others.links, broker.config.home
    clients = HomeClients(
        lambda: broker.topology.homes.keys() - {own}, lambda home: HomeClient(home, partial(links.call, home))
    )
    of_node = HomeClients(lambda: set(broker.topology.nodes.get(broker.node, ())) - {own}, clients.__getitem__)

    def served_here() -> set[int]:
        return {home for home in broker.topology.homes if broker.node_serving(home) == broker.node} - {own}

    served = HomeClients(served_here, clients.__getitem__)
    is_front = broker.config.worker == FRONT
    here = Passing(own, of_node)
    listener = PrivateListener(broker, None, here=here if is_front else LOCAL)
    await listener.start()
    links.accept_calls(listener.accept)
    returning = (
        others.returning(broker.topology, lambda home, *asked: ask(clients[home], "give", *asked)) if is_front else None
    )
    try:
        if is_front:
            async with _answering(broker, others, clients, here, stop_broker, served):
                yield
        else:
            yield
    finally:
        if returning is not None:
            returning.cancel()
        links.accept_calls(None)
        await listener.stop()


@asynccontextmanager
async def _answering(
    broker: Broker,
    others: OtherHomes,
    clients: HomeClients,
    here: Passing,
    stop_broker: Stop | None,
    served: HomeClients | None = None,
) -> AsyncIterator[None]:
    """Answer clients, with the statistics of other homes.

    Args:
        clients: clients of all homes.
        here: clients of this node's homes.
        served: clients of homes served by this node, if different.
    """
    figures, of_node = MergedFigures(broker.home_figures, AskedHomes(clients)), None
    if served is not None or broker.config.homes > 1:
        of_node = figures.of(AskedHomes(here.clients if served is None else served))
    broker.show(figures, of_node)
    server = HTTPServer(broker, stop_broker, Passing(broker.config.home, clients), here)

    def abandon(link: Link) -> None:
        clients.abandon(link.peer)

    # A hanging home does not answer; its link breaks after a silence.
    others.links.on_down.append(abandon)
    try:
        await server.start()
        yield
    finally:
        others.links.on_down.remove(abandon)
        await server.stop()
        clients.close()
