"""Operators' requests to a node: name, log, listeners, attempted logins."""

import logging
from pathlib import Path
from typing import Any, Literal

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.waiting import until

import jumpmq


@pytest.fixture
def node(api: API) -> str:
    return str(api.get("overview")["node"])


def connect(broker: jumpmq.RunningBroker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


def test_the_cluster_has_a_name(broker: jumpmq.RunningBroker, api: API, node: str) -> None:
    assert api.get("cluster-name") == {"name": node}
    assert api.request("PUT", "cluster-name", json={"name": "blue"}).status_code == 204
    assert (api.get("cluster-name"), api.get("overview")["cluster_name"]) == ({"name": "blue"}, "blue")
    with connect(broker) as connection:
        assert connection._impl.server_properties["cluster_name"] == "blue"
    assert api.request("DELETE", "global-parameters", "cluster_name").status_code == 204
    assert api.get("cluster-name") == {"name": node}


def test_global_parameters_are_any_json(api: API) -> None:
    for value, status in (({"a": [1, None]}, 201), (5, 204), ("text", 204), (False, 204)):
        assert api.request("PUT", "global-parameters", "mine", json={"value": value}).status_code == status
        assert api.get("global-parameters", "mine") == {"name": "mine", "value": value}
    assert api.request("PUT", "global-parameters", "mine", json={}).status_code == 400
    assert [api.request("DELETE", "global-parameters", "mine").status_code for _ in range(2)] == [204, 404]


def test_limits_and_operator_policies_are_parameters(api: API) -> None:
    limits = ("parameters", "vhost-limits", "/", "limits")
    assert api.request("PUT", *limits, json={"value": {"max-queues": 10}}).status_code == 201
    assert api.get("vhost-limits") == [{"vhost": "/", "value": {"max-queues": 10}}]
    assert [api.request("DELETE", *limits).status_code for _ in range(2)] == [204, 404]
    policy = ("parameters", "operator_policy", "/", "p")
    value = {"pattern": "x", "definition": {"max-length": 5}}
    assert api.request("PUT", *policy, json={"value": value}).status_code == 201
    assert api.get("operator-policies", "/", "p")["pattern"] == "x"
    assert api.request("DELETE", *policy).status_code == 204
    refused = api.request("PUT", "parameters", "shovel", "/", "s", json={"value": {}})
    assert refused.json()["reason"] == "Validation failed\n\ncomponent shovel not found\n"


def test_listeners_are_suspended_and_resumed(broker: jumpmq.RunningBroker, api: API, node: str) -> None:
    with connect(broker) as before:
        assert api.request("PUT", "nodes", node, "listeners", json={"suspended": True}).status_code == 204
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(broker)
        before.channel().queue_declare("served")
        for _ in range(2):
            assert api.request("PUT", "nodes", node, "listeners", json={"suspended": False}).status_code == 204
        connect(broker).close()


def test_the_level_of_the_log_is_set_until_the_broker_stops(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as running:
        api = API(running.http_url)
        level = "nodes", api.get("nodes")[0]["name"], "log-level"
        assert api.request("PUT", *level, json={"level": "debug"}).status_code == 204
        assert logging.getLogger("jumpmq.audit").isEnabledFor(logging.DEBUG)
        assert api.request("PUT", *level, json={"level": "noise"}).status_code == 400
        assert api.request("PUT", *level, json={"level": "none"}).status_code == 204
        assert not logging.getLogger("jumpmq.audit").isEnabledFor(logging.CRITICAL)
    assert logging.getLogger("jumpmq.audit").isEnabledFor(logging.WARNING)


def test_settings_are_shown_without_secrets(api: API, node: str) -> None:
    shown = api.get("nodes", node, "environment")
    assert shown["heartbeat"] == 60
    assert "default-pass" not in shown


def test_logins_are_counted(broker: jumpmq.RunningBroker, api: API, node: str) -> None:
    assert api.request("DELETE", "auth", "attempts", node).status_code == 204
    connect(broker).close()
    requests.get(f"{api.address}/api/whoami", auth=("guest", "wrong"))
    counted = {one["protocol"]: one for one in api.get("auth", "attempts", node)}
    names = ("auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
    assert [counted["amqp091"][name] for name in names] == [1, 0, 1]
    assert [counted["http"][name] for name in names] == [2, 1, 1]


def test_users_are_deleted_at_once_or_not_at_all(api: API) -> None:
    for name in ("a", "b"):
        api.request("PUT", "users", name, json={"password": name, "tags": ""})
    refused = api.request("POST", "users", "bulk-delete", json={"users": ["a", "b", "nobody"]})
    assert (refused.status_code, refused.json()["reason"]) == (400, "no_such_user: nobody")
    assert api.request("POST", "users", "bulk-delete", json={"users": ["a", "b"]}).status_code == 204
    assert {one["name"] for one in api.get("users")}.isdisjoint({"a", "b"})


def test_rabbitmqadmin_is_to_be_had(api: API) -> None:
    answer = requests.get(f"{api.address}/cli/rabbitmqadmin", allow_redirects=False)
    assert (answer.status_code, answer.headers["Location"].rpartition("/")[2]) == (302, "rabbitmqadmin")


def test_samples_over_time(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    path = ("queues", "/", "q")
    asked = {"msg_rates_age": 60, "msg_rates_incr": 1, "lengths_age": 60, "lengths_incr": 1}
    api.get(*path, **asked)  # starts its history
    channel.basic_publish("", "q", b"x")

    def published() -> dict[str, Any] | Literal[False]:
        stats = api.get(*path, **asked)["message_stats"]["publish_details"]
        return len(stats["samples"]) >= 3 and stats["samples"][0]["sample"] == 1 and stats

    found = until(published)
    assert found["samples"][0]["timestamp"] > found["samples"][-1]["timestamp"]
    assert {"avg", "avg_rate", "rate"} <= set(found)
    assert api.get(*path, **asked)["messages_details"]["samples"][0]["sample"] == 1
    assert api.get("overview", **asked)["queue_totals"]["messages_details"]["samples"]
    assert "samples" not in api.get(*path)["messages_details"]
    assert api.request("GET", *path, params={**asked, "lengths_incr": 0}).status_code == 400


def test_what_comes_and_goes_is_counted(broker: jumpmq.RunningBroker, api: API) -> None:
    before = api.get("overview")["churn_rates"]
    connect(broker).close()
    after = api.get("overview")["churn_rates"]
    assert after["connection_created"] == before["connection_created"] + 1
    assert set(after["queue_created_details"]) == {"rate"}


def test_values_of_global_parameters_are_not_in_the_audit_log(api: API, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jumpmq.audit")
    value = {"uri": "amqp://user:hidden@elsewhere"}
    assert api.request("PUT", "global-parameters", "upstream", json={"value": value}).status_code == 201
    assert api.request("DELETE", "global-parameters", "upstream").status_code == 204
    assert "set global parameter user='guest' name='upstream'" in caplog.text
    assert "hidden" not in caplog.text


def test_who_traces_a_virtual_host_is_in_the_audit_log(api: API, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jumpmq.audit")
    for tracing in (True, False):
        assert api.request("PUT", "vhosts", "/", json={"tracing": tracing}).status_code == 204
        assert api.get("vhosts", "/")["tracing"] is tracing
    told = [facts for record in caplog.records if (facts := vars(record)["facts"])["event"] == "set tracing"]
    assert [(one["user"], one["vhost"]) for one in told] == [("guest", "/")] * 2
    assert [one["enabled"] for one in told] == [True, False]


def test_only_homes_of_a_cluster_have_copies(api: API) -> None:
    assert api.get("copies") == []
    refused = api.request("PUT", "copies", "1", json={"copies": 1})
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert "only homes of a cluster's nodes have copies" in refused.json()["reason"]
    assert api.request("PUT", "copies", "2", json={"copies": 1}).status_code == 404
