"""The operator that sets policies on both brokers during a session, and the user with limited permissions."""

import html
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

LIMITED = "limited"
"""Name and password of a user with permissions on some names of a session only."""

_PERMISSIONS = {
    "configure": r"q[13]$|^amq\.gen|e[13]$",
    "write": r"q[13]$|e1$|^amq\.(default|topic|gen)",
    "read": r"q[12]$|e1$|^amq\.",
}
_TOPICS = {"exchange": "amq.topic", "write": "^a", "read": "^[a#]"}


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A policy set or cleared (``body`` is None) by an operator.

    Attributes:
        kind: ``policies`` or ``operator-policies``.
    """

    kind: str
    name: str
    body: dict[str, Any] | None
    method: None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {'cleared' if self.body is None else json.dumps(self.body)}"


@dataclass(frozen=True, slots=True)
class RequestStep:
    """Another request of an operator to the management API, with names in its path."""

    verb: str
    path: str
    body: dict[str, Any] | None
    method: None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path} {'' if self.body is None else json.dumps(self.body)}"


OperatorStep = PolicyStep | RequestStep


class Operator:
    """An administrator of a broker, over HTTP.

    Args:
        http_port: port of the management API.
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

    def take(self, step: OperatorStep, prefix: str) -> tuple[Any, ...]:
        """Take a step. Return the status and the reason, without values that differ between brokers."""
        if isinstance(step, RequestStep):
            return self._request(step, prefix)
        verb = "DELETE" if step.body is None else "PUT"
        answer = self._ask(verb, f"{step.kind}/%2F/{quote(step.name, safe='')}", step.body)
        if answer.status_code < 400 or answer.status_code == 404:  # existence of the object is not compared
            return answer.status_code, ""
        return answer.status_code, _reason(answer, prefix)

    def _request(self, step: RequestStep, prefix: str) -> tuple[Any, ...]:
        answer = self._ask(step.verb, step.path, step.body)
        if answer.status_code == 404:
            return 404, ""
        if answer.status_code >= 400:
            return answer.status_code, _reason(answer, prefix)
        found = json.loads(answer.text.replace(prefix, "")) if answer.text else None
        found = _comparable(found)
        if step.verb == "GET" and isinstance(found, list):
            found.sort(key=repr)
        return answer.status_code, found


def _reason(answer: requests.Response, prefix: str) -> str:
    reason = answer.json()["reason"] if answer.text else ""
    return re.sub(r"(,|=>)\n +", r"\1", html.unescape(reason)).replace(prefix, "")


SHOWN = ("x-queue-type", "classic")
"""RabbitMQ 4.0 adds this argument to a queue declared without a type."""


def _comparable(value: Any) -> Any:
    """The value without the times of deaths and without digests of arguments."""
    if isinstance(value, dict):
        return {
            key: inner.partition("~")[0] if key == "properties_key" else _comparable(inner)
            for key, inner in sorted(value.items())
            if key != "time" and (key, inner) != SHOWN
        }
    if isinstance(value, list):
        return list(map(_comparable, value))
    return value
