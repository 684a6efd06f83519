"""Wrong options and missing objects have clear error messages in Spark."""

import socket
import time
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark.sources import declare, publish, stream, table

import jumpmq
from jumpmq.management import ManagementClient
from jumpmq.spark import SCHEMA, JumpMQDataSource, JumpMQError, Router, plain_errors
from jumpmq.spark.client import Client
from jumpmq.spark.errors import reason
from jumpmq.spark.options import BrokerAddress, SourceOptions
from jumpmq.spark.schema import check_schema
from jumpmq.spark.sink import SinkOptions
from jumpmq.testing import RabbitMQ

URL = "http://guest:guest@localhost:15672"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "option 'url' is missing: the management URL, such as http://guest:guest@localhost:15672"),
        ({"url": URL}, "give one of the options 'exchange', to read all queues bound to it, 'queue', 'queues' and"),
        ({"url": URL, "exchange": "x", "queue": "q"}, "give one of the options 'exchange'"),
        ({"url": URL, "queue": "q", "qeue": "q"}, "unknown option 'qeue'; there are url, vhost, brokerRetrySeconds,"),
        ({"url": URL, "queues": " , "}, "option 'queues' must be names of queues with commas between"),
        ({"url": URL, "queue": "ä" * 128}, "the name of a queue has at most 255 octets; 'ääää"),
        ({"url": URL, "queues": "q," + "x" * 256}, "the name of a queue has at most 255 octets; 'xxxx"),
        ({"url": URL, "pattern": "("}, "option 'pattern' is no regular expression"),
        ({"url": URL, "queue": "q", "failOnDataLoss": "perhaps"}, "'failOnDataLoss' must be true or false"),
        ({"url": URL, "queue": "q", "maxMessagesPerTrigger": "0"}, "must be a whole number from 1, not '0'"),
        ({"url": URL, "queue": "q", "maxMessagesPerTrigger": "many"}, "must be a whole number from 1, not 'many'"),
        ({"url": URL, "queue": "q", "lease": "0.5"}, "must be a number of seconds from 1 to 86400, not '0.5'"),
        ({"url": URL, "queue": "q", "group": ""}, "option 'group' must not be empty"),
        (
            {"url": URL, "queue": "q", "minPartitions": "5", "maxPartitions": "2"},
            "'minPartitions' must not be more than",
        ),
        ({"url": URL, "queue": "q", "tlsCa": "ca.pem"}, "are for a URL with https:// or amqps://"),
        ({"url": URL, "queue": "q", "onUnroutable": "drop"}, "unknown option 'onUnroutable'; there are url, vhost,"),
        (
            {"url": URL, "queue": "q", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "'minMessagesPerTrigger' must not be more than option 'maxMessagesPerTrigger'",
        ),
        ({"url": URL, "queue": "q", "maxTriggerDelay": "15m"}, "with option 'minMessagesPerTrigger' only: give both"),
        (
            {"url": URL, "queue": "q", "minMessagesPerTrigger": "5", "maxTriggerDelay": "soon"},
            "option 'maxTriggerDelay' must be a duration such as 90s, 15m or 1h, not 'soon'",
        ),
        (
            {"url": URL, "queue": "q", "maxOffsetsPerTrigger": "5", "maxMessagesPerTrigger": "6"},
            "options 'maxMessagesPerTrigger' and 'maxOffsetsPerTrigger' mean the same",
        ),
        ({"url": URL, "queue": "q", "startingTimestamp": "soon"}, "must be a whole number from 0, not 'soon'"),
        ({"url": URL, "queue": "q", "endingTimestamp": "9" * 18}, "is beyond the year 9999"),
        ({"url": "amqp://one,amqp://two", "queue": "q"}, "option 'url' names several brokers: over AMQP it is one"),
        ({"url": "file:/no/such", "queue": "q"}, "option 'url': /no/such cannot be read: No such file or directory"),
        ({"url": URL, "subscribe": "flights"}, "option 'subscribe' is of Kafka's source: give 'exchange'"),
        (
            {"url": URL, "queue": "q", "startingOffsets": '{"q": "soon"}'},
            "of 'q' must be an offset, earliest or latest",
        ),
        ({"url": URL, "queue": "q", "startingOffsets": "{"}, "option 'startingOffsets' is no JSON object"),
        ({"url": URL, "queue": "q", "vhost": ""}, "option 'vhost' must not be empty"),
        ({"url": URL, "queue": "q", "lease": "nan"}, "must be a number of seconds from 1 to 86400, not 'nan'"),
    ],
)
def test_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(JumpMQError) as error:
        SourceOptions.parse(options)
    assert reason in str(error.value)


