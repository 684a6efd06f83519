"""Start of a node of a cluster, with the configured settings."""

from collections.abc import Callable
from dataclasses import replace

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import Config, default_node
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.security.passwords import hash_password
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import ClusterJoining, NodeStart, kept_membership
from jumpmq.nodes.log.shared_log import Record
from jumpmq.nodes.membership.cluster_etcd import answered_at_start
from jumpmq.nodes.membership.lease import Promise
from jumpmq.nodes.membership.member import Member
from jumpmq.nodes.timing import Timing
from jumpmq.store import Store
from jumpmq.store.kinds import HOMES
from jumpmq.topology import AddVirtualHost, PutUser, SetPermissions, Topology
from jumpmq.topology.records import alone, kept_node
from jumpmq.topology.snapshot import records_of


async def enter(
    config: Config,
    boot: str,
    store: Store | None,
    turns: Turns,
    found: list[Record],
    on_failure: Callable[[str], None],
    leads: int,
    timing: Timing,
) -> tuple[Member, list[Record]]:
    """Make the node a member; return the member and the initial records. Waits for etcd.

    Args:
        leads: epoch that the home's replica has claimed; 0 in a home without copies.
        timing: of the node.

    Raises:
        BrokerError: this process cannot be a member.
    """
    if store is None:
        raise BrokerError("a node of a cluster needs a data directory")
    if kept_membership(found) is None:
        homes = next((value for kind, key, value in found if (kind, key) == HOMES), 1)
        if homes != 1:
            raise BrokerError(
                f"the data directory is one of {homes} workers' homes, and only that of one worker joins a cluster: "
                f"serve it with --workers {homes} and without --cluster, and have `jumpmqctl set_workers 1` make it one"
            )
        found = alone(found, store)
    settings = EtcdSettings.of(config)
    etcd, keys = settings.client(), Keys(settings.cluster)
    joining = ClusterJoining(
        etcd,
        keys,
        store,
        turns.committed,
        lambda records: _first_definitions(records, config),
        config.recover_cluster,
        config.rejoin_cluster,
        config.accept_older_data,
        config.workers > 1 and not config.begins,
    )
    default = kept_node(found, 1) or default_node()

    async def join() -> NodeStart:
        joined = await joining.join(found, config.node, default, config.worker)
        if len(settings.secrets) > 1:
            await etcd.reseal(keys.all)
        return joined

    try:
        joined = await answered_at_start(join)
    except BaseException:
        await etcd.close()
        raise
    me = joined.membership
    settings = replace(settings, identity=me.id)
    host, begins = config.cluster_host, config.begins
    promise = Promise.of(joined.definitions, store, turns.committed)
    member = Member(
        settings, etcd, me, joined.secret, host, boot, turns, on_failure, promise, timing, begins=begins, leads=leads
    )
    return member, joined.definitions


def _first_definitions(found: list[Record], config: Config) -> list[Record]:
    """Return the initial definitions of a new cluster, from the data directory; without any, those of a new broker."""
    topology = Topology("", home=0, shared=True)
    topology.restore(found)
    if not topology.vhosts and not topology.users:
        topology.apply(AddVirtualHost("/"))
        user = config.default_user
        topology.apply(PutUser(user, hash_password(config.default_pass), ("administrator",)))
        topology.apply(SetPermissions(user, "/", ".*", ".*", ".*"))
    topology.applied = 0
    return records_of(topology)
