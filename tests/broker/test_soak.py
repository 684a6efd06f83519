"""A short run of the soak: under any load, a bystander's confirms arrive."""

import random

import pytest
from fuzzing.soak import soak


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.several)])
def test_confirms_go_on_whatever_others_do(workers: int) -> None:
    run = soak(seconds=20 / workers, seed=random.randrange(1 << 30), workers=workers)
    assert not run.found, "\n".join(run.found)
    assert run.confirmed and run.killed
