"""`jumpmq demo` from end to end, on the first weeks of the year."""

import re
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.cli.commands import run


@pytest.mark.slow
def test_the_demo_keeps_its_promises_and_leaves_what_it_is_told_to_leave(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = run("jumpmq", "demo", "--flights", "20000", "--keep", kept, timeout=280, COLUMNS="120")
    assert result.returncode == 0, result.stderr
    assert "rows in = rows out: 20,000 published, 20,000 in the table, none twice" in result.stdout
    assert "p = 0." in result.stdout
    assert result.stderr == ""
    table = ds.dataset(kept / "flights", partitioning="hive").to_table(columns=["number", "queue"])
    assert sorted(table["number"].to_pylist()) == list(range(1, 20_001))
    assert set(table["queue"].to_pylist()) == {"q1", "q2", "q3", "q4"}
    assert f"spark.read.parquet('{kept}/flights')" in result.stdout
    assert "late flights published by Spark into 3 shards" in result.stdout
    told = re.search(
        "consumer group: 12,000 flights handled through a kill, a stop, a join and 2 new queues; "
        r"12 put back for a while, \d+ came again, (\d+) late writes refused",
        result.stdout,
    )
    assert told is not None and int(told[1]) > 0
    assert re.search(
        r"jumpmq verify: 12000 rows of \d+ keys: order held, once held, owner held; 0 numbers", result.stdout
    )
    assert all(f"consumer {number}" in result.stdout for number in range(1, 6))
    assert "chi-squared" in (kept / "uniformity.html").read_text()
    assert f"jumpmq serve --data-dir {kept}/broker" in result.stdout


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    result = run("jumpmq", "demo", "--keep", tmp_path)
    assert result.returncode == 1
    assert result.stderr == f"jumpmq: {tmp_path} is not empty: --keep needs a new or empty directory\n"


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("jumpmq", "demo", "--keep", tmp_path / "file" / "kept")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
