"""Policy definitions: a table of valid keys, with RabbitMQ 3.10's error texts.

Beyond RabbitMQ are the highest ``shards-per-node``, the longest ``routing-key``, ``single-active-consumer`` and
``queue-type``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jumpmq.amqp import erlang
from jumpmq.queues import DECLARABLE_TYPES, DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.queues.argument_checks import OVERFLOWS, RETRY_TYPES
from jumpmq.queues.arguments import seconds_of
from jumpmq.topology.shards import MAX_SHARDS

MAX_COUNT = (1 << 63) - 1
"""The largest number that means something: longer ones are more than a queue, a disk or a life can hold."""

MAX_KEY = 255
"""Octets of a binding key (AMQP 0-9-1, short strings)."""

NUMERIC = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
)
"""Keys valid in an operator policy: limits, of which the lower value counts."""

DECLARED_ONLY = frozenset({"slots", "slot-key", "in-flight-per-slot"})
"""Keys to define a queue rather than limit a queue: a policy would have to sort all messages again."""


def problem_of(definition: object, operator: bool = False) -> str | None:
    """Return the problem with a definition, or None.

    Args:
        operator: whether it is an operator policy's.
    """
    if not isinstance(definition, Mapping):
        return f"definition must be a dictionary: {erlang.json_term(definition)}"
    if not definition:
        return "no policy provided"
    known = {key for key in definition if key in NUMERIC or (not operator and key in _KEYS)}
    checked = {key: definition[key] for key in sorted(known)}
    for check in (_sharding_problem, _mirroring_problem, _value_problem):
        if (problem := check(checked)) is not None:
            return problem
    if structural := sorted(set(definition) & DECLARED_ONLY):
        name = structural[0]
        return f"{name} is no policy setting, as messages lie in their slots: declare the queue with x-{name}"
    unknown = [
        f"{{{erlang.json_term(key)},{erlang.json_term(definition[key])}}}"
        for key in sorted(definition)
        if key not in known
    ]
    return f"[{','.join(unknown)}] are not recognised policy settings" if unknown else None


def is_whole(value: object) -> bool:
    """True if a JSON value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


# --- one value at a time ---


def _is_count(value: object) -> bool:
    return isinstance(value, int) and is_whole(value) and 0 <= value <= MAX_COUNT


def _is_limit(value: object) -> bool:
    """A number as it is, or below 0 for none at all."""
    return isinstance(value, int) and is_whole(value) and value <= MAX_COUNT


def _is_positive(value: object) -> bool:
    return _is_count(value) and value != 0


def _is_filter_size(value: object) -> bool:
    return isinstance(value, int) and is_whole(value) and 16 <= value <= 255


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_age(value: object) -> bool:
    return isinstance(value, str) and seconds_of(value) is not None


def _one_of(*values: object) -> Callable[[object], bool]:
    return lambda value: any(type(value) is type(one) and value == one for one in values)


_VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "alternate-exchange": (_is_string, "{} is not a valid alternate exchange name"),
    "dead-letter-exchange": (_is_string, "{} is not a valid dead letter exchange name"),
    "dead-letter-routing-key": (_is_string, "{} is not a valid dead letter routing key"),
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "{} is not a valid dead letter strategy"),
    "message-ttl": (_is_count, "{} is not a valid message TTL"),
    "expires": (_is_positive, "{} is not a valid queue expiry"),
    "max-length": (_is_count, "{} is not a valid maximum length"),
    "max-length-bytes": (_is_count, "{} is not a valid maximum length in bytes"),
    "max-in-memory-length": (_is_count, "{} is not a valid maximum memory in bytes"),
    "max-in-memory-bytes": (_is_count, "{} is not a valid maximum memory in bytes"),
    "queue-mode": (_one_of("default", "lazy"), "{} is not a valid queue-mode value"),
    "queue-version": (_one_of(1, 2), "{} is not a valid queue-version value"),
    "overflow": (_one_of(*OVERFLOWS), "{} is not a valid overflow value"),
    "delivery-limit": (_is_limit, "{} is not a valid delivery limit"),
    "max-age": (_is_age, "{} is not a valid max age"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "{} is not a valid queue leader locator value",
    ),
    "queue-master-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders", "min-masters"),
        "{} is not a valid master locator",
    ),
    "initial-cluster-size": (_is_count, "{} is not a valid cluster size"),
    "stream-filter-size-bytes": (_is_filter_size, "{} is not a valid filter size. Valid range is 16-255"),
    "delayed-retry-type": (_one_of(*RETRY_TYPES), "{} is not a valid delayed retry type"),
    "delayed-retry-min": (_is_positive, "{} is not a valid delayed retry min"),
    "delayed-retry-max": (_is_positive, "{} is not a valid delayed retry max"),
    "delayed-retry-multiplier": (_is_positive, "{} is not a valid delayed retry multiplier"),
    "consumer-timeout": (_is_count, "{} is not a valid consumer timeout"),
    "target-group-size": (_is_positive, "{} is not a valid qq target count value"),
    "stream-max-segment-size-bytes": (_is_count, "{} is not a valid segment size"),
}
"""By key, a check of the value, and the text for an invalid value."""


