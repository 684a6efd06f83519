"""The account of memory adds up, by kind and in all."""

import pytest

from jumpmq.queues.memory import MemoryAccount


def test_what_is_charged_counts_by_kind_and_in_all_until_it_is_released() -> None:
    account = MemoryAccount(limit=1000)
    account.charge("ready", 300)
    account.charge("unsent", 150)
    assert (account.total, account.by_kind["ready"], account.by_kind["unsent"]) == (450, 300, 150)
    account.move("ready", "unacknowledged", 100)
    account.charge("unsent", -150)
    assert (account.total, account.by_kind["ready"], account.by_kind["unacknowledged"]) == (300, 200, 100)


def test_bodies_are_paged_above_half_of_the_limit_and_publishers_blocked_at_it() -> None:
    account = MemoryAccount(limit=1000)
    assert (account.tight, account.exhausted) == (False, False)
    account.charge("ready", 501)
    assert (account.tight, account.exhausted) == (True, False)
    account.charge("unfinished", 499)
    assert (account.tight, account.exhausted) == (True, True)


def test_a_limit_of_nothing_blocks_always() -> None:
    assert MemoryAccount(limit=0).exhausted
    assert not MemoryAccount().exhausted


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        MemoryAccount().charge("other", 1)
