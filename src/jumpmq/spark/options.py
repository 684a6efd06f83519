"""Options of the source, and those common to source and sink."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from jumpmq.management import ClientTLS
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.streams.places import StreamsPlace

T = TypeVar("T")

MAX_NAME = 255
"""Maximum length of a name, in octets: a short string of AMQP."""

URL_MISSING = (
    "option 'url' is missing: the management URL, such as http://guest:guest@localhost:15672; or set spark.jumpmq.url "
    "of the session before jumpmq.spark.register"
)


_BETWEEN_URLS = re.compile(r"\s*,\s*(?=[a-z]+://)")
"""A comma followed by a URL: further commas may be part of a password."""

IN_CATALOG = (
    "a table in Spark's catalog loses its options where a Python source reads or writes it: make a view, with CREATE "
    "TEMPORARY VIEW ... USING jumpmq OPTIONS (url '...', queue '...'), which INSERT INTO takes, too"
)


@dataclass(frozen=True)
class BrokerAddress:
    """Address of the broker.

    Attributes:
        url: the management URL with user and password, such as ``http://guest:guest@localhost:15672``; URLs of several
            nodes of one cluster are separated by commas.
        vhost: the virtual host, ``/`` by default.
        retry_seconds: ``brokerRetrySeconds``: how long requests to a broker that is away are repeated before the query
            fails.
        tls: ``tlsCa``, ``tlsCertificate`` and ``tlsKey``: paths of TLS files, valid on every machine that reads or
            writes.
    """

    url: str
    vhost: str = "/"
    retry_seconds: float = 60.0
    tls: ClientTLS = field(default_factory=ClientTLS)

    @property
    def urls(self) -> list[str]:
        """The URLs, separated."""
        return _BETWEEN_URLS.split(self.url.strip())

    @property
    def speaks_amqp(self) -> bool:
        """True for an AMQP URL, False for a management URL."""
        return self.url.startswith(("amqp:", "amqps:"))


@dataclass(frozen=True)
class SourceOptions:
    """Options set by ``.option(...)`` on a read; names are not case-sensitive.

    Attributes:
        broker: the broker to read from.
        exchange: read all queues that are bound to this exchange, directly or through other exchanges.
        queues: read these queues: option ``queue`` names one, ``queues`` several, separated by commas.
        pattern: read the queues whose whole names match this regular expression.
        group: the name under which a streaming query reserves messages. By default each query makes a name and keeps
            the name in its checkpoint. Queries with different checkpoints cannot share a group.
        max_messages: ``maxMessagesPerTrigger``: maximum number of messages of a micro-batch, over all queues. The
            broker holds these messages in memory until the micro-batch is complete.
        max_octets: ``maxBytesPerTrigger``: maximum size of the bodies of a micro-batch, in octets; a larger message is
            a micro-batch of its own.
        min_messages: ``minMessagesPerTrigger``: number of messages that a micro-batch waits for; None for no wait.
        max_trigger_delay: ``maxTriggerDelay``: seconds after the last micro-batch until fewer messages are enough.
        max_partitions: maximum number of partitions of a batch, unless ``max_messages_per_partition`` needs more.
        min_partitions: minimum number of partitions of a batch, if the batch has as many messages.
        max_messages_per_partition: maximum number of messages of a partition.
        same_ends: True to end a continued ``availableNow`` run where the failed run would have ended: messages
            published since are left for the next run.
        keep_order: True to read the messages of a queue in a single partition per batch, in order.
        lease: seconds without a request of a streaming query after which the broker returns the query's reserved
            messages to the queues.
        fail_on_data_loss: True to end a query with an error when unread messages are gone.
        starting_offsets, ending_offsets: where reading of streams begins and, in a batch read, ends; None by default.
        checkpoint: ``checkpointLocation``, the same as the query's: a micro-batch is then acknowledged as soon as
            Spark's commit log has it, otherwise when the next micro-batch is planned.
        share_queues: ``shareQueues``: True to read queues together with other queries that have this option; each
            message goes to one of the queries.
        columns: the columns to read, unless the user gives a schema; None for those of
            :data:`jumpmq.spark.schema.SCHEMA`.
        given: the names of the given options, in lower case.
    """

    broker: BrokerAddress
    exchange: str | None = None
    queues: tuple[str, ...] = ()
    pattern: str | None = None
    group: str | None = None
    max_messages: int = 1_000_000
    max_octets: int | None = None
    min_messages: int | None = None
    max_trigger_delay: float = 900.0
    max_partitions: int | None = None
    min_partitions: int = 1
    max_messages_per_partition: int | None = None
    same_ends: bool = False
    keep_order: bool = False
    lease: float = 60.0
    fail_on_data_loss: bool = True
    checkpoint: str | None = None
    starting_offsets: StreamsPlace | None = None
    ending_offsets: StreamsPlace | None = None
    share_queues: bool = False
    columns: tuple[str, ...] | None = None
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Validate the options of a read.

        Raises:
            JumpMQError: an option is missing, unknown, or has an invalid value.
        """
        given = known(options, BROKER_OPTIONS | SOURCE_OPTIONS)
        if "url" not in given:
            raise JumpMQError(URL_MISSING)
        named = [name for name in ("exchange", "queue", "queues", "pattern") if name in given]
        if len(named) != 1:
            raise JumpMQError(
                "give one of the options 'exchange', to read all queues bound to it, 'queue', 'queues' and 'pattern'"
            )
        if given.get("min_partitions", 1) > given.get("max_partitions", given.get("min_partitions", 1)):
            raise JumpMQError("option 'minPartitions' must not be more than option 'maxPartitions'")
        if "max_trigger_delay" in given and "min_messages" not in given:
            raise JumpMQError("option 'maxTriggerDelay' is of use with option 'minMessagesPerTrigger' only: give both")
        if given.get("min_messages", 1) > given.get("max_messages", cls.max_messages):
            raise JumpMQError("option 'minMessagesPerTrigger' must not be more than option 'maxMessagesPerTrigger'")
        queues = given.pop("queues", ())
        if "queue" in given:
            queues = (given.pop("queue"),)
        for name in queues:
            if len(name.encode(errors="surrogatepass")) > MAX_NAME:
                raise JumpMQError(f"the name of a queue has at most {MAX_NAME} octets; '{name[:40]}...' has more")
        names = frozenset(by_our_names(options))
        return cls(broker=broker_of(given), queues=queues, given=names, **given)

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Refuse options without an effect on this read.

        Args:
            reason: the purpose of the options, for the error.

        Raises:
            JumpMQError: one of the options was given.
        """
        for name in names:
            if name.lower() in self.given:
                raise JumpMQError(f"option '{name}' is {reason}")

    @property
    def subject(self) -> str:
        """Description of the source; a checkpoint belongs to one source."""
        if self.exchange is not None:
            what = f"exchange '{self.exchange}'"
        elif self.pattern is not None:
            what = f"queues like '{self.pattern}'"
        else:
            what = "queue " + ", ".join(f"'{queue}'" for queue in self.queues)
        return f"{what} in vhost '{self.broker.vhost}'"


Reads = dict[str, tuple[str, Callable[[str, str], Any]]]
"""Options by lower-case name: the field, and a parser of name and value."""


def known(options: Mapping[str, str], reads: Reads) -> dict[str, Any]:
    """Return the values of the given options, by field.

    Raises:
        JumpMQError: an option is unknown, or has an invalid value.
    """
    given, spelled = by_our_names(options), _as_spelled(options)
    if "provider" in given:  # added by Spark for a table in the catalog
        raise JumpMQError(IN_CATALOG)
    unknown = set(given) - set(reads)
    for name in sorted(unknown & set(OF_KAFKA)):
        raise JumpMQError(f"option '{spelled[name]}' is of Kafka's source: {OF_KAFKA[name]}")
    if unknown:
        names = ", ".join(NAMES.get(name, name) for name in reads)
        raise JumpMQError(f"unknown option '{NAMES.get(min(unknown), min(unknown))}'; there are {names}")
    return {reads[name][0]: reads[name][1](NAMES.get(name, name), value) for name, value in given.items()}


def _as_spelled(options: Mapping[str, str]) -> dict[str, str]:
    """Return the names of options as given, by the names in lower case."""
    return {name.lower(): name for name in options}


def by_our_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by JumpMQ's names in lower case; options of Kafka's source with equal meaning are renamed.

    Raises:
        JumpMQError: an option is given by both names.
    """
    given = {name.lower(): value for name, value in options.items()}
    spelled = _as_spelled(options)
    for alias, ours in KAFKAS_NAMES.items():
        if alias not in given:
            continue
        if ours in given:
            raise JumpMQError(f"options '{NAMES.get(ours, ours)}' and '{spelled[alias]}' mean the same: give one")
        value = given.pop(alias)
        given[ours] = _time_of(spelled[alias], value) if alias.endswith("timestamp") else value
    return given


