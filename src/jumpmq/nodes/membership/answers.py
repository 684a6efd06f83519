"""Answers to proposers that wait for homes without a link: such homes publish their applied entries in etcd.

A home publishes its last applied entry as ``applied/NODE`` while a live home has no link to it. The proposer's home
reads these keys. The wait is limited. After :data:`SLOW` seconds in which etcd answers, the proposer no longer waits
for a home that publishes nothing. For a home that refuses connections, the limit is :data:`REFUSED` seconds.
"""

import asyncio
import json

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.etcd.client import Found, put
from jumpmq.nodes.log.cluster_log import ClusterLog
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.live_homes import ClusterDirectory
from jumpmq.nodes.transport.links import Links

SLOW = 1.0
"""Maximum wait of an answer for homes that have not applied a change, in seconds, while etcd answers."""

REFUSED = 0.35
"""Maximum wait of an answer for unlinked homes refusing connections, in seconds: their processes have most likely
ended.
"""

SWIFT = 0.5
"""Maximum time of a normal answer of etcd, in seconds."""

HEARD = 0.05
"""Interval between two polls of etcd for applied entries of peers, in seconds, while an answer waits."""


class Answers:
    """The acknowledgements of entries over etcd.

    Args:
        etcd: of this node.
        log: has the waiting answers.
        directory: has the addresses of other homes.
        links: the links to other homes.
        lease: the lease of this process.
        turns: those of the broker.
        behind: set when another home has an entry that may be missing here.
        patience: maximum wait of an entry for a home, in seconds.

    Attributes:
        wait: set when an answer may wait for a home without a link.
        said: the last entry published by this home.
        wanted: the last entry published by another home.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        log: ClusterLog,
        directory: ClusterDirectory,
        links: Links,
        lease: Lease,
        turns: Turns,
        behind: asyncio.Event,
        patience: float,
    ) -> None:
        self.wait = asyncio.Event()
        self.said = 0
        self.wanted = 0
        self._etcd = etcd  # of this node
        self._log = log  # has the waiting answers
        self._directory = directory  # of other homes
        self._links = links  # to them
        self._lease = lease  # of this process
        self._turns = turns  # those of the broker
        self._behind = behind  # triggers the reading of entries
        self._patience = patience  # maximum wait of an entry for a home, in seconds

    async def say(self) -> None:
        """Publish the last entry applied here, for homes without a link to this home.

        Raises:
            EtcdError: etcd cannot be asked.
        """
        if self.said < (applied := self._log.applied):
            me = self._etcd.me
            said = json.dumps({"home": me.home, "applied": applied})
            converted_errors = put(self._etcd.keys.applied_by(me.process), said, self._lease.id)
            await self._etcd.client.transaction([self._etcd.is_ours], [converted_errors])
            self.said = applied

    def applied(self, entry: int) -> None:
        """Handle a peer's applied entry. An answer may wait for this peer through etcd."""
        if self.said < entry <= self.wanted:
            self._behind.set()

    async def follow(self, revision: int) -> None:
        """Watch the entries published by peers, without end."""
        async for events in self._etcd.watched(self._etcd.keys.applied, revision):
            for event in events:
                if event.value is not None:
                    self._hear(event.value)

    def _hear(self, value: bytes) -> None:
        said = json.loads(value)
        if said["home"] != self._etcd.me.home:
            with self._turns.turn():
                self._log.everywhere.applied(said["home"], said["applied"])
            self.wanted = max(self.wanted, said["applied"])
            if self.wanted > self.said:
                self._behind.set()

    async def collect(self) -> None:
        """While answers wait, publish the last entry applied here, and read the entries published by peers. Stop
        waiting for homes that have published nothing for too long while etcd answered. Runs forever.
        """
        now, everywhere = asyncio.get_running_loop().time, self._log.everywhere
        while True:
            await self.wait.wait()
            self.wait.clear()
            first: dict[int, float] = {}  # by entry: loop time at which the wait began
            since: dict[int, float] = {}  # by entry: loop time since which etcd has always answered
            while numbers := everywhere.unanswered:
                began = now()
                found = await self._etcd.until_answered(self._say_and_read)
                if now() - began > SWIFT:
                    since.clear()
                for value in found.values:
                    self._hear(value.value)
                first = {number: first.get(number, began) for number in numbers}
                since = {number: since.get(number, began) for number in numbers}
                untold = [number for number in numbers if began - since[number] >= REFUSED]
                slow = [one for one in untold if began - since[one] >= SLOW or began - first[one] >= self._patience]
                for home in everywhere.behind if untold else ():
                    if late := untold if await self._is_refused(home) else slow:
                        with self._turns.turn():
                            everywhere.applied(home, late[-1])
                await asyncio.sleep(HEARD)

    async def _say_and_read(self) -> Found:
        await self.say()
        return await self._etcd.client.folder(self._etcd.keys.applied)

    async def _is_refused(self, home: int) -> bool:
        """Return True if a home without a link has no process listening for links."""
        if self._links.to(home) is not None or (address := self._directory.addresses.get(home)) is None:
            return False
        try:
            async with asyncio.timeout(SWIFT):
                _, writer = await asyncio.open_connection(*address)
        except (OSError, TimeoutError) as error:
            return isinstance(error, ConnectionRefusedError)
        writer.transport.abort()
        return False
