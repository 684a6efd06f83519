"""Everything is killed and stopped, tasks run twice at once: each message arrives once, wherever it goes."""

from collections import Counter

import pytest
from tests.spark.kills import harm
from tests.spark.processes import SPECULATIVE, Cluster, Driver

from jumpmq.spark.client import Client
from jumpmq.spark.options import Broker

pytest.importorskip("deltalake")

pytestmark = pytest.mark.slow


def test_a_task_that_runs_twice_at_once_publishes_once(broker, channel, tmp_path):
    """And neither of the two fails."""
    channel.queue_declare("out", durable=True)
    with Cluster(tmp_path) as cluster:
        driver = Driver(cluster.url, tmp_path, SPECULATIVE | {"spark.task.maxFailures": "1"})
        try:
            driver.begin("dawdling", url=broker.http_url, queue="out", marks=str(tmp_path), rows=120_000)
            driver.until("done")
        finally:
            driver.kill()
    for kind in ("table", "stream"):
        assert (tmp_path / f"{kind}-0-0").exists() and (tmp_path / f"{kind}-0-1").exists()
    rows = Client(Broker(broker.http_url)).ready([["out", 0, 1_000_000]], ["body"])
    found = Counter(int(body) for batch in rows for body in batch["body"].to_pylist())
    assert found == dict.fromkeys(range(120_000), 2)


def test_each_message_arrives_once_while_everything_is_killed(tmp_path):
    """``python -m tests.spark.kills --minutes 10`` does the same for longer."""
    result = harm(40, tmp_path, seed=7)
    count = result["published"]
    each_once = {"rows": count, "numbers": count, "highest": count - 1}
    assert result["found"] == dict.fromkeys(("parquet", "delta", "streams", "back"), each_once), result
    assert result["done"]
