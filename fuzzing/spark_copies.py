"""Kills nodes of a cluster with three copies while Spark reads queues and streams, and counts every row.

    python -m fuzzing.spark_copies --kills 3 --seed 7

Numbered messages are published through a node to queues and streams of all three nodes, every message once. A streaming
query reads the queues, and a second one the streams, into Parquet tables. A killed node, any but the publisher's,
restarts before the next kill. At the end every number must be in both tables exactly once.
"""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import requests
from tests.spark.kills import Feed

from fuzzing.copies import NODES, Node, answers, say, wait
from jumpmq.spark.pipelines.session import session
from jumpmq.testing.etcd import etcd

PATIENCE = 240.0
"""Timeout in seconds until all sets have three copies, or a table has all rows."""

KINDS = ("classic", "stream")


def declare(nodes: list[Node]) -> None:
    """Declare an exchange for the feed, and an exchange per kind with a queue at every node."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", nodes[0].port)) as connection:
        channel = connection.channel()
        channel.exchange_declare("feed", "fanout", durable=True)
        for kind in KINDS:
            channel.exchange_declare(kind, "x-consistent-hash", durable=True)
            channel.exchange_bind(kind, "feed")
    for number, node in enumerate(nodes):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
            channel = connection.channel()
            for kind in KINDS:
                channel.queue_declare(f"{kind}-{number}", durable=True, arguments={"x-queue-type": kind})
                channel.queue_bind(f"{kind}-{number}", kind, "1")


def start(spark: Any, kind: str, url: str, directory: Path) -> Any:
    """Start the query of the queues of a kind."""
    source = {"url": url, "exchange": kind, "maxMessagesPerTrigger": "5000", "brokerRetrySeconds": "120"}
    source |= {"startingOffsets": "earliest"} if kind == "stream" else {}
    rows = spark.readStream.format("jumpmq").options(**source).load()
    writer = rows.writeStream.format("parquet").option("path", str(directory / kind))
    return writer.option("checkpointLocation", str(directory / f"{kind}.checkpoint")).queryName(kind).start()


def counted(spark: Any, kind: str, directory: Path) -> tuple[int, int, int]:
    """Return the number of rows of a table, of distinct numbers, and of queues."""
    table = spark.read.parquet(str(directory / kind))
    row = table.selectExpr("count(*)", "count(distinct body)", "count(distinct queue)").first()
    return int(row[0]), int(row[1]), int(row[2])


def run(kills: int, seed: int) -> list[str]:
    """Run the fuzzer once. Return the failures."""
    choose, wrong = random.Random(seed), list[str]()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-spark-copies-")))
        (member,) = stack.enter_context(etcd(directory))
        nodes = [Node(number, directory, member.url, 1, cut=False, copies=3) for number in range(len(NODES))]
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
            wait(lambda node=node: answers(node), PATIENCE)
        urls = [f"http://guest:guest@127.0.0.1:{node.http_port}" for node in nodes]

        def is_well() -> bool:
            try:
                homes = requests.get(f"{urls[0]}/api/copies", timeout=5).json()
            except requests.RequestException:
                return False
            led = all((one["in_set"], one["leader"]) == (3, one["seat"]) for one in homes)
            return led and len(homes) == 3 and all(map(answers, nodes))

        if not wait(is_well, PATIENCE):
            return ["the homes do not get three copies"]
        declare(nodes)
        spark = stack.enter_context(session("local[2,3]", "copies"))
        feed = Feed(urls[0])
        feed.start()
        queries = {kind: start(spark, kind, ",".join(urls), directory) for kind in KINDS}
        stack.callback(lambda: [query.stop() for query in queries.values()])
        for _ in range(kills):
            time.sleep(choose.uniform(5, 15))
            victim = choose.choice(nodes[1:])
            say(f"{victim.node} is killed; {feed.count} are published")
            victim.down()
            time.sleep(choose.choice([1, 8, 15]))
            victim.launch()
            if not wait(is_well, PATIENCE):
                wrong.append(f"not well after {victim.node} was started again")
            for kind, query in queries.items():
                if not query.isActive:
                    wrong.append(f"the query of {kind} has ended: {query.exception()}")
                    queries[kind] = start(spark, kind, ",".join(urls), directory)
        count = feed.stop()
        say(f"{count} were published")
        for kind in KINDS:
            wait(lambda kind=kind: counted(spark, kind, directory)[1] >= count, PATIENCE)
            if (found := counted(spark, kind, directory)) != (count, count, 3):
                wrong.append(f"{kind}: {found[0]} rows with {found[1]} of {count} numbers, from {found[2]} queues")
    print(f"{kills} kills, {count} messages, each of them read once from queues and once from streams: {not wrong}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    wrong = run(given.kills, given.seed)
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
