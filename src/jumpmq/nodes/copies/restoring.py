"""Forced leadership: an operator makes a copy the leader of its home after the loss of all copies with all confirmed
commits.

The node's broker must be stopped. Commits that the copy lacks are lost. The copy's directory records the loss until an
operator acknowledges it. If a lost copy returns, it does not follow the new leader, which lacks complete commits of the
returned copy.
"""

import json
import time
from pathlib import Path

from jumpmq.broker.config import Config, default_node
from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.copies.lost_disk import named_member
from jumpmq.nodes.copies.node_copies import DIRECTORY
from jumpmq.nodes.etcd.client import Etcd, EtcdError, delete, has
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copy_directory import NOTE, CopyDirectory
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, ConfigurationError, node_of
from jumpmq.store import StoreError, losses


async def force_leader(config: Config, home: int) -> tuple[Configuration, str]:
    """Make this node's copy the leader of a home. The store names the damaged messages when the home is served.

    Args:
        config: settings of the node.
        home: number of the home.

    Returns:
        The configuration, and a description of loss and damage; empty without both.

    Raises:
        BrokerError: the copy does not exist, this node runs, a running node has all commits, or etcd does not answer.
    """
    settings = EtcdSettings.of(config)
    client, keys = settings.client(), Keys(settings.cluster)
    try:
        me = await named_member(client, keys, config)
        if me is None or config.data_dir is None:
            raise BrokerError(f"etcd has no node '{config.node or default_node()}' of cluster '{keys.cluster}'")
        directory = config.data_dir if home == me.home else config.data_dir / DIRECTORY / str(home)
        if not (directory / NOTE).exists():
            raise BrokerError(f"{directory} has no copy of home {home}")
        return await _force(client, keys, me, home, directory)
    except (StoreError, EtcdError, ConfigurationError, OSError) as error:
        raise BrokerError(str(error)) from None
    finally:
        await client.close()


async def _force(client: Etcd, keys: Keys, me: Membership, home: int, directory: Path) -> tuple[Configuration, str]:
    key = ConfigurationKey(client, keys.home(home), [has(keys.id, me.id)], keys.led(home))
    value = await key.read()
    if value is None:
        raise EtcdError(f"etcd has no configuration of home {home}")
    said = [json.loads(found.value) for found in (await client.folder(keys.copies)).values]
    running = {str(one["node"]) for one in said}
    unable = {str(one["node"]) for one in said if home in one.get("closed", ())}
    if able := sorted((running - unable - {me.node}) & {node_of(one) for one in value.electable}):
        raise BrokerError(
            f"node '{able[0]}' runs, and has all confirmed messages of home {home}: the node can serve the home"
        )
    if me.node in running:  # also between two attempts to open a copy, when the copy is not locked
        raise BrokerError(
            f"node '{me.node}' runs: stop the node first. After a kill etcd notices the end in {LEASE} seconds"
        )
    copy = CopyDirectory(directory, value.log, damaged=True)
    try:
        replica = f"{me.node}.{copy.noted.disk}"
        new, noted = value.forced(replica), losses.read(directory)
        if replica in value.electable:  # perhaps by an earlier call, which was killed before it told the loss
            forced = _forced(home, replica, value.epoch)
            lost = next((loss for loss, _ in noted if loss.startswith(forced)), "")
        else:
            lost = _lost(home, replica, value, copy)
            if lost not in dict(noted):
                losses.write(directory, [*noted, (lost, time.time())])
        # The copy may lack what the home's process had at its last start; the operator accepts the loss.
        forget = [delete(keys.seen(await _process_of(client, keys, home)))] if lost or copy.damage else []
        if await key.swap(value, new, forget) != new:
            raise EtcdError("the home's configuration has just changed; check the configuration, and retry")
        return new, "; ".join(filter(None, [lost, copy.damage]))
    finally:
        copy.close()


async def _process_of(client: Etcd, keys: Keys, home: int) -> str:
    """Return the process of a home's seat, as named in keys of etcd; empty if unknown."""
    for member in (await client.folder(keys.members)).values:
        if int(json.loads(member.value)["home"]) == home:
            return member.key.removeprefix(keys.members)
    return ""


def _lost(home: int, replica: str, value: Configuration, copy: CopyDirectory) -> str:
    """Return a description of the commits that a copy may lack."""
    behind = "all" if copy.next_number is None else f"commits {copy.next_number} and later"
    nodes = ", ".join(map(node_of, value.electable))
    return f"{_forced(home, replica, value.epoch + 1)} without the copies of {nodes}: {behind} may be lost"


def _forced(home: int, replica: str, epoch: int) -> str:
    """Return the first part of the description of a loss."""
    return f"{replica} was made the leader of home {home} by force in epoch {epoch},"