def _time_of(name: str, milliseconds: str) -> str:
    """Convert Kafka's milliseconds since the epoch to a time in ISO 8601."""
    since = whole(name, milliseconds)
    try:
        return datetime.fromtimestamp(since / 1000, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        raise JumpMQError(f"option '{name}' is beyond the year 9999: '{milliseconds}' milliseconds") from None


def broker_of(given: dict[str, Any]) -> BrokerAddress:
    """Remove the broker's options from ``given`` and return them.

    Raises:
        JumpMQError: there is no URL.
    """
    if "url" not in given:
        raise JumpMQError(URL_MISSING)
    tls = ClientTLS(given.pop("ca", None), given.pop("certificate", None), given.pop("key", None))
    fields = {name: given.pop(name) for name in ("url", "vhost", "retry_seconds") if name in given}
    fields["url"] = _url_in_file(fields["url"])
    if tls != ClientTLS() and fields["url"].startswith(("http:", "amqp:")):
        raise JumpMQError("options 'tlsCa', 'tlsCertificate' and 'tlsKey' are for a URL with https:// or amqps://")
    broker = BrokerAddress(tls=tls, **fields)
    if broker.speaks_amqp and len(broker.urls) > 1:
        raise JumpMQError("option 'url' names several brokers: over AMQP it is one")
    return broker


def _url_in_file(url: str) -> str:
    """Return the URL; for ``file:PATH``, the URL in the file.

    Raises:
        JumpMQError: the file cannot be read, or is empty.
    """
    if not url.startswith("file:"):
        return url
    path = Path(unquote(urlsplit(url).path))
    try:
        found = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise JumpMQError(f"option 'url': {path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if not found or found.startswith("file:"):
        raise JumpMQError(f"option 'url': {path} holds no URL such as http://user:password@host:15672")
    return found


def text(name: str, value: str) -> str:
    """Return the text."""
    return value


def nonempty_text(name: str, value: str) -> str:
    """Return the text, refused if empty."""
    if not value:
        raise JumpMQError(f"option '{name}' must not be empty")
    return value


def truth(name: str, value: str) -> bool:
    """Parse ``true`` or ``false``."""
    if value.lower() not in ("true", "false"):
        raise JumpMQError(f"option '{name}' must be true or false, not '{value}'")
    return value.lower() == "true"


def count(name: str, value: str) -> int:
    """Parse an integer from 1."""
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 19 and int(value)):
        raise JumpMQError(f"option '{name}' must be a whole number from 1, not '{value}'")
    return int(value)


def whole(name: str, value: str) -> int:
    """Parse an integer from 0."""
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 19):
        raise JumpMQError(f"option '{name}' must be a whole number from 0, not '{value}'")
    return int(value)


