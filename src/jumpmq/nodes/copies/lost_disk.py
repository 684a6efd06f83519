"""Start of a process with a new data directory in place of a lost one, from copies at other nodes.

The process takes the home's number and the log's identity from etcd, and gets a new disk identity. Its replica receives
the log from the home's leader, like a new member. Leadership returns to this process as after any other absence.
"""

import asyncio
import json
import logging
from dataclasses import replace

from jumpmq.broker.config import Config, default_node
from jumpmq.nodes.etcd.client import Etcd
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.joining.member_file import write_member
from jumpmq.nodes.membership.cluster_etcd import answered_at_start
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, ConfigurationError, node_of
from jumpmq.store.log import DIRECTORY

LOOK_INTERVAL = 0.5
"""Seconds between two checks whether the process of the lost directory has ended."""

log = logging.getLogger(__name__)


async def replace_lost_disk(config: Config) -> Membership | None:
    """Use a new data directory in place of a member's lost directory.

    Returns:
        The member. None in any of these cases: the directory is already used; the node is new; another process with
            the node's name is alive; no other node has all complete commits of the home.

    Raises:
        OSError: the directory cannot be written.
        BrokerError: the settings of etcd are invalid, or its values are sealed with another secret.
    """
    directory = config.data_dir
    if directory is None or (directory / DIRECTORY).exists():
        return None
    settings = EtcdSettings.of(config)
    client = settings.client()
    try:
        me = await answered_at_start(lambda: _member(client, Keys(settings.cluster), config))
    finally:
        await client.close()
    if me is not None:
        log.warning("the data directory of %s is new: home %d is copied from other nodes", me, me.home)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_member(directory, me)
    return me


async def named_member(client: Etcd, keys: Keys, config: Config) -> Membership | None:
    """Return the member with the name in the settings, as recorded in etcd; None without one.

    Raises:
        EtcdError: etcd does not answer.
    """
    identity = await client.get(keys.id)
    if identity is None:
        return None
    if client.seal is not None:
        client.seal.identity = identity.value.decode()
    me = Membership(keys.cluster, identity.value.decode(), config.node or default_node(), "", worker=config.worker)
    member = await client.get(keys.member(me.process))
    if member is None:
        return None
    value = json.loads(member.value)
    return replace(me, member=str(value["member"]), home=int(value["home"]))


async def _member(client: Etcd, keys: Keys, config: Config) -> Membership | None:
    me = await named_member(client, keys, config)
    if me is None or not await _is_elsewhere(client, keys, me.home, me.node):
        return None
    for _ in range(int(1.5 * LEASE / LOOK_INTERVAL)):
        if await client.get(keys.copies_of(me.process)) is None:  # ``live/NODE`` may belong to a guest
            return me
        await asyncio.sleep(LOOK_INTERVAL)
    return None


async def _is_elsewhere(client: Etcd, keys: Keys, home: int, node: str) -> bool:
    """Return True if a replica at another node has all complete commits of a home."""
    found = await client.get(keys.home(home))
    try:
        known = None if found is None else Configuration.from_json(found.value)
    except ConfigurationError:
        return False
    return known is not None and any(node_of(one) != node for one in known.electable)
