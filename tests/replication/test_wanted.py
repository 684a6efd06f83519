"""Requests for copies: members are added and removed."""

from collections.abc import Callable

import pytest

from jumpmq.replication.configuration import ConfigurationError
from jumpmq.replication.wanted import Wanted

THREE = Wanted.of("b", ["a", "b", "c"], 3)


def test_members_change_the_number_of_copies_and_their_half() -> None:
    assert THREE.members == ("b", "c", "a")
    two = THREE.without_member("c")
    assert (two.copies, two.min, two.members) == (2, 1, ("b", "a"))
    assert two.with_member("d") == Wanted(3, 2, ("b", "a", "d"))


def test_a_minimum_of_the_operator_stays_while_it_can() -> None:
    careful = Wanted.of("b", ["a", "b", "c"], 3, 3)
    assert careful.with_member("d").min == 3
    assert careful.without_member("a").min == 2


def test_the_leader_that_was_asked_for_goes_with_its_copy() -> None:
    led = Wanted(3, 2, ("b", "c", "a"), "c")
    assert led.without_member("c").leader == ""
    assert led.without_member("a").leader == "c"


def test_a_substitute_of_the_seat_stays_the_last_member() -> None:
    substituted = Wanted(2, 1, ("b", "c", "a"))
    assert substituted.with_member("d") == Wanted(3, 2, ("b", "c", "d", "a"))
    assert substituted.without_member("a") == Wanted(2, 1, ("b", "c"))
    assert substituted.without_member("c") == Wanted(1, 1, ("b", "a"))


def test_what_cannot_be_is_refused() -> None:
    refused: tuple[Callable[[], object], ...] = (
        lambda: THREE.with_member("a"),
        lambda: THREE.without_member("b"),
        lambda: THREE.without_member("d"),
        lambda: Wanted.of("a", list("abcdefg"), 7).with_member("h"),
    )
    for change in refused:
        with pytest.raises(ConfigurationError):
            change()
