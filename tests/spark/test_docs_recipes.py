"""The commands of `docs/spark-recipes.md` work, from top to bottom."""

import json
import re
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import table

import jumpmq
from jumpmq.management import ManagementClient

PAGE = (Path(__file__).parents[2] / "docs/spark-recipes.md").read_text()


@pytest.mark.slow
def test_its_programs_run_one_after_the_other(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("fastavro")
    monkeypatch.chdir(tmp_path)
    (definitions,) = re.findall(r"^```json\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    ManagementClient(broker.http_url).post("definitions", body=json.loads(definitions))
    names: dict[str, object] = {}
    for source in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
        source = source.replace("http://guest:guest@127.0.0.1:15672", broker.http_url)
        # Java keeps its directory
        source = re.sub(r'"([\w{}]+\.(?:parquet|checkpoint))"', rf'"{tmp_path}/\1"', source)
        exec(compile(source, "docs/spark-recipes.md", "exec"), names)
    assert sorted(bytes(row.body) for row in table(spark, broker, queue="bad").collect()) == [
        b"no Avro",
        b"no JSON",
        b'{"id": 3, "amount": "much"}',
    ]
    checked = [json.loads(bytes(row.body)) for row in table(spark, broker, queue="checked").collect()]
    assert sorted((one["id"], one["at"]) for one in checked) == [
        (1, "2026-01-31T12:00:00.000Z"),
        (2, "2026-01-31T12:00:30.000Z"),
        (4, "2026-01-31T12:00:00.000Z"),
    ]
    counts = spark.read.parquet(f"{tmp_path}/counted.parquet").orderBy("window").collect()
    assert [row["count"] for row in counts] == [2, 1], "m2 once; the window of m4 is not over; what was late is dropped"
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if not line.startswith(("|", "+"))] == [
        *("", "1", "['m1', 'm2', 'm3']", "", "", "True", "10"),
    ]
    assert "| c0|   40|" in printed and "| c1|   50|" in printed, "the second time"
