"""Parts of a process acting on records of other homes, made and wired before its links listen.

Records arrive as soon as a link is up, at a start even before the definitions. Each kind needs its handler by then.
"""

from jumpmq.broker.config import Config
from jumpmq.broker.opening import Opened
from jumpmq.nodes.channels.remote_channels import ChannelLinks
from jumpmq.nodes.channels.served_channels import ServedChannels
from jumpmq.nodes.channels.usage import UsageLinks
from jumpmq.nodes.cluster_member import ClusterMember
from jumpmq.nodes.known_copies import KnownCopies
from jumpmq.nodes.log.log_link import OnDisk
from jumpmq.nodes.messages.enqueue import Enqueue
from jumpmq.nodes.messages.outbox import Outbox
from jumpmq.nodes.messages.receiver import OutboxReceiver
from jumpmq.nodes.moves.moving import Moves
from jumpmq.nodes.moves.relocating import Relocating
from jumpmq.nodes.moves.ring_changes import RingChanges
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.hand_over import HandOver
from jumpmq.nodes.transport.links import Links, Ways


class Parts:
    """The parts of a process that handle records of other homes.

    Args:
        config: settings, with the home of a member of a cluster.
        ways: the sockets under the links.
        hands_over: True if other processes of this machine may take over clients.
        member: membership of this node in its cluster; None without a cluster.

    Attributes:
        ways: the sockets under the links.
        copies: copies of all homes, as known to this process.
        links: links to other homes.
        enqueue: sends messages to queues of other homes.
        outbox: keeps messages of batches until other homes have them.
        receiver: receives messages from the outboxes of other homes.
        queue_moves: moves queues between homes.
        relocating: moves queues of this home to other homes; all queues when the home is removed.
        ring_changes: holds messages of moved keys until the earlier messages of the keys are delivered; served once
            queues are restored.
        usage: counts connections, channels and queues of users with limits; served once clients may connect.
        channels: local clients' channels at other homes.
        served: remote clients' channels here.
        sessions: sessions of replicas; served once definitions are restored, while no home has copies yet.
        hand_over: passes clients to other processes of this machine; None without any.
        on_disk: calls back when earlier changes are on disk.
    """

    def __init__(
        self,
        config: Config,
        opened: Opened,
        ways: Ways,
        timing: Timing,
        *,
        hands_over: bool,
        member: ClusterMember | None = None,
    ) -> None:
        turns, store = opened.turns, opened.store
        self.ways = ways
        self.copies = copies = KnownCopies()
        self.links = Links(ways, config.home, opened.boot, turns, timing)
        sockets = config.links if hands_over else None
        self.hand_over = None if sockets is None else HandOver(sockets, config.home, self.links)
        self.on_disk = OnDisk(turns)
        is_dead = _lives if member is None else member.is_dead
        self.enqueue = Enqueue(self.links, turns, opened.memory, is_dead, copies.comes_back)
        self.outbox = Outbox(self.links, turns, opened.memory, store)
        self.enqueue.on_ready.append(self.outbox.ready)
        self.queue_moves = Moves(self.links, turns, self.outbox, store, self.on_disk, copies.has_copies)
        self.relocating = Relocating(
            self.links, self.outbox, self.queue_moves.streams, turns, None if member is None else member.resign
        )
        self.usage = UsageLinks(self.links, turns)
        self.channels = ChannelLinks(self.links, turns, self.enqueue.is_ready, copies.comes_back)
        self.enqueue.on_ready.append(self.channels.ready)
        self.served = ServedChannels(self.links)
        self.sessions = ReplicaSessions(self.links)
        self.ring_changes = RingChanges(self.links, turns, self.enqueue, self.on_disk)
        self.receiver = OutboxReceiver(self.links, turns, store, self.ring_changes.is_ahead)

    async def stop(self) -> None:
        """Cancel running work, and break the links."""
        if self.hand_over is not None:
            self.hand_over.stop()
        self.usage.stop()
        self.ring_changes.stop()
        self.relocating.stop()
        self.queue_moves.stop()
        self.outbox.stop()
        await self.on_disk.stop()
        await self.links.stop()


def _lives(home: int) -> bool:
    """Return False: without a cluster, the end of another home's process is not known."""
    return False
