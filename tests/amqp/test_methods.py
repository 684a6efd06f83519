"""Methods: the octets of the specification for some, a round trip for all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import CommandInvalid, MalformedFrame, MethodSyntaxError
from jumpmq.amqp.fields import Field

WRITTEN_OUT: list[tuple[m.Method, bytes]] = [
    (m.ConnectionTune(2047, 131072, 60), b"\x00\x0a\x00\x1e" b"\x07\xff" b"\x00\x02\x00\x00" b"\x00\x3c"),
    (m.ConnectionOpen("/"), b"\x00\x0a\x00\x28" b"\x01/" b"\x00" b"\x00"),
    (
        m.ConnectionClose(404, "gone", 50, 10),
        b"\x00\x0a\x00\x32" b"\x01\x94" b"\x04gone" b"\x00\x32" b"\x00\x0a",
    ),
    (m.ChannelOpenOk(), b"\x00\x14\x00\x0b" b"\x00\x00\x00\x00"),
    (
        m.QueueDeclare(queue="orders", durable=True, auto_delete=True, arguments=[Field("x-max-length", "I", 7)]),
        b"\x00\x32\x00\x0a" b"\x00\x00" b"\x06orders" b"\x0a" b"\x00\x00\x00\x12\x0cx-max-lengthI\x00\x00\x00\x07",
    ),
    (m.QueueDeclareOk("orders", 3, 1), b"\x00\x32\x00\x0b" b"\x06orders" b"\x00\x00\x00\x03" b"\x00\x00\x00\x01"),
    (
        m.QueueUnbind(queue="q", exchange="e", routing_key=b"key"),
        b"\x00\x32\x00\x32" b"\x00\x00" b"\x01q" b"\x01e" b"\x03key" b"\x00\x00\x00\x00",
    ),
    (
        m.BasicConsume(queue="q", consumer_tag="t", no_ack=True, no_wait=True),
        b"\x00\x3c\x00\x14" b"\x00\x00" b"\x01q" b"\x01t" b"\x0a" b"\x00\x00\x00\x00",
    ),
    (
        m.BasicPublish(exchange="logs", routing_key=b"info", mandatory=True),
        b"\x00\x3c\x00\x28" b"\x00\x00" b"\x04logs" b"\x04info" b"\x01",
    ),
    (
        m.BasicDeliver("t", 7, True, "logs", b"info"),
        b"\x00\x3c\x00\x3c" b"\x01t" b"\x00\x00\x00\x00\x00\x00\x00\x07" b"\x01" b"\x04logs" b"\x04info",
    ),
    (m.BasicNack(1 << 32, True, False), b"\x00\x3c\x00\x78" b"\x00\x00\x00\x01\x00\x00\x00\x00" b"\x01"),
    (m.ConfirmSelect(True), b"\x00\x55\x00\x0a" b"\x01"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "octets"), WRITTEN_OUT, ids=lambda value: getattr(value, "spec_name", ""))
def test_octets(method: m.Method, octets: bytes) -> None:
    assert method.encode() == octets
    assert m.decode(octets) == method


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 65535),
    "long": st.integers(0, (1 << 32) - 1),
    "longlong": st.integers(0, (1 << 64) - 1),
    "shortstr": st.text(max_size=60),
    "shortbytes": st.binary(max_size=255),
    "shorttext": st.text(max_size=60).map(str.encode),
    "longstr": st.binary(max_size=300),
    "table": st.lists(st.builds(Field, st.text(max_size=5), st.just("S"), st.text(max_size=5)), max_size=3),
}


@st.composite
def any_method(draw: st.DrawFn) -> m.Method:
    cls = draw(st.sampled_from(list(m.METHODS.values())))
    return cls(**{name: draw(VALUES[kind]) for name, kind in cls.layout})


@given(any_method())
def test_what_was_encoded_is_decoded(method: m.Method) -> None:
    assert m.decode(method.encode()) == method


@given(any_method(), st.data())
def test_a_method_cut_short_or_with_more_behind_is_refused(method: m.Method, data: st.DataObject) -> None:
    octets = method.encode()
    with pytest.raises(MalformedFrame):
        m.decode(octets[: data.draw(st.integers(0, len(octets) - 1))])
    with pytest.raises(MalformedFrame):
        m.decode(octets + b"\0")


EXAMPLES: dict[str, Any] = {
    "bit": True, "octet": 200, "short": 60_000, "long": 1 << 31, "longlong": 1 << 40,
    "shortstr": "name", "shortbytes": b"key", "shorttext": b"key", "longstr": b"long",
    "table": [Field("a", "S", "b")],
}  # fmt: skip
THEIRS: dict[str, Any] = {"shortbytes": "key", "shorttext": "key", "longstr": "long", "table": {"a": "b"}}
BOTH_HAVE = [cls for key, cls in m.METHODS.items() if key[0] << 16 | key[1] in commands.INDEX_MAPPING]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("cls", BOTH_HAVE, ids=lambda cls: cls.spec_name)
def test_another_implementation_reads_the_same(cls: type[m.Method]) -> None:
    """`pamqp` reads the same names, numbers and positions of arguments."""
    read = commands.INDEX_MAPPING[cls.class_id << 16 | cls.method_id]()
    assert read.name.lower() == cls.spec_name.replace("-", "")
    read.unmarshal(cls(**{name: EXAMPLES[kind] for name, kind in cls.layout}).encode()[4:])
    assert [getattr(read, name) for name in read.attributes()] == [
        THEIRS.get(kind, EXAMPLES[kind]) for _, kind in cls.layout
    ]


@pytest.mark.parametrize("octets", [b"\x00\x63\x00\x0a", b"\x00\x32\x00\x63", b"\x00\x00\x00\x00"])
def test_an_unknown_method_is_refused(octets: bytes) -> None:
    with pytest.raises(CommandInvalid, match="unknown method"):
        m.decode(octets)


def test_what_is_wrong_with_the_arguments_is_told() -> None:
    with pytest.raises(MalformedFrame, match=r"queue\.declare"):
        m.decode(m.QueueDeclare().encode() + b"\0")
    with pytest.raises(MethodSyntaxError, match="unknown field type"):
        m.decode(b"\x00\x32\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x03\x01az")


def test_routing_keys_need_not_be_text_but_binding_keys_and_names_must() -> None:
    assert m.decode(m.BasicPublish(routing_key=b"\xff").encode()) == m.BasicPublish(routing_key=b"\xff")
    with pytest.raises(MalformedFrame, match="UTF-8"):
        m.decode(m.QueueBind(routing_key=b"\xff").encode())
    with pytest.raises(MalformedFrame, match="UTF-8"):
        m.decode(b"\x00\x3c\x00\x28\x00\x00\x01\xff\x00\x00")
