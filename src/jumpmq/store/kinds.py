"""Records in the store other than messages: the table of all kinds, with the grammar of key and value.

A record is ``[kind, key, value]`` in a ``DEFINITIONS`` block of the log (:mod:`jumpmq.store.records`); its deletion is
``[kind, key]``. The last entry of a kind and key counts. Kind and key are text, the value is JSON. All packages take
the names of kinds from this module. A new kind needs a row, and a golden record in ``tests/store/test_kinds.py``.

Keys, with their parts::

    NONE        nothing: the kind has one record
    WORD        a constant
    TEXT        one text: a name
    NUMBER      a decimal number
    NUMBERS     decimal numbers, with a blank between them
    NUMBER_TEXT a decimal number, a blank, and a text
    LIST        JSON, a list of texts and numbers without blanks
    SPACED_LIST as LIST, with a blank behind each comma

QUEUE is the number of a queue or stream, SEQ the number of a message in its queue, HOME the number of a home. TIME is
in seconds since the epoch. ``field?`` may be missing.
"""

import json
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

KeyPart = str | int


class Key(Enum):
    """Grammars of keys."""

    NONE = "nothing"
    WORD = "constant"
    TEXT = "text"
    NUMBER = "number"
    NUMBERS = "numbers"
    NUMBER_TEXT = "number and text"
    LIST = "JSON list"
    SPACED_LIST = "JSON list with blanks"

    def parts(self, key: str) -> tuple[KeyPart, ...]:
        """Split a key into its parts.

        Raises:
            ValueError: the key does not match this grammar.
        """
        return _SPLIT[self](key)

    def key(self, *parts: KeyPart) -> str:
        """Join parts to a key."""
        if self in (Key.LIST, Key.SPACED_LIST):
            return json.dumps(parts, separators=("," if self is Key.LIST else ", ", ":"))
        return " ".join(map(str, parts))


def _nothing(key: str) -> tuple[KeyPart, ...]:
    if key:
        raise ValueError(f"the kind has one record, without key: {key!r}")
    return ()


def _number_text(key: str) -> tuple[KeyPart, ...]:
    number, _, text = key.partition(" ")
    return int(number), text


_SPLIT: dict[Key, Callable[[str], tuple[KeyPart, ...]]] = {
    Key.NONE: _nothing,
    Key.WORD: lambda key: (key,),
    Key.TEXT: lambda key: (key,),
    Key.NUMBER: lambda key: (int(key),),
    Key.NUMBERS: lambda key: tuple(map(int, key.split(" "))),
    Key.NUMBER_TEXT: _number_text,
    Key.LIST: lambda key: tuple(json.loads(key)),
    Key.SPACED_LIST: lambda key: tuple(json.loads(key)),
}


class Kind(NamedTuple):
    """A kind of records.

    Attributes:
        name: name of the kind, the first item of each record.
        key: grammar of the key.
        parts: names of the key's parts; for a constant the key itself.
        value: grammar of the value.
        restored_by: qualified name of the reader at a start; ``-`` for a value of use to operators alone.
        in_snapshot: True if a snapshot of the definitions, for a new home, contains the record.
    """

    name: str
    key: Key
    parts: str
    value: str
    restored_by: str
    in_snapshot: bool

    def decode(self, key: str, text: str) -> tuple[tuple[KeyPart, ...], Any]:
        """Return the parts of a record's key, and its value from JSON text.

        Raises:
            ValueError: key or text do not belong to a record of this kind.
        """
        return self.key.parts(key), json.loads(text)


TABLE: list[Kind] = []
"""All kinds, a row each. Only ``run`` has several rows, one per key."""


def _kind(name: str, key: Key, parts: str, value: str, restored_by: str) -> str:
    TABLE.append(Kind(name, key, parts, value, restored_by, in_snapshot=False))
    return name


def _shared(name: str, key: Key, parts: str, value: str) -> str:
    """Add a kind of definitions that all homes have."""
    TABLE.append(Kind(name, key, parts, value, "jumpmq.topology.restoring.restore", in_snapshot=True))
    return name


def _run(key: str, value: str, restored_by: str) -> tuple[str, str]:
    return _kind("run", Key.WORD, key, value, restored_by), key


