"""Description of a DataFrame's reads from a broker; Spark's ``explain`` shows none for Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from jumpmq.spark.clients import client_of
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.spark.sql import configured
from jumpmq.spark.streams.kinds import queue_names


def explain(frame: DataFrame) -> None:
    """Print the reads of a DataFrame: exchange, queues or pattern, columns, and the current messages by queue.

    Raises:
        JumpMQError: an option makes no sense, the broker does not answer, or the session is one of Spark Connect, which
            does not give the plan.
    """
    try:
        plan: Any = frame._jdf.queryExecution().analyzed()
    except PySparkException:
        raise JumpMQError("explain needs the plan of the DataFrame, and Spark Connect does not give the plan") from None
    in_session = type("InSession", (JumpMQDataSource,), {"session": configured(frame.sparkSession)})
    for options, columns in _sources(plan):
        for line in _lines(in_session(options), columns):
            print(line)


def _sources(plan: Any) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield options and columns of the JumpMQ sources in a plan of the JVM."""
    leaves = plan.collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        kind = leaf.getClass().getSimpleName()
        if kind == "StreamingRelationV2":
            name, found = leaf.sourceName(), leaf.extraOptions()
        elif kind == "DataSourceV2Relation":
            name, found = leaf.table().name(), leaf.options()
        else:
            continue
        if name == "jumpmq":
            output = leaf.output()
            columns = [output.apply(at).name() for at in range(output.size())]
            yield dict(found.asCaseSensitiveMap()), columns


def _lines(source: JumpMQDataSource, columns: list[str]) -> Iterator[str]:
    options = SourceOptions.parse(source.given)
    client, place = client_of(options.broker), options.starting_offsets
    client.require_broker()
    timestamp = None if place is None else place.timestamp
    found = client.ranges(options.exchange, queue_names(client, options), timestamp=timestamp)
    yield f"{options.subject}: {', '.join(columns)}"
    for name, at in found.items():
        count = at["messages"]
        numbers = f", numbers {at['first_seq']} to {at['last_seq']}" if count else ""
        yield f"  {name} ({at['type']}): {count:,} messages{numbers}"
