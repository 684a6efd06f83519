"""The worked example of the log's grammar, in the docstring of ``records``: decoded by hand, read and written."""

import json
import re
import struct
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.store import records
from jumpmq.store.files import Files
from jumpmq.store.records import BLOCK, Commit, Content, Opening, messages_block, settled_block, settled_in
from jumpmq.store.scan import OpenSegment

SECTION = re.compile(r"    (\w.*)")
LINE = re.compile(r"        ([0-9a-f]+) +(\w.*?)  +(\S.*)")


class Field(NamedTuple):
    octets: bytes
    name: str
    value: int | bytes


def example() -> dict[str, list[Field]]:
    """The fields in the docstring, by section."""
    assert records.__doc__ is not None
    sections: dict[str, list[Field]] = {}
    fields: list[Field] = []
    for line in records.__doc__.partition("Worked example")[2].partition("::\n\n")[2].splitlines():
        if found := LINE.fullmatch(line):
            octets, name, value = found.groups()
            fields.append(Field(bytes.fromhex(octets), name, value_of(value)))
        else:
            heading = SECTION.fullmatch(line)
            assert heading is not None, line
            fields = sections[heading[1]] = []
    return sections


def value_of(text: str) -> int | bytes:
    """A quoted text, or a number, followed by the number's name."""
    if text.startswith('"'):
        return str(json.loads(re.sub(r"\\x", r"\\u00", text))).encode()
    number, _, name = text.partition(" ")
    assert not name or getattr(records, name.strip("()")) == int(number)
    return int(number, 0)


def octets(fields: list[Field]) -> bytes:
    return b"".join(field.octets for field in fields)


def values(fields: list[Field]) -> tuple[int | bytes, ...]:
    return tuple(field.value for field in fields)


def crc32(octets: bytes, initial: int = 0) -> int:
    """CRC-32 of ISO-HDLC, bit by bit, continued from the CRC-32 ``initial``."""
    register = initial ^ 0xFFFFFFFF
    for octet in octets:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


OPENING, FRAME, *BLOCKS = map(octets, example().values())
MESSAGES, SETTLED = (BLOCKS[at] + BLOCKS[at + 1] for at in (0, 2))
SALT = int.from_bytes(OPENING[24:28], "little")


def message() -> Message:
    made = Message("", b"k", b"\0\0", b"hello", True, 1_700_000_000.0)
    made.seq = 5
    return made


def content(one: Message) -> tuple[object, ...]:
    return one.seq, one.exchange, one.routing_key, one.properties, one.body, one.published_at, one.expires_at


def test_values_are_decoded_by_hand() -> None:
    opening, frame, first, row, second, settled = example().values()
    assert struct.unpack("<8sIIQII", OPENING) == values(opening)
    assert struct.unpack("<4sIQII", FRAME) == values(frame)
    assert struct.unpack("<IBBHIIQQ", BLOCKS[0]) == values(first)
    assert struct.unpack("<qBBHI1s2s5s", BLOCKS[1]) == values(row)
    assert struct.unpack("<IBBHIIQQ", BLOCKS[2]) == values(second)
    assert struct.unpack("<qqqq", BLOCKS[3]) == values(settled)


def test_named_values_are_of_the_message_and_of_the_settlement() -> None:
    sections = [{field.name: field.value for field in fields} for fields in example().values()]
    opening, frame, first, row, second, settled = sections
    del opening["salt"], opening["CRC-32 of the opening"], frame["CRC-32 of the commit"]
    del first["CRC-32 of the block"], second["CRC-32 of the block"]
    assert opening == {"magic": b"JumpMQ\0\3", "segment": 2, "epoch": 0, "first commit": 7}
    length = len(MESSAGES + SETTLED)
    assert frame == {"magic": b"JMQC", "number": 7, "length of the blocks": length, "number of blocks": 2}
    assert first == {
        "kind": 1, "flags": 1, "count": 1, "length of the content": len(BLOCKS[1]), "octets of bodies": 5, "queue": 1,
        "first seq": 5,
    }  # fmt: skip
    assert row == {
        "time of publishing": 1_700_000_000_000_000, "length of exchange": 0, "length of routing key": 1,
        "length of properties": 2, "length of body": 5, "routing key": b"k", "properties": b"\0\0", "body": b"hello",
    }  # fmt: skip
    assert second == {
        "kind": 3, "flags": 0, "count": 0, "length of the content": len(BLOCKS[3]), "octets of bodies": 0, "queue": 0,
        "first seq": 0,
    }  # fmt: skip
    assert settled == {"queue": 1, "ranges": 1, "first": 4, "last": 4}
    assert len(BLOCKS[1]) % 8 == len(BLOCKS[3]) % 8 == 0, "the blocks have no padding"


def test_checksums_are_computed_by_hand() -> None:
    assert crc32(b"123456789") == 0xCBF43926, "check value of the catalogue of CRC algorithms"
    opening, frame, first, _, second, _ = map(values, example().values())
    assert opening[-1] == crc32(OPENING[:-4])
    assert first[0] == crc32(MESSAGES[4:], SALT)
    assert second[0] == crc32(SETTLED[4:], SALT)
    assert frame[1] == crc32(FRAME[8:] + BLOCKS[0] + BLOCKS[2], SALT)


def test_the_reader_finds_the_message_and_the_settlement(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(OPENING + OPENING + FRAME + MESSAGES + SETTLED)
    with closing(OpenSegment(Files(), path)) as file:
        assert file.opening == Opening(2, 7, SALT)
        [found] = file.commits()
        assert (found.number, found.end, found.damaged) == (7, file.size, False)
        published, settled = map(file.block, found.blocks)
    assert (published, settled) == (MESSAGES, SETTLED)
    assert published is not None and settled is not None
    [read] = Content(published).messages()
    assert content(read) == content(message())
    assert list(settled_in(settled[BLOCK.size :])) == [(1, 4, 4)]


def test_the_writer_makes_the_octets() -> None:
    assert Opening(2, 7, SALT).encode() == OPENING + OPENING
    blocks = [messages_block(1, [message()], new=True), settled_block([(1, [(4, 4)])])]
    commit = Commit(7, blocks, sum(block.length for block in blocks))
    assert b"".join(commit.finalize(SALT)) == FRAME + MESSAGES + SETTLED