def test_options_of_kafka_that_mean_the_same_are_taken() -> None:
    given = {"url": URL, "maxOffsetsPerTrigger": "5", "maxRecordsPerPartition": "6", "subscribePattern": "q.*"}
    ours = {"url": URL, "maxMessagesPerTrigger": "5", "maxMessagesPerPartition": "6", "pattern": "q.*"}
    assert SourceOptions.parse(given) == SourceOptions.parse(ours)
    by_kafka = SourceOptions.parse({"url": URL, "queue": "q", "startingTimestamp": "1769860800000"})
    by_us = SourceOptions.parse({"url": URL, "queue": "q", "startingOffsets": "2026-01-31T12:00:00Z"})
    assert by_kafka.starting_offsets == by_us.starting_offsets


def test_a_url_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "the url"
    file.write_text(f"{URL}\n")
    assert SourceOptions.parse({"url": file.as_uri(), "queue": "q"}) == SourceOptions.parse({"url": URL, "queue": "q"})
    file.write_text(" ")
    with pytest.raises(JumpMQError, match="holds no URL such as"):
        SourceOptions.parse({"url": file.as_uri(), "queue": "q"})


def test_several_urls_are_told_from_a_password_with_commas() -> None:
    urls = "http://me:a,b@one:15672, https://me:a,b@two"
    assert BrokerAddress(urls).urls == ["http://me:a,b@one:15672", "https://me:a,b@two"]


def test_option_names_are_not_case_sensitive() -> None:
    given = {"URL": URL, "Queue": "q", "maxmessagespertrigger": "5", "BROKERRETRYSECONDS": "1.5"}
    assert SourceOptions.parse(given) == SourceOptions(
        BrokerAddress(URL, retry_seconds=1.5), queues=("q",), max_messages=5
    )


@pytest.mark.parametrize(
    "option",
    ["maxMessagesPerTrigger", "maxBytesPerTrigger", "checkpointLocation", "group", "lease", "sameEnds"],
)
def test_options_that_mean_nothing_to_a_table_are_refused(option: str) -> None:
    value = "true" if option == "sameEnds" else "5"
    with pytest.raises(JumpMQError, match=f"option '{option}' is for streaming queries, not for tables"):
        JumpMQDataSource({"url": URL, "queue": "q", option: value}).reader(SCHEMA)


@pytest.mark.parametrize(
    "url", ["localhost:15672", "amqp://localhost", "http://", "http://localhost:99999", "http://[", ""]
)
def test_urls(url: str) -> None:
    with pytest.raises(JumpMQError, match="option 'url'"):
        Client(BrokerAddress(url))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (StructType().add("colour", "string"), "there is no column 'colour'; there are queue, seq, exchange,"),
        (StructType().add("seq", "string"), "column 'seq' is of type bigint, not string"),
        (StructType().add("body", "binary").add("body", "binary"), "column 'body' is named twice"),
    ],
)
def test_schemas(schema: StructType, reason: str) -> None:
    with pytest.raises(JumpMQError, match=reason):
        check_schema(schema)