def seconds(lowest: float) -> Callable[[str, str], float]:
    """Return a parser of seconds from ``lowest`` to a day."""

    def read(name: str, value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            found = -1.0
        if not lowest <= found <= 86400:
            raise JumpMQError(f"option '{name}' must be a number of seconds from {lowest:g} to 86400, not '{value}'")
        return found

    return read


_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|min|h|d|)\s*", re.ASCII)
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(name: str, value: str) -> float:
    """Parse a number of seconds, or a number with a unit of Spark's durations; return seconds."""
    found = _DURATION.fullmatch(value.lower())
    if found is None:
        raise JumpMQError(f"option '{name}' must be a duration such as 90s, 15m or 1h, not '{value}'")
    return float(found[1]) * _UNITS[found[2]]


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return a parser for the given words only."""

    def read(name: str, value: str) -> str:
        if value.lower() not in words:
            raise JumpMQError(f"option '{name}' must be {' or '.join(words)}, not '{value}'")
        return value.lower()

    return read


def _names(name: str, value: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in value.split(",") if one.strip())
    if not found or len(set(found)) < len(found):
        raise JumpMQError(f"option '{name}' must be names of queues with commas between, each once, not '{value}'")
    return found


def _columns(name: str, value: str) -> tuple[str, ...]:
    from jumpmq.spark.schema import COLUMNS, SCHEMA

    given = [one.strip() for one in value.split(",")]
    found = tuple(column for one in given for column in (SCHEMA.names if one == "*" else [one]))
    if len(set(found)) < len(found) or not set(found) <= set(COLUMNS.names):
        raise JumpMQError(f"option '{name}' must be some of {', '.join(COLUMNS.names)}, each once, not '{value}'")
    return found


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise JumpMQError(f"option '{name}' is no regular expression: {error}") from None
    return value


KAFKAS_NAMES = {
    "maxoffsetspertrigger": "maxmessagespertrigger",
    "minoffsetspertrigger": "minmessagespertrigger",
    "maxrecordsperpartition": "maxmessagesperpartition",
    "subscribepattern": "pattern",
    "startingtimestamp": "startingoffsets",
    "endingtimestamp": "endingoffsets",
}
"""Options of Kafka's source with the same meaning, by JumpMQ's; Kafka's timestamps are milliseconds since the epoch."""

