"""Terms as printed by Erlang."""

import pytest

from jumpmq.amqp import erlang
from jumpmq.amqp.fields import Field


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        (b"", "<<>>"),
        (b"heavy", '<<"heavy">>'),
        (b'a"b\\c', '<<"a\\"b\\\\c">>'),
        (b"\t\n\r\x1b", '<<"\\t\\n\\r\\e">>'),
        (b"\x00", "<<0>>"),
        (b"a\x7f", "<<97,127>>"),
        ("é".encode(), '<<"é">>'),
        ("π".encode(), "<<207,128>>"),
    ],
)
def test_binaries(octets: bytes, shown: str) -> None:
    assert erlang.binary(octets) == shown


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("I", -5, "-5"),
        ("t", True, "true"),
        ("S", "text", '<<"text">>'),
        ("V", None, "undefined"),
        ("D", (2, 150), "{2,150}"),
        ("A", [("I", 1), ("S", "a")], '[{signedint,1},{longstr,<<"a">>}]'),
        ("F", [Field("k", "t", False)], '[{<<"k">>,bool,false}]'),
        ("d", 1.5, "1.5"),
    ],
)
def test_terms(kind: str, value: object, shown: str) -> None:
    assert erlang.term(kind, value) == shown
