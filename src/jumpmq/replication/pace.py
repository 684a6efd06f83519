"""Everything in the protocol that depends on time (R8, R9): leases, claims, removals, joins, repetitions.

Times are seconds of a clock that counts suspended time (``CLOCK_BOOTTIME``), one clock per machine. Clocks of different
machines are never compared. Completion of commits does not depend on time. Which replica delivers does:

- The leader delivers while each replica that may take over has answered a beat that was *sent* less than `lease` ago.
- A replica claims when `failover` has passed since it *received* the last beat. As the new leader, it delivers when
  `failover` has passed since it last *answered* a beat. The two times differ: a claim may land long after it was sent.
  By then the replica may have answered further beats, or run in another process.

A beat is received after it is sent. The old leader has therefore stopped delivering before the new one starts, as long
as no clock runs faster than another by more than the factor `failover / lease`.
"""

import math
from dataclasses import dataclass

from jumpmq.replication.actions import Action, Send
from jumpmq.replication.candidate import FETCHING, Candidate
from jumpmq.replication.configuration import Configuration, ReplicaId, node_of
from jumpmq.replication.frames import Beat, Beaten, Refused
from jumpmq.replication.leader import Leader
from jumpmq.replication.replica import Replica

MICROSECONDS = 1_000_000

EARLY = 0.9
"""Share of the interval of beats after which a beat is due: after a late timer, the next timer may seem early."""


@dataclass(frozen=True)
class Times:
    """Bounds, in seconds.

    Attributes:
        beat: interval between two beats of a leader.
        lease: time for which an answered beat lets the leader deliver; two thirds of `failover`.
        failover: time without a beat after which a replica claims.
        rank: additional time for each place in the set behind the first.
        reset: time after which a replica with a closed connection is removed from the set.
        silent: time after which a replica without answers to beats is removed.
        unstored: time after which a replica that answers but does not store is removed, or a source that sends no
            octets is given up.
        steady: time for which a replica has to keep up before it joins the set.
        most_steady: maximum of `steady`, which doubles with each removal.
        forgotten: further time of keeping up, after which earlier removals no longer count.
        gather: time for which a candidate waits for longer logs.
        gather_all: the same time if the last leader takes over again, as after a restart of the whole cluster.
        retry: time after which a swap without an answer is sent again.
        hung: time that a sync may take.
        note: interval between two notes of the complete mark.
        note_retry: time after which a promise that could not be written is written again.
        files_silence: time without a frame after which a joining member repeats its request for the leader's files.
    """

    beat: float = 0.25
    lease: float = 2.0
    failover: float = 3.0
    rank: float = 0.3
    reset: float = 0.5
    silent: float = 1.5
    unstored: float = 3.0
    steady: float = 5.0
    most_steady: float = 300.0
    forgotten: float = 600.0
    gather: float = 1.0
    gather_all: float = 10.0
    retry: float = 1.0
    hung: float = 10.0
    note: float = 1.0
    note_retry: float = 1.0
    files_silence: float = 2.0


class Arrears:
    """Lag of a replica in time, as seen by its leader.

    Attributes:
        closed: time at which its connection ended; None while connected.
        answered: time of its last answer.
        target: the next position that the replica has to store, and the time when this position was the log's end.
        steady: time since which the replica has lagged by less than a second.
        hold: time for which the replica has to keep up before joining.
    """

    def __init__(self, now: float, hold: float) -> None:
        self.closed: float | None = now
        self.answered = now
        self.target = (0, now)
        self.steady = now
        self.hold = hold

    def look(self, now: float, end: int, stored: int, following: bool) -> None:
        """Record the replica's stored position, and the end of the leader's log."""
        if stored >= self.target[0] and following:
            self.target = (end, now)
        if not following or now - self.target[1] > 1:
            self.steady = now

    def overdue(self, now: float, times: Times) -> bool:
        """True if the replica has to leave the set."""
        if self.closed is not None and now - self.closed >= times.reset:
            return True
        return now - self.answered >= times.silent or now - self.target[1] >= times.unstored


