"""The parts of a broker, made and wired together."""

import itertools
import time

from jumpmq.broker.bulk.reader_groups import ReaderGroups
from jumpmq.broker.bulk.starts import Starts
from jumpmq.broker.bulk.writers import Writers
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.channel.group_consumer import MemberChannel
from jumpmq.broker.commit.watchdog import Watchdog
from jumpmq.broker.config import Config
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.connection.forced_closes import ForcedCloses
from jumpmq.broker.connection.pause import Pause
from jumpmq.broker.connection.services import Services
from jumpmq.broker.consumer_groups.live import ConsumerGroups
from jumpmq.broker.dead_letters.dead_lettering import DeadLetters
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.listening import Listening
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.memory.paging import Paging
from jumpmq.broker.memory.uploads import Uploads
from jumpmq.broker.opening import Opened
from jumpmq.broker.peers import Peers
from jumpmq.broker.restoring import queues_of
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.security.tokens import Tokens
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.ring_traffic import RingTraffic
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.timers import Timers
from jumpmq.broker.upkeep.slices import Slices
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue
from jumpmq.store import Store
from jumpmq.store.definitions import PARTS, named, numbered, part_of
from jumpmq.topology import DeleteQueue, Topology


class BrokerParts:
    """The components of a broker.

    Attributes:
        config: settings, with the home and node assigned by the peers.
        peers: remote processes of this broker.
        node: name of this node.
        boot: identity of this run of the process.
        identity: identity of this broker, kept across restarts; None if everything is in memory.
        topology: virtual hosts, exchanges, queues, bindings, users.
        turns: the broker's turns; every change of the broker's state is part of a turn.
        memory: account of the memory held for messages.
        uploads: admits batches published over HTTP, by their total memory.
        alarms: alarms of memory and disk.
        watchdog: watches for missing commits.
        pause: pauses all clients.
        consumer_groups: consumer groups, and their shares of queues.
        starts: the starts of the data directory.
        reader_groups: reader groups with their reservations.
        dead_letters: publishes dead-lettered messages.
        ring_traffic: counts the keys of hash exchanges.
        writers: positions of bulk writers.
        slices: schedules long work in time slices.
        authorization, authenticator: permissions and identities of users.
        connections: the open connections.
        churn: counts created and removed objects.
        spans: makes spans for traced messages; None without tracing.
        listening: the listeners.
    """

    def __init__(self, opened: Opened, peers: Peers) -> None:
        local = peers.local
        self.config, self.peers = local.config, peers
        self.node, self.identity, self.boot = local.node, local.identity, opened.boot
        self.memory, self.turns, self._commits = opened.memory, opened.turns, opened.commits
        self.connections: set[Connection] = set()
        self.churn, self.slices, self.writers = Churn(), Slices(), Writers()
        self.starts, self.pause = Starts(self.boot), Pause()
        self.spans = None if self.config.otlp_endpoint is None else Spans(self.config.otlp_endpoint, self.node)
        self.uploads = Uploads(self.memory)
        self.alarms = Alarms(self.memory, self._commits, self.config.data_dir, opened.disk_free_limit)
        # Periodic maintenance of queues, and long work in steps.
        self._upkeep = Upkeep(self.turns, self.config.timing.failed_maintenance)
        pause = self.pause
        self.dead_letters = DeadLetters(
            self._upkeep, self.memory, peers.sender, peers.outbox, lambda: pause.active, self.spans
        )
        self.topology = Topology(
            self.node,
            self.store,
            streams=self._commits.streams,
            memory=self.memory,
            dead_letters=self.dead_letters,
            wake=self._upkeep.wake,
            later=self._upkeep.work,
            home=self.config.home,
            shared=local.is_shared,
            locator=self.config.queue_leader_locator,
        )
        self.dead_letters.serve(self.topology)
        self._upkeep.listen(on_lease_end=self._delete_unused)
        self._commits.listen(before_flush=self.topology.flush_rings)
        if self.store is not None:
            self.store.name_queues(self._queue_name)
        self.authorization = Authorization(self.topology)
        self.authenticator = Authenticator(self.topology, _tokens(self.config), self.config.timing.refusal)
        self.ring_traffic = RingTraffic(self.topology)
        self.reader_groups = ReaderGroups(self)
        self.consumer_groups = ConsumerGroups(
            *(self.topology, self.turns, self.authorization, self.reader_groups.reader_of),
            *(self.config.consumer_group_member_max, self.config.consumer_group_max_per_user),
        )
        self._services = self._shared()  # shared by all connections and channels
        self._forced_closes = ForcedCloses(self.connections, self.turns)
        self._listen_to_changes()
        paging = Paging(self._upkeep, self.memory, self._queues, self._deliveries, self.reader_groups.places)
        self.watchdog = Watchdog(self._commits, lambda: not self._upkeep.idle)
        self._timers = Timers(self._services, self.connections, self._commits, self.watchdog, paging, self.dead_letters)
        self.listening = Listening(self._services, self.connections)
        self.started_at, self._begun = time.time(), time.monotonic()

    def _shared(self) -> Services:
        return Services(
            config=self.config,
            topology=self.topology,
            turns=self.turns,
            upkeep=self._upkeep,
            authorization=self.authorization,
            user_limits=UserLimits(self.topology, self.connections),
            churn=self.churn,
            groups=self.consumer_groups,
            sender=self.peers.sender,
            remote=self.peers.channels.of,
            spans=self.spans,
            identities=(f"{self.boot}.{counter}" for counter in itertools.count(1)),
            memory=self.memory,
            alarms=self.alarms,
            authenticator=self.authenticator,
            pause=self.pause,
            hand_over=self.peers.hand_over,
        )

    def _listen_to_changes(self) -> None:
        """Register the parts as listeners of changes, including changes during restoring."""
        self.topology.leaving.append(self._forced_closes.leave)
        self.topology.listeners += [
            self._services.run_sizes.follow,
            self._forced_closes.follow,
            self._services.user_limits.follow,
            self.writers.follow,
            self.consumer_groups.follow,
        ]

    @property
    def store(self) -> Store | None:
        """Store of durable state; None for a broker in memory."""
        return self._commits.store

    async def committed(self) -> None:
        """End the turn, and wait until all that was changed is on disk."""
        await self.turns.committed()

    def _delete_unused(self, queue: Queue) -> None:
        self.topology.propose(DeleteQueue(queue.vhost, queue.name, queue.id))

    def _queue_name(self, number: int) -> str:
        """Return the name of a queue for the log. Any thread may ask."""
        if number & PARTS:
            return part_of(number, self._queue_name)
        found = [one for host in list(self.topology.vhosts.values()) for one in list(host.queues.values())]
        return next((named(one.name, one.vhost) for one in found if one.id == number), numbered(number))

    def _deliveries(self) -> list[Deliveries]:
        return [channel.unacknowledged for one in self.connections for channel in one.channels.values()]

    def _channels(self) -> list[MemberChannel]:
        own = [channel for one in self.connections for channel in one.channels.values()]
        return [*own, *self.peers.channels.served()]

    def _queues(self) -> list[Queue]:
        return queues_of(self.topology)


def _tokens(config: Config) -> Tokens | None:
    """The reader of OAuth 2 tokens, where tokens are accepted as logins.

    Raises:
        BrokerError: the settings lack one, or the keys cannot be used.
    """
    resource, keys = config.oauth_resource, config.oauth_keys
    if resource is None and keys is None:
        return None
    if resource is None or keys is None:
        raise BrokerError("tokens need both oauth-resource and oauth-keys")
    return Tokens(resource, keys)
