"""The page's requests to the broker: histories, warnings, traffic of rings, effects of a change."""

from collections.abc import Iterable

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.waiting import until


@pytest.fixture
def ring(channel: BlockingChannel) -> str:
    """An exchange that hashes the header ``user`` over three queues."""
    channel.exchange_declare("orders", "x-consistent-hash", durable=True, arguments={"hash-header": "user"})
    for name in ("q1", "q2", "q3"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "orders", "1")
    return "orders"


def send(channel: BlockingChannel, users: Iterable[str | None]) -> None:
    for user in users:
        headers = {} if user is None else {"user": user}
        channel.basic_publish("orders", "", b"order", pika.BasicProperties(headers=headers))


def kinds(api: API) -> set[tuple[str, str]]:
    return {(one["kind"], one["name"]) for one in api.get("warnings")}


def test_the_traffic_of_a_ring_is_counted_by_destination_and_key(api: API, channel: BlockingChannel, ring: str) -> None:
    send(channel, [*[f"user-{number}" for number in range(300)], *["hot"] * 200])
    shown = until(lambda: (found := api.get("exchanges", "/", ring, "ring", "traffic"))["messages"] == 500 and found)
    assert shown["hashed"] == "header user"
    assert sum(one["messages"] for one in shown["destinations"]) == 500
    assert shown["keys"] == pytest.approx(301, rel=0.15)
    assert shown["hottest"][0]["key"] == "hot"
    assert shown["hottest"][0]["share"] == pytest.approx(0.4, abs=0.02)
    assert shown["spread"]["messages"]["p_value"] < 0.001
    assert shown["spread"]["keys"]["p_value"] > 0.0001
    held = {one["destination"]: one["messages"] for one in shown["destinations"]}
    assert held == {name: api.get("queues", "/", name)["messages"] for name in held}


def test_a_hot_key_is_warned_of_with_its_name(api: API, channel: BlockingChannel, ring: str) -> None:
    send(channel, [*[f"user-{number}" for number in range(300)], *["hot"] * 200])
    until(lambda: ("hot-key", ring) in kinds(api))
    (warning,) = [one for one in api.get("warnings") if one["kind"] == "hot-key"]
    assert "'hot'" in warning["text"] and warning["advice"]


def test_messages_without_the_header_are_warned_of(api: API, channel: BlockingChannel, ring: str) -> None:
    send(channel, [None] * 50 + ["somebody"])
    until(lambda: ("missing-header", ring) in kinds(api))
    shown = api.get("exchanges", "/", ring, "ring", "traffic")
    assert (shown["missing"], shown["missing_since_start"], shown["messages"]) == (50, 50, 51)


def test_a_ring_that_spreads_well_is_not_warned_of(api: API, channel: BlockingChannel, ring: str) -> None:
    send(channel, [f"user-{number}" for number in range(3000)])
    until(lambda: api.get("exchanges", "/", ring, "ring", "traffic")["messages"] == 3000)
    assert not [one for one in api.get("warnings") if one["object"] == "exchange"]


def test_a_change_of_the_ring_begins_the_counts_anew(api: API, channel: BlockingChannel, ring: str) -> None:
    send(channel, ["a", "b", "c"])
    until(lambda: api.get("exchanges", "/", ring, "ring", "traffic")["messages"] == 3)
    channel.queue_unbind("q1", ring, "1")
    shown = api.get("exchanges", "/", ring, "ring", "traffic")
    assert [one["destination"] for one in shown["destinations"]] == ["q2", "q3"]
    assert shown["messages"] == 0


