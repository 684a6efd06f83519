"""Field tables: generated, and nested to a depth."""

import struct

from hypothesis import strategies as st

from jumpmq.amqp.fields import Field


def table(entries: bytes) -> bytes:
    return struct.pack(">I", len(entries)) + entries


VALUES = st.recursive(
    st.one_of(
        st.tuples(st.just("t"), st.booleans()),
        st.tuples(st.just("I"), st.integers(-(1 << 31), (1 << 31) - 1)),
        st.tuples(st.just("T"), st.integers(0, (1 << 64) - 1)),
        st.tuples(st.just("d"), st.floats(allow_nan=False)),
        st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, (1 << 32) - 1))),
        st.tuples(st.just("S"), st.text(max_size=20)),
        st.tuples(st.just("x"), st.binary(max_size=20)),
        st.tuples(st.just("V"), st.none()),
    ),
    lambda values: (
        st.tuples(st.just("A"), st.lists(values, max_size=4))
        | st.tuples(st.just("F"), st.lists(st.builds(lambda name, one: Field(name, *one), st.text(max_size=5), values)))
    ),
    max_leaves=10,
)


FIELDS = st.lists(st.builds(lambda name, value: Field(name, *value), st.text(max_size=10), VALUES), max_size=6)


def nested(depth: int) -> bytes:
    """A table in a table ..., with a string innermost."""
    octets = b"\x01aS\x00\x00\x00\x01x"
    for _ in range(depth):
        octets = b"\x01aF" + table(octets)
    return table(octets)
