"""Who sets policies on both brokers during a session, and who made the user that may not do everything."""

import html
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

LIMITED = "limited"
"""A user, with the same password, who may configure, write to and read some of a session's names only."""

_PERMISSIONS = {
    "configure": r"q[13]$|^amq\.gen|e[13]$",
    "write": r"q[13]$|e1$|^amq\.(default|topic|gen)",
    "read": r"q[12]$|e1$|^amq\.",
}
_TOPICS = {"exchange": "amq.topic", "write": "^a", "read": "^[a#]"}


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A policy that an operator sets, or clears (``body`` is None).

    Attributes:
        kind: ``policies`` or ``operator-policies``.
    """

    kind: str
    name: str
    body: dict[str, Any] | None
    method: None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {'cleared' if self.body is None else json.dumps(self.body)}"


class Operator:
    """An administrator of one broker, over HTTP.

    Args:
        http_port: of the management API.
    """

    def __init__(self, http_port: int) -> None:
        self._address = f"http://127.0.0.1:{http_port}/api"
        self._session = requests.Session()
        self._session.auth = ("guest", "guest")
        self._ask("PUT", f"users/{LIMITED}", {"password": LIMITED, "tags": ""})
        self._ask("PUT", f"permissions/%2F/{LIMITED}", _PERMISSIONS)
        self._ask("PUT", f"topic-permissions/%2F/{LIMITED}", _TOPICS)

    def _ask(self, verb: str, path: str, body: Any = None) -> requests.Response:
        return self._session.request(verb, f"{self._address}/{path}", json=body, timeout=30)

    def take(self, step: PolicyStep, prefix: str) -> tuple[int, str]:
        """Do what a step says; returns the status and the reason, without what two brokers cannot have in common."""
        verb = "DELETE" if step.body is None else "PUT"
        answer = self._ask(verb, f"{step.kind}/%2F/{quote(step.name, safe='')}", step.body)
        if answer.status_code < 400 or answer.status_code == 404:  # whether it was there, it may have been before
            return answer.status_code, ""
        reason = answer.json()["reason"] if answer.text else ""
        in_one_line = re.sub(r"(,|=>)\n +", r"\1", html.unescape(reason))
        return answer.status_code, in_one_line.replace(prefix, "")
