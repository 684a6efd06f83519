"""Intervals and bounds of a process with peers, as one value: tests pass shorter ones."""

from dataclasses import dataclass

LEASE = 10
"""Seconds without a sign of life after which etcd considers a process dead."""


@dataclass(frozen=True)
class Timing:
    """Intervals and bounds of a process with peers; times in seconds.

    Attributes:
        alive_interval: time between two signs of life.
        linked_look: maximum time between two polls of the log while all homes are linked.
        unlinked_look: the same while a link is down.
        grace: time without a sign of life before queues that do not outlive their home's process are deleted.
        patience: time without a change in etcd before changes of definitions are refused.
        compact_every: number of entries behind the snapshot before a new snapshot is made.
        compact_interval: time between two checks of the log's length.
        hello_timeout: maximum time for TLS, and for the peer's hello and proof on a link.
        link_interval: maximum time between two sent records; a sign of life if nothing else is due.
        link_silence: time without a sign of life before a link is broken: its process may be stopped.
        log_patience: time without the first worker before clients are told that definitions cannot be changed.
        count_patience: maximum wait for a peer's counts of consumers, before a shard is chosen without them.
        unknown_queue: time that messages of a link wait for an unknown queue before an error is logged.
        refusal_pause: delay before a refused slice of messages is sent again; the increment per consecutive refusal.
        outbox_octets: maximum octets kept for a home.
        settle_grace: time for consumers to settle deliveries of a moving queue, before unsettled messages move too and
            are delivered again.
        stalled_move: time without progress before a move is stalled: the reason is logged, repeatedly at the same
            interval, and shown in warnings and the health check.
        asked_again: time before a home is asked again that does not answer about a move, or cannot take a copy.
        piece_octets: maximum octets of a piece of a copied stream.
        copies_kept: time for keeping copied files of a stream without a request for the rest.
        copies_look: time between two looks for copied files that nobody requests any more.
        session_pause: time before a dropped session of replicas begins again.
        near_octets: maximum octets left to copy before a stream moves.
    """

    alive_interval: float = LEASE / 4
    linked_look: float = 2.5
    unlinked_look: float = 0.25
    grace: float = 60.0
    patience: float = 10.0
    compact_every: int = 5000
    compact_interval: float = 10.0
    hello_timeout: float = 5.0
    link_interval: float = 1.0
    link_silence: float = 5.0
    log_patience: float = 10.0
    count_patience: float = 1.0
    unknown_queue: float = 10.0
    refusal_pause: float = 0.1
    outbox_octets: int = 64 << 20
    settle_grace: float = 5.0
    stalled_move: float = 30.0
    asked_again: float = 2.0
    piece_octets: int = 256 << 10
    copies_kept: float = 600.0
    copies_look: float = 60.0
    session_pause: float = 1.0
    near_octets: int = 16 << 20


TIMING = Timing()
"""The timing of every node outside of tests."""
