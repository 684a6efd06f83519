"""The directory of a follower in place of a leader's lost disk, by hand.

The leader's process is ended for good, and the directory ``copies/H`` of a node in the set, whose process is stopped
for that long, copied to where the leader's data directory was. :func:`restore` then has etcd know it. The next start
of the leader takes an epoch with it, and asks the others for what they may have beyond.
"""

from pathlib import Path

from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.nodes.replicas.claims import Claims
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.replication.configuration import Configuration


async def restore(claims: Claims, directory: Path, log: str, node: str) -> Configuration:
    """Make a node the leader of a home with a copied directory; return the configuration.

    Args:
        directory: the copy of a directory, in the leader's place.
        log: identity of the home's log.
        node: of the leader.

    Raises:
        StoreError: the directory is in use, damaged, or of another log.
        ConfigurationError: it may lack what is complete.
        EtcdError: etcd cannot be asked, or the configuration has changed meanwhile.
    """
    copy = CopyDirectory(directory, log)
    try:
        value = await claims.read()
        if value is None:
            raise EtcdError("etcd has no configuration of the home")
        disk = copy.noted.disk
        source = next((one for one in value.electable if one.endswith(f".{disk}")), f"{node}.{disk}")
        new = value.restored(source, f"{node}.{disk}")
        if await claims.swap(value, new) != new:
            raise EtcdError("the configuration has changed meanwhile; look at it, and try again")
        return new
    finally:
        copy.close()
