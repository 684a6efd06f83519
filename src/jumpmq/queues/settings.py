"""Settings of queues: one row for each argument ``x-NAME`` of a declaration, policy key NAME, or both.

Everything that depends on a setting's name follows from its row: checks of declarations and policies with RabbitMQ's
texts, queue types, the attribute of :class:`~jumpmq.queues.arguments.Limits`, and the table in ``docs/queues.md``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jumpmq.queues import argument_checks as checks
from jumpmq.queues.argument_checks import seconds_of, timeout_of

MAX_COUNT = (1 << 63) - 1
"""Maximum number in a policy: more than a queue, a disk or a lifetime can hold."""

CLASSIC, QUORUM, STREAM = frozenset({"classic"}), frozenset({"quorum"}), frozenset({"stream"})
TAKEN = CLASSIC | QUORUM
"""Queue types whose messages are removed by consumers."""
ALL = TAKEN | STREAM
NONE: frozenset[str] = frozenset()

Valid = Callable[[object], bool]


def _as_given(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class QueueSetting:
    """One setting.

    Attributes:
        name: policy key; with ``x-`` in front the name of the argument.
        text: what the setting does, for ``docs/queues.md``.
        kinds: queue types that take the argument. Other types refuse a declaration with the argument. A
            setting without ``check`` is never refused.
        check: check of the argument; None for settings without a checked argument.
        policy: check of a policy's value, and RabbitMQ's text for an invalid value; None for settings without a policy
            key.
        by_policy: queue types to which policies with the key apply; further types ignore the whole policy.
        limit: attribute of ``Limits`` set by argument and policy; empty for settings with a reader of their own.
        read: converts a value to a value of the attribute; None if it has no effect.
        lowest: True if the lower value of argument and policy counts; otherwise the argument counts.
        policy_first: queue types for which the policy's value counts in any case.
        operator: True if operator policies may have the key.
    """

    name: str
    text: str
    kinds: frozenset[str] = NONE
    check: checks.Check | None = None
    policy: tuple[Valid, str] | None = None
    by_policy: frozenset[str] = NONE
    limit: str = ""
    read: Callable[[Any], Any] = _as_given
    lowest: bool = False
    policy_first: frozenset[str] = NONE
    operator: bool = False

    @property
    def argument(self) -> str:
        """Name of the argument."""
        return f"x-{self.name}"


def is_whole(value: object) -> bool:
    """True if a JSON value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """True for 0 to 2^63 - 1."""
    return isinstance(value, int) and is_whole(value) and 0 <= value <= MAX_COUNT


def is_positive(value: object) -> bool:
    """True for 1 to 2^63 - 1."""
    return is_count(value) and value != 0


def is_string(value: object) -> bool:
    """True for a string."""
    return isinstance(value, str)


def _is_limit(value: object) -> bool:
    """True for a number; below 0 means unlimited."""
    return isinstance(value, int) and is_whole(value) and value <= MAX_COUNT


def _is_filter_size(value: object) -> bool:
    return isinstance(value, int) and is_whole(value) and 16 <= value <= 255


def _is_age(value: object) -> bool:
    return isinstance(value, str) and seconds_of(value) is not None


def _one_of(*values: object) -> Valid:
    return lambda value: any(type(value) is type(one) and value == one for one in values)