class Pace:
    """Timing of a replica: :meth:`tick` returns due actions.

    Attributes:
        replica: the replica.
        times: the bounds.
        heard: time of the last accepted beat; initially the start of the process.
        yielded: time of the last answered beat; initially the start of the process, because the previous process may
            have answered a beat shortly before.
        delivers_from: time before which a new leader does not deliver.
        answers: per replica, the sending time of the newest beat answered by the replica.
        arrears: lag of each replica.
        since: start times of the current role, claim or swap, for timeouts and repetitions.
        syncing: start time of the current sync; None without one.
    """

    def __init__(self, replica: Replica, now: float, times: Times) -> None:
        self.replica, self.times = replica, times
        self.heard = self.yielded = now
        self.delivers_from = now
        self.answers: dict[ReplicaId, float] = {}
        self.arrears: dict[ReplicaId, Arrears] = {}
        self.since: tuple[object, float] = (None, now)
        self.beaten = now - times.beat
        self.noted = now
        self.syncing: float | None = None
        self._epoch = 0
        self._last_leader = ""

    # --- what comes in ---

    def on_connected(self, peer: ReplicaId, now: float) -> None:
        """Record a new connection to a peer, not yet answered."""
        arrears = self._arrears(peer, now)
        arrears.closed, arrears.answered = None, now

    def on_disconnected(self, peer: ReplicaId, now: float) -> None:
        """Record a closed connection."""
        self._arrears(peer, now).closed = now

    def on_beat(self, peer: ReplicaId, beat: Beat, now: float) -> list[Action]:
        """Process a beat of a leader or candidate, answered if the beat's epoch is the promised epoch."""
        copy = self.replica.copy
        if beat.epoch < copy.promised:
            return [Send(peer, Refused(copy.promised))]
        self.heard = now
        if beat.epoch > copy.noted or self.replica.stopped:
            return []
        self.yielded = now
        return [Send(peer, Beaten(beat.epoch, beat.clock))]

    def on_beaten(self, peer: ReplicaId, beaten: Beaten, now: float) -> None:
        """Process a replica's answer to a beat of this leader, counted from the time of sending the beat."""
        leader = self.replica.leader
        if leader is not None and beaten.epoch == leader.epoch:
            self.answers[peer] = max(self.answers.get(peer, 0.0), beaten.clock / MICROSECONDS)
            self._arrears(peer, now).answered = now

    def on_value(self, before: Configuration | None, value: Configuration, now: float) -> None:
        """Process a newer configuration. A configuration with this replica as leader sets the start of permitted
        deliveries.
        """
        if before is not None and before.epoch == value.epoch:
            return
        self.heard = now  # the leader gets the whole time for its first beat
        if value.leader != self.replica.copy.me:
            return
        former = before.leader if before is not None and before.epoch == value.epoch - 1 else ""
        # The former leader stopped before it handed over or resigned. If this replica was the former leader, no other
        # replica delivers. Otherwise the former leader's lease may last until its last answered beat is too old.
        quiet = former == value.leader or former in value.set or self.replica.resigned == value.epoch - 1
        self.delivers_from = now if quiet else self.yielded + self.times.failover
        self._last_leader = former

    def on_sync(self, now: float | None) -> None:
        """Record the start time of a sync; None for its end."""
        self.syncing = now

    # --- what is asked ---

    def hangs(self, now: float) -> bool:
        """True if a sync runs for so long that the disk counts as failed."""
        return self.syncing is not None and now - self.syncing >= self.times.hung

    def may_deliver(self, now: float) -> bool:
        """True if the replica may hand messages to consumers."""
        return now < self.delivers_until(now)

    def delivers_until(self, now: float) -> float:
        """Return the time until which the replica may hand messages to consumers, by the answers received so far; 0 if
        the replica may not do so now.
        """
        leader = self.replica.leader
        if leader is None or not leader.serving or leader.handing or now < self.delivers_from:
            return 0.0
        answers = (self.answers.get(one, -math.inf) for one in leader.electors())
        return min(answers, default=math.inf) + self.times.lease

    def tick(self, now: float) -> list[Action]:
        """Return the actions due at a time. Call this at least once per `beat`."""
        replica = self.replica
        if replica.stopped:
            return []
        if self.hangs(now):
            return replica.stop("a sync of the log takes longer than ten seconds")
        actions: list[Action] = []
        if now - self.noted >= self.times.note:
            self.noted = now
            actions += replica.note()
        if replica.leader is not None:
            return actions + self._lead(replica.leader, now)
        if replica.candidate is not None:
            # otherwise other replicas claim while longer logs are fetched
            actions += self._beat(replica.candidate.epoch, now)
            if self._lasts(replica.candidate.progress, now) >= self._patience(replica.candidate):
                self.since = (None, now)
                actions += replica.gathered()
            return actions
        return actions + self._follow(now)

    def _patience(self, candidate: Candidate) -> float:
        """Return the seconds without progress after which a candidate stops waiting for longer logs."""
        if candidate.phase == FETCHING:
            return self.times.unstored
        again = self._last_leader == self.replica.copy.me
        return self.times.gather_all if again else self.times.gather

    # --- following ---

    def _follow(self, now: float) -> list[Action]:
        replica, known = self.replica, self.replica.known
        if known is None or not (replica.electable or known.leader == replica.copy.me):
            return []
        if replica.claim is not None:
            if self._lasts(replica.claim, now) < self.times.retry:
                return []
            self.since = (replica.claim, now)
            return replica.retry()
        own = known.leader == replica.copy.me  # this process is a new life, and needs an epoch of its own
        others = [one for one in known.electable if one != known.leader]
        rank = others.index(replica.copy.me) if replica.copy.me in others else 0
        due = self.heard + self.times.failover + rank * self.times.rank
        if own or replica.resigned == known.epoch or now >= due:
            return replica.take_over()
        return []

    # --- leading ---

    def _lead(self, leader: Leader, now: float) -> list[Action]:
        if leader.epoch != self._epoch:  # answers to beats of an earlier epoch do not count in this one
            self._epoch, self.answers = leader.epoch, {}
            self.arrears = {peer: self._started(peer, now) for peer in {*self.arrears, *leader.electors()}}
        actions = self._beat(leader.epoch, now)
        if leader.open and self._lasts(leader.open[-1], now) >= self.times.retry:
            self.since = (leader.open[-1], now)
            actions += leader.retry()
        return actions + self._keep_set(leader, now)

    def _beat(self, epoch: int, now: float) -> list[Action]:
        """Return beats for all connected replicas, if due."""
        if now - self.beaten < self.times.beat * EARLY:
            return []
        self.beaten = now
        return [Send(peer, Beat(epoch, round(now * MICROSECONDS))) for peer in sorted(self.replica.peers)]

    def _keep_set(self, leader: Leader, now: float) -> list[Action]:
        """Remove overdue replicas, all at once, and bring in replicas that keep up."""
        waited = leader.waits()
        for peer in waited | leader.following:
            arrears = self._arrears(peer, now)
            arrears.look(now, leader.copy.end, leader.stored.get(peer, 0), peer in leader.following)
            if now - arrears.steady >= arrears.hold + self.times.forgotten:
                arrears.hold = self.times.steady
        overdue = [peer for peer in sorted(waited) if self._arrears(peer, now).overdue(now, self.times)]
        for peer in overdue:
            arrears = self.arrears[peer]
            if peer in leader.known.set and arrears.steady <= now - self.times.steady:
                arrears.hold = min(2 * arrears.hold, self.times.most_steady)
            arrears.steady = now
        actions = self.replica.remove(overdue) if overdue else []
        for peer in sorted(leader.following - waited):
            arrears = self._arrears(peer, now)
            # while the set is below min, nothing completes without the replica
            hold = 0.0 if leader.known.short else arrears.hold
            if now - arrears.steady >= hold and node_of(peer) in leader.known.members:
                actions += self.replica.join(peer)
        return actions

    def _started(self, peer: ReplicaId, now: float) -> Arrears:
        """Return the arrears of a replica at the start of an epoch."""
        arrears = Arrears(now, self.times.steady)
        if peer in self.replica.peers:
            arrears.closed = None
        return arrears

    def _arrears(self, peer: ReplicaId, now: float) -> Arrears:
        if peer not in self.arrears:
            self.arrears[peer] = self._started(peer, now)
        return self.arrears[peer]

    def _lasts(self, subject: object, now: float) -> float:
        """Return the seconds for which the given role, claim or swap has been the current one."""
        if self.since[0] != subject:
            self.since = (subject, now)
        return now - self.since[1]
