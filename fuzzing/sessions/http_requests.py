"""Strategies for an operator's requests to the management API during a session. `§` is as in `arguments`."""

from typing import Any

from hypothesis import strategies as st

from fuzzing.sessions.arguments import BUILT_IN_TYPES

_JSON_ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["x-max-length", "x-message-ttl", "x-max-priority", "x-single-active-consumer", "x-unheard-of"]),
    st.sampled_from([1, 2, 5, 60_000, 60_000, -1, True, 1.5, "text", None, [], {}]),
    max_size=2,
)
_HOST = "%2F"


def _request(verb: str, path: str, body: st.SearchStrategy[dict[str, Any]] | None = None) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(verb), st.just(path), st.none() if body is None else body)


def _requests(queue: str, exchange: str) -> st.SearchStrategy[Any]:
    flags = {"durable": st.booleans(), "auto_delete": st.booleans(), "arguments": _JSON_ARGUMENTS}
    at_queue, at_exchange = f"queues/{_HOST}/{queue}", f"exchanges/{_HOST}/{exchange}"
    between = f"bindings/{_HOST}/e/{exchange}/q/{queue}"
    key = st.sampled_from(["", "a", "a.b", "#", queue])
    asked = {"count": st.sampled_from([1, 2, 10]), "encoding": st.sampled_from(["auto", "base64"])}
    ways = st.sampled_from(["ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"])
    message = {
        "routing_key": key,
        "properties": st.sampled_from(
            [{}, {"delivery_mode": 2}, {"priority": 5}, {"headers": {"h": 1}}, {"headers": {"CC": [queue]}}]
        ),
        "payload": st.sampled_from(["over http", ""]),
        "payload_encoding": st.just("string"),
    }
    binding = {"routing_key": key, "arguments": _JSON_ARGUMENTS}
    to_queue = {**message, "routing_key": st.just(queue)}
    return st.one_of(
        _request("PUT", at_queue, st.fixed_dictionaries({}, optional=flags)),
        _request("DELETE", f"{at_queue}/contents"),
        *(_request("DELETE", at_queue + only) for only in ("", "?if-empty=true", "?if-unused=true")),
        _request("POST", f"{at_queue}/get", st.fixed_dictionaries({**asked, "ackmode": ways})),
        _request("GET", f"{at_queue}/bindings"),
        _request("GET", f"{at_queue}?columns=name,durable,auto_delete,exclusive,arguments,type"),
        _request("PUT", at_exchange, st.fixed_dictionaries({"type": BUILT_IN_TYPES}, optional=flags)),
        *(_request("DELETE", at_exchange + only) for only in ("", "?if-unused=true")),
        _request("GET", f"{at_exchange}?columns=name,type,durable,auto_delete,internal,arguments"),
        _request("GET", f"{at_exchange}/bindings/source"),
        _request("POST", f"{at_exchange}/publish", st.fixed_dictionaries(message)),
        _request("POST", f"exchanges/{_HOST}/amq.default/publish", st.fixed_dictionaries(to_queue)),
        _request("POST", between, st.fixed_dictionaries({}, optional=binding)),
        _request("GET", between),
    )


REQUESTS = st.tuples(
    st.sampled_from(["§q1", "§q1", "§q2", "§q3"]), st.sampled_from(["§e1", "§e1", "§e2", "§e3"])
).flatmap(lambda names: _requests(*names))
"""Verb, path and body of an operator's request."""
