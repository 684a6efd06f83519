"""A simulated world for replicas of one home: disks, a network, an etcd, stores; it asserts I1 to I17.

The replicas are the real classes; the world performs their actions and feeds the answers back in any order possible
on real machines. Commits are single octets, so that logs are easily read. The docstring of `jumpmq.replication` lists
the invariants; the assertions here carry their names. The expected past is kept in `World.done` (the longest complete
log), `World.content` (octets of each segment, as its leader wrote them) and the like.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from jumpmq.replication import actions as a
from jumpmq.replication import frames as f
from jumpmq.replication import joining as j
from jumpmq.replication.configuration import Configuration, node_of
from jumpmq.replication.copies import Copy
from jumpmq.replication.lineage import (
    Lineage,
    Stretch,
    before,
    common_end,
    cut_to,
    end_of,
    extends,
    position_at,
    segment_at,
)
from jumpmq.replication.replica import Replica

OFFSETS = (1 << 32) - 1


class Parts(NamedTuple):
    """Classes under test; a mutant replaces some."""

    replica: type[Replica] = Replica
    joining: type[j.Joining] = j.Joining
    configuration: type[Configuration] = Configuration
    pace: Any = None


REAL = Parts()


class Wrong(AssertionError):
    """An invariant does not hold."""


def require(holds: object, invariant: str, text: str = "") -> None:
    if not holds:
        raise Wrong(f"{invariant}: {text}")


class File(NamedTuple):
    """A segment on a disk: octets in the page cache, and the number of octets on the medium (-1: no file)."""

    segment: int
    epoch: int
    salt: int
    octets: bytes
    synced: int

    @property
    def identity(self) -> tuple[int, int, int]:
        return self[:3]


class WriteAhead(NamedTuple):
    """Octets of a commit that were shipped before they are written."""

    position: int
    octets: bytes


class Disk:
    """Content of one medium: files of the log, and the file `replica`.

    Attributes:
        name: identity.
        files: segments.
        noted: promised epoch and mark.
        fails: number of syncs to fail next; a later sync does not write the octets of a failed sync.
        phantom: after a failed sync, the page cache shows octets that will never be written.
        begins: first kept segment.
        lies: syncs succeed and write nothing.
        lied: the last sync wrote nothing.
        excused: the medium lost synced octets; the replica may lack complete commits, until its renewal.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: tuple[File, ...] = ()
        self.noted = (0, 0)
        self.fails = 0
        self.phantom = False
        self.lies = False
        self.lied = False
        self.excused = False
        self.begins = 1
        self.beside: dict[str, bytes] = {}

    def lineage(self, synced: bool = False) -> Lineage:
        if not synced:
            return tuple(Stretch(*file[:3], len(file.octets)) for file in self.files)
        whole = []
        for file in self.files:
            if file.synced < 0:
                break
            whole.append(Stretch(*file[:3], file.synced))
            if file.synced < len(file.octets):
                break
        return tuple(whole)

    @property
    def false(self) -> bool:
        """Return True if the disk has lost, or may lose, octets reported as synced."""
        return self.excused or self.lied

    def sync(self) -> None:
        self.lied = self.lies
        if not self.phantom and not self.lies:
            self.files = tuple(
                file if file.synced == len(file.octets) else file._replace(synced=len(file.octets))
                for file in self.files
            )

    def append(self, position: int, octets: bytes) -> None:
        *before, last = self.files
        assert (last.segment, len(last.octets)) == (segment_at(position), position & OFFSETS)
        self.files = (*before, last._replace(octets=last.octets + octets))

    def cut(self, position: int) -> None:
        files = []
        for file in self.files:
            if file.segment < segment_at(position):
                files.append(file)
            elif file.segment == segment_at(position):
                at = position & OFFSETS
                files.append(file._replace(octets=file.octets[:at], synced=min(file.synced, at)))
        self.files = tuple(files)

    def lose_power(self, keep: int) -> None:
        """Discard unsynced octets, except for a random part."""
        files = []
        for file in self.files:
            if file.synced < 0 and keep <= 0:
                break
            kept = min(len(file.octets), max(file.synced, 0) + keep)
            files.append(file._replace(octets=file.octets[:kept], synced=kept))
            if kept < len(file.octets):
                break
            keep -= kept - max(file.synced, 0)
        self.files = tuple(files)


