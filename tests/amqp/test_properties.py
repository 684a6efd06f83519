"""Message properties: flags and list, in the layout of section 4.2.6.1 of the specification."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumpmq.amqp.errors import MethodSyntaxError
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties, persistent_unless_said

WHOLE = (
    b"\xff\xfc"  # fourteen flags, content-type highest
    b"\x04text"
    b"\x04gzip"
    b"\x00\x00\x00\x04\x01aB\x07"
    b"\x02"
    b"\x09"
    b"\x04corr"
    b"\x05reply"
    b"\x0560000"
    b"\x02id"
    b"\x00\x00\x00\x00\x65\x53\xf1\x00"
    b"\x05order"
    b"\x05guest"
    b"\x03app"
    b"\x07cluster"
)


def test_all_properties() -> None:
    expected = Properties(
        content_type="text", content_encoding="gzip", headers=[Field("a", "B", 7)], delivery_mode=2, priority=9,
        correlation_id="corr", reply_to="reply", expiration="60000", message_id="id", timestamp=1_700_000_000,
        type="order", user_id="guest", app_id="app", cluster_id="cluster",
    )  # fmt: skip
    assert Properties.parse(WHOLE) == expected
    assert expected.encode() == WHOLE


def test_none() -> None:
    assert Properties.parse(b"\0\0") == Properties()
    assert Properties().encode() == b"\0\0"


@pytest.mark.parametrize("place", range(14))
def test_each_property_has_the_flag_of_its_place(place: int) -> None:
    name = fields(Properties)[place].name
    value = getattr(Properties.parse(WHOLE), name)
    octets = Properties(**{name: value}).encode()
    assert int.from_bytes(octets[:2]) == 1 << (15 - place)
    assert getattr(Properties.parse(octets), name) == value


def test_a_string_that_is_not_utf8_comes_out_as_it_went_in() -> None:
    octets = b"\x04\x00\x03\xff\xfeA"
    assert Properties.parse(octets).encode() == octets


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_properties_cut_short_are_refused(end: int) -> None:
    with pytest.raises(MethodSyntaxError):
        Properties.parse(WHOLE[:end])


@pytest.mark.parametrize(
    "octets",
    [b"\x00\x01", b"\x00\x02", b"\x00\x00\x00", b"\x20\x00\x00\x00\x00\x03\x01az"],
    ids=["more flags", "an unknown flag", "octets behind", "an unknown field type"],
)
def test_malformed_properties_are_refused(octets: bytes) -> None:
    with pytest.raises(MethodSyntaxError):
        Properties.parse(octets)


@given(st.binary(max_size=40))
def test_any_octets_are_properties_or_a_syntax_error(octets: bytes) -> None:
    try:
        properties = Properties.parse(octets)
    except MethodSyntaxError:
        return
    assert Properties.parse(properties.encode()).content_type == properties.content_type


@given(st.sets(st.sampled_from([field.name for field in fields(Properties)])), st.sampled_from([1, 2, 7]))
def test_properties_without_a_delivery_mode_become_persistent(names: set[str], mode: int) -> None:
    whole = Properties.parse(WHOLE)
    said = Properties(**{name: getattr(whole, name) for name in names - {"delivery_mode"}})
    persistent = Properties.parse(persistent_unless_said(said.encode()))
    said.delivery_mode = 2
    assert persistent == said
    said.delivery_mode = mode
    assert persistent_unless_said(said.encode()) == said.encode()


@pytest.mark.parametrize(
    "octets", [b"", b"\x80", b"\x80\x00", b"\x80\x00\x05text", b"\x20\x00\x00\x00\x00\x04\x01", b"\xc0\x00\x01a\x09"]
)
def test_malformed_properties_stay_as_they_are(octets: bytes) -> None:
    assert persistent_unless_said(octets) == octets