# --- definitions; jumpmq.topology.json_form (from_json, to_json) has the fields that are not listed here ---

VHOST = _shared("vhost", Key.TEXT, "NAME", "{name, default_queue_type, description, tags, home?}")
VHOST_LIMITS = _shared("vhost_limits", Key.TEXT, "VHOST", "{name, limits: {limit: number}}")
USER = _shared("user", Key.TEXT, "NAME", "{name, password_hash, tags}")
USER_LIMITS = _shared("user_limits", Key.TEXT, "USER", "{name, limits: {limit: number}}")
PERMISSIONS = _shared("permissions", Key.LIST, "USER VHOST", "{user, vhost, configure, write, read}")
TOPIC_PERMISSIONS = _shared(
    "topic_permissions", Key.LIST, "USER VHOST EXCHANGE", "{user, vhost, exchange, write, read}"
)
GLOBAL_PARAMETER = _shared("global_parameter", Key.TEXT, "NAME", "{name, value: any JSON}")
POLICY = _shared("policy", Key.LIST, "VHOST NAME", "fields of jumpmq.topology.policies.Policy")
OPERATOR_POLICY = _shared("operator_policy", Key.LIST, "VHOST NAME", "as of policy")
EXCHANGE = _shared("exchange", Key.LIST, "VHOST NAME", "fields of jumpmq.topology.definitions.ExchangeDefinition")
QUEUE = _shared("queue", Key.LIST, "VHOST NAME", "fields of jumpmq.topology.definitions.QueueDefinition")
BINDING = _shared(
    "binding", Key.LIST, "VHOST SOURCE KIND DESTINATION KEY ARGUMENTS", "{vhost, fields of Binding, user?}"
)
RING = _shared("ring", Key.LIST, "VHOST EXCHANGE", "{vhost, exchange, state: jumpmq.hashing.HashRing.state}")
HOME = _shared("home", Key.NUMBER, "HOME", "{home, node, leaves?: true, forgotten?: true}")
COUNTER = _shared("counter", Key.TEXT, '"next-queue-id", of homes but 1 with " HOME"', "next number of a queue")
TRACING = _shared("tracing", Key.TEXT, "VHOST", "{name}; there while tracing is on")
APPLIED = _shared("applied", Key.NONE, "", "number of the last change of definitions")

# --- the log of definitions ---

ENTRY = _kind("entry", Key.NUMBER, "NUMBER", "{do, number, change, ...}", "jumpmq.nodes.log.first.First")
LET_GO = _kind("let_go", Key.NONE, "", "number of the last entry that all homes have", "jumpmq.nodes.log.first.First")

# --- ring changes awaited by queues ---

_FENCES = "jumpmq.topology.fences.Fences.restore"
FENCE_RING = _kind(
    "fence_ring",
    Key.LIST,
    "VHOST EXCHANGE NUMBER",
    "{vhost, exchange, number, since: TIME, placement, is_coming?, lost?: {name: [QUEUE, name]}, got?: [name]}",
    _FENCES,
)
FENCE_MARK = _kind(
    "fence_mark",
    Key.LIST,
    "VHOST EXCHANGE NUMBER NAME",
    "{vhost, exchange, number, name, source, queue: QUEUE, seq: SEQ, lifted: [QUEUE]}",
    _FENCES,
)
FENCE_QUEUE = _kind(
    "fence_queue",
    Key.LIST,
    "VHOST EXCHANGE NUMBER QUEUE",
    "{vhost, exchange, number, queue: QUEUE, name, first_seq: SEQ}",
    _FENCES,
)

# --- queues ---