class Node:
    """A machine.

    Attributes:
        disk: its medium.
        life: number of the process; answers to an earlier process are lost.
        replica: the process's state; None while it is down.
        writing: epoch in which the store is open; 0 without.
        ops: open requests to the disk, in order: Note, Cut, WriteAhead, Sync, Begin.
        sent: end of the log's shipped part, by follower.
        index: complete position, as reported to the machine's index.
        joining: the member's join by files; None without a join.
    """

    def __init__(self, name: str, disk: Disk) -> None:
        self.name = name
        self.disk = disk
        self.life = 0
        self.replica: Replica | None = None
        self.writing = 0
        self.ops: tuple[Any, ...] = ()
        self.sent: dict[str, int] = {}
        self.joining: j.Joining | None = None
        self.index = 0
        self.pace: Any = None

    @property
    def is_ahead(self) -> bool:
        """True if a commit was shipped ahead, and is not stored yet."""
        writes = any(isinstance(op, WriteAhead) for op in self.ops)
        return writes or (self.replica is not None and end_of(self.disk.lineage()) > self.replica.copy.end)


class Asked(NamedTuple):
    """A request to etcd, in transit."""

    node: str
    life: int
    what: Any


class Answered(NamedTuple):
    """An answer in transit."""

    node: str
    life: int
    what: Any
    value: Configuration


