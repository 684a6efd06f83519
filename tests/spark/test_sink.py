"""Writing to exchanges and queues: every row once, in order, confirmed."""

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.http.api import API
from tests.spark.sources import Managed, numbered, publish, run_available, stream, table
from tests.waiting import until

import jumpmq
from jumpmq.management import ManagementClient
from jumpmq.spark import Router, route


def write(frame: DataFrame, broker: Managed, **options: Any) -> None:
    frame.write.format("jumpmq").mode("append").options(**{"url": broker.http_url} | options).save()


def rows_of(spark: SparkSession, broker: Managed, **options: Any) -> list[Row]:
    return table(spark, broker, **options).orderBy("queue", "seq").collect()


def test_rows_go_where_their_keys_belong_in_the_order_of_their_partition(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    frame = spark.range(20_000, numPartitions=2).selectExpr(
        "cast(id % 100 as string) as routing_key", "cast(id as string) as body"
    )
    write(frame, broker, exchange="x")
    rows = rows_of(spark, broker, exchange="x")
    assert sorted(int(row.body) for row in rows) == list(range(20_000))
    assert all(int(row.body) % 100 == int(row.routing_key) for row in rows)
    assert len({(row.queue, row.routing_key) for row in rows}) == 100
    for half in (range(10_000), range(10_000, 20_000)):
        for queue in ("q1", "q2"):
            mine = [int(row.body) for row in rows if row.queue == queue and int(row.body) in half]
            assert mine == sorted(mine)
    assert {row.properties.delivery_mode for row in rows} == {2}


def test_a_table_that_was_read_can_be_written_again(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    sent = pika.BasicProperties(
        headers={"a": "ä", "n": None}, message_id="m", priority=3, timestamp=1357034400, delivery_mode=1
    )
    channel.basic_publish("x", "key", b"\x00\xff", sent)
    (before,) = rows_of(spark, broker, exchange="x")
    write(table(spark, broker, exchange="x"), broker)
    first, second = rows_of(spark, broker, exchange="x")
    assert second.asDict() | {"seq": 1, "published_at": before.published_at} == first.asDict() == before.asDict()


def test_who_may_only_write_writes_into_a_queue(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    client = ManagementClient(broker.http_url)
    client.put("users", "writer", body={"password": "w", "tags": "management"})
    client.put("permissions", "/", "writer", body={"configure": "", "write": "amq.default", "read": ""})
    frame = spark.createDataFrame([("a",)], ["body"])
    write(frame, broker, queue="q1", url=broker.http_url.replace("guest:guest", "writer:w"))
    assert [bytes(row.body) for row in rows_of(spark, broker, queue="q1")] == [b"a"]


def test_a_view_takes_rows_in_sql(spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW x USING jumpmq OPTIONS (url '{broker.http_url}', exchange 'x')")
    spark.sql("INSERT INTO x (routing_key, body) VALUES (binary('k'), binary('a')), (binary('k'), binary('b'))")
    assert sorted(bytes(row.body) for row in rows_of(spark, broker, exchange="x")) == [b"a", b"b"]


def test_properties_as_columns_and_text_bodies(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    when = datetime.datetime(2013, 1, 1, 10)
    frame = spark.createDataFrame(
        [("q1", "ä", "m1", when), ("q2", "", None, None)],
        "queue string, body string, message_id string, timestamp timestamp",
    )
    write(frame, broker)
    first, second = rows_of(spark, broker, exchange="x")
    assert (bytes(first.body).decode(), first.properties.message_id, first.properties.timestamp) == ("ä", "m1", when)
    assert (bytes(second.body), bytes(second.routing_key), second.properties.message_id) == (b"", b"q2", None)


def test_headers_of_integers_are_hashed_as_integers(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    """Integer headers are hashed as integers, also in the shape of Kafka's sink, and beside numbers of other types."""
    channel.exchange_declare("h", "x-consistent-hash", durable=True, arguments={"hash-header": "customer"})
    for queue in ("h1", "h2", "h3"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "h", "1")
    keys = spark.range(60, numPartitions=1)
    struct = "array(named_struct('key', 'customer', 'value', id))"
    for headers in ("map('customer', cast(id as int))", struct):
        columns = ("'k' as routing_key", "cast(id as string) as body", f"{headers} as headers", "id as message_id")
        frame = keys.selectExpr(*columns, "5L as priority", "named_struct('expiration', 3600000) as properties")
        write(frame, broker, exchange="h")
    router = Router.from_broker(broker.http_url, "h")
    expected = {(row.queue, row.id) for row in route(keys, "id", router).collect()}
    rows = rows_of(spark, broker, exchange="h")
    assert len(rows) == 120 and {(row.queue, int(row.body)) for row in rows} == expected
    assert {(row.headers["customer"], row.properties.message_id) for row in rows} == {
        (str(i), str(i)) for i in range(60)
    }
    assert {(row.properties.priority, row.properties.expiration) for row in rows} == {(5, "3600000")}
    assert len({queue for queue, _ in expected}) == 3


def test_rows_that_reach_no_queue(spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel) -> None:
    channel.exchange_declare("d", "direct")
    channel.queue_bind("q1", "d", "1")
    frame = spark.createDataFrame([("1", "a"), ("2", "b")], "routing_key string, body string").coalesce(1)
    with pytest.raises(PySparkException, match="reach no queue, one of them with key '2'"):
        write(frame, broker, exchange="d")
    assert API(broker.http_url).counts("q1") == (0, 0)
    write(frame, broker, exchange="d", onUnroutable="drop")
    assert [bytes(row.body) for row in rows_of(spark, broker, queue="q1")] == [b"a"]


@pytest.mark.parametrize(
    ("select", "options", "reason"),
    [
        ("'k' as routing_key", {"exchange": "x"}, "there is no column 'body'"),
        ("'b' as body", {"exchange": "x"}, "there is no column 'routing_key'"),
        ("'b' as body, 'k' as routing_key", {}, "give option 'exchange' or 'queue'"),
        ("1 as body, 'k' as routing_key", {"exchange": "x"}, "'body' must be of type string or binary, not int: cast"),
        ("'b' as body, 'k' as routing_key, 1 as colour", {"exchange": "x"}, "column 'colour' cannot be published"),
        ("'b' as body, cast(null as string) as routing_key", {"exchange": "x"}, "'routing_key' is null: publish an"),
        ("'b' as body, cast(null as string) as queue", {}, "'exchange' or 'queue' is null, and no option of that name"),
        ("'b' as body, cast(null as string) as queue", {"exchange": "x"}, "'routing_key' is null: publish an empty"),
        ("cast(null as string) as body, 'k' as routing_key", {"exchange": "x"}, "'body' is null: publish an empty"),
        ("'b' as body, repeat('k', 256) as routing_key", {"exchange": "x"}, "of 256 octets, and must have at most 255"),
        ("'b' as body, 'k' as routing_key", {"exchange": "nothing"}, "has no /api/exchanges|no exchange 'nothing'"),
        ("'b' as body", {"queue": "nothing"}, "no queue 'nothing' in vhost '/'"),
        ("'b' as body", {"queue": "q1", "onUnroutable": "wait"}, "'onUnroutable' must be fail or drop, not 'wait'"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    select: str,
    options: dict[str, str],
    reason: str,
) -> None:
    with pytest.raises(PySparkException, match=reason):
        write(spark.sql(f"select {select}"), broker, **options)


def test_a_task_that_is_tried_again_publishes_nothing_twice(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    failed = str(tmp_path / "failed")

    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 2 and not Path(failed).exists():
                Path(failed).touch()
                raise RuntimeError("lightning")
            yield batch

    frame = spark.range(30_000, numPartitions=1).selectExpr(
        "cast(id as string) as routing_key", "cast(id as string) as body"
    )
    write(frame.mapInArrow(fail_once, frame.schema), broker, exchange="x")
    assert Path(failed).exists()
    found = sorted(int(row.body) for row in rows_of(spark, broker, exchange="x"))
    assert found == list(range(30_000))


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("url", ["http_url", "amqp_url"])
def test_what_is_unroutable_or_refused_goes_to_a_dead_letter_exchange(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, url: str
) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 700, "x-overflow": "reject-publish"})
    channel.queue_declare("dead", durable=True)
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_bind("dead", "dlx")
    frame = spark.range(2000, numPartitions=1).selectExpr(
        "if(id % 2 = 0, 'full', 'nothing') as routing_key", "cast(id as string) as body"
    )
    write(frame, broker, exchange="", deadLetterExchange="dlx", url=getattr(broker, url))
    assert [API(broker.http_url).counts(queue)[0] for queue in ("full", "dead")] == [700, 1300]
    rows = table(spark, broker, queue="dead").selectExpr("headers['x-undelivered-reason'] as reason", "body").collect()
    expected = {b"%d" % number: "unroutable" if number % 2 else "full" for number in range(2000)}
    found = {bytes(row.body): row.reason for row in rows}
    assert len(found) == 1300
    assert all(expected[body] == reason for body, reason in found.items())


def test_a_dead_letter_exchange_is_there_and_the_only_choice(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    frame = spark.sql("select 'b' as body")
    with pytest.raises(PySparkException, match="no exchange 'nothing'"):
        write(frame, broker, queue="q1", deadLetterExchange="nothing")
    with pytest.raises(PySparkException, match="either option 'onUnroutable' or option 'deadLetterExchange'"):
        write(frame, broker, queue="q1", deadLetterExchange="x", onUnroutable="drop")


@pytest.mark.usefixtures("one_process")
@pytest.mark.slow
def test_a_task_that_a_full_queue_refuses_goes_on_with_the_row_that_was_refused(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 1001, "x-overflow": "reject-publish"})
    frame = spark.range(1500, numPartitions=1).selectExpr("cast(id as string) as body")
    once = {"queue": "full", "txnAppId": "app", "txnVersion": 1}
    for _ in range(2):
        with pytest.raises(PySparkException, match="a queue that is full refuses messages"):
            write(frame, broker, **once)
    assert API(broker.http_url).counts("full") == (1001, 0)
    found = [int(body) for _, _, body in iter(lambda: channel.basic_get("full", auto_ack=True), (None, None, None))]
    write(frame, broker, **once)
    assert found + [int(row.body) for row in rows_of(spark, broker, queue="full")] == list(range(1500))


def test_a_batch_of_the_same_transaction_is_published_once(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    frame = spark.sql("select 'k' as routing_key, 'b' as body")
    for version in (1, 1, 2, 2):
        write(frame, broker, exchange="x", txnAppId="app", txnVersion=version)
    assert len(rows_of(spark, broker, exchange="x")) == 2
    with pytest.raises(PySparkException, match=r"batch 1 of writer 'app' comes behind batch 2: .* 'txnAppId'"):
        write(frame, broker, exchange="x", txnAppId="app", txnVersion=1)
    with pytest.raises(PySparkException, match=r"version 2 of 'app' was published with 1 rows, and this write has 2"):
        write(frame.union(frame), broker, exchange="x", txnAppId="app", txnVersion=2)
    assert len(rows_of(spark, broker, exchange="x")) == 2
    with pytest.raises(PySparkException, match=r"batch 2 of writer 'app' is complete, .* went to another exchange"):
        write(frame, broker, queue="q1", txnAppId="app", txnVersion=2)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 3])
def test_a_query_whose_checkpoint_was_deleted_is_refused_where_its_numbers_were_published(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path, batches: int
) -> None:
    """A query with a deleted checkpoint is refused, and its rows return to the queue; a new txnAppId is accepted."""
    channel.queue_declare("out", durable=True)

    def run(checkpoint: str, app: str, repeated: bool = False) -> None:
        def forward(frame: DataFrame, number: int) -> None:
            for _ in range(1 + repeated):
                rows = frame.selectExpr("body")
                write(rows, broker, queue="out", txnAppId=app, txnVersion=number)

        frame = stream(spark, broker, queue="q1", maxMessagesPerTrigger=10, lease=1)
        run_available(frame, tmp_path / checkpoint, forward)

    def fill(first: int, last: int) -> None:
        channel.confirm_delivery()
        for body in numbered(first, last):
            channel.basic_publish("", "q1", body, pika.BasicProperties(delivery_mode=2))

    fill(1, 10 * batches)
    run("first", "app", repeated=True)
    fill(101, 110)
    with pytest.raises(StreamingQueryException, match=r"batch 0 of writer 'app' .* 'txnAppId'"):
        run("second", "app")
    until(lambda: API(broker.http_url).get("queues", "/", "q1")["messages_ready"] == 10)
    run("third", "other")
    expected = sorted(numbered(1, 10 * batches) + numbered(101, 110))
    assert sorted(bytes(row.body) for row in rows_of(spark, broker, queue="out")) == expected


@pytest.mark.slow
def test_a_stream_from_queue_to_queue_repeats_no_micro_batch(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A query killed before Spark's commit of its micro-batch publishes the micro-batch once."""
    channel.queue_declare("out", durable=True)
    published = publish(channel, numbered(1, 40))

    def run() -> None:
        frame = stream(spark, broker, exchange="x", maxMessagesPerTrigger=20).select("routing_key", "body")
        writer = frame.writeStream.format("jumpmq").option("url", broker.http_url).option("queue", "out")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    assert sorted(bytes(row.body) for row in rows_of(spark, broker, queue="out")) == published
    rate = spark.readStream.format("parquet").schema("routing_key string, body string")
    spark.range(100).selectExpr("'k' as routing_key", "cast(id as string) as body").write.parquet(str(tmp_path / "in"))
    for _ in range(2):
        writer = rate.load(str(tmp_path / "in")).writeStream.format("jumpmq").option("url", broker.http_url)
        writer = writer.option("exchange", "x").option("checkpointLocation", str(tmp_path / "other"))
        writer.trigger(availableNow=True).start().awaitTermination()
        for file in (tmp_path / "other" / "commits").iterdir():
            file.unlink()
    assert len(rows_of(spark, broker, exchange="x")) == 100


def test_a_chunk_is_published_in_parts_where_many_queues_get_it(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    """The broker limits the copies per request; a retried batch is still published once."""
    channel.exchange_declare("many", "fanout", durable=True)
    for number in range(100):
        channel.queue_declare(f"many{number}", durable=True)
        channel.queue_bind(f"many{number}", "many")
    frame = spark.range(8192, numPartitions=1).selectExpr("'' as routing_key", "cast(id as string) as body")
    for _ in range(2):
        write(frame, broker, exchange="many", txnAppId="many", txnVersion="1")
    rows = table(spark, broker, queue="many99").orderBy("seq").collect()
    assert [int(row.body) for row in rows] == list(range(8192))


def test_copies_reach_the_queues_of_their_keys(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel
) -> None:
    rows = spark.sql("SELECT 'q1' AS routing_key, 'b' AS body, array('q2') AS cc")
    rows.write.format("jumpmq").mode("append").option("url", broker.http_url).option("exchange", "").save()
    assert [len(table(spark, broker, queue=queue).collect()) for queue in ("q1", "q2")] == [1, 1]