OF_KAFKA = {
    "kafka.bootstrap.servers": "give 'url', the management URL, such as http://guest:guest@localhost:15672",
    "subscribe": "give 'exchange', for all queues bound to it, or 'queues'",
    "assign": "give 'queues', and 'startingOffsets' for streams",
    "topic": "give 'exchange', or a column of that name",
    "startingoffsetsbytimestamp": "give 'startingOffsets' a time, such as 2026-01-31T12:00:00Z",
    "endingoffsetsbytimestamp": "give 'endingOffsets' a time, such as 2026-01-31T12:00:00Z",
    "groupidprefix": "give 'group', the name under which the query reserves messages",
    "kafka.group.id": "give 'group', the name under which the query reserves messages",
    "includeheaders": "the column 'headers' is there anyway",
    "fetchoffset.numretries": "give 'brokerRetrySeconds'",
    "kafkaconsumer.polltimeoutms": "give 'brokerRetrySeconds'",
}
"""Refused options of Kafka's source and sink, with the alternative."""

HELD_BACK = ("minMessagesPerTrigger", "maxTriggerDelay")
"""Options for the minimum size of micro-batches."""

TRIGGERED = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "checkpointLocation", *HELD_BACK)
"""Options of streaming queries."""

RESERVED = ("group", "lease", "sameEnds", "shareQueues")
"""Options of queries that reserve messages."""

BROKER_OPTIONS: Reads = {
    "url": ("url", text),
    "vhost": ("vhost", nonempty_text),
    "brokerretryseconds": ("retry_seconds", seconds(0)),
    "tlsca": ("ca", text),
    "tlscertificate": ("certificate", text),
    "tlskey": ("key", text),
}

SOURCE_OPTIONS: Reads = {
    "exchange": ("exchange", text),
    "queue": ("queue", nonempty_text),
    "queues": ("queues", _names),
    "columns": ("columns", _columns),
    "pattern": ("pattern", _pattern),
    "group": ("group", nonempty_text),
    "maxmessagespertrigger": ("max_messages", count),
    "maxbytespertrigger": ("max_octets", count),
    "minmessagespertrigger": ("min_messages", count),
    "maxtriggerdelay": ("max_trigger_delay", duration),
    "maxpartitions": ("max_partitions", count),
    "minpartitions": ("min_partitions", count),
    "maxmessagesperpartition": ("max_messages_per_partition", count),
    "keeporder": ("keep_order", truth),
    "sameends": ("same_ends", truth),
    "lease": ("lease", seconds(1)),
    "sharequeues": ("share_queues", truth),
    "failondataloss": ("fail_on_data_loss", truth),
    "checkpointlocation": ("checkpoint", text),
    "startingoffsets": ("starting_offsets", StreamsPlace.parse),
    "endingoffsets": ("ending_offsets", StreamsPlace.parse),
}

NAMES = {
    name.lower(): name
    for name in (
        *("brokerRetrySeconds", "tlsCa", "tlsCertificate", "tlsKey", "maxMessagesPerTrigger", "maxBytesPerTrigger"),
        *("minMessagesPerTrigger", "maxTriggerDelay"),
        *("maxPartitions", "minPartitions", "maxMessagesPerPartition", "keepOrder", "sameEnds", "failOnDataLoss"),
        *(
            "checkpointLocation",
            "startingOffsets",
            "endingOffsets",
            "onUnroutable",
            "deliveryMode",
            "deadLetterExchange",
            "txnAppId",
            "txnVersion",
            "shareQueues",
        ),
    )
}
"""Options by lower-case name, in their usual spelling."""
