"""Regular expressions from clients: matches and refusals."""

import pytest

from jumpmq.topology.patterns import MAX_OCTETS, MAX_REPEATED, InvalidPattern, compiled, repeated, search


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("", "q", True),
        ("rder", "orders", True),
        ("^rder", "orders", False),
        ("^(a|b)$", "b", True),
        ("^.$", "é", True),
        ("é+$", "caféé", True),
        ("(?i)^ORDERS", "orders", True),
        ("^amq[.]", "amq.topic", True),
        ("[[:digit:]]{2}", "a12", True),
        (r"\bred\b", "a red one", True),
        ("^.*$", "\udcff\udc80", True),
        ("^.$", "\udcff", True),
        ("\udcff", "a\udcff", True),
        ("\udcfe", "a\udcff", False),
        ("(", "(", False),
    ],
)
def test_searching_in_a_name(pattern: str, name: str, expected: bool) -> None:
    assert search(pattern, name) is expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("*", "no argument for repetition operator: *"),
        ("^(?!amq)", "invalid perl operator: (?! (RE2 has no look-around and no back-references)"),
        (r"(.)\1", r"invalid escape sequence: \1 (RE2 has no look-around and no back-references)"),
        ("x" * (MAX_OCTETS + 1), f"it has more than {MAX_OCTETS} octets"),
        ("é" * (MAX_OCTETS // 2 + 1), f"it has more than {MAX_OCTETS} octets"),
        ("((a{100}){100}){100}", "more than 600 characters are repeated or optional"),
    ],
)
def test_what_is_not_taken(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        compiled(pattern)
    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize("pattern", ["(.|.|.|.|.|.|.|.)*!", "^(a+)+$", "(x+x+)+y", "(.*)" * 50 + "!"])
def test_no_expression_takes_long(pattern: str) -> None:
    """No expression takes long; a backtracking engine would exceed the test's time for each."""
    assert not search(pattern, "a" * 200 + "x" * 55)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("abc", 0),
        ("a?b*c", 2),
        ("a??", 1),
        ("(ab?){3}", 6),
        ("((a{2}){3}){4}", 24),
        ("x[0-9]{4}", 8),
        (r"[]\]a]{3}", 6),
        ("[[:alpha:]]{3}", 9),
        ("a{,3}", 0),
        ("(?i)(?P<n>ab)+", 2),
        (r"\Qa*b\E?", 3),
        (r"\pL+", 200),
        (r"[\p{Greek}x]{2}", 406),
    ],
)
def test_what_is_repeated_is_counted_written_out(text: str, count: int) -> None:
    assert repeated(text) == count


@pytest.mark.parametrize(
    "text", ["(a?){1000}", "(.?){500}x", r"\pL{9}", "(?:a{0,30}){0,30}", "a?" * (MAX_REPEATED + 1)]
)
def test_expressions_that_take_long_are_refused(text: str) -> None:
    with pytest.raises(InvalidPattern, match="are repeated or optional, with all repetitions"):
        compiled(text)
    assert not search(text, "a" * 100)