def test_a_shard_without_a_consumer_is_warned_of(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("sharded", "x-modulus-hash", durable=True)
    api.request("PUT", "policies", "/", "shards", json={"pattern": "^sharded$", "definition": {"shards-per-node": 3}})
    for _ in range(2):
        channel.basic_consume("sharded", lambda *_: None)
    (warning,) = [one for one in api.get("warnings") if one["kind"] == "shard-without-consumer"]
    assert "1 of 3 shards" in warning["text"]


def test_a_slow_consumer_and_a_full_queue_are_warned_of(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("slow", durable=True, arguments={"x-max-length": 200})
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("slow", lambda *_: None)
    publish(channel, "slow", [b"work"] * 205)
    until(lambda: {("slow-consumer", "slow"), ("queue-full", "slow")} <= kinds(api))
    (warning,) = [one for one in api.get("warnings") if one["kind"] == "slow-consumer"]
    assert "whole prefetch (5 messages)" in warning["advice"]
    channel.basic_consume("slow", lambda *_: None)

    def together() -> list[str]:
        publish(channel, "slow", [b"work"] * 20)
        return [one["advice"] for one in api.get("warnings") if "(10 messages together)" in one["advice"]]

    assert until(together)


def test_a_history_tells_what_came_and_how_much_waits(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("work", durable=True)
    until(lambda: api.get("history", "queues", "/", "work")["at"])
    publish(channel, "work", [b"work"] * 50)
    shown = until(lambda: 50 in (found := api.get("history", "queues", "/", "work"))["ready"] and found)
    assert len({len(column) for name, column in shown.items() if name not in ("interval", "events")}) == 1
    assert sum(shown["publish"]) > 0
    overall = api.get("history", seconds=60)
    assert overall["interval"] == 1 and overall["ready"][-1] == 50 and overall["memory"][-1] > 1e6
    assert api.get("history", seconds=3600)["interval"] == 60
    assert api.request("GET", "history", params={"seconds": "0"}).status_code == 400


def test_what_if_foretells_what_moves_and_changes_nothing(api: API, channel: BlockingChannel, ring: str) -> None:
    before = api.get("exchanges", "/", ring, "ring")
    found = api.post("exchanges", "/", ring, "ring", "what-if", body={"changes": [{"destination": "q1", "weight": 0}]})
    assert found["removal"] == "minimal"
    assert found["least"] == pytest.approx(1 / 3, abs=0.001)
    assert found["outcomes"]["minimal"]["moved"] == pytest.approx(1 / 3, abs=0.01)
    assert found["outcomes"]["shift"]["moved"] > found["outcomes"]["minimal"]["moved"]
    assert found["weights"]["after"] == {"q2": 1, "q3": 1}
    assert api.get("exchanges", "/", ring, "ring") == before
    refused = api.request(
        "POST", "exchanges", "/", ring, "ring", "what-if", json={"changes": [{"destination": "x", "weight": 0}]}
    )
    assert refused.status_code == 400 and "not bound" in refused.json()["reason"]


def test_changes_of_a_ring_are_made_as_they_were_foretold_or_not_at_all(
    api: API, channel: BlockingChannel, ring: str
) -> None:
    channel.queue_declare("q4", durable=True)
    place = ("exchanges", "/", ring, "ring")
    changes = [("q1", 0), ("q2", 3), ("q4", 2)]
    body = {"changes": [{"destination": name, "weight": weight} for name, weight in changes]}
    foretold = api.post(*place, "what-if", body=body)["weights"]["after"]
    made = {one["destination"]: one["weight"] for one in api.post(*place, "changes", body=body)["destinations"]}
    assert made == foretold == {"q2": 3, "q3": 1, "q4": 2}
    before = api.get(*place)
    assert api.post(*place, "changes", body={"changes": body["changes"][1:]})  # once more: nothing changes
    assert api.get(*place) == before
    for changes, said in (
        ([("q3", 0), ("unknown", 1)], "no queue 'unknown' in vhost '/'"),
        ([("q3", 0), ("q1", 0)], "destination 'q1' is not bound"),
        ([("q3", 0), (f"exchange:{ring}x", 1)], f"no exchange '{ring}x'"),
        ([("q3", 0), ("exchange:amq.topic", 10_001)], "changes[1]: 'weight'"),
    ):
        body = {"changes": [{"destination": name, "weight": weight} for name, weight in changes]}
        refused = api.request("POST", *place, "changes", json=body)
        assert refused.status_code in (400, 404) and said in refused.json()["reason"]
        assert api.get(*place) == before


def test_a_change_of_a_ring_that_is_refused_half_way_takes_back_what_was_made(
    api: API, channel: BlockingChannel
) -> None:
    channel.exchange_declare("limited", "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
    for name in ("q1", "q2"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "limited", "1")
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})  # a stream cannot wait for keys
    channel.queue_declare("q3", durable=True)
    before = api.get("exchanges", "/", "limited", "ring")
    body = {"changes": [{"destination": name, "weight": weight} for name, weight in [("q3", 1), ("log", 1), ("q1", 0)]]}
    refused = api.request("POST", "exchanges", "/", "limited", "ring", "changes", json=body)
    assert refused.status_code in (400, 406), refused.text
    after = api.get("exchanges", "/", "limited", "ring")
    assert after["destinations"] == before["destinations"]
    assert {one["destination"] for one in api.get("exchanges", "/", "limited", "bindings", "source")} == {"q1", "q2"}


def test_what_more_shards_would_move(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("sharded", "x-consistent-hash", durable=True)
    api.request("PUT", "policies", "/", "shards", json={"pattern": "^sharded$", "definition": {"shards-per-node": 3}})
    found = api.post("exchanges", "/", "sharded", "ring", "what-if", body={"shards": 4})
    assert found["outcomes"]["minimal"]["moved"] == pytest.approx(0.25, abs=0.01)
    refused = api.request("POST", "exchanges", "/", "amq.direct", "ring", "what-if", json={"shards": 4})
    assert refused.status_code == 400


def test_all_groups_of_readers_are_listed(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("read", durable=True)
    publish(channel, "read", [b"row"] * 5)
    api.post("readers", "/", "query", "reserve", body={"queues": {"read": None}, "max_messages": 3, "lease": 30})
    (shown,) = api.get("readers")
    assert (shown["name"], shown["queue"], shown["reserved"], shown["ready"]) == ("query", "read", 3, 2)
    assert 0 < shown["lease_left"] <= 30 and shown["age"] >= 0


def test_what_a_user_would_be_allowed(api: API) -> None:
    api.request("PUT", "users", "app", json={"password": "secret", "tags": ""})
    assert not api.get("users", "app", "allowed", "/", "orders")["write"]["allowed"]
    api.request("PUT", "permissions", "/", "app", json={"configure": "", "write": "^orders", "read": ".*"})
    found = api.get("users", "app", "allowed", "/", "orders-1")
    assert {key: one["allowed"] for key, one in found.items()} == {"configure": False, "write": True, "read": True}


def test_a_policy_is_previewed(api: API, channel: BlockingChannel) -> None:
    for name in ("orders-1", "orders-2", "other"):
        channel.queue_declare(name, durable=True)
    api.request(
        "PUT", "policies", "/", "first", json={"pattern": "-2$", "definition": {"max-length": 1}, "priority": 5}
    )
    body = {"pattern": "^orders", "definition": {"max-length": 10}, "apply-to": "queues"}
    found = api.post("preview", "policies", "/", "mine", body=body)
    assert (found["queues"], found["exchanges"], found["in_force"]) == (2, 0, 1)
    assert {one["name"]: one["hidden_by"] for one in found["items"]} == {"orders-1": None, "orders-2": "first"}
    assert api.request("POST", "preview", "policies", "/", "mine", json={**body, "pattern": "("}).status_code == 400


def test_definitions_are_previewed(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("kept", durable=True)
    exported = api.get("definitions")
    exported["queues"].append({"vhost": "/", "name": "new", "durable": True, "auto_delete": False, "arguments": {}})
    exported["queues"][0]["durable"] = False
    found = api.post("preview", "definitions", body=exported)
    assert found["sections"]["queues"] == {"new": 1, "changed": 1, "same": 0}
    assert found["sections"]["exchanges"]["changed"] == found["sections"]["bindings"]["new"] == 0
    assert [(one["name"], one["change"], one["refused"]) for one in found["changes"]] == [
        ("/ kept", "changed", True),
        ("/ new", "new", False),
    ]
    assert "new" not in {one["name"] for one in api.get("queues")}
    assert api.request("POST", "preview", "definitions", json={"queues": [{}]}).status_code == 400
    assert api.post("preview", "definitions", body={"queues": None})["changes"] == []


def test_the_log_is_shown_to_administrators(api: API) -> None:
    requests.get(f"{api.address}/api/overview", auth=("stranger", "guess"), timeout=30)
    (refusal, *_) = until(lambda: api.get("log", text="login refused"))
    assert "stranger" in refusal["message"]
    assert (refusal["level"], refusal["worker"], "@" in refusal["node"]) == ("warning", 1, True)
    assert api.get("log", text="login refused", level="error") == []
    assert len(api.get("log", count=1)) == 1
    for query in ({"level": "loud"}, {"count": "-1"}, {"count": "1001"}, {"since": "1"}):
        assert api.request("GET", "log", params=query).status_code == 400, query


def test_a_monitoring_user_sees_rings_and_shards(api: API, channel: BlockingChannel, ring: str) -> None:
    api.request("PUT", "users", "watcher", json={"password": "secret", "tags": "monitoring"})
    api.request("PUT", "permissions", "/", "watcher", json=dict.fromkeys(("configure", "write", "read"), ""))
    api.session.auth = ("watcher", "secret")
    assert api.get("exchanges", "/", ring, "ring")["buckets"] == 3
    assert api.get("warnings") == []
    assert api.request("GET", "log").status_code == 401


def test_a_key_is_followed_to_where_its_messages_are(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("keyed", "x-consistent-hash", durable=True)
    for number in range(8):
        channel.queue_declare(f"keyed-{number}", durable=True)
        channel.queue_bind(f"keyed-{number}", "keyed", str(1 + number % 3))
    channel.queue_unbind("keyed-3", "keyed", "1")
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish("keyed", "acme" if number % 4 == 0 else f"customer-{number}", b"x")
    held = {name: api.get("queues", "/", name, "browse", key="acme")["messages"] for name in queues_of(api, "keyed")}
    (name,) = [name for name, messages in held.items() if messages]
    found = until(lambda: (seen := api.get("exchanges", "/", "keyed", "key", key="acme"))["traffic"] and seen)
    assert (found["destination"], found["queue"]["name"], found["then"]) == (name, name, None)
    assert found["traffic"]["messages"] == 50 and found["traffic"]["share"] == pytest.approx(0.25)
    ring = api.get("exchanges", "/", "keyed", "ring")
    runs = {one["destination"]: one["runs"] for one in ring["destinations"]}
    for number in range(100):
        one = api.get("exchanges", "/", "keyed", "key", key=f"customer-{number}")
        owners = [label for label, of in runs.items() if any(a <= one["bucket"] < a + count for a, count in of)]
        assert owners == ([] if one["retired"] else [one["destination"]])


def queues_of(api: API, exchange: str) -> set[str]:
    return {one["destination"] for one in api.get("exchanges", "/", exchange, "bindings", "source")}


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
def test_where_a_key_would_go_is_where_it_goes_then(api: API, channel: BlockingChannel, kind: str) -> None:
    channel.exchange_declare(f"then-{kind}", kind)
    for number in range(3):
        channel.queue_declare(f"then-{number}")
        channel.queue_bind(f"then-{number}", f"then-{kind}", "1")
    keys = [f"customer-{number}" for number in range(40)]

    def destinations(**query: int) -> list[str]:
        found = [api.get("exchanges", "/", f"then-{kind}", "key", key=key, **query) for key in keys]
        return [one["then"]["destination"] if query else one["destination"] for one in found]

    foretold = destinations(destinations=4)
    fewer = destinations(destinations=2)
    channel.queue_declare("then-3")
    channel.queue_bind("then-3", f"then-{kind}", "1")
    assert [one.replace("new 1", "then-3") for one in foretold] == destinations()
    assert "then-3" in destinations()
    for name in ("then-3", "then-2"):
        channel.queue_unbind(name, f"then-{kind}", "1")
    assert fewer == destinations()


def test_what_cannot_be_followed_is_refused(api: API, channel: BlockingChannel) -> None:
    channel.exchange_declare("empty", "x-consistent-hash")
    found = api.get("exchanges", "/", "empty", "key", key="acme", destinations=2)
    assert (found["destination"], found["queue"], found["then"]["destination"][:3]) == (None, None, "new")
    for exchange, query, status, said in (
        ("amq.direct", {"key": "acme"}, 404, "hashes no keys"),
        ("empty", {}, 400, "key"),
        ("empty", {"key": "acme", "destinations": "1001"}, 400, "destinations"),
        ("empty", {"key": "acme", "destinations": "x"}, 400, "destinations"),
        ("nothing", {"key": "acme"}, 404, "no exchange"),
    ):
        refused = api.request("GET", "exchanges", "/", exchange, "key", params=query)
        assert refused.status_code == status and said in refused.json()["reason"]