class World:
    """All machines, and the connections between them.

    Attributes:
        links: frames in transit, by sender and receiver; a connection has both directions.
        blocked: directions without arrivals.
        shut: machines without a connection to etcd.
        requests, answers: messages to and from etcd, in transit.
        value: the configuration in etcd.
        done: the longest complete log so far.
        content: octets of each segment, as written by the segment's leader.
        epochs: machine and life at the beginning of each epoch.
        answered: highest answered epoch, by identity of the disk.
        window: maximum number of written, incomplete commits.
        eager: True if disks perform requests at once, except a leader's syncs.
    """

    def __init__(self, names: str, parts: Parts = REAL, *, copies: int | None = None, eager: bool = False) -> None:
        self.parts, self.eager = parts, eager
        self.nodes = {name: Node(name, Disk(f"{name}.0")) for name in names}
        self.links: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.blocked: frozenset[tuple[str, str]] = frozenset()
        self.shut: frozenset[str] = frozenset()
        self.notices: tuple[tuple[str, str], ...] = ()
        self.requests: tuple[Asked, ...] = ()
        self.answers: tuple[Answered, ...] = ()
        self.done: Lineage = ()
        self.content: dict[tuple[int, int, int], bytes] = {}
        self.epochs: dict[int, tuple[str, int]] = {}
        self.answered: dict[str, int] = {}
        self.window = 8
        self.salts = self.commits = self.disks = self.lost = 0
        self.trouble: frozenset[str] = frozenset()
        self.now = 0.0
        self.seen: dict[str, int] = {}
        self._begin(names, copies or len(names))

    def _begin(self, names: str, copies: int) -> None:
        """All replicas have the same empty log, and are in the set; the first has led since epoch 1."""
        least = (copies + 1) // 2
        ids = tuple(self.nodes[name].disk.name for name in names)
        self.value = self.parts.configuration(1, "log", names[0], copies, least, tuple(names), 1, ids[0], ids)
        for node in self.nodes.values():
            node.disk.files = (File(1, 1, 0, b"", 0),)
            node.disk.noted = (1, 0)
        self.content[1, 1, 0] = b""
        self.epochs[1] = ("", 0)
        for name in names:
            self.start(name)

    # --- processes ---

    def start(self, name: str) -> None:
        """Start a process: open and sync its copy, and read etcd's value."""
        node = self.nodes[name]
        node.life += 1
        disk = node.disk
        disk.phantom = False
        disk.files = tuple(file._replace(synced=max(file.synced, 0)) for file in disk.files)
        disk.sync()
        opened = Copy(disk.name, *disk.noted, disk.lineage(), before(disk.begins))
        if opened.lost:
            require(disk.excused, "I11", f"{disk.name} lost what it had noted")
            self._renew(node)
            return self.start(name)
        require(opened.end >= disk.noted[1], "I7", f"{disk.name} goes on without what it noted to be complete")
        node.index = disk.noted[1]
        node.replica = self.parts.replica(opened)
        node.ops, node.sent, node.joining, node.writing = (), {}, None, 0
        self._paced(node)
        self.learn(name)
        return None

    def _paced(self, node: Node) -> None:
        if self.parts.pace is not None:
            node.pace = self.parts.pace(self, node)

    def _renew(self, node: Node) -> None:
        """Give the disk a new identity; its content may be reused, but counts as missing."""
        self.disks += 1
        node.disk.name = f"{node.name}.{self.disks}"
        node.disk.noted = (node.disk.noted[0], 0)
        node.disk.excused = False

    def kill(self, name: str) -> None:
        """The process ends; the page cache stays."""
        node = self.nodes[name]
        if node.replica is None:
            return
        node.life += 1
        node.replica, node.ops, node.writing, node.joining = None, (), 0, None
        for peer in self.nodes:
            self._break(name, peer)

    def lose_power(self, name: str, keep: int = 0) -> None:
        """Stop the machine; unsynced octets are gone."""
        self.kill(name)
        disk = self.nodes[name].disk
        if any(file.synced < len(file.octets) for file in disk.files) and disk.lied:
            disk.excused = True
        disk.lied = False
        disk.lose_power(keep)

    def close_store(self, name: str) -> None:
        """The store is closed, and the replica goes on."""
        node = self.nodes[name]
        if node.replica is not None and node.writing:
            self.act(node, node.replica.end("the store was closed"))

    def resign(self, name: str) -> None:
        """The leader closes its store, and lets another replica claim at once."""
        node = self.nodes[name]
        if node.replica is not None and node.replica.leader is not None:
            self.act(node, [*node.replica.leader.resign(), *node.replica.end("this node resigned")])

    def restart(self, name: str) -> None:
        """The process ends, with shipped commits written, and the next process starts at once."""
        node = self.nodes[name]
        for op in node.ops:
            if isinstance(op, WriteAhead):
                node.disk.append(*op)
        self.kill(name)
        self.start(name)

    # --- actions of replicas ---

    def act(self, node: Node, actions: Iterable[Any]) -> None:
        """Perform actions in order."""
        life = node.life
        for action in actions:
            if node.life != life:
                return
            getattr(self, f"_do_{type(action).__name__.lower()}")(node, action)
        self._pump(node)
        if self.eager:
            self._hurry(node)

    def _hurry(self, node: Node) -> None:
        while node.ops and (node.replica is None or node.replica.leader is None or type(node.ops[0]) is not a.Sync):
            self.complete(node.name)

    def _do_send(self, node: Node, send: a.Send) -> None:
        frame = send.frame
        disk = node.disk
        if type(frame) in (f.Matched, f.Stored, f.Beaten, f.Answer):
            require(frame.epoch <= disk.noted[0], "I6", f"{disk.name} answers in {frame.epoch} before it is noted")
            require(frame.epoch >= self.answered.get(disk.name, 0), "I6", f"{disk.name} answers in {frame.epoch} again")
            self.answered = {**self.answered, disk.name: frame.epoch}
        if isinstance(frame, (f.Matched, f.Stored)) and not disk.false:
            there = max(end_of(disk.lineage(synced=True)), before(disk.begins))
            require(frame.position <= there, "I11", f"{disk.name} said what is not on disk")
        peer = node_of(send.to)
        if (node.name, peer) in self.links and self.nodes[peer].disk.name == send.to:
            self.links = {**self.links, (node.name, peer): (*self.links[node.name, peer], frame)}

    def _do_swap(self, node: Node, swap: a.Swap) -> None:
        require(swap.new.v == swap.old.v + 1, "I12", "a swap skips a version")
        asked = Asked(node.name, node.life, swap)
        if asked not in self.requests:
            self.requests = (*self.requests, asked)

    def _do_read(self, node: Node, read: a.Read) -> None:
        asked = Asked(node.name, node.life, read)
        if asked not in self.requests:
            self.requests = (*self.requests, asked)

    def _do_note(self, node: Node, note: a.Note) -> None:
        node.ops = (*node.ops, note)

    def _do_cut(self, node: Node, cut: a.Cut) -> None:
        require(cut.position >= node.disk.noted[1], "I7", f"{node.disk.name} cuts below its mark")
        node.ops = (*node.ops, cut)

    def _do_sync(self, node: Node, sync: a.Sync) -> None:
        if sync not in node.ops:
            node.ops = (*node.ops, sync)

    def _do_open(self, node: Node, opened: a.Open) -> None:
        node.disk.files = (*node.disk.files, File(*opened.stretch[:3], b"", -1))
        self._do_sync(node, a.Sync())

    def _do_append(self, node: Node, append: a.Append) -> None:
        node.disk.append(append.position, append.octets)
        self._same(node.disk.files[-1])
        self._do_sync(node, a.Sync())

    def _do_begin(self, node: Node, begin: a.Begin) -> None:
        require(self.epochs.get(begin.epoch) is None, "I2", f"epoch {begin.epoch} has two lives")
        require(begin.epoch == node.disk.noted[0], "I6", f"epoch {begin.epoch} begins before it is noted")
        require(self.value.epoch >= begin.epoch, "I2", f"epoch {begin.epoch} begins before etcd has it")
        self.epochs = {**self.epochs, begin.epoch: (node.name, node.life)}
        assert node.replica is not None and node.replica.candidate is not None
        for lineage in node.replica.candidate.answers.values():
            longer = extends(lineage, node.disk.lineage()) and end_of(lineage) > end_of(node.disk.lineage())
            require(not longer, "I15", f"{node.name} leaves a longer log behind: {lineage}")
        if node.disk.excused and not extends(node.disk.lineage(), self.done):
            self.lost += 1  # a disk that lied leads: confirmed octets are gone; no protocol can prevent the loss
            self.done = cut_to(self.done, common_end(self.done, node.disk.lineage()))
        node.ops = (*node.ops, begin)

    def _do_ship(self, node: Node, ship: a.Ship) -> None:
        node.sent = {**node.sent, ship.to: ship.position}

    def _do_fill(self, node: Node, fill: a.Fill) -> None:
        end = self._ship(node, fill.to, fill.position, fill.epoch)
        self._do_send(node, a.Send(fill.to, f.Fetched(fill.epoch, end)))

    def _do_apply(self, node: Node, apply: a.Apply) -> None:
        assert node.replica is not None
        node.index = apply.position
        lineage = cut_to(node.replica.copy.lineage, apply.position)
        leads = node.replica.leader is not None
        if self.lost:
            return  # a disk that lied has led, and followers know a complete position behind the leader's log
        if node.disk.excused and not extends(lineage, self.done) and not extends(self.done, lineage):
            return
        if not leads:
            require(extends(self.done, lineage), "I4", f"{node.name} applies what no leader did")
            return
        if extends(self.done, lineage):
            return
        require(extends(lineage, self.done), "I4", f"{node.name} applies {lineage}, and {self.done} was complete")
        self.done = (*(one for one in self.done if one.segment < lineage[0].segment), *lineage)
        holders = sum(one.disk.false or self._has(one.disk) for one in self.nodes.values())
        assert node.replica.leader is not None
        require(holders >= node.replica.leader.known.min, "I5", f"{holders} copies of what is complete")
        self.check_survival()

    def _do_serve(self, node: Node, serve: a.Serve) -> None:
        assert node.replica is not None
        leader = node.replica.leader
        assert leader is not None
        # A leader unaware of its deposition may serve commits that were complete at its start: it delivers
        # nothing.
        if not node.disk.excused and not self.lost and serve.epoch == self.value.epoch:
            require(extends(node.disk.lineage(), self.done), "I1", f"{node.name} serves without what is complete")
            require(end_of(self.done) >= leader.start, "I10", f"{node.name} serves what is not complete")
        node.writing = serve.epoch

    def _do_close(self, node: Node, close: a.Close) -> None:
        node.writing, node.sent = 0, {}
        node.ops = (*node.ops, close)

    def _do_drop(self, node: Node, drop: a.Drop) -> None:
        self._break(node.name, node_of(drop.peer))

    def _do_renew(self, node: Node, renew: a.Renew) -> None:
        require(node.disk.excused, "I11", f"{node.disk.name} lost what it had stored")
        self.kill(node.name)
        self._renew(node)

    def _do_stop(self, node: Node, stop: a.Stop) -> None:
        self.kill(node.name)

    def _do_alarm(self, node: Node, alarm: a.Alarm) -> None:
        self.trouble |= {alarm.reason.partition(" ")[2]}

    # --- files for a member ---

    def _do_put(self, node: Node, put: j.Put) -> None:
        before = node.disk.beside.get(put.name, b"")
        assert len(before) == put.offset
        node.disk.beside = {**node.disk.beside, put.name: before + put.octets}

    def _do_clear(self, node: Node, clear: j.Clear) -> None:
        node.disk.beside = {name: octets for name, octets in node.disk.beside.items() if name not in clear.names}

    def _do_install(self, node: Node, install: j.Install) -> None:
        files = []
        for stretch in install.lineage:
            octets = node.disk.beside.get(str(stretch.segment), b"")
            true = self.content.get(stretch.identity, b"")[: stretch.end]
            require(octets == true, "I13", f"{node.name} installs a copy that is not whole")
            files.append(File(*stretch.identity, octets, len(octets)))
        require(end_of(install.lineage) <= end_of(self.done), "I10", "files that are not complete are installed")
        node.disk.files = tuple(files)
        node.disk.beside = {}
        node.disk.begins = segment_at(install.kept) + 1 if install.kept else 1
        node.disk.noted = (node.disk.noted[0], end_of(install.lineage) or install.kept)
        assert node.joining is not None
        source = node_of(node.joining.source)
        node.joining.on_installed()
        node.index = node.disk.noted[1]
        node.joining = None
        self._break(node.name, source)  # the next connection asks it to follow again

    def _files_of(self, node: Node) -> tuple[Lineage, tuple[f.File, ...]]:
        """Return the complete, sealed segments."""
        assert node.replica is not None
        copy_ = node.replica.copy
        last = segment_at(copy_.complete)
        files = [file for file in node.disk.files if file.segment < last]
        lineage = tuple(Stretch(*file.identity, len(file.octets)) for file in files)
        return lineage, tuple(f.File(str(one.segment), len(one.octets), crc32(one.octets)) for one in files)

    def _on_want(self, node: Node, peer: str, want: f.Want) -> None:
        assert node.replica is not None
        if node.replica.leader is None or node.replica.leader.epoch != want.epoch:
            return
        if not want.name:
            self._do_send(node, a.Send(peer, f.Manifest(want.epoch, node.replica.copy.kept, *self._files_of(node))))
            return
        octets = next((one.octets for one in node.disk.files if str(one.segment) == want.name), b"")
        piece = octets[want.offset : want.offset + 2]
        self._do_send(node, a.Send(peer, f.Piece(want.epoch, want.name, want.offset, crc32(piece), piece)))

    def _on_unfit(self, node: Node, peer: str, unfit: f.Unfit) -> None:
        """A leader hears that a member needs files; here the member's own caller tells the member at once."""
        member = self.nodes[node_of(peer)]
        replica = member.replica
        if not unfit.needs_files or replica is None or member.disk.name != peer:
            return
        if replica.copy.noted == unfit.epoch and replica.leader is None and replica.candidate is None:
            # A join of another epoch continues with its existing files; so does a join with a new connection.
            have = {name: (len(octets), crc32(octets)) for name, octets in member.disk.beside.items()}
            member.joining = self.parts.joining(replica.copy, node.disk.name, unfit.epoch, have)
            self.act(member, member.joining.start())

    # --- shipping ---

    def _pump(self, node: Node) -> None:
        """Ship written octets to each follower."""
        replica = node.replica
        if replica is None or replica.leader is None:
            return
        end = replica.copy.end
        for peer in sorted(replica.leader.following):
            if (at := node.sent.get(peer, end)) < end:
                node.sent = {**node.sent, peer: self._ship(node, peer, at, replica.leader.epoch)}

    def _ship(self, node: Node, peer: str, at: int, epoch: int) -> int:
        for file in node.disk.files:
            if file.segment < segment_at(at):
                continue
            if position_at(file.segment, 0) > at:
                at = position_at(file.segment, 0)
                self._do_send(node, a.Send(peer, f.Segment(epoch, Stretch(*file.identity, 0))))
            if octets := file.octets[at & OFFSETS :]:
                self._do_send(node, a.Send(peer, f.Data(epoch, at, octets)))
                at += len(octets)
        return at

    def write(self, name: str, *, ahead: bool = False) -> bool:
        """Write a commit; its octets are shipped before they are synced.

        Args:
            ahead: the octets are shipped before they are written, to followers with all earlier octets.
        """
        node = self.nodes[name]
        replica = node.replica
        if replica is None or not node.writing:
            return False
        if node.is_ahead:
            return False
        leader = replica.leader
        if segment_at(replica.copy.complete) == segment_at(replica.copy.end) and self.window <= (
            replica.copy.end - replica.copy.complete
        ):
            return False  # a store waits when so many of its commits are incomplete
        require(leader is not None and leader.epoch == node.writing, "I17", f"{name} writes and does not lead")
        self.commits += 1
        end = replica.copy.end
        octets, last = bytes([self.commits % 256]), node.disk.files[-1]
        self.content = {**self.content, last.identity: last.octets + octets}
        if ahead and not any(isinstance(op, a.Begin) for op in node.ops):  # a store that rolls writes nothing
            assert leader is not None
            node.ops = (*node.ops, WriteAhead(end, octets), a.Sync())
            for peer in sorted(leader.following):
                if node.sent.get(peer, 0) == end and end & OFFSETS:
                    self._do_send(node, a.Send(peer, f.Data(leader.epoch, end, octets)))
                    node.sent = {**node.sent, peer: end + 1}
            return True
        node.disk.append(end, octets)
        self._do_sync(node, a.Sync())
        self.act(node, replica.on_written(end + 1))
        return True

    def roll(self, name: str) -> None:
        """The store begins the next segment."""
        node = self.nodes[name]
        if node.replica is None or not node.writing or node.ops or node.replica.copy.stored < node.replica.copy.end:
            return
        node.ops = (*node.ops, a.Begin(node.disk.files[-1].segment + 1, node.writing))

    def trim(self, name: str, most: int = 1 << 30) -> None:
        """Remove consumed segments, at most so many."""
        node = self.nodes[name]
        if node.replica is None or node.ops or node.replica.candidate is not None or node.joining is not None:
            return
        first = min(node.replica.copy.removable, node.disk.begins + most)
        require(first <= segment_at(node.index), "I8", f"{name} removes segments that its index does not know")
        if not node.disk.files or first <= node.disk.files[0].segment:
            return
        node.disk.files = tuple(file for file in node.disk.files if file.segment >= first)
        node.disk.begins = first
        self.act(node, node.replica.on_removed(first))

    # --- disks ---

    def complete(self, name: str, most: int = 1) -> bool:
        """Perform the disk's oldest request."""
        node = self.nodes[name]
        if not node.ops or node.replica is None:
            return False
        op, *rest = node.ops
        node.ops = tuple(rest)
        replica, disk = node.replica, node.disk
        match op:
            case a.Note():
                disk.noted = (op.epoch, op.mark)
                self.act(node, replica.on_noted(op.epoch, op.mark))
            case a.Cut():
                disk.cut(op.position)
                disk.sync()
                self.act(node, replica.on_cut(op.position))
            case a.Sync() if disk.fails:
                disk.fails, disk.phantom = disk.fails - 1, True
                self.act(node, self.sync_failed(node))
            case WriteAhead():
                disk.append(*op)
            case a.Sync():
                disk.sync()
                end = end_of(disk.lineage())
                if replica.leader is not None and replica.copy.end < end:  # octets that were shipped ahead
                    self.act(node, replica.on_written(end))
                self.act(node, replica.on_synced(end))
            case a.Begin():
                self._begun(node, op)
            case a.Close():
                self.act(node, replica.on_closed(disk.lineage()))
        return True

    def sync_failed(self, node: Node) -> list[a.Action]:
        """Shipped octets may never reach this disk: the process ends (R9)."""
        assert node.replica is not None
        return node.replica.stop("fdatasync failed")

    def _begun(self, node: Node, begin: a.Begin) -> None:
        assert node.replica is not None
        self.salts += 1
        stretch = Stretch(begin.segment, begin.epoch, self.salts, 0)
        node.disk.files = (*node.disk.files, File(*stretch[:3], b"", 0))
        node.disk.sync()
        require(not self.content.get(stretch.identity), "I3", "a segment is begun twice")
        self.content = {**self.content, stretch.identity: b""}
        self.act(node, node.replica.on_begun(stretch))

    def _same(self, file: File) -> None:
        true = self.content.get(file.identity)
        require(true is not None and true.startswith(file.octets), "I3", f"{file} differs from what was written")

    # --- the network ---

    def connect(self, one: str, other: str) -> bool:
        """Connect two machines; both ends first notice the end of an earlier connection."""
        if one == other or (one, other) in self.links or {(one, other), (other, one)} & self.blocked:
            return False
        ends = [self.nodes[one], self.nodes[other]]
        if any(node.replica is None for node in ends):
            return False
        for here, there in ((one, other), (other, one)):
            self.notice(here, there)
        self.links = {**self.links, (one, other): (), (other, one): ()}
        for node, peer in (ends, ends[::-1]):
            if node.replica is not None and (node.name, peer.name) in self.links:
                if node.pace is not None:
                    node.pace.on_connected(peer.disk.name)
                self.act(node, node.replica.on_connected(peer.disk.name))
        return True

    def _break(self, one: str, other: str) -> None:
        """End a connection; frames in transit are lost, and each end notices in its own time."""
        if (one, other) not in self.links:
            return
        self.links = {pair: frames for pair, frames in self.links.items() if set(pair) != {one, other}}
        self.notices = (*self.notices, (one, other), (other, one))
        if self.eager:
            self.notice(one, other)
            self.notice(other, one)

    def notice(self, name: str, peer: str) -> None:
        """Report the end of a connection to one end."""
        if (name, peer) not in self.notices:
            return
        self.notices = tuple(pair for pair in self.notices if pair != (name, peer))
        node = self.nodes[name]
        if node.replica is None:
            return
        for one in sorted(node.replica.peers):
            if node_of(one) == peer:
                if node.pace is not None:
                    node.pace.on_disconnected(one)
                self.act(node, node.replica.on_disconnected(one))

    def deliver(self, pair: tuple[str, str]) -> bool:
        """The next frame of a connection arrives."""
        frames = self.links.get(pair)
        if not frames or pair in self.blocked:
            return False
        self.links = {**self.links, pair: frames[1:]}
        sender, node = self.nodes[pair[0]], self.nodes[pair[1]]
        peer, frame = sender.disk.name, frames[0]
        assert node.replica is not None
        match frame:
            case f.Beat() | f.Beaten():
                node.pace.on_frame(peer, frame)
            case f.Unfit():
                self._on_unfit(node, peer, frame)
            case f.Want():
                self._on_want(node, peer, frame)
            case f.Manifest() | f.Piece():
                if node.joining is not None and node.joining.source == peer:
                    on_piece, on_manifest = node.joining.on_piece, node.joining.on_manifest
                    self.act(node, on_piece(frame) if isinstance(frame, f.Piece) else on_manifest(frame))
            case _:
                self.act(node, node.replica.on_frame(peer, frame))
        return True

    # --- etcd ---

    def land(self, index: int, *, lose_answer: bool = False) -> bool:
        """A request takes effect."""
        if index >= len(self.requests):
            return False
        asked = self.requests[index]
        self.requests = self.requests[:index] + self.requests[index + 1 :]
        if type(asked.what) is a.Swap and asked.what.old == self.value:
            self._check_swap(asked.what)
            self.value = asked.what.new
            self.check_survival()
        if not lose_answer:
            self.answers = (*self.answers, Answered(*asked, self.value))
        return True

    def _check_swap(self, swap: a.Swap) -> None:
        old, new = swap.old, swap.new
        require(not new.problem(), "I14", new.problem())
        require(new.epoch in (old.epoch, old.epoch + 1) and (new.epoch > old.epoch or new.leader == old.leader), "I12")
        require(len({*old.members} ^ {*new.members}) <= 1, "I16", "two members change at once")

    def answer(self, index: int) -> bool:
        """An answer of etcd arrives."""
        if index >= len(self.answers):
            return False
        answered = self.answers[index]
        self.answers = self.answers[:index] + self.answers[index + 1 :]
        node = self.nodes[answered.node]
        if node.life != answered.life or node.replica is None:
            return True
        before = node.replica.known
        if type(answered.what) is a.Read:
            actions = node.replica.on_read(answered.value, answered.what)
        else:
            actions = node.replica.on_value(answered.value)
        self._learnt(node, before)
        self.act(node, actions)
        return True

    def learn(self, name: str) -> bool:
        """The watch, or the read at the start, says the value."""
        node = self.nodes[name]
        if node.replica is None or node.replica.known == self.value:
            return False
        before = node.replica.known
        actions = node.replica.on_value(self.value)
        self._learnt(node, before)
        self.act(node, actions)
        return True

    def _learnt(self, node: Node, before: Configuration | None) -> None:
        replica = node.replica
        if node.pace is not None and replica is not None and replica.known != before:
            assert replica.known is not None
            node.pace.on_value(before, replica.known)

    # --- what must hold ---

    def _has(self, disk: Disk) -> bool:
        """Return True if a medium keeps all complete octets, whatever happens to its machine."""
        if not self.done:
            return True
        last = self.done[-1]
        return any(one.identity == last.identity and one.synced >= last.end for one in disk.files)

    def check_survival(self) -> None:
        """I1: each replica that may take over has all complete commits."""
        if self.lost:
            return
        for one in self.value.electable:
            node = self.nodes.get(node_of(one))
            if node is not None and node.disk.name == one and not node.disk.false:
                require(self._has(node.disk), "I1", f"{one} may take over, and lacks of {self.done}")

    def check(self) -> None:
        """Assert the invariants, after each step."""
        self.check_survival()
        end = end_of(self.done)
        for node in self.nodes.values():
            replica = node.replica
            if replica is None:
                continue
            if not node.disk.excused and not self.lost:
                known = replica.copy.complete <= max(end, replica.copy.kept)
                require(known, "I10", f"{node.name} takes for complete what is not")
            require(replica.copy.mark <= replica.copy.complete, "I10", f"{node.name} noted what is not complete")
            if node.writing:
                require(replica.leader is not None and replica.leader.epoch == node.writing, "I17", node.name)

    # --- copies and keys, for a search ---

    def clone(self) -> World:
        """Return an independent copy of a world."""
        new = copy.copy(self)
        new.nodes = {}
        for name, node in self.nodes.items():
            twin = new.nodes[name] = copy.copy(node)
            twin.disk = copy.copy(node.disk)
            if node.replica is not None:
                twin.replica = clone_replica(node.replica)
                if node.joining is not None:
                    twin.joining = copy.copy(node.joining)
                    twin.joining.copy = twin.replica.copy
        return new


def clone_replica(replica: Replica) -> Replica:
    """Return a copy of a replica: its parts' attributes are values, so one level is enough."""
    new = copy.copy(replica)
    new.copy = copy.copy(replica.copy)
    new.follower = copy.copy(replica.follower)
    new.follower.copy = new.copy
    if replica.candidate is not None:
        new.candidate = copy.copy(replica.candidate)
        new.candidate.copy = new.copy
    if replica.leader is not None:
        new.leader = copy.copy(replica.leader)
        new.leader.copy = new.copy
    return new
