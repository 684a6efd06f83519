"""The entries of a cluster's log in etcd: appended, read, and applied in order.

A home that appends an entry sends it to the other homes over links. Each home also polls etcd, for entries that no link
has brought. Failed requests are repeated, at another member of etcd.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.etcd.client import EtcdError, Value, absent, end_of, get, has, present, put
from jumpmq.nodes.etcd.keys import FORMAT, number_of
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.forgetting import Removal
from jumpmq.nodes.joining.joining import SetBack, other_format, reason_to_refuse, set_back
from jumpmq.nodes.log.cluster_log import ClusterLog, EntryFields
from jumpmq.nodes.log.compacting import compact_aside
from jumpmq.nodes.log.snapshots import SnapshotHead
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.membership.lease import Lease
from jumpmq.nodes.membership.live_homes import LiveHomes
from jumpmq.nodes.timing import Timing
from jumpmq.replication.configuration import ConfigurationError
from jumpmq.topology import ForgetNode

log = logging.getLogger(__name__)

PART = 100
"""Number of entries read together."""

RECENT = 1000
"""Number of changes whose entries are kept in memory, for homes whose links were down."""


class EtcdEntries:
    """Appends and applies the entries of the log for the local home.

    Args:
        etcd: of this node.
        log: applies entries.
        live: the live homes.
        lease: the lease of this process; nothing is appended without it.
        turns: those of the broker.
        timing: of the node.
        removal_of: returns the checked removal of a node; None for an unchecked one.

    Attributes:
        asked: set when there is a proposal to append.
        behind: set when entries are known to be missing here.
    """

    def __init__(
        self,
        etcd: ClusterEtcd,
        log: ClusterLog,
        live: LiveHomes,
        lease: Lease,
        turns: Turns,
        timing: Timing,
        removal_of: Callable[[ForgetNode], Removal | None],
    ) -> None:
        self.asked = asyncio.Event()
        self.behind = asyncio.Event()
        self._etcd = etcd  # of this node
        self._log = log  # applies entries
        self._live = live  # the live homes
        self._lease = lease  # of this process
        self._turns = turns  # those of the broker
        self._timing = timing  # of compaction
        self._on_own: Callable[[int, EntryFields], object] = lambda number, entry: None  # sends own entries to homes
        self._removal_of = removal_of  # checks removals of nodes
        self._early: dict[int, EntryFields] = {}  # entries received before their predecessors, by number
        self._recent: deque[tuple[int, EntryFields]] = deque()  # the last entries applied, with their numbers
        self._recent_changes = 0  # number of changes in ``_recent``
        self._compacted = 0  # last entry of the snapshot, at the last poll

    def listen(self, on_own: Callable[[int, EntryFields], object]) -> None:
        """Set the function called before an entry of this home is applied, with number and content of the entry."""
        self._on_own = on_own

    @property
    def last(self) -> tuple[int, EntryFields | None]:
        """Number of the last entry received, and the entry; None for an entry from before this run."""
        return self._recent[-1] if self._recent else (self._log.entry, None)

    def after(self, number: int) -> list[tuple[int, EntryFields]]:
        """Return the entries behind the given number, with numbers; none if some are no longer kept here."""
        if not self._recent or self._recent[0][0] > number + 1:
            return []
        return [one for one in self._recent if one[0] > number]

    # --- reading ---

    async def catch_up(self) -> None:
        """Apply all entries in etcd.

        Raises:
            SetBack: etcd lacks entries that were applied here.
            EtcdError: etcd cannot be asked.
        """
        keys, client, me = self._etcd.keys, self._etcd.client, self._etcd.me
        while True:
            wanted = self._log.entry + 1
            reads = [get(keys.entry(wanted), end_of(keys.log), PART), get(keys.recovered), self._live.read]
            serving = self._live.serving.copy()
            done, read = await client.transaction([self._etcd.is_ours], reads)
            if not done:
                raise SetBack(set_back(me.cluster, 0))
            found, recovered, live = read
            begin = int(recovered.values[0].value) if recovered.values else 0
            if (more := reason_to_refuse(me, self._log.entry, begin)) is not None:
                raise SetBack(more)
            self._live.found(live)
            self._live.serving -= serving
            if found.values and number_of(found.values[0].key) > wanted:
                why = f"entry {wanted} of the cluster's log is not kept any more: the node starts again"
                self._etcd.on_failure(why)
                await asyncio.Event().wait()
            self._take(found.values)
            if len(found.values) < PART:
                return

    def _take(self, values: list[Value]) -> None:
        """Apply entries in order, up to the first entry with a missing predecessor."""
        with self._turns.turn():
            for value in values:
                number = number_of(value.key)
                try:
                    self.take(number, json.loads(value.value))
                except (ValueError, LookupError, TypeError) as error:
                    self.cannot_read(number, error)
                    return

    def cannot_read(self, number: int, error: Exception) -> None:
        """End this process because an entry cannot be read, perhaps from a later release."""
        self._etcd.on_failure(f"entry {number} of the cluster's log cannot be read: {error!r}")

    def take(self, number: int, entry: EntryFields) -> None:
        """Apply an entry once all earlier entries are applied. Then apply later entries that were received before.

        Raises:
            ValueError, LookupError, TypeError: the entry is malformed, and not applied.
        """
        if number > self._log.entry:
            self._early[number] = entry
        while (following := self._early.pop(self._log.entry + 1, None)) is not None:
            number = self._log.entry + 1
            if following["home"] == self._etcd.me.home:
                self._on_own(number, following)
            self._keep(number, following)
            self._log.receive(number, following)
        self._early = {one: entry for one, entry in self._early.items() if one > self._log.entry}
        if self._early:
            self.behind.set()

    def _keep(self, number: int, entry: EntryFields) -> None:
        self._recent.append((number, entry))
        self._recent_changes += len(entry["changes"])
        while self._recent_changes > RECENT:
            self._recent_changes -= len(self._recent.popleft()[1]["changes"])

    # --- appending ---

    async def append(self) -> None:
        """Append this home's proposals; runs forever."""
        while True:
            await self.asked.wait()
            self.asked.clear()
            while (entry := self._log.to_append()) is not None:
                await self._etcd.until_answered(lambda entry=entry: self._try_to_append(entry))  # type: ignore[misc]

    async def _try_to_append(self, entry: EntryFields) -> None:
        """Append an entry behind the last one known here. If the log has more entries, read them first."""
        keys, client = self._etcd.keys, self._etcd.client
        number = self._log.entry + 1
        key, value = keys.entry(number), json.dumps(entry, separators=(",", ":")).encode()
        before = [present(keys.entry(number - 1))] if number > 1 else []
        lost, known = keys.lost_of(self._etcd.me.id), has(keys.format, FORMAT)
        compare = [absent(key), *before, *self._lease.is_held, self._etcd.is_ours, known, absent(lost, end_of(lost))]
        failure = [
            get(keys.id),
            get(keys.format),
            get(key, end_of(keys.log), PART),
            *self._lease.reads,
            self._live.read,
        ]
        other, guard = "", await self._check_removal()
        if guard is None:
            return
        compare += guard
        if (down := self._log.home_taken_for_dead) is not None:
            other = await self._live.key_of(down)
            compare.append(absent(other))
        try:
            done, read = await client.transaction(compare, [put(key, value), self._live.read], failure)
        except EtcdError:
            await self.catch_up()  # the entry may be in the log in spite of the error
            raise
        if done:
            self._etcd.stall.changed(client.url)
            self._live.found(read[-1])
            self._take([Value(key, value, 0)])
            return
        if guard and not read[2].values and [one.value.decode() for one in read[0].values] == [self._etcd.me.id]:
            log.info("the state of a removed node has changed, and is checked again")
            if await self._check_removal() != guard:
                return
        await self._not_appended(other, *read)

    async def _check_removal(self) -> list[dict[str, Any]] | None:
        """Return comparisons for the entry to be appended: none, unless the entry removes a node. Withdraw an entry
        that would lose confirmed messages, and return None.

        Raises:
            EtcdError: etcd cannot be asked, or has a configuration of a home that this release does not know.
        """
        forgets = self._log.forgets
        if forgets is None or (removal := self._removal_of(forgets)) is None:
            return []
        _, read = await self._etcd.client.transaction([], removal.reads)
        try:
            reason = removal.refusal(read)
        except ConfigurationError as error:
            raise EtcdError(str(error)) from None
        if not reason:
            return removal.same(read)
        self._log.withdraw(reason)
        return None

    async def _not_appended(self, other: str, *read: Any) -> None:
        """Find out why an entry could not be appended.

        Args:
            other: key of the home declared dead by the entry; "" without one.
            read: results for the cluster's identity, the log's format, the entries from this one's number on, the state
                of the lease, and the keys of live processes.

        Raises:
            SetBack: etcd lacks entries.
        """
        me = self._etcd.me
        identity, known, entries, *lease, live = read
        alive = {one.key: one.value for one in live.values}
        if [one.value.decode() for one in identity.values] != [me.id]:
            raise SetBack(set_back(me.cluster, 0))
        if (problem := other_format(next(iter(known.values), None))) is not None:  # raised by a later release
            self._etcd.on_failure(problem)
            await asyncio.Event().wait()
        self._live.found(live)
        self._take(entries.values)
        if entries.values:
            return
        if other in alive:
            log.warning("home %d lives again: the home's queues stay", self._log.home_taken_for_dead)
            self._log.withdraw(f"home {self._log.home_taken_for_dead} lives")
        elif not self._lease.is_held_by(lease):
            await self._lease.announce()  # etcd has declared this process dead, or was set back to an earlier start
        else:
            raise SetBack(f"the log of cluster '{me.cluster}' has changed")

    # --- compacting ---

    async def compact(self, is_due_here: Callable[[], bool], settings: EtcdSettings) -> None:
        """Compact the log from time to time; runs forever.

        Args:
            is_due_here: tells whether this home should compact the log.
        """
        while True:
            await asyncio.sleep(self._timing.compact_interval)
            if self._is_long() and is_due_here() and self._etcd.stall.reason is None:
                try:
                    await self._compact_once(settings)
                except EtcdError as error:
                    log.warning("%s", error)

    async def _compact_once(self, settings: EtcdSettings) -> None:
        head = await self._etcd.client.get(self._etcd.keys.snapshot_head)
        self._compacted = 0 if head is None else SnapshotHead.read(head.value).entry
        if self._is_long():
            await compact_aside(settings)

    def _is_long(self) -> bool:
        return self._log.applied - self._compacted >= self._timing.compact_every
