"""A warning: a finding for operators, with advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Warning:
    """One finding.

    Attributes:
        kind: what it is, in a word.
        severity: ``alarm`` where something is refused or blocked, else ``warning``.
        object: ``broker``, ``node``, ``exchange``, ``shards`` or ``queue``, of that ``vhost`` and ``name``.
        text: what is so.
        advice: what to do.
        queue: the affected queue, in the same virtual host; "" for several queues.
        messages: that wait there.
        growth: growth of the queue in messages a second; negative for a shrinking queue.
        full_in: seconds until ``max-length`` is reached at that rate; None where it is not.
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
        """Key of the finding: kind, object, virtual host and name. The text may change."""
        return self.kind, self.object, self.vhost, self.name

    def shown(self) -> dict[str, Any]:
        return asdict(self)
