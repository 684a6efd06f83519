"""A node enters its cluster, as its settings say."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from jumpmq.broker.cluster.etcd import Etcd, EtcdError
from jumpmq.broker.cluster.joining import Joining
from jumpmq.broker.cluster.keys import Keys
from jumpmq.broker.cluster.member import PAUSES, Member
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import HOMES, Config, default_node
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.security.passwords import hash_password
from jumpmq.store import Store
from jumpmq.topology import Topology, changes
from jumpmq.topology.common_log import Record
from jumpmq.topology.records import kept_node
from jumpmq.topology.snapshot import records_of

log = logging.getLogger(__name__)


async def enter(
    config: Config,
    boot: str,
    store: Store | None,
    turns: Turns,
    found: list[Record],
    on_failure: Callable[[str], None],
) -> tuple[Member, list[Record]]:
    """Make this node a member; returns it, and the records that it begins with. Waits for etcd.

    Raises:
        BrokerError: it cannot be one.
    """
    assert config.cluster is not None
    if store is None:
        raise BrokerError("a node of a cluster needs a data directory")
    if config.workers != 1:
        raise BrokerError("a node of a cluster has one worker")
    if not config.cluster or "/" in config.cluster:
        raise BrokerError(f"a cluster cannot be called '{config.cluster}': a name without slashes is needed")
    if any((kind, key) == HOMES for kind, key, _ in found):
        raise BrokerError("the data directory is one of several workers' homes: it cannot join a cluster")
    etcd, keys = _etcd_of(config), Keys(config.cluster)
    joining = Joining(etcd, keys, store, turns.committed, lambda records: _first_definitions(records, config))
    told, pause = "", PAUSES[0]
    try:
        while True:
            try:
                joined = await joining.join(found, config.node, kept_node(found, 1) or default_node())
                break
            except EtcdError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("the start waits for etcd: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSES[1])
    except BaseException:
        await etcd.close()
        raise
    me = joined.membership
    return Member(etcd, keys, me, joined.secret, config.cluster_host, boot, turns, on_failure), joined.definitions


def _etcd_of(config: Config) -> Etcd:
    """
    Raises:
        BrokerError: there is none.
    """
    urls, user, password = [], None, None
    for url in filter(None, (one.strip() for one in (config.etcd or "").split(","))):
        try:
            parts = urlsplit(url)
            port = parts.port or 2379
        except ValueError:
            raise BrokerError(f"etcd cannot be at '{url}'") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BrokerError(f"etcd cannot be at '{url}': http://HOST:PORT is meant")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        urls.append(f"{parts.scheme}://{host}:{port}")
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
    if not urls:
        raise BrokerError("a cluster needs the setting etcd: the URLs of its members")
    return Etcd(urls, _tls_of(config), user, password)


def _tls_of(config: Config) -> ssl.SSLContext | None:
    """
    Raises:
        BrokerError: a file cannot be used.
    """
    if config.etcd_ca is None and config.etcd_cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=config.etcd_ca)
        if config.etcd_cert is not None:
            context.load_cert_chain(config.etcd_cert, config.etcd_key)
    except (OSError, ssl.SSLError) as error:
        raise BrokerError(f"the certificates for etcd cannot be used: {error.strerror or error}") from None
    return context


def _first_definitions(found: list[Record], config: Config) -> list[Record]:
    """What a new cluster begins with: what the data directory has, or else what a new broker has."""
    topology = Topology("", home=0, shared=True)
    topology.restore(found)
    if not topology.vhosts and not topology.users:
        topology.apply(changes.AddVirtualHost("/"))
        user = config.default_user
        topology.apply(changes.PutUser(user, hash_password(config.default_pass), ("administrator",)))
        topology.apply(changes.SetPermissions(user, "/", ".*", ".*", ".*"))
    topology.applied = 0
    return records_of(topology)
