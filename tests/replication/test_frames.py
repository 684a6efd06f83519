"""Frames between replicas: golden octets, decodable by hand, and malformed octets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumpmq.replication.frames import (
    MOST_OCTETS,
    TABLE,
    Answer,
    Ask,
    Beat,
    Beaten,
    Complete,
    Data,
    Fetch,
    Fetched,
    File,
    Frame,
    FrameError,
    Hello,
    Lead,
    Lost,
    Manifest,
    Matched,
    Piece,
    Refused,
    Resign,
    Segment,
    Splitter,
    Stored,
    Unfit,
    Want,
    decode,
    encode,
)
from jumpmq.replication.lineage import Stretch

SECOND = Stretch(2, 1, 0xABCDEF, 300)

GOLDEN: dict[str, Frame] = {
    "00000015 01 00000003 0000000000000000 01 01 0004 622e3966": Hello(0, 1, 1, "b.9f"),
    "00000035 02 00000003 0000000000000005 0000000100000000 00000001"
    " 0000000000000002 0000000000000001 0000000000abcdef 0000012c": Lead(5, 1 << 32, (SECOND,)),
    "00000015 03 00000003 0000000000000005 000000020000012c": Matched(5, (2 << 32) + 300),
    "0000000d 04 00000003 0000000000000006": Refused(6),
    "00000012 05 00000003 0000000000000005 01 0002 6e6f": Unfit(5, True, "no"),
    "00000029 06 00000003 0000000000000005 0000000000000002 0000000000000001 0000000000abcdef 00000000": Segment(
        5, SECOND._replace(end=0)
    ),
    "00000018 07 00000003 0000000000000005 0000000200000000 616263": Data(5, 2 << 32, b"abc"),
    "00000015 08 00000003 0000000000000005 0000000200000003": Stored(5, (2 << 32) + 3),
    "00000015 09 00000003 0000000000000005 0000000200000003": Complete(5, (2 << 32) + 3),
    "00000015 0a 00000003 0000000000000005 000000000016e360": Beat(5, 1_500_000),
    "00000015 0b 00000003 0000000000000005 000000000016e360": Beaten(5, 1_500_000),
    "00000015 0c 00000003 0000000000000005 0000000200000000": Lost(5, 2 << 32),
    "0000000d 0d 00000003 0000000000000005": Resign(5),
    "0000000d 0e 00000003 0000000000000006": Ask(6),
    "0000002d 0f 00000003 0000000000000006 00000001"
    " 0000000000000002 0000000000000001 0000000000abcdef 0000012c": Answer(6, (SECOND,)),
    "00000015 10 00000003 0000000000000006 0000000200000000": Fetch(6, 2 << 32),
    "00000015 11 00000003 0000000000000006 0000000200000003": Fetched(6, (2 << 32) + 3),
    "0000001c 12 00000003 0000000000000005 0005 6c6f672f32 0000000000100000": Want(5, "log/2", 1 << 20),
    "00000054 13 00000003 0000000000000005 00000001ffffffff 00000001"
    " 0000000000000002 0000000000000001 0000000000abcdef 0000012c"
    " 00000001 0005 6c6f672f32 000000000000012c 01020304 00000001 00000002": Manifest(
        5, (2 << 32) - 1, (SECOND,), (File("log/2", 300, 0x01020304),), 1, 2
    ),
    "00000023 14 00000003 0000000000000005 0005 6c6f672f32 0000000000000000 352441c2 616263": Piece(
        5, "log/2", 0, 0x352441C2, b"abc"
    ),
}


@pytest.mark.parametrize(("octets", "frame"), GOLDEN.items(), ids=[type(frame).__name__ for frame in GOLDEN.values()])
def test_each_kind_has_its_octets(octets: str, frame: Frame) -> None:
    assert encode(3, frame).hex() == octets.replace(" ", "")
    assert decode(bytes.fromhex(octets)) == (3, frame)


def test_each_kind_is_in_the_table_once() -> None:
    assert [type(frame) for frame in GOLDEN.values()] == [value for value, _ in TABLE.values()]
    assert list(TABLE) == list(range(1, len(TABLE) + 1))


@pytest.mark.parametrize("octets", GOLDEN, ids=[type(frame).__name__ for frame in GOLDEN.values()])
def test_a_frame_that_was_cut_or_has_more_is_refused(octets: str) -> None:
    """Missing and surplus octets raise this protocol's error, and no other exception."""
    whole = bytes.fromhex(octets)
    frame = decode(whole)[1]
    for length in range(len(whole)):
        with pytest.raises(FrameError):
            decode(whole[:length])
    for payload in [whole[17:-1], whole[17:] + b"\0"]:
        if isinstance(frame, (Data, Piece)) or payload == whole[17:]:
            continue  # octets of a file fill the rest of the frame
        with pytest.raises(FrameError):
            decode((13 + len(payload)).to_bytes(4) + whole[4:17] + payload)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        ("0000000d ff 00000003 0000000000000005", "no kind 255"),
        ("0000000d 00 00000003 0000000000000005", "no kind 0"),
        ("00000012 05 00000003 0000000000000005 01 0002 ff6f", "not UTF-8"),
        ("00000019 02 00000003 0000000000000005 0000000100000000 ffffffff", "4294967295 segments"),
    ],
)
def test_octets_that_are_no_frame_are_refused(octets: str, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decode(bytes.fromhex(octets))


@given(st.binary(max_size=80), st.integers(0, 22))
def test_no_octets_make_anything_but_a_frame_or_its_error(octets: bytes, kind: int) -> None:
    whole = (13 + len(octets)).to_bytes(4) + bytes([kind]) + b"\0\0\0\3" + b"\0\0\0\0\0\0\0\5" + octets
    try:
        home, frame = decode(whole)
    except FrameError:
        return
    assert encode(home, frame)[:4] == whole[:4]


@given(st.data())
def test_frames_are_cut_from_whatever_pieces_come(data: st.DataObject) -> None:
    octets = b"".join(bytes.fromhex(one) for one in GOLDEN)
    splitter, found = Splitter(), list[Any]()
    while octets:
        count = data.draw(st.integers(1, len(octets)))
        found += splitter.feed(octets[:count])
        octets = octets[count:]
    assert found == [(3, frame) for frame in GOLDEN.values()]


@pytest.mark.parametrize("length", [0, 12, MOST_OCTETS + 1, 0xFFFFFFFF])
def test_a_length_out_of_bounds_ends_the_connection_before_its_octets_came(length: int) -> None:
    with pytest.raises(FrameError, match="out of bounds"):
        list(Splitter().feed(length.to_bytes(4)))
