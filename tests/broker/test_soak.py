"""A short run of the soak: whatever clients do at once, a bystander's confirms come."""

import random

import pytest
from fuzzing.soak import soak


@pytest.mark.slow
def test_confirms_go_on_whatever_others_do() -> None:
    run = soak(seconds=20, seed=random.randrange(1 << 30))
    assert not run.found, "\n".join(run.found)
    assert run.confirmed and run.killed
