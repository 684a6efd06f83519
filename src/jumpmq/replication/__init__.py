"""Replication of a home's log, without I/O: events go in, actions come out. The I/O is in ``jumpmq.nodes.replicas``; a
home without copies uses only the configuration, for its epochs.

The log of a home is shipped by its leader to followers, as PacificA does it (Lin, Yang, Zhang, Zhou, MSR-TR-2008-25),
with etcd as the configuration manager: one value a home, changed by compare-and-swap only. From Kafka come truncation
by epoch instead of by a watermark (KIP-101, KIP-279), replicas that left a set below its minimum and may lead
(KIP-966), and the identity of a disk in the set (KIP-903). There is no vote: any of the set has all that is complete.

=================  =================================================================================================
configuration      etcd's value of a home, and its swaps
lineage            which history a log is; what two logs have in common
copies             what one disk has, and what is known of it
leader             what is complete; changes of the set
follower           promises, truncation, what is stored
candidate          from a won epoch to its first segment
replica            a copy and the part that it plays; all events come in here
pace               everything that depends on time: leases, claims, removals, joins
joining            a copy as files, for a member whose log ends before the leader's begins
needs              segments that other replicas may need, and how far followers are behind
catching_up        how fast members outside of the set get what they lack
wanted             the wish of an operator for a home, and the next step towards it
rebuilding         the configuration of a home that etcd has lost
frames, actions    what replicas say to each other, and ask of their surroundings
=================  =================================================================================================

A replica is in one of these states. `Deposed` is a value of a higher epoch or of another leader, or a LEAD or ASK of a
higher epoch; it leads to *following* from everywhere. *stopped* is left by a new process only.

===========  ==============================================  ===========  ===========================================
state        event                                           then         actions
===========  ==============================================  ===========  ===========================================
following    LEAD of the promised epoch or a higher one      following    Note, Sync, Cut as needed; MATCHED
following    ASK likewise                                    following    Note, Sync as needed; ANSWER
following    SEGMENT, DATA, synced                           following    Open, Append; STORED
following    COMPLETE                                        following    Reveal
following    failover, RESIGN, or own last epoch             following    Swap (a claim)
following    etcd names it for an epoch not promised before  noting       Note
noting       noted                                           gathering    ASK to all that may have more
gathering    all answered, or time is up                     fetching     FETCH from the longest that extends its own
fetching     FETCHED                                         beginning    Sync, then Begin
fetching     the source sends nothing                        fetching     Drop; FETCH from the longest of the others
gathering    no log is longer                                beginning    Sync, then Begin
beginning    begun                                           leading      LEAD to all; Serve when the set has the log
leading      MATCHED, STORED, synced                         leading      Reveal, COMPLETE; Swap (the set grows)
leading      members overdue                                 leading      Swap (the set shrinks)
leading      the worker ends, RESIGN                         following    Close
any          deposed                                         following    Close, where a worker may write
any          a sync fails or hangs; etcd was set back        stopped      Close, Stop
===========  ==============================================  ===========  ===========================================

Rules, which the docstrings of the modules cite:

R1   A position is complete when the leader has synced it, all that it waits for have answered that they stored it in
     this epoch, and the set has `min` replicas. It waits for a superset of the set that etcd may have.
R2   The set shrinks by a swap first and waiting less after; it grows by waiting first and a swap after. Those that
     leave a set that falls below `min` stay eligible; the swap that brings `min` replicas back empties `eligible`.
R3   A swap without an answer may land until a newer version is known. A replicator that goes on in an epoch begins
     with a swap of its own, and takes nothing for complete before that has an answer.
R4   One of set and eligible takes over, nobody else, in a new epoch. Each life of a leading process is an epoch: one
     that was promised before is not begun.
R5   The winner takes the longest log that extends its own, begins a segment with its epoch, and serves when its set
     has all up to there. Beats keep the others quiet from the promise on.
R6   A promise is synced before anything is answered in its epoch. Lower epochs are refused.
R7   A follower truncates to what it has in common with the leader, by segment, epoch and salt; never below what it
     knows to be complete. Commits may be shipped ahead of the leader's own write: a leader that asks to follow counts
     no more as stored there than its own log has, as the rest is cut. A disk that has less than its own mark, or than
     it had stored, takes another identity.
R8   The leader delivers while all that may take over have answered a recent beat. A new leader delivers when the last
     answer that it gave to another is older than that.
R9   A sync that fails or hangs after octets were shipped ends the process. Octets behind the mark are written again
     before a copy is opened. A worker whose epoch is over has ended before anything is answered.
R10  Only what is complete is revealed: to clients, the index, removal.
R11  A follower removes what its own index knows to be consumed, or what a whole manifest replaces.

Invariants, which the simulation in ``tests/replication/`` asserts after each step:

I1   Each replica that may take over, by the value that etcd has now, has stored all that is complete.
I2   An epoch has one life of one process.
I3   Octets of a segment (number, epoch, salt) are the same in all copies, up to the shorter end.
I4   What is revealed anywhere is a prefix of one history.
I5   What becomes complete is on `min` disks.
I6   An answer in an epoch comes after its promise is synced, and never after an answer in a higher one.
I7   No copy goes on, or is cut, below its own mark.
I8   Segments that are removed were complete by the own index.
I9   At most one replica delivers.
I10  What is noted, served, installed or taken for complete is complete.
I11  What was said to be stored is on the disk after a loss of power.
I12  Version and epoch only grow; the epoch with each change of the leader.
I13  A copy made of files replaces the old one when all of it is whole.
I14  etcd's value does not contradict itself.
I15  The tail that was not confirmed survives or does not; the longest one that was answered does.
I16  One member changes at a time.
I17  What is deposed writes nothing more; a process whose disk hangs ends.
"""
