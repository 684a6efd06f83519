"""A process becomes one of several: a worker of its node, or a node of a cluster."""

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from jumpmq.broker.errors import BrokerError
from jumpmq.broker.opening import Opened, Record, kept_identity
from jumpmq.broker.peers import Alone, Peers, require_no_cluster
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.transport.directory import Directory

if TYPE_CHECKING:
    from jumpmq.nodes.membership.member import Member as ClusterMember


async def enter(opened: Opened, directory: Directory | None = None) -> Peers:
    """Enter the peers that the settings name; a broker of one worker has none. See :data:`~jumpmq.broker.peers.Enter`.

    Args:
        directory: where homes of other machines are, unless a cluster says so; None where all are on this one.

    Raises:
        BrokerError: the process cannot be one of them.
    """
    config, found = opened.config, opened.definitions
    member: ClusterMember | None = None
    if config.cluster is not None:
        member, found = await _join_cluster(opened)
        config, directory = replace(config, home=member.me.home, node=member.me.node), member.directory
    elif config.homes == 1:
        return Alone(opened)
    else:
        require_no_cluster(found)
    others = OtherHomes(config, opened, kept_identity(found), directory, member)
    own = uuid.uuid4().hex if member is None and (others.founds or opened.store is not None) else None
    try:
        await others.find(found, own if member is None else member.me.id)
    except BaseException:
        await others.stop()
        raise
    return others


async def _join_cluster(opened: Opened) -> "tuple[ClusterMember, list[Record]]":
    try:
        from jumpmq.nodes.membership.starting import enter as enter_cluster  # here, so that workers do not load it
    except ModuleNotFoundError as error:
        raise BrokerError(f"a cluster needs {error.name}: pip install 'jumpmq[cluster]'") from None
    return await enter_cluster(
        opened.config, opened.boot, opened.store, opened.turns, opened.definitions, opened.commits.fail
    )