def _value_problem(definition: Mapping[str, Any]) -> str | None:
    """Return the problem with the first invalid value, in the order of keys."""
    for key in sorted(definition.keys() & _VALUES.keys()):
        is_valid, text = _VALUES[key]
        if not is_valid(definition[key]):
            return text.format(erlang.json_term(definition[key]))
    return None


# --- keys that go together ---

_SHARDING = ("shards-per-node", "routing-key", "single-active-consumer", "queue-type")
_MIRRORING = (
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
)
_KEYS = frozenset({*_VALUES, *_SHARDING, *_MIRRORING})


def _sharding_problem(definition: Mapping[str, Any]) -> str | None:
    if not any(key in definition for key in _SHARDING):
        return None
    if "shards-per-node" not in definition:
        return "shards-per-node must be specified"
    if (problem := _shard_count_problem(definition["shards-per-node"])) is not None:
        return problem
    key = definition.get("routing-key", "")
    if not isinstance(key, str):
        return f"routing-key should be binary, actually was {erlang.json_term(key)}"
    if len(key.encode()) > MAX_KEY:
        return f"routing-key should be at most {MAX_KEY} octets long, actually was {len(key.encode())}"
    single = definition.get("single-active-consumer", False)
    if not isinstance(single, bool):
        return f"single-active-consumer should be true or false, actually was {erlang.json_term(single)}"
    kind = definition.get("queue-type", DEFAULT_QUEUE_TYPE)
    if not isinstance(kind, str) or kind not in DECLARABLE_TYPES:
        return f"queue-type should be one of {', '.join(DECLARABLE_TYPES)}, actually was {erlang.json_term(kind)}"
    if single and QUEUE_TYPES[kind].append_only:
        return f"single-active-consumer is not possible with queue-type {kind}, which every consumer reads whole"
    return None


def _shard_count_problem(count: object) -> str | None:
    shown = erlang.json_term(count)
    if not isinstance(count, int | float) or isinstance(count, bool):
        return f"shards-per-node should be a number, actually was {shown}"
    if not isinstance(count, int):
        return f"shards-per-node should be a whole number, actually was {shown}"
    if count < 0:
        return f"shards-per-node should be greater than 0, actually was {shown}"
    return f"shards-per-node should be at most {MAX_SHARDS}, actually was {shown}" if count > MAX_SHARDS else None


def _mirroring_problem(definition: Mapping[str, Any]) -> str | None:
    """Return the problem with mirroring keys. Queues are not mirrored; policies written for mirroring brokers are
    accepted, and validated as by RabbitMQ.
    """
    if not any(key in definition for key in _MIRRORING):
        return None
    if "ha-mode" not in definition:
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    if (problem := _mirrors_problem(definition["ha-mode"], definition.get("ha-params"))) is not None:
        return problem
    size = definition.get("ha-sync-batch-size", 1)
    for key, allowed in _MIRRORING_VALUES.items():
        if key in definition and definition[key] not in allowed:
            first, second = allowed
            return f'{key} must be "{first}" or "{second}", got {erlang.json_term(definition[key])}'
    return None if _is_positive(size) else f"ha-sync-batch-size takes an integer greater than 0, {_given(size)} given"


_MIRRORING_VALUES = {
    "ha-sync-mode": ("manual", "automatic"),
    "ha-promote-on-shutdown": ("always", "when-synced"),
    "ha-promote-on-failure": ("always", "when-synced"),
}


def _mirrors_problem(mode: object, given: object) -> str | None:
    match mode:
        case "all":
            return None if given is None else 'ha-mode="all" does not take parameters'
        case "exactly":
            return None if _is_positive(given) else f'ha-mode="exactly" takes an integer, {_given(given)} given'
        case "nodes" if isinstance(given, list):
            strange = [one for one in given if not isinstance(one, str)]
            if strange:
                return f'ha-mode="nodes" takes a list of strings, {erlang.json_term(strange)} was not a string'
            return None if given else 'ha-mode="nodes" list must be non-empty'
        case "nodes":
            return f'ha-mode="nodes" takes a list, {_given(given)} given'
    return f"{erlang.json_term(mode)} is not a valid ha-mode value"


def _given(value: object) -> str:
    return "none" if value is None else erlang.json_term(value)
