"""A warning: a finding for operators, with advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Warning:
    """A warning.

    Attributes:
        kind: short name of the kind.
        severity: ``alarm`` if messages or clients are refused or blocked, otherwise ``warning``.
        object: ``broker``, ``node``, ``exchange``, ``shards`` or ``queue``, of that ``vhost`` and ``name``.
        text: description of the condition.
        advice: the remedy.
        queue: the affected queue, in the same virtual host; "" for several queues.
        messages: number of waiting messages in ``queue``.
        growth: growth of the queue in messages per second; negative for a shrinking queue.
        full_in: seconds until ``max-length`` at this rate; None without growth or limit.
    """

    kind: str
    severity: str
    object: str
    vhost: str
    name: str
    text: str
    advice: str
    queue: str = ""
    messages: int = 0
    growth: float = 0.0
    full_in: float | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Key of the warning: kind, object, virtual host and name. The text may change between checks."""
        return self.kind, self.object, self.vhost, self.name

    def shown(self) -> dict[str, Any]:
        return asdict(self)
