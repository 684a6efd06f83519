"""phash2 of every kind of Erlang term, as computed by Erlang/OTP 25."""

import struct
from typing import Any

import pytest
from tests.hashing.conftest import Vectors

from jumpmq.hashing._reference import Atom, Term, phash2


def term_of(vector: dict[str, Any]) -> Term:
    ((kind, value),) = vector.items()
    match kind:
        case "binary":
            return bytes.fromhex(value)
        case "integer":
            return int(value)
        case "float":
            (number,) = struct.unpack(">d", bytes.fromhex(value))
            return float(number)
        case "atom":
            return Atom(value)
        case "list":
            return [term_of(element) for element in value]
        case "tuple":
            return tuple(term_of(element) for element in value)
    raise AssertionError(kind)


def test_every_golden_term(vectors: Vectors) -> None:
    lines = vectors("phash2")
    assert len(lines) == 460
    assert [line for line in lines if phash2(term_of(line["term"])) != line["phash2"]] == []


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        # Each computed with `erl -noshell -eval 'io:format("~p~n", [erlang:phash2(TERM)]), halt().'` on OTP 25.
        (-0.0, 20875736),
        (True, 506293),
        (False, 7111573),
        ([1, 2, 3, 4], 90049352),
        ([1, 2, 3, 4, 5], 66056394),
        ([0, 0, 0, 0], 10493030),
        ([1, Atom("a"), 2, 300, 7], 131919188),
        (list(b"hello world"), 124727853),
        ([[], []], 67164138),
        ([Atom("undefined")], 7682534),
        ([b"a", 3], 13601740),
        ((), 87486268),
        (([],), 30249041),
        ((Atom("undefined"),), 52533429),
        ((Atom("longstr"), b"x", [b""]), 4698721),
        (1 << 64, 103122609),
        (-(1 << 200) - 12345, 25104086),
        (b"jump" * 100, 82930355),
        (Atom("été"), 61737),
        (Atom("テス"), 113003481),
    ],
)
def test_terms_computed_by_erlang(term: Term, expected: int) -> None:
    assert phash2(term) == expected


@pytest.mark.parametrize("term", ["text", None, [None], ("text",)])
def test_what_is_no_term_is_refused(term: object) -> None:
    with pytest.raises(TypeError, match="a term is bytes, int, float, bool, Atom, list or tuple, not"):
        phash2(term)  # type: ignore[arg-type]
