"""The exhaustive search, limited to seconds; ``python -m tests.replication.search`` covers more."""

import pytest
from tests.replication.mutants import MUTANTS, applied
from tests.replication.search import Limits, search


def test_two_replicas_with_a_commit_and_a_failure_have_no_history_that_is_wrong() -> None:
    found = search("ab", Limits(commits=1, failures=1, epochs=3, changes=3))
    assert (found.wrong, found.whole) == (None, True)
    assert found.states > 800


@pytest.mark.slow
@pytest.mark.parametrize(("names", "limits"), [("ab", Limits(3, 2, 3, 4)), ("abc", Limits(3, 2, 3, 4))])
def test_the_shortest_histories_of_three_commits_and_two_failures_are_right(names: str, limits: Limits) -> None:
    found = search(names, limits, most=4000)
    print(found)
    assert found.wrong is None


def test_a_search_finds_the_shortest_history_that_is_wrong() -> None:
    mutant = next(one for one in MUTANTS if one.name == "complete before the leader has synced")
    with applied(mutant):
        found = search("ab", Limits(commits=1, failures=0, epochs=2, changes=2))
    assert found.wrong is not None
    assert [step[0] for step in found.wrong[0]] == ["write"] and "I1" in found.wrong[1]