_QUEUES = "jumpmq.queues.records.records_of_queues"
SEQUENCE = _kind("sequence", Key.NUMBER, "QUEUE", "lowest SEQ not yet reserved", _QUEUES)
DELIVERED = _kind("delivered", Key.NUMBER, "QUEUE", "highest SEQ delivered, written at a clean stop", _QUEUES)
ATTEMPTS = _kind("attempts", Key.NUMBERS, "QUEUE SEQ", "deliveries of the message", _QUEUES)
PRIORITIES = _kind("priorities", Key.NUMBER, "QUEUE", "true: there were messages of a higher priority", _QUEUES)
RETRY = _kind("retry", Key.NUMBERS, "QUEUE SEQ", "[due: TIME, returns] of a message that rested", _QUEUES)
ENTERED = _kind("entered", Key.NUMBER, "QUEUE", "offset up to which buffered messages are in the stream", _QUEUES)
GROUP_OFFSET = _kind("group-offset", Key.NUMBER_TEXT, "QUEUE GROUP", "{offset, delivered, skipped}", _QUEUES)
OWNER_EPOCH = _kind(
    "owner_epoch", Key.WORD, "home", "ceiling of owner epochs, in microseconds", "jumpmq.queues.records.owner_epoch"
)

# --- files of streams ---

STREAM = _kind(
    "stream",
    Key.NUMBER,
    "QUEUE",
    "[first, end, segments, octets, salt, is_exact?]",
    "jumpmq.store.stream_bounds.Bounds.decode",
)
STREAM_FLOOR = _kind(
    "stream floor", Key.NUMBER, "QUEUE", "lowest offset left by retention", "jumpmq.store.recovery.Recovery"
)
STREAM_SOURCE = _kind(
    "stream source",
    Key.NUMBER,
    "QUEUE, or its number at the home that still serves it",
    "[number, handed: text or null, end]",
    "jumpmq.store.stream_import.StreamOrigin.decode",
)
STREAM_MOVE = _kind(
    "stream move", Key.NUMBER, "QUEUE", "HOME that has the files", "jumpmq.nodes.moves.stream_moves.StreamMoves"
)

# --- messages between homes ---

OUTBOX = _kind(
    "outbox",
    Key.WORD,
    '"source" or "first"',
    "hexadecimal UUID; number that the run began with",
    "jumpmq.nodes.messages.outbox.Outbox",
)
TAKEN = _kind(
    "taken",
    Key.NUMBERS,
    "HOME QUEUE",
    "[source, number] of the last message",
    "jumpmq.nodes.messages.receiver.OutboxReceiver",
)

# --- batches over HTTP ---

RESERVATION = _kind(
    "reservation",
    Key.NUMBER_TEXT,
    "QUEUE GROUP",
    "{queue: QUEUE, group, acknowledged, latest, lapsed: number, reservations: {number: runs}}",
    "jumpmq.queues.reservations.Reservations.restore",
)
READER_GROUP = _kind(
    "reader-group",
    Key.SPACED_LIST,
    "VHOST GROUP",
    "{vhost, name, query, session, lease, lost}",
    "jumpmq.broker.bulk.reader_group.ReaderGroup.restore",
)
WRITER = _kind(
    "writer",
    Key.SPACED_LIST,
    "VHOST NAME PART OWNER?",
    "[TIME, batch, rows, digest, attempt?]",
    "jumpmq.broker.bulk.writers.Writers.restore",
)
START = _kind("start", Key.TEXT, "BOOT", "last commit before the start", "jumpmq.broker.bulk.starts.Starts")

# --- the run of a process ---

STARTED_AT = _run("started_at", "TIME of the last start", "-")
IDENTITY = _run("identity", "of the broker, as text", "jumpmq.broker.opening.kept_identity")
HOMES = _run("homes", "number of homes, once more than one", "jumpmq.broker.peers")
LEFT = _run("left", "true: the home is removed from the broker", "jumpmq.nodes.joining.joining")
MEMBERSHIP = _run("cluster", "{cluster, id, node, member, home, worker?}", "jumpmq.nodes.joining.joining.Membership")
RETURNING = _run(
    "returning", "[[vhost, exchange]] of returning shards; true before they are listed", "jumpmq.nodes.moves.returning"
)
RECOVERY = _run("recovery", "identity of a cluster's recovery, as text", "jumpmq.nodes.joining.rejoining")
EPOCH = _run("epoch", "number of the lease", "jumpmq.nodes.membership.lease")

# --- earlier versions ---

LOSS = _kind("loss", Key.TEXT, "SENTENCE", "TIME of detection", "jumpmq.store.inspection")
