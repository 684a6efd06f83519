"""Policy definitions: checks of their keys, with RabbitMQ's error texts.

``queues/settings.py`` has the keys of queues.

Beyond RabbitMQ: the maxima of ``shards-per-node`` and ``routing-key``, ``single-active-consumer`` and ``queue-type``.
"""

from collections.abc import Mapping
from typing import Any

from jumpmq.amqp import erlang
from jumpmq.queues import DECLARABLE_TYPES, DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.queues.settings import MIRRORING_KEYS, OPERATOR_KEYS, POLICIES, is_positive, is_string
from jumpmq.topology.shards import MAX_SHARDS

MAX_KEY = 255
"""Octets of a binding key (AMQP 0-9-1, short strings)."""

DECLARED_ONLY = frozenset({"slots", "slot-key", "in-flight-per-slot"})
"""Keys that define a queue: a policy with such a key would have to sort all messages again."""


def problem_of(definition: object, operator: bool = False) -> str | None:
    """Return the problem with a definition, or None.

    Args:
        operator: True for an operator policy.
    """
    if not isinstance(definition, Mapping):
        return f"definition must be a dictionary: {erlang.json_term(definition)}"
    if not definition:
        return "no policy provided"
    known = {key for key in definition if key in OPERATOR_KEYS or (not operator and key in _KEYS)}
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


_VALUES = {"alternate-exchange": (is_string, "{} is not a valid alternate exchange name"), **POLICIES}
"""By key, a check of the value, and the text for an invalid value."""


def _value_problem(definition: Mapping[str, Any]) -> str | None:
    """Return the problem with the first invalid value, in the order of keys."""
    for key in sorted(definition.keys() & _VALUES.keys()):
        is_valid, text = _VALUES[key]
        if not is_valid(definition[key]):
            return text.format(erlang.json_term(definition[key]))
    return None


# combinations of keys

_SHARDING = ("shards-per-node", "routing-key", "single-active-consumer", "queue-type")
_MIRRORING = MIRRORING_KEYS | {"ha-sync-batch-size"}
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
    return None if is_positive(size) else f"ha-sync-batch-size takes an integer greater than 0, {_given(size)} given"


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
            return None if is_positive(given) else f'ha-mode="exactly" takes an integer, {_given(given)} given'
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
