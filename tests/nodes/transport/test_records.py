"""The table of records of links: each kind once, with octets decodable by hand."""

from pathlib import Path
from typing import Any

import pytest
from tests.nodes.homes import homes, in_loop, peers_of

from jumpmq.amqp import methods as m
from jumpmq.amqp.messages import Message
from jumpmq.nodes.messages.units import Unit
from jumpmq.nodes.moves.copy_records import Copied, CopyRequest
from jumpmq.nodes.transport import records
from jumpmq.nodes.transport.records import ANSWERED, ASKED, NUMBER, REFUSED_MESSAGE, SLICE_HEAD, TABLE, RecordKind
from jumpmq.replication.frames import Stored
from jumpmq.store.stream_copy import Extent
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import QueueDefinition

GOLDEN: dict[str, tuple[str, Any]] = {
    "HELLO": (
        "7b22636c7573746572223a202263222c2022686f6d65223a20322c2022626f6f74223a202262222c202276657273696f6e223a20312c2022707572706f7365223a20226c696e6b222c20226e6f6e6365223a20223030227d",
        {"cluster": "c", "home": 2, "boot": "b", "version": 1, "purpose": "link", "nonce": "00"},
    ),
    "ALIVE": ("", None),
    "LOG": ("5b7b22646f223a20226170706c696564222c20226e756d626572223a20377d5d", [{"do": "applied", "number": 7}]),
    "PROOF": (
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
    ),
    "USAGE": ("7b2275736572206775657374223a205b312c20322c20302c20355d7d", {"user guest": [1, 2, 0, 5]}),
    "REPLICA": ("00000015080000000300000000000000070000000200000040", (3, Stored(7, 2 << 32 | 64))),
    "UNIT": (
        "0000000000000003000000000000000200000001000000000000f0bf010000000200000003000000000000006b6579000061000000000000f0bf010000000200000003000000000000006b657900006200000200000000050001000100000002012f7100000000",
        (3, 0, [b"a", b"b"], [(2199023255557, "/", "q", [0, 1])]),
    ),
    "ANSWER": ("000000000000000300000001000000000000000200000001", (3, [(2, 1)])),
    "READY": ("", None),
    "REPLY": (
        "0000000000000004000000000000000100000000000000000000f0bf010000000200000003000000000000006b6579000072",
        (4, 0, [b"r"], []),
    ),
    "OPEN": ("7b226e756d626572223a20372c202276686f7374223a20222f227d", {"number": 7, "vhost": "/"}),
    "METHOD": ("0000000000000007000a00000032001e0000017100", (7, 10, 0, b"\x002\x00\x1e\x00\x00\x01q\x00")),
    "SETTLE": ("00000000000000070001", (7, 0, b"\x01")),
    "PREFETCH": ("0000000000000007000000000000000a", (7, 10)),
    "CREDIT": ("00000000000000070000000000010000", (7, 65536)),
    "CLOSE": ("0000000000000007", (7,)),
    "FRAMES": ("000000000000000708000000000000ce", (7, b"\x08\x00\x00\x00\x00\x00\x00\xce")),
    "CHOOSE": ("5b372c20222f222c202278225d", [7, "/", "x"]),
    "CHOSEN": ("5b372c20227368617264696e673a2078202d206e202d2030225d", [7, "sharding: x - n - 0"]),
    "COUNT": ("5b392c20222f222c202278225d", [9, "/", "x"]),
    "COUNTED": (
        "5b392c20222f222c202278222c207b2231303939353131363237373831223a20327d5d",
        [9, "/", "x", {"1099511627781": 2}],
    ),
    "FORWARD": (
        "00000001000000000000000200000000000000090000000000000000000000000000000900000001000000000000000b0000000000000002000000000000000100000001000000000000f0bf010000000200000003000000000000006b657900006100000200000000050001000100000001012f7100000000",
        (
            1,
            2,
            9,
            b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\t",
            [11],
            (2, 0, [b"a"], [(2199023255557, "/", "q", [0])]),
        ),
    ),
    "TAKEN": ("00000001000000000000000201", (1, 2, True)),
    "MOVED": ("0000010000000005000000000000000900", (1099511627781, 9, False)),
    "MOVE_ANSWER": (
        "0000010000000005000000000000000900",
        b"\x00\x00\x01\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\t\x00",
    ),
    "HAND": (
        "000001000000000500000200000000012f646174612f73747265616d732f35",
        (1099511627781, 2199023255553, b"/data/streams/5"),
    ),
    "COPY": (
        "5b313039393531313632373738312c226131222c302c5b5b302c392c343039365d5d2c6e756c6c5d",
        [1099511627781, "a1", 0, [[0, 9, 4096]], None],
    ),
    "WANT": ("00000100000000050000000000000000000000000000100000000200", (1099511627781, 0, 4096, 512)),
    "PIECE": (
        "0000010000000005000000000000000000000000000010008587d865016162636465",
        (1099511627781, 0, 4096, 2240272485, True, b"abcde"),
    ),
    "COPIED": ("5b313039393531313632373738312c226131222c22222c66616c73655d", [1099511627781, "a1", "", False]),
    "FORGET": ("0000010000000005", (1099511627781,)),
    "MADE": ("0000000000000009", (9,)),
    "ASK_MARKS": ("5b5b222f222c202265222c20392c20355d5d", [["/", "e", 9, 5]]),
    "LEFT": ("5b5b222f222c202265222c20392c20352c2031325d5d", [["/", "e", 9, 5, 12]]),
    "OWNED": ("0000020000000005000643c37fad2000", (2199023255557, 1763356800000000)),
}
"""By name, the octets of a payload in every version, and the meaning."""


