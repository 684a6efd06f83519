"""A short run of the fuzzer of disks: after any failure, confirmed messages are there, and all clients go on."""

import random
from pathlib import Path

import pytest
from fuzzing import disks, faulty_disk


@pytest.mark.slow
@pytest.mark.skipif(not faulty_disk.is_available(), reason="no C compiler")
def test_a_broker_whose_disk_fails_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    run = disks.fuzz(seconds=15, seed=random.randrange(1 << 30), directory=tmp_path)
    assert not run.found, "\n".join(run.found)
    assert run.rounds and any(run.ledger.confirmed.values())
