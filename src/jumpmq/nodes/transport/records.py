"""Records of links: all kinds sent between homes, with the grammar of their payloads.

A record is four octets of length, one octet of kind, and the payload. Numbers are unsigned and big-endian; ``JSON`` is
UTF-8. :data:`TABLE` has a decoder for each kind. The decoders need only the payload; tests, and people who inspect the
octets of a link, use them. The handlers of the broker decode by the structures below. To add a kind, see the recipe in
``CONTRIBUTING.md``.

============  ========================================================================================
0 to 63       the link itself, the log of definitions, usage, and copies of homes
64 to 67      messages of a turn, and their receipts
68 to 74      remote channels: a payload begins with the channel's number, assigned by the client's home
80 to 83      choice of a shard for a consumer of a sharded exchange
96 and 97     the outbox
112 to 123    moves of queues and streams, and changes of rings
============  ========================================================================================
"""

import json
import struct
from collections.abc import Callable
from time import time
from typing import Any, NamedTuple

from jumpmq.queues import clock
from jumpmq.queues.runs import unpack
from jumpmq.replication.frames import Frame, decode

HELLO, ALIVE, LOG, PROOF, USAGE, REPLICA = 0, 1, 2, 3, 32, 40
UNIT, ANSWER, READY, REPLY = 64, 65, 66, 67
OPEN, METHOD, SETTLE, PREFETCH, CREDIT, CLOSE, FRAMES = 68, 69, 70, 71, 72, 73, 74
CHOOSE, CHOSEN, COUNT, COUNTED = 80, 81, 82, 83
FORWARD, TAKEN = 96, 97
MOVED, MOVE_ANSWER, HAND = 112, 113, 114
COPY, WANT, PIECE, COPIED, FORGET = 115, 116, 117, 118, 119
MADE, ASK_MARKS, LEFT = 120, 121, 122
OWNED = 123

# --- messages of a turn ---

UNIT_HEAD = struct.Struct("!QIII")
"""Number of the batch, property flags of all messages combined by "or", number of messages, number of queues. The
messages follow (:func:`~jumpmq.queues.runs.pack`), then a :data:`UNIT_QUEUE` for each queue.
"""

UNIT_QUEUE = struct.Struct("!QHHI?")
"""Id of the queue; octets of virtual host and name, both following; number of the queue's messages; True if the
messages are consecutive in the batch. After the names comes the index of the first message if consecutive, else the
indexes of all, as :data:`UNIT_INDEX`.
"""

UNIT_INDEX = struct.Struct("!I")

ANSWERED = struct.Struct("!QI")
"""Last complete batch; number of refused messages. A :data:`REFUSED_MESSAGE`, with batch and index, follows for each.
"""

REFUSED_MESSAGE = struct.Struct("!QI")

# --- remote channels ---

NUMBER = struct.Struct("!Q")

ASKED = struct.Struct("!QHH")
"""Number of the remote channel, prefetch of a consumer, prefetch of the channel. An AMQP method follows."""

SETTLED = struct.Struct("!QB")
"""Number of the remote channel, index of the outcome in ``remote_channel.OUTCOMES``. Delivery tags follow, packed."""

TWO = struct.Struct("!QQ")
"""Number of the remote channel and an amount: a prefetch, or octets."""

FRAME_REFUSAL = 9
"""Frame type outside AMQP, for a refused method: the reply code (:data:`CODE`), then the reply text."""

START = struct.Struct("!BHI")
"""Type, channel and octets of a frame."""

CODE = struct.Struct("!H")

# --- the outbox ---

SLICE_HEAD = struct.Struct("!IQQ16sI")
"""Number of the attempt, number of the slice in the attempt, last change of definitions applied by the sender; source
(a UUID); number of queues. The number of the last message of each queue follows (:data:`NUMBER`), then a batch.
"""

SLICE_TAKEN = struct.Struct("!IQ?")
"""Number of the attempt, number of a slice; True if this slice and all earlier ones are on disk, False if this slice
and the rest of the attempt are refused.
"""

# --- moves ---

QUESTION = struct.Struct("!QQ?")
"""Id of a queue before its move; number of the change of definitions that gave the queue a new id; True to ask also
whether the home's outbox is empty for the previous id.
"""

FILES = struct.Struct("!QQ")
"""Id of a stream before and after its move; the path of the stream's files follows."""

EPOCH = struct.Struct("!QQ")
"""Id of a queue at the receiver, whose keys arrive with the record, or 0; highest owner epoch assigned by the sender.
"""

WANTED = struct.Struct("!QQQI")
"""Id of a stream at the old home; first offset of a segment; position and octets of the piece."""

GIVEN = struct.Struct("!QQQI?")
"""Id, first offset and position as in :data:`WANTED`; CRC-32 of the following octets; True if these are the piece,
False if these are the text of an error. The text is empty if the file is gone.
"""


class RecordKind(NamedTuple):
    """A kind of record.

    Attributes:
        number: first octet of the record.
        name: of its constant.
        about: content of the payload, for readers of the table.
        decode: returns the payload as a value.
    """

    number: int
    name: str
    about: str
    decode: Callable[[memoryview], Any]


def _text(payload: memoryview) -> Any:
    return json.loads(bytes(payload))


def _nothing(payload: memoryview) -> None:
    assert not payload, "nothing follows"


def _fixed(structure: struct.Struct) -> Callable[[memoryview], Any]:
    """Return a decoder for a structure and the octets behind its fields, if any."""

    def decode(payload: memoryview) -> tuple[Any, ...]:
        rest = bytes(payload[structure.size :])
        return *structure.unpack_from(payload), *([rest] if rest else [])

    return decode


def _replica(payload: memoryview) -> tuple[int, Frame]:
    return decode(bytes(payload))


