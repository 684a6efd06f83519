"""Entry of a process into a group of several: as a worker of its node, or as a node of a cluster."""

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.opening import Opened, Record, kept_identity
from jumpmq.broker.peers import Alone, Peers, require_no_cluster
from jumpmq.nodes.beginning import Beginning, begin_worker
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.parts import Parts
from jumpmq.nodes.timing import TIMING, Timing
from jumpmq.nodes.transport.directory import Directory
from jumpmq.nodes.transport.links import Ways
from jumpmq.nodes.transport.unix import UnixSockets

if TYPE_CHECKING:
    from jumpmq.nodes.membership.member import Member as ClusterMember

LAST_PORT = 65535


async def enter(opened: Opened, directory: Directory | None = None, leads: int = 0, timing: Timing = TIMING) -> Peers:
    """Set up the peers named by the settings; a broker of one worker has none. See :data:`~jumpmq.broker.peers.Enter`.

    Args:
        directory: addresses of homes on other machines, without a cluster; None if all homes are on this machine.
        leads: epoch in which the home's replica leads; 0 in a home without copies.
        timing: intervals and bounds of the process.

    Raises:
        BrokerError: the process cannot join.
    """
    config, found = opened.config, opened.definitions
    member: ClusterMember | None = None
    if config.cluster is not None:
        member, found = await _join_cluster(opened, leads, timing)
        config, directory = replace(config, home=member.me.home, node=member.me.node), member.directory
    elif config.homes == 1:
        return Alone(opened)
    else:
        require_no_cluster(found)
    ways = _ways_of(config, directory, timing)
    parts = Parts(config, opened, ways, timing, hands_over=directory is None or member is not None, member=member)
    identity = kept_identity(found)
    try:
        if member is not None:
            return OtherHomes(config, opened, parts, Beginning(found, identity or member.me.id), member=member)
        own = uuid.uuid4().hex if config.home == FIRST or opened.store is not None else None
        begins = await begin_worker(config, opened, parts.links, identity, own)
        return OtherHomes(config, opened, parts, begins, (FIRST,) if directory is None else ())
    except BaseException:
        await parts.stop()
        raise


def _ways_of(config: Config, directory: Directory | None, timing: Timing) -> Ways:
    """Return the sockets for the home's links.

    Raises:
        BrokerError: no ports are left for the workers.
    """
    if directory is not None:
        from jumpmq.nodes.transport.tls import TLSSockets  # here, so that processes of one machine do not load it

        port = config.cluster_port + config.worker - 1 if config.cluster_port else 0
        if port > LAST_PORT:  # getaddrinfo would wrap it around
            raise BrokerError(f"with cluster-port {config.cluster_port} there is no port for worker {config.worker}")
        return TLSSockets(directory, config.home, config.cluster_host, port, timing)
    if config.links is None:
        raise BrokerError("several homes need a directory for the links between them")
    return UnixSockets(config.links, config.home, config.homes)


async def _join_cluster(opened: Opened, leads: int, timing: Timing) -> "tuple[ClusterMember, list[Record]]":
    try:
        from jumpmq.nodes.membership.starting import enter as enter_cluster  # here, so that workers do not load it
    except ModuleNotFoundError as error:
        raise BrokerError(f"a cluster needs {error.name}: pip install 'jumpmq[cluster]'") from None
    return await enter_cluster(
        opened.config, opened.boot, opened.store, opened.turns, opened.definitions, opened.commits.fail, leads, timing
    )
