"""Audit log: one line for every login, refusal, and change of a definition, with facts as values.

The logger is ``jumpmq.audit``, the level info, for refusals warning. A log record has its facts in ``record.facts``, so
that a formatter need not parse the text. Exclusive queues are left out: they begin and end with their connection.
"""

import logging
from dataclasses import fields
from typing import Any

from jumpmq.topology import Bind, Binding, Change, ChangePrincipal, DeclareQueue, DeleteQueue, Topology, Unbind
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.topology import ChangeListener

log = logging.getLogger("jumpmq.audit")

LONGEST = 200
"""Maximum length of a fact, in characters."""


def record(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write a line.

    Args:
        event: description of the event.
        facts: values by name; None is left out.
    """
    if log.isEnabledFor(level):
        kept = {name: _short(value) for name, value in facts.items() if value is not None}
        text = " ".join([event, *(f"{name}={value!r}" for name, value in kept.items())])
        log.log(level, "%s", text, extra={"facts": {"event": event, **kept}})


def refusal(reason: str, **facts: Any) -> None:
    """Log the refusal of a request."""
    record("refused", logging.WARNING, reason=reason, **facts)


def recording(topology: Topology) -> ChangeListener:
    """Return a topology listener that logs changes with their authors."""
    exclusive: set[int] = set()

    def follow(change: Change, principal: ChangePrincipal) -> None:
        if log.isEnabledFor(logging.INFO) and not _is_passing(topology, change, exclusive):
            record(
                _event(change), user=principal.user or None, connection=principal.connection or None, **_facts(change)
            )

    return follow


def _is_passing(topology: Topology, change: Change, exclusive: set[int]) -> bool:
    """Return True if a change concerns an exclusive queue, or declares an existing queue again.

    Args:
        exclusive: numbers of exclusive queues, updated here, because the definition of a deleted queue is gone.
    """
    match change:
        case DeclareQueue(definition):
            queue = topology.vhosts[definition.vhost].declared[definition.name]
            if queue.exclusive:
                exclusive.add(queue.id)
            return queue.exclusive or queue.id != definition.id
        case DeleteQueue(id=number) if number in exclusive:
            exclusive.discard(number)
            return True
        case Bind(vhost, binding) | Unbind(vhost, binding):
            bound = topology.vhosts[vhost].declared.get(binding.destination) if binding.kind == "queue" else None
            return bound is not None and bound.exclusive
    return False


def _event(change: Change) -> str:
    """Return the class name of a change in words: ``declare queue`` for ``DeclareQueue``."""
    name = type(change).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _facts(change: Change) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in [field.name for field in fields(change) if field.name not in change.UNAUDITED]:  # type: ignore[arg-type]
        match getattr(change, name):
            case QueueDefinition() | ExchangeDefinition() as definition:
                facts |= {"vhost": definition.vhost, "name": definition.name, "durable": definition.durable}
            case Binding() as binding:
                facts |= {"source": binding.source, "destination": binding.destination, "kind": binding.kind}
                facts["key"] = binding.key.decode("utf-8", "backslashreplace")
            case value:
                facts["of_user" if name == "user" else name] = value  # ``user`` is the author
    return facts


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
