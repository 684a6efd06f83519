"""Messages about the log between a node's workers: proposals, entries, acknowledgements, outcomes.

A message is a JSON object. The key ``do`` has its kind:

=============  =================================================================================================
``join``       a worker to the first: its identity, the last entry applied and the last one on its disk
``unwelcome``  the first, to a worker whose data belongs elsewhere: ``why``
``records``    the first, to a worker without definitions: some of them
``welcome``    the first: the broker's identity, and the entry to apply before proposing
``propose``    a worker: ``request`` with ``change`` and ``asker``, or with the ``number`` of an entry already received
``entry``      the first: an entry (:class:`Entry`)
``applied``    a worker: an entry is applied, and the digest of the definitions then
``has``        a worker: an entry is on its disk
``accepted``   the first: the change of a ``request`` is everywhere
``refused``    the first: the change of a ``request`` is refused, with the error
``differs``    the first: the worker's digest after an entry is another one
=============  =================================================================================================
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

from jumpmq.amqp import errors
from jumpmq.amqp.errors import AMQPError, InternalError
from jumpmq.store.changes import json_text
from jumpmq.topology import Change
from jumpmq.topology.proposals import ChangePrincipal, Pending

LogMessage = dict[str, Any]
"""Message between homes about the log, in JSON form."""

AfterSync = Callable[[Callable[[], None]], None]
"""Registers a callback for the time when all changes made so far are on disk."""


class Entry(LogMessage):
    """Entry of the log, as exchanged between homes."""

    @cached_property
    def text(self) -> str:
        """JSON text of the entry, encoded once for all homes and the disk."""
        return json_text(self)


class Port(Protocol):
    """Path to another home. Messages arrive in order, or the link breaks."""

    def send_log(self, message: LogMessage) -> None: ...


class Ordered(Pending):
    """A proposed change that will become an entry.

    Attributes:
        home: home of the proposer.
        request: number of the request at that home.
    """

    __slots__ = ("home", "request")

    def __init__(self, change: Change, principal: ChangePrincipal, home: int, request: str) -> None:
        super().__init__(change, principal)
        self.home = home
        self.request = request


def error_to_json(error: Exception) -> LogMessage:
    """Return the JSON form of the reason for a change's refusal."""
    if isinstance(error, AMQPError):
        return {"error": type(error).__name__, "text": error.text}
    return {"error": InternalError.__name__, "text": "unexpected error; see the broker's log"}


def error_from_json(message: LogMessage) -> AMQPError:
    """Return the exception for the JSON form of :func:`error_to_json`."""
    kind: type[AMQPError] = getattr(errors, message["error"])
    return kind(message["text"])