def message(body: bytes) -> Message:
    return Message("", b"key", b"\0\0", body)


def queue() -> DeclaredQueue:
    return DeclaredQueue(QueueDefinition("/", "q", True, id=2 << 40 | 5), None)


def unit(number: int, *bodies: bytes) -> bytes:
    return b"".join(Unit([(queue(), [message(body) for body in bodies])]).encoded(number, 0))


@pytest.mark.parametrize("kind", TABLE, ids=[kind.name for kind in TABLE])
def test_golden_octets_are_decoded(kind: RecordKind) -> None:
    octets, says = GOLDEN[kind.name]
    assert kind.decode(memoryview(bytes.fromhex(octets))) == says


def test_each_kind_has_a_number_and_a_name_of_its_own() -> None:
    numbers = [kind.number for kind in TABLE]
    assert numbers == sorted(set(numbers))
    assert [getattr(records, kind.name) for kind in TABLE] == numbers
    assert [kind.name for kind in TABLE] == list(GOLDEN)
    named = {name for name, value in vars(records).items() if name.isupper() and type(value) is int}
    assert named - {"FRAME_REFUSAL"} == set(GOLDEN), "a number that is not in the table"


@pytest.mark.parametrize(
    ("name", "octets"),
    [
        ("UNIT", unit(3, b"a", b"b")),
        ("ANSWER", ANSWERED.pack(3, 1) + REFUSED_MESSAGE.pack(2, 1)),
        ("REPLY", b"".join(Unit([], [message(b"r")]).encoded(4, 0))),
        ("METHOD", ASKED.pack(7, 10, 0) + m.QueuePurge(queue="q").encode()),
        ("FORWARD", SLICE_HEAD.pack(1, 2, 9, bytes(15) + b"\x09", 1) + NUMBER.pack(11) + unit(2, b"a")),
        ("COPY", CopyRequest(1 << 40 | 5, "a1", 0, [Extent(0, 9, 4096)], None).encode()),
        ("COPIED", Copied(1 << 40 | 5, "a1").encode()),
    ],
)
def test_golden_octets_are_what_is_sent(name: str, octets: bytes) -> None:
    assert octets.hex() == GOLDEN[name][0]


@in_loop
async def test_homes_act_on_every_kind_of_the_table(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        acted_on = {kind for broker in brokers for kind in peers_of(broker).links.handlers}
    of_the_link = {records.HELLO, records.ALIVE, records.PROOF}
    assert acted_on == {kind.number for kind in TABLE} - of_the_link
