"""An operator of policies, through the management API of both brokers."""

import html
from typing import Any
from urllib.parse import quote

import requests

from jumpmq.testing import HOST, BrokerProcess


class Operator:
    """An administrator of a broker; :meth:`leave` deletes all of its objects."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = f"http://{HOST}:{broker.http_port}/api"
        self._session = requests.Session()
        self._session.auth = ("guest", "guest")
        self._set: dict[tuple[str, str], None] = {}

    def ask(self, method: str, *parts: str, **options: Any) -> requests.Response:
        path = "/".join(quote(part, safe="") for part in parts)
        return self._session.request(method, f"{self._address}/{path}", timeout=30, **options)

    def see(self, *parts: str) -> Any:
        response = self.ask("GET", *parts)
        assert response.status_code == 200, response.text
        return response.json()

    # --- policies ---

    def put(self, name: str, body: Any, kind: str = "policies") -> requests.Response:
        self._set[kind, name] = None
        return self.ask("PUT", kind, "/", name, json=body)

    def set_policy(self, name: str, pattern: str, definition: Any, kind: str = "policies", **options: Any) -> None:
        """Set a valid policy; an option ``apply_to`` is written ``apply-to``."""
        fields = {key.replace("_", "-"): value for key, value in options.items()}
        response = self.put(name, {"pattern": pattern, "definition": definition, **fields}, kind)
        assert response.status_code in (201, 204), response.text

    def refusal(self, definition: Any, kind: str = "policies", **fields: Any) -> str:
        """Return the reason of a refused policy with this definition, without RabbitMQ's HTML escapes."""
        response = self.put("refused", {"pattern": "^none$", "definition": definition, **fields}, kind)
        assert response.status_code == 400, response.text
        answer = response.json()
        assert answer["error"] == "bad_request"
        return html.unescape(answer["reason"])

    def clear_policy(self, name: str, kind: str = "policies") -> None:
        assert self.ask("DELETE", kind, "/", name).status_code == 204
        del self._set[kind, name]

    def leave(self) -> None:
        for kind, name in self._set:
            self.ask("DELETE", kind, "/", name)

    # --- what is there ---

    def finds_queue(self, name: str) -> bool:
        """Return true if a queue exists; unlike a passive declaration this does not renew its lease."""
        return self.ask("GET", "queues", "/", name).status_code == 200

    @property
    def node(self) -> str:
        return str(self.see("overview")["node"])

    def shard(self, exchange: str, number: int) -> str:
        """The name of a shard on the broker's node."""
        return f"sharding: {exchange} - {self.node} - {number}"

    def shards(self, exchange: str) -> dict[int, dict[str, Any]]:
        """The queues with names of an exchange's shards, by number."""
        prefix = f"sharding: {exchange} - {self.node} - "
        queues = [queue for queue in self.see("queues", "/") if queue["name"].startswith(prefix)]
        return dict(sorted((int(queue["name"].removeprefix(prefix)), queue) for queue in queues))

    def bound(self, exchange: str) -> list[tuple[int, str]]:
        """Number and binding key of the shards bound to an exchange, sorted."""
        bindings = self.see("exchanges", "/", exchange, "bindings", "source")
        return sorted((int(one["destination"].rpartition(" - ")[2]), one["routing_key"]) for one in bindings)
