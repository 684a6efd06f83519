"""The simulation finds every mutant within a given number of seeds; the unbroken rules pass the same seeds."""

import pytest
from tests.replication.mutants import MUTANTS, Mutant, applied
from tests.replication.walks import walk
from tests.replication.world import Wrong

WALKS, TIMED_WALKS, STORIES = 300, 60, 12
"""Number of seeds within which a walk finds a mutant."""

LONG = {
    "R1 complete below min",
    "R1 waits for the known set only",
    "R2 swaps a joiner in before it has all",
    "R5 longer logs are left behind",
    "R7 a disk that lost octets keeps its identity",
    "R8 the known set keeps the lease",
    "R8 the clock stands still while suspended",
    "R9 goes on after a sync that failed",
    "R9 a sync that hangs is waited for",
    "R11 deletes what the leader does not list",
}
"""Mutants for slow runs only: their walks take longer than the walks of other mutants."""


def _seeds(mutant: Mutant, most: int) -> int:
    """Return the first of so many seeds that violates an invariant; 0 without one."""
    if mutant.story is None:
        steps = 2000 if mutant.timed else 1000
        found = walk(1, most, steps=steps, timed=mutant.timed, temper=mutant.temper, mended=False)
        return found.walks if found.wrong else 0
    for seed in range(1, most + 1):
        try:
            mutant.story(seed)
        except Wrong:
            return seed
        except AssertionError:
            continue  # the story came to no end, and says nothing about the rule
    return 0


def _name(mutant: Mutant) -> str:
    return f"{mutant.rule} {mutant.name}"


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=_name(one), marks=[pytest.mark.slow] if _name(one) in LONG else []) for one in MUTANTS],
)
def test_each_mutant_is_found(mutant: Mutant) -> None:
    most = STORIES if mutant.story is not None else TIMED_WALKS if mutant.timed else WALKS
    with applied(mutant):
        seed = _seeds(mutant, most)
    print(f"seed {seed}")
    assert seed, f"none of {most} seeds finds it"
    assert not _seeds(mutant, seed), "the rules themselves do not pass its seeds"


def test_each_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == {f"R{number}" for number in range(1, 12)}
    assert {_name(mutant) for mutant in MUTANTS} > LONG
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
