"""Spark over TLS: a broker with its own certificate authority, and with client certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pyspark.errors
import pytest
from pyspark.sql import SparkSession
from tests.spark.sources import declare, numbered, publish, run_available, stream, table

import jumpmq
from jumpmq.cli.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(made: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(
        data_dir=tmp_path_factory.mktemp("broker"),
        tls_cert=made.server,
        tls_key=made.server_key,
        tls_ca=made.ca,
        tls_client="required",
    ) as running:
        with pika.BlockingConnection(pika.URLParameters(running.amqp_url)) as connection:
            declare(connection.channel())
            publish(connection.channel(), numbered(1, 40))
        yield running


@pytest.fixture
def options(broker: jumpmq.RunningBroker, made: Certificates) -> dict[str, str]:
    files = {"tlsCa": made.ca, "tlsCertificate": made.client, "tlsKey": made.client_key}
    return {"url": broker.https_url} | {name: str(file) for name, file in files.items()}


def test_read_stream_and_write(
    spark: SparkSession, broker: jumpmq.RunningBroker, options: dict[str, str], tmp_path: Path
) -> None:
    rows = table(spark, broker, exchange="x", **options)
    assert sorted(bytes(row.body) for row in rows.collect()) == numbered(1, 40)
    rows.selectExpr("concat(routing_key, x'2B') routing_key", "body").write.format("jumpmq").options(
        exchange="x", **options
    ).mode("append").save()
    seen = []
    run_available(
        stream(spark, broker, exchange="x", **options), tmp_path, lambda batch, _: seen.extend(batch.collect())
    )
    assert sorted(bytes(row.body) for row in seen) == sorted(2 * numbered(1, 40))


@pytest.mark.parametrize("missing", ["tlsCa", "tlsCertificate"])
def test_who_is_not_trusted(
    spark: SparkSession, broker: jumpmq.RunningBroker, options: dict[str, str], missing: str
) -> None:
    del options[missing]
    with pytest.raises(pyspark.errors.PySparkException) as refused:
        table(spark, broker, exchange="x", **options).collect()
    assert broker.https_url.rpartition("@")[2] in str(refused.value)
