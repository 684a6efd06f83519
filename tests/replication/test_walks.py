"""Random walks: each invariant holds after each step, and all copies are equal once all failures are mended."""

import pytest
from fuzzing.replicas import main, walks_of
from tests.replication.mutants import MUTANTS, applied
from tests.replication.walks import walk


@pytest.mark.parametrize("timed", [False, True], ids=["at any moment", "with clocks"])
def test_nothing_is_wrong_after_any_step(timed: bool) -> None:
    found = walk(1, 5 if timed else 20, steps=1000, timed=timed)
    print(found)
    assert not found.wrong
    assert found.commits > 2 * found.walks and found.epochs > found.walks


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True], ids=["at any moment", "with clocks"])
def test_nothing_is_wrong_after_any_of_many_steps(timed: bool) -> None:
    """No invariant is violated in many steps; ``python -m fuzzing.replicas`` takes more."""
    found = walk(1000, 30 if timed else 150, steps=2000 if timed else 1000, timed=timed)
    print(found)
    assert not found.wrong


def test_a_walk_is_the_same_for_the_same_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (walk(7, 1, steps=300) for _ in range(2))
    assert first == second != walk(8, 1, steps=300)
    monkeypatch.setattr("sys.argv", ["copies", "--seed", "7", "--count", "1", "--steps", "300"])
    assert main() == 0
    assert f"1 walks, {first.steps} steps" in capsys.readouterr().out


def test_what_is_wrong_is_told_with_its_seed() -> None:
    mutant = next(one for one in MUTANTS if one.name == "complete before the leader has synced")
    with applied(mutant):
        found = walks_of(1, 3, timed=False)
    assert found.wrong and found.wrong[0][2].startswith("Wrong('I")