SETTINGS = (
    QueueSetting(
        "expires",
        "milliseconds without consumers, `basic.get` and declarations after which the queue is deleted",
        kinds=TAKEN,
        check=checks.positive_milliseconds,
        policy=(is_positive, "{} is not a valid queue expiry"),
        by_policy=TAKEN,
        limit="expires",
        lowest=True,
        operator=True,
    ),
    QueueSetting(
        "message-ttl",
        "time to live of a ready message, in milliseconds",
        kinds=TAKEN,
        check=checks.milliseconds,
        policy=(is_count, "{} is not a valid message TTL"),
        by_policy=TAKEN,
        limit="message_ttl",
        lowest=True,
        operator=True,
    ),
    QueueSetting(
        "dead-letter-exchange",
        "exchange for messages that expire, overflow or are rejected",
        kinds=TAKEN,
        check=checks.string,
        policy=(is_string, "{} is not a valid dead letter exchange name"),
        by_policy=TAKEN,
        limit="dead_letter_exchange",
    ),
    QueueSetting(
        "dead-letter-routing-key",
        "routing key of dead letters; by default the message's own",
        kinds=TAKEN,
        check=checks.dead_letter_key,
        policy=(is_string, "{} is not a valid dead letter routing key"),
        by_policy=TAKEN,
        limit="dead_letter_routing_key",
    ),
    QueueSetting(
        "dead-letter-strategy",
        "`at-most-once` or `at-least-once`",
        kinds=QUORUM,
        check=checks.dead_letter_strategy,
        policy=(_one_of("at-most-once", "at-least-once"), "{} is not a valid dead letter strategy"),
        by_policy=QUORUM,
        limit="dead_letter_strategy",
    ),
    QueueSetting(
        "max-length",
        "maximum number of ready messages",
        kinds=TAKEN,
        check=checks.integer,
        policy=(is_count, "{} is not a valid maximum length"),
        by_policy=TAKEN,
        limit="max_length",
        lowest=True,
        operator=True,
    ),
    QueueSetting(
        "max-length-bytes",
        "maximum octets of ready bodies; of a stream, of all its segments",
        kinds=ALL,
        check=checks.integer,
        policy=(is_count, "{} is not a valid maximum length in bytes"),
        by_policy=ALL,
        limit="max_length_bytes",
        lowest=True,
        policy_first=STREAM,
        operator=True,
    ),
    QueueSetting(
        "max-in-memory-length",
        "accepted, without effect",
        kinds=QUORUM,
        check=checks.integer,
        policy=(is_count, "{} is not a valid maximum memory in bytes"),
        by_policy=QUORUM,
        operator=True,
    ),
    QueueSetting(
        "max-in-memory-bytes",
        "accepted, without effect",
        kinds=QUORUM,
        check=checks.integer,
        policy=(is_count, "{} is not a valid maximum memory in bytes"),
        by_policy=QUORUM,
        operator=True,
    ),
    QueueSetting(
        "max-priority",
        "highest priority of messages, 1 to 255",
        kinds=CLASSIC,
        check=checks.priority,
    ),
    QueueSetting(
        "overflow",
        "`drop-head`, `reject-publish` or `reject-publish-dlx`",
        kinds=TAKEN,
        check=checks.overflow,
        policy=(_one_of(*checks.OVERFLOWS), "{} is not a valid overflow value"),
        by_policy=TAKEN,
        limit="overflow",
        policy_first=QUORUM,
    ),
    QueueSetting(
        "queue-mode",
        "`default` or `lazy`, without effect",
        kinds=CLASSIC,
        check=checks.queue_mode,
        policy=(_one_of("default", "lazy"), "{} is not a valid queue-mode value"),
        by_policy=CLASSIC,
    ),
    QueueSetting(
        "queue-version",
        "1 or 2, without effect",
        kinds=CLASSIC,
        check=checks.version,
        policy=(_one_of(1, 2), "{} is not a valid queue-version value"),
        by_policy=ALL,
    ),
    QueueSetting(
        "single-active-consumer",
        "one consumer at a time",
        kinds=TAKEN,
        check=checks.boolean,
        limit="single_active_consumer",
    ),
    QueueSetting(
        "message-deduplication",
        "whether a message is dropped while an equal one is in the queue ([Messages once](deduplication.md))",
        kinds=TAKEN,
        check=checks.boolean,
    ),
    QueueSetting(
        "slots",
        "number of slots, 1 to 1,024 ([Consumer groups and slots](consumer-groups.md))",
        kinds=TAKEN,
        check=checks.slots,
    ),
    QueueSetting(
        "slot-key",
        "`routing-key`, `message-id`, `correlation-id` or `header:NAME`",
        kinds=TAKEN,
        check=checks.slot_key,
    ),
    QueueSetting(
        "in-flight-per-slot",
        "maximum number of unacknowledged messages of a slot, 1 to 65,535",
        kinds=TAKEN,
        check=checks.in_flight_per_slot,
    ),
    QueueSetting(
        "delayed-retry-type",
        "returned messages that rest first: `disabled`, `all`, `failed` or `returned` ([Order](order.md#retries))",
        kinds=TAKEN,
        check=checks.retry_type,
        policy=(_one_of(*checks.RETRY_TYPES), "{} is not a valid delayed retry type"),
        by_policy=TAKEN,
        limit="delayed_retry_type",
    ),
    QueueSetting(
        "delayed-retry-min",
        "milliseconds of the first rest",
        kinds=TAKEN,
        check=checks.positive_milliseconds,
        policy=(is_positive, "{} is not a valid delayed retry min"),
        by_policy=TAKEN,
        limit="delayed_retry_min",
    ),
    QueueSetting(
        "delayed-retry-max",
        "milliseconds of the longest rest",
        kinds=TAKEN,
        check=checks.positive_milliseconds,
        policy=(is_positive, "{} is not a valid delayed retry max"),
        by_policy=TAKEN,
        limit="delayed_retry_max",
    ),
    QueueSetting(
        "delayed-retry-multiplier",
        "factor between two rests; by default the delay grows by the initial delay each time",
        kinds=TAKEN,
        check=checks.positive,
        policy=(is_positive, "{} is not a valid delayed retry multiplier"),
        by_policy=TAKEN,
        limit="delayed_retry_multiplier",
    ),
    QueueSetting(
        "ordered-retries",
        "whether the routing key of a resting message rests, too, in a queue without slots",
        kinds=TAKEN,
        check=checks.boolean,
        limit="ordered_retries",
    ),
    QueueSetting(
        "queue-type",
        "`classic`, `quorum` or `stream`",
        kinds=ALL,
        check=checks.string,
    ),
    QueueSetting(
        "max-age",
        "age of a stream's oldest segment: a number of Y, M, D, h, m or s, such as `7D`",
        kinds=STREAM,
        check=checks.age,
        policy=(_is_age, "{} is not a valid max age"),
        by_policy=STREAM,
        limit="max_age",
        read=seconds_of,
        policy_first=STREAM,
    ),
    QueueSetting(
        "stream-max-segment-size-bytes",
        "octets of a stream's segment",
        kinds=STREAM,
        check=checks.integer,
        policy=(is_count, "{} is not a valid segment size"),
        by_policy=STREAM,
        limit="segment_bytes",
        policy_first=STREAM,
    ),
    QueueSetting(
        "initial-cluster-size",
        "in a cluster, places the queue at a home with this number of copies, or with most copies",
        kinds=STREAM,
        check=checks.positive,
        policy=(is_count, "{} is not a valid cluster size"),
        by_policy=STREAM,
    ),
    QueueSetting(
        "stream-filter-size-bytes",
        "16 to 255, without effect",
        kinds=STREAM,
        policy=(_is_filter_size, "{} is not a valid filter size. Valid range is 16-255"),
        by_policy=ALL,
    ),
    QueueSetting(
        "quorum-initial-group-size",
        "in a cluster, places the queue at a home with this number of copies, or with most copies",
        kinds=QUORUM,
        check=checks.positive,
    ),
    QueueSetting(
        "target-group-size",
        "accepted, without effect",
        policy=(is_positive, "{} is not a valid qq target count value"),
        by_policy=QUORUM | STREAM,
    ),
    QueueSetting(
        "delivery-limit",
        "number of returns after which a message is dead-lettered; below 0 unlimited",
        kinds=QUORUM,
        check=checks.any_integer,
        policy=(_is_limit, "{} is not a valid delivery limit"),
        by_policy=QUORUM,
        limit="delivery_limit",
        lowest=True,
        operator=True,
    ),
    QueueSetting(
        "consumer-timeout",
        "milliseconds that a delivery may be unacknowledged; invalid arguments are ignored",
        kinds=ALL,
        policy=(is_count, "{} is not a valid consumer timeout"),
        by_policy=ALL,
        limit="consumer_timeout",
        read=timeout_of,
        lowest=True,
    ),
    QueueSetting(
        "queue-master-locator",
        "as `queue-leader-locator`",
        kinds=CLASSIC,
        check=checks.anything,
        policy=(
            _one_of("client-local", "balanced", "random", "least-leaders", "min-masters"),
            "{} is not a valid master locator",
        ),
        by_policy=CLASSIC,
    ),
    QueueSetting(
        "queue-leader-locator",
        "node of a new queue: `client-local` or `balanced` ([Cluster](cluster.md))",
        kinds=ALL,
        check=checks.queue_locator,
        policy=(
            _one_of("client-local", "balanced", "random", "least-leaders"),
            "{} is not a valid queue leader locator value",
        ),
        by_policy=ALL,
    ),
)
"""All settings, in the order in which RabbitMQ checks the arguments of a declaration."""

POLICIES: Mapping[str, tuple[Valid, str]] = {row.name: row.policy for row in SETTINGS if row.policy is not None}
"""By policy key, a check of the value, and the text for an invalid value."""

OPERATOR_KEYS = frozenset(row.name for row in SETTINGS if row.operator)
"""Keys valid in an operator policy: limits, of which the lower value counts."""

MIRRORING_KEYS = frozenset({"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"})
"""Keys of policies that apply to classic queues only, where they have no effect: queues are not mirrored."""


def argument_checks(kind: str) -> Mapping[str, checks.Check]:
    """Return the checks of a queue type's arguments, in the order of checking."""
    return {row.argument: row.check for row in SETTINGS if kind in row.kinds and row.check is not None}


def refused_policy_keys(kind: str) -> frozenset[str]:
    """Return the policy keys that keep a policy from applying to a queue type."""
    refused = frozenset(row.name for row in SETTINGS if row.policy is not None and kind not in row.by_policy)
    return refused if kind in CLASSIC else refused | MIRRORING_KEYS
