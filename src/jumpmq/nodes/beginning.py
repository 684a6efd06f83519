"""Initial definitions of a home: from the home's store, from the cluster, or from the first worker."""

from dataclasses import dataclass

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError, HomeLeft
from jumpmq.broker.opening import Opened, Record
from jumpmq.nodes.log.log_link import FollowedLog
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.nodes.transport.links import Links
from jumpmq.store.kinds import APPLIED, HOMES, LEFT


@dataclass(frozen=True, slots=True)
class Beginning:
    """State of a home before the topology is restored.

    Attributes:
        definitions: records to be restored.
        identity: identity of the broker that the home belongs to; None if nothing is durable.
        followed: the first worker's log; None at the first worker, and in a cluster.
    """

    definitions: list[Record]
    identity: str | None
    followed: FollowedLog | None = None


async def begin_worker(
    config: Config, opened: Opened, links: Links, identity: str | None, default: str | None
) -> Beginning:
    """Determine the initial state of a worker. Workers behind the first start listening for ``links``, and wait for the
    first worker's answer.

    Args:
        identity: identity of the broker that the data directory belongs to; None for a new directory.
        default: identity for a new broker.

    Raises:
        BrokerError: this home belongs to another broker, there were more homes, or the sockets of links cannot be made.
        HomeLeft: this home was removed.
    """
    found = opened.definitions
    kept = next((value for kind, key, value in found if (kind, key) == HOMES), config.homes)
    if kept > config.homes and config.home == FIRST:  # other homes may not know of a removal yet
        raise BrokerError(
            f"the data directory is one of {kept} homes: serve it with --workers {kept} or more, not {config.homes}"
        )
    if any((kind, key) == LEFT for kind, key, _ in found):
        raise HomeLeft(f"home {config.home} was removed: its queues are at other homes")
    if config.home == FIRST:
        return Beginning(found, identity or default)
    applied = next((value for kind, _, value in found if kind == APPLIED), None)
    followed = FollowedLog(links, opened.turns, identity, applied, opened.commits.fail)
    try:
        await listen(links)
        given = await followed.definitions()
    except BaseException:
        followed.stop()
        raise
    if given is not None and opened.store is not None:
        for kind, key, value in given:
            opened.store.put(kind, key, value)
    return Beginning(found if given is None else given, followed.identity or default, followed)


async def listen(links: Links) -> None:
    """Start listening for links, and connecting them.

    Raises:
        BrokerError: the sockets cannot be made.
    """
    try:
        await links.start()
    except OSError as error:
        raise BrokerError(f"links to other homes cannot be made: {error}") from None
