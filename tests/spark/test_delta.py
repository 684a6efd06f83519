"""Micro-batches into a Delta table: what is repeated is there once."""

from pathlib import Path

import pytest
from tests.spark.processes import Driver
from tests.spark.sources import numbered, publish

deltalake = pytest.importorskip("deltalake")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_driver_killed_between_the_two_commits_repeats_nothing(broker, channel, tmp_path):
    published = publish(channel, numbered(1, 500))
    place = str(tmp_path / "table")
    with Driver("delta", "local[2]", tmp_path, url=broker.http_url, table=place, limit=200) as driver:
        driver.until("ready")
        assert driver.wait() == -9
    assert Path(f"{place}.killed").exists()
    before = deltalake.DeltaTable(place)
    assert (before.transaction_version("archive"), before.count()) == (1, 400)
    with Driver("delta", "local[2]", tmp_path, url=broker.http_url, table=place, limit=200) as driver:
        driver.until("done")
    table = deltalake.DeltaTable(place).to_pyarrow_table(columns=["body", "queue"])
    assert sorted(table["body"].to_pylist()) == published
    assert set(table["queue"].to_pylist()) == {"q1", "q2"}