def test_they_show_in_spark(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="option 'url' is missing"):
        spark.read.format("jumpmq").load()
    with pytest.raises(PySparkException, match="there is no column 'colour'"):
        spark.read.format("jumpmq").option("url", URL).option("queue", "q").schema("colour string").load().collect()
    with pytest.raises(PySparkException, match="make a view, with CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE messages USING jumpmq OPTIONS (url '{URL}', queue 'q')")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queue": "nothing"}, "no queue 'nothing' in vhost '/'"),
        ({"exchange": "nothing"}, "no exchange 'nothing' in vhost '/'"),
        ({"queue": "q", "vhost": "nowhere"}, "no vhost 'nowhere'"),
    ],
)
def test_what_is_not_there(
    spark: SparkSession, broker: jumpmq.RunningBroker, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        table(spark, broker, **options).collect()


def test_a_table_of_queues_has_no_data_to_lose(broker: jumpmq.RunningBroker, channel: BlockingChannel) -> None:
    declare(channel)
    reader = JumpMQDataSource({"url": broker.http_url, "exchange": "x", "failOnDataLoss": "false"}).reader(SCHEMA)
    with pytest.raises(JumpMQError, match="option 'failOnDataLoss' is for streams, and for streaming queries"):
        reader.partitions()


def test_an_error_is_one_sentence_in_notebooks(
    spark: SparkSession, broker: jumpmq.RunningBroker, tmp_path: Path
) -> None:
    with pytest.raises(JumpMQError) as error, plain_errors():
        table(spark, broker, queue="nothing").collect()
    address = broker.http_url.replace("guest:guest@", "")
    assert str(error.value) == f"no queue 'nothing' in vhost '/' (broker at {address})"
    assert error.value.__suppress_context__, "Spark's account is not shown"
    query = stream(spark, broker, queue="nothing").writeStream.format("noop")
    with pytest.raises(JumpMQError, match=r"^no queue 'nothing' in vhost '/' \(broker at [^\n]*\)$"), plain_errors():
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    with pytest.raises(JumpMQError, match=r"^Spark failed: [^\n]*no_such_column[^\n]*$"), plain_errors():
        spark.range(1).select("no_such_column")


def test_an_error_of_foreach_batch_is_its_own_line(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """An error of foreachBatch is a line of its own in Spark's message, which ends with the plan.

    The plan's lines for a union begin as the lines of Java's causes.
    """

    def refuse(batch: object, number: int) -> None:
        raise ValueError(f"number {number}\nand more")

    publish(channel, [b"0"])
    both = [stream(spark, broker, queue=queue) for queue in ("q1", "q2")]
    writer = both[0].union(both[1]).writeStream.foreachBatch(refuse).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(JumpMQError, match=r"^Spark failed: ValueError: number 0$"), plain_errors():
        writer.trigger(availableNow=True).start().awaitTermination()


def test_of_java_s_account_the_last_cause_is_told() -> None:
    account = "An error occurred while calling o1.save.\n: java.lang.OutOfMemoryError: Java heap space\n\tat x"
    assert reason(Exception(account)) == "Spark failed: java.lang.OutOfMemoryError: Java heap space"
    account += "\nCaused by: java.io.IOException: No space left on device\n\tat y"
    assert reason(Exception(account)) == "Spark failed: java.io.IOException: No space left on device"


def test_a_wrong_password(spark: SparkSession, broker: jumpmq.RunningBroker) -> None:
    url = broker.http_url.replace("guest:guest", "guest:wrong")
    with pytest.raises(PySparkException, match="refuses user 'guest': Login failed"):
        table(spark, broker, url=url, queue="q").collect()


def test_a_user_who_may_not_is_not_told_of_the_password(broker: jumpmq.RunningBroker, channel: BlockingChannel) -> None:
    client = ManagementClient(broker.http_url)
    client.put("users", "peter", body={"password": "p", "tags": "management"})
    client.put("permissions", "/", "peter", body={"configure": "", "write": "", "read": ""})
    source = JumpMQDataSource({"url": broker.http_url.replace("guest:guest", "peter:p"), "queue": "q1"})
    with pytest.raises(JumpMQError, match=r"access to queue 'q1' in vhost '/' refused for user 'peter'$"):
        source.reader(SCHEMA).partitions()


@pytest.mark.slow
def test_a_broker_that_went_away(spark: SparkSession, tmp_path: Path) -> None:
    """A query fails at planning, or at its position after ``brokerRetrySeconds``."""
    with jumpmq.running() as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            declare(connection.channel())
        frame = stream(spark, broker, exchange="x", brokerRetrySeconds=1)
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
        while not query.recentProgress:
            assert query.isActive, query.exception()
            time.sleep(0.05)
    with pytest.raises(PySparkException, match=r"nothing listens at .*: is the broker running"):
        query.awaitTermination()
    rows = spark.sql("select 'k' as routing_key, 'b' as body").write.format("jumpmq").mode("append")
    for ask in (
        table(spark, broker, exchange="x").count,
        rows.options(url=broker.http_url, exchange="x").save,
        lambda: Router.from_broker(broker.http_url, "x"),
    ):
        with pytest.raises((PySparkException, JumpMQError), match="is the broker running, and is this its management"):
            ask()


def test_nothing_listening(spark: SparkSession, broker: jumpmq.RunningBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(PySparkException, match=f"nothing listens at http://127.0.0.1:{port}: is the broker running"):
        table(spark, broker, url=f"http://127.0.0.1:{port}", queue="q").collect()


def test_another_kind_of_server() -> None:
    with jumpmq.running() as broker, pytest.raises(JumpMQError, match="speaks AMQP: use the management port"):
        Client(BrokerAddress(f"http://127.0.0.1:{broker.port}")).require_broker()


def test_a_stream_of_an_unknown_queue(spark: SparkSession, broker: jumpmq.RunningBroker, tmp_path: Path) -> None:
    frame = stream(spark, broker, queue="nothing")
    query = (
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    )
    with pytest.raises(PySparkException, match="no queue 'nothing' in vhost '/'"):
        query.start().awaitTermination()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "a\nb\u2028"}, r"no queue 'a\nb\u2028' in vhost '/'"),
        ({"exchange": "a\r\nb"}, r"no exchange 'a\r\nb' in vhost '/'"),
        ({"queue": "q1", "startingOffsets": "1\n2"}, "not '1\\n2'"),
    ],
)
def test_names_with_line_breaks_are_on_one_line(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(JumpMQError) as error, plain_errors():
        table(spark, broker, **options).collect()
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("exchange", ["nothing", "amq.topic"])
def test_a_rabbitmq_is_told_from_a_jumpmq_at_planning(rabbitmq: RabbitMQ, exchange: str) -> None:
    url = f"http://guest:guest@127.0.0.1:{rabbitmq.http_port}"
    source = JumpMQDataSource({"url": url, "exchange": exchange})
    columns = StructType([SCHEMA["routing_key"], SCHEMA["body"]])
    for plan in (
        lambda: source.reader(SCHEMA).partitions(),
        lambda: source.streamReader(SCHEMA).initialOffset(),
        lambda: source.writer(columns, False),
        lambda: source.streamWriter(columns, False),
        lambda: Router.from_broker(url, exchange),
    ):
        with pytest.raises(JumpMQError, match=r"RabbitMQ \d+\.\d+\.\d+ answers at http://127.0.0.1:\d+, not a JumpMQ"):
            plan()


def test_rows_are_written_to_one_node() -> None:
    """A retry at a second node would publish the rows again."""
    with pytest.raises(JumpMQError, match="a retry at another node would publish rows again; give one URL"):
        SinkOptions.parse({"url": f"{URL},{URL}", "exchange": "x"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queue": "q" * 256}, "option 'queue' has at most 255 octets; 'q{40}...' has more"),
        ({"queue": "q", "txnAppId": "é" * 128, "txnVersion": "1"}, "option 'txnAppId' has at most 255 octets"),
        (
            {"queue": "q", "txnAppId": "a", "txnVersion": str(1 << 53)},
            "option 'txnVersion' is at most 90071992547409",
        ),
    ],
)
def test_a_write_without_room_for_an_option_says_which(options: dict[str, str], reason: str) -> None:
    with pytest.raises(JumpMQError, match=reason):
        SinkOptions.parse({"url": URL} | options)
