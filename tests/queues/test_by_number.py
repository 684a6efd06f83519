"""Values by message number."""

from hypothesis import given
from hypothesis import strategies as st

from jumpmq.queues.by_number import BITS, ByNumber

NUMBERS = st.integers(0, 5) | st.sampled_from([(1 << BITS) - 1, 1 << BITS, 5 << BITS, 1 << 50])


@given(st.lists(st.tuples(st.sampled_from(["set", "pop"]), NUMBERS)))
def test_it_is_a_mapping(steps: list[tuple[str, int]]) -> None:
    found, model = ByNumber[int](), dict[int, int]()
    for value, (step, number) in enumerate(steps):
        if step == "set":
            found[number] = model[number] = value
        else:
            assert found.pop(number) == model.pop(number, None)
        assert len(found) == len(model)
        assert (number in found) == (number in model)
        assert found.get(number) == model.get(number)
    assert {number: found[number] for numbers in found.tables() for number in numbers} == model


def test_entries_may_go_while_tables_are_looked_through() -> None:
    found = ByNumber[int]()
    for number in range(3 << BITS):
        found[number] = number
    for numbers in found.tables():
        for number in numbers:
            assert found.take(number) == number
    assert not len(found)