def _unit(payload: memoryview) -> tuple[Any, ...]:
    """Return number and flags of a batch, its messages' bodies, and id, virtual host, name and indexes per queue."""
    number, flags, count, queues = UNIT_HEAD.unpack_from(payload)
    messages, at = unpack(payload, UNIT_HEAD.size, count, time(), clock.now())
    found = []
    for _ in range(queues):
        queue, host, name, share, neighbours = UNIT_QUEUE.unpack_from(payload, at)
        at += UNIT_QUEUE.size
        texts = bytes(payload[at : at + host]).decode(), bytes(payload[at + host : at + host + name]).decode()
        at += host + name
        indices = struct.unpack_from("!I" if neighbours else f"!{share}I", payload, at)
        at += UNIT_INDEX.size * len(indices)
        found.append((queue, *texts, [*range(indices[0], indices[0] + share)] if neighbours else [*indices]))
    return number, flags, [message.body for message in messages], found


def _answered(payload: memoryview) -> tuple[int, list[Any]]:
    unit, count = ANSWERED.unpack_from(payload)
    places = range(ANSWERED.size, ANSWERED.size + count * REFUSED_MESSAGE.size, REFUSED_MESSAGE.size)
    return unit, [REFUSED_MESSAGE.unpack_from(payload, place) for place in places]


def _slice(payload: memoryview) -> tuple[Any, ...]:
    *head, queues = SLICE_HEAD.unpack_from(payload)
    at = SLICE_HEAD.size + queues * NUMBER.size
    last = [number for (number,) in NUMBER.iter_unpack(payload[SLICE_HEAD.size : at])]
    return *head, last, _unit(payload[at:])


TABLE = (
    RecordKind(HELLO, "HELLO", "JSON: cluster, home, boot, version, purpose, nonce, epoch of the sender", _text),
    RecordKind(ALIVE, "ALIVE", "nothing: the sender lives", _nothing),
    RecordKind(LOG, "LOG", "JSON: messages of the log of definitions, of workers in an array", _text),
    RecordKind(PROOF, "PROOF", "HMAC-SHA-256: the sender knows the secret", bytes),
    RecordKind(USAGE, "USAGE", "JSON: what limited users and virtual hosts have open at the sender", _text),
    RecordKind(REPLICA, "REPLICA", "a frame between replicas of a home (jumpmq.replication.frames)", _replica),
    RecordKind(UNIT, "UNIT", "messages for queues", _unit),
    RecordKind(ANSWER, "ANSWER", "units that are complete, and messages refused", _answered),
    RecordKind(READY, "READY", "nothing: the sender's queues are restored", _nothing),
    RecordKind(REPLY, "REPLY", "a direct reply: a unit of one message without queues", _unit),
    RecordKind(OPEN, "OPEN", "JSON: a remote channel is opened, with its client", _text),
    RecordKind(METHOD, "METHOD", "an AMQP method, to be answered", _fixed(ASKED)),
    RecordKind(SETTLE, "SETTLE", "outcome of deliveries", _fixed(SETTLED)),
    RecordKind(PREFETCH, "PREFETCH", "prefetch of the whole channel", _fixed(TWO)),
    RecordKind(CREDIT, "CREDIT", "octets of frames that have gone on to the client", _fixed(TWO)),
    RecordKind(CLOSE, "CLOSE", "a remote channel is closed", _fixed(NUMBER)),
    RecordKind(
        FRAMES, "FRAMES", "AMQP frames for the client; type 9 is a refusal: reply code and text", _fixed(NUMBER)
    ),
    RecordKind(CHOOSE, "CHOOSE", "JSON: number of a request, virtual host, exchange: a shard is to be chosen", _text),
    RecordKind(CHOSEN, "CHOSEN", "JSON: number of the request, name of the shard or null", _text),
    RecordKind(COUNT, "COUNT", "JSON: number of a round, virtual host, exchange: consumers are to be counted", _text),
    RecordKind(COUNTED, "COUNTED", "JSON: the same, and consumers by the id of the shard", _text),
    RecordKind(FORWARD, "FORWARD", "a slice of the outbox", _slice),
    RecordKind(TAKEN, "TAKEN", "whether a slice is on disk", _fixed(SLICE_TAKEN)),
    RecordKind(MOVED, "MOVED", "a question whether the receiver knows that a queue has moved", _fixed(QUESTION)),
    RecordKind(MOVE_ANSWER, "MOVE_ANSWER", "payload of the MOVED or HAND that is answered with yes", bytes),
    RecordKind(HAND, "HAND", "files of a stream, to be taken from a directory of the same machine", _fixed(FILES)),
    RecordKind(COPY, "COPY", "JSON: segments of a stream that is to be copied; sent until it is answered", _text),
    RecordKind(WANT, "WANT", "a request for a piece of a segment", _fixed(WANTED)),
    RecordKind(PIECE, "PIECE", "the piece, or why it cannot be had", _fixed(GIVEN)),
    RecordKind(COPIED, "COPIED", "JSON: all of a stream is on disk, or why not", _text),
    RecordKind(FORGET, "FORGET", "a stream is not moved: its copy is to be deleted", _fixed(NUMBER)),
    RecordKind(MADE, "MADE", "number of a change of definitions that the sender has applied", _fixed(NUMBER)),
    RecordKind(ASK_MARKS, "ASK_MARKS", "JSON: markers whose messages may be left at the receiver", _text),
    RecordKind(LEFT, "LEFT", "JSON: number of messages before each marker", _text),
    RecordKind(OWNED, "OWNED", "id of a queue at the receiver, or 0; an epoch of the sender; echoed", _fixed(EPOCH)),
)
"""All kinds, by number."""

KINDS = frozenset(kind.number for kind in TABLE)
"""Numbers of all kinds, sent in each hello."""
