"""Time limits of clients and intervals of checks, as one value: tests pass shorter ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerTiming:
    """Time limits of clients and intervals of checks, in seconds.

    Attributes:
        handshake: time that a client has from connecting to ``connection.open`` (RabbitMQ's ``handshake_timeout``).
        close: time for a client to answer ``connection.close``, or to close the socket after its own
            ``connection.close`` was answered (RabbitMQ's ``CLOSING_TIMEOUT``).
        refusal: time from a login to its refusal. Every refusal takes this time or a multiple of it, for any reason:
            the verification for an unknown user would otherwise be faster.
        certificates: interval between two checks of certificate files.
        failed_maintenance: time until the retry of a queue's failed maintenance.
        http_head: maximum time from the opening of an HTTP connection, or from the first octet of a later request, to
            the end of the head.
        http_part: maximum time between two parts of a body.
        http_grace: time of a body or answer before the client's rate counts.
        http_stalled: maximum time in which a client reads nothing of a waiting answer.
        http_look: interval between two checks of a request in progress.
        page_session: lifetime of a login at the page.
        held_warning: time during which a warning stays after the last detection.
        outage: time without a publish after which publishing counts as stopped.
        before_outage: observed time before a stop. Publishing must have lasted at least half of this time, without a
            pause longer than a sixth of it.
        past_sample: interval between two samples of the past of an object.
    """

    handshake: float = 10.0
    close: float = 30.0
    refusal: float = 0.5
    certificates: float = 5.0
    failed_maintenance: float = 10.0
    http_head: float = 20.0
    http_part: float = 30.0
    http_grace: float = 15.0
    http_stalled: float = 30.0
    http_look: float = 1.0
    page_session: float = 8 * 3600.0
    held_warning: float = 10.0
    outage: float = 15.0
    before_outage: float = 60.0
    past_sample: float = 60.0


BROKER_TIMING = BrokerTiming()
"""The timing of every broker outside of tests."""
