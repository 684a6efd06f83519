"""`jumpmq.spark.verify` on a table finds the violations that `jumpmq verify` finds in a file."""

import random
from typing import Any

from pyspark.sql import SparkSession

from jumpmq.ordering.verification import verify as verify_rows
from jumpmq.spark import verify


def test_the_same_faults_as_the_command_finds(spark: SparkSession) -> None:
    chance = random.Random(5)
    rows: list[dict[str, Any]] = [
        {
            "place": place,
            "key": chance.choice("abcd"),
            "number": chance.choice([None, *range(1, 40)]),
            "message": f"m{chance.randrange(40)}",
            "epoch": place // 40 + chance.choice([-1, 0, 0, 0, 0]),
            "consumer": chance.choice(["one", "one", "one", "two"]),
        }
        for place in range(300)
    ]
    columns = "place int, key string, number bigint, message string, epoch bigint, consumer string"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], columns)
    found = verify(frame, "place")
    assert found.columns == [*frame.columns, "fault"]
    expected = {(rows[fault.row["row"] - 1]["place"], fault.kind) for fault in verify_rows(rows)}
    assert {kind for _, kind in expected} == {"order", "once", "owner"}
    assert {(one["place"], one["fault"]) for one in found.collect()} == expected
    bare = spark.createDataFrame([("a", 1, 7, 0), ("a", 1, 6, 1)], "key string, number int, epoch int, time int")
    assert [one["fault"] for one in verify(bare).collect()] == ["owner", "once"]
