"""Replication of a home's log, without I/O: events come in, actions go out. ``jumpmq.nodes.replicas`` has the I/O. A
home without copies uses the configuration alone, for its epochs.

The leader of a home ships the home's log to followers, as in PacificA (Lin, Yang, Zhang, Zhou, MSR-TR-2008-25), with
etcd as the configuration manager: etcd has one value per home, which changes by compare-and-swap only. Kafka
contributes truncation by epoch instead of by a watermark (KIP-101, KIP-279), leadership of replicas that left a set
below its minimum (KIP-966), and the identity of a disk in the set (KIP-903). There is no vote: every replica of the set
has all complete commits.

=================  =================================================================================================
configuration      a home's value in etcd, and its swaps
lineage            the history of a log; the common prefix of two logs
copies             the contents and the state of one disk
leader             completion of commits; changes of the set
follower           promises, truncation, stored positions
candidate          from a won epoch to the epoch's first segment
replica            a copy and its current role; receives all events
pace               everything that depends on time: leases, claims, removals, joins
joining            transfer of a copy as files, to a member whose log ends before the leader's begins
needs              segments that other replicas may need, and the lag of followers
catching_up        rate of shipping to members outside the set
wanted             an operator's wish for a home, and the next step towards it
rebuilding         a home's configuration, derived from the copies after etcd has lost it
frames, actions    messages between replicas, and requests to the surroundings
=================  =================================================================================================

A replica is in one of these states. A replica is *deposed* when etcd's value has a higher epoch or another leader, and
when a LEAD or ASK with a higher epoch arrives. A deposed replica becomes *following*, from every state. The state
*stopped* lasts until the end of the process.

===========  ==============================================  ===========  ===========================================
state        event                                           then         actions
===========  ==============================================  ===========  ===========================================
following    LEAD of the promised epoch or a higher one      following    Note, Sync, Cut as needed; MATCHED
following    ASK of the promised epoch or a higher one       following    Note, Sync as needed; ANSWER
following    SEGMENT, DATA, synced                           following    Open, Append; STORED
following    COMPLETE                                        following    Apply
following    failover, RESIGN, or own previous epoch         following    Swap (a claim)
following    etcd names this replica, in a new epoch         noting       Note
noting       noted                                           gathering    ASK to all that may have a longer log
gathering    all answered, or timeout                        fetching     FETCH from the longest log extending its own
fetching     FETCHED                                         syncing      Sync as needed
fetching     the source sends nothing                        fetching     Drop; FETCH from the next longest log
gathering    no log is longer                                syncing      Sync as needed
syncing      synced                                          beginning    Begin
beginning    begun                                           leading      LEAD to all; Serve once the set has the log
leading      MATCHED, STORED, synced                         leading      Apply, COMPLETE; Swap (the set grows)
leading      members overdue                                 leading      Swap (the set shrinks)
leading      the store is closed                             following    RESIGN to the set; Close
any          deposed                                         following    Close, if a store may write
any          a sync fails or hangs; etcd was set back        stopped      Close, Stop
===========  ==============================================  ===========  ===========================================

Rules, cited by number in the docstrings of the modules:

R1   A position is complete when three conditions hold: the leader has synced it; each awaited replica has reported in
     this epoch that it has stored it; the set has at least `min` replicas. The leader awaits every replica of every set
     that etcd may have.
R2   To shrink the set, the leader first swaps, and then stops waiting. To grow it, the leader first waits, and then
     swaps. Replicas that leave a set which falls below `min` stay eligible. The swap that restores `min` replicas
     empties `eligible`.
R3   A swap without an answer may still take effect (*land*), until a newer version is known.
R4   Only a replica of the set or an eligible replica takes over, and always in a new epoch. Each life of a leading
     process is an epoch: a process does not begin an epoch that its predecessor has promised.
R5   The winner takes the longest log that extends its own log, and begins a segment with its epoch. It serves once its
     set has the whole log up to this segment. From the promise on, its beats keep other replicas from claiming.
R6   A replica syncs its promise of an epoch before any answer in that epoch. It refuses lower epochs.
R7   A follower truncates its log to the common prefix with the leader's log, found by segment, epoch and salt; never
     below a position known to be complete. A leader may ship commits before it has written them. When it asks a replica
     to follow, it therefore counts no octets behind the end of its own log as stored there, and the replica truncates
     these octets. A disk whose log ends before its own mark, or before a position that it had reported as stored, takes
     a new identity.
R8   The leader delivers while all replicas that may take over have answered a recent beat. A new leader delivers after
     a longer time has passed since its own last answer to another leader (see ``pace``).
R9   If a sync fails or hangs after octets were shipped, the process ends. Octets behind the mark are written again
     before a copy is opened. The store of an ended epoch is closed before its replica answers anything.
R10  Only complete commits are applied: confirmed to clients, indexed, and counted for the removal of segments.
R11  A follower removes only segments that its own index knows to be consumed, or that a whole manifest replaces.

Invariants, which the simulation in ``tests/replication/`` asserts after each step:

I1   Each replica that may take over, by etcd's current value, has stored all complete commits.
I2   An epoch has one life of one process.
I3   Octets of a segment (number, epoch, salt) are the same in all copies, up to the shorter end.
I4   All applied commits, at all replicas, are prefixes of one history.
I5   A commit becomes complete only when at least `min` disks have it.
I6   A replica answers in an epoch after it has synced the promise, and never after an answer in a higher epoch.
I7   No copy is used, or truncated, below its own mark.
I8   Removed segments were complete, by the replica's own index.
I9   At most one replica delivers.
I10  Each position that is noted, served, installed or counted as complete is complete.
I11  A position reported as stored is on the disk after a loss of power.
I12  Version and epoch never decrease; each change of the leader increases the epoch.
I13  A copy transferred as files replaces the old copy only when all files are whole.
I14  etcd's value is consistent.
I15  Unconfirmed commits at the end of a log may be lost; those of the longest log reported to a candidate survive.
I16  Members change one at a time.
I17  A deposed process writes nothing more; a process with a hanging disk ends.
"""
