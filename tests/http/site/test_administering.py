"""Settings of administrators and policymakers beside permissions and policies, and their visibility to other users."""

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.http.site.accessibility import problems
from tests.http.site.conftest import PHONE, OpenPage, Site
from tests.waiting import until

from jumpmq import RunningBroker

pytestmark = pytest.mark.slow

EVERYTHING = dict.fromkeys(("configure", "write", "read"), ".*")


def test_routing_keys_of_a_user_are_restricted_changed_and_freed(api: API, broker: RunningBroker, site: Site) -> None:
    api.request("PUT", "users", "sensor", json={"password": "secret", "tags": ""})
    api.request("PUT", "permissions", "/", "sensor", json=EVERYTHING)
    site.go("permissions").press("Restrict").fill(user="sensor", write="^{username}[.]", read=".*").submit("Set")
    (found,) = api.get("topic-permissions", "/", "sensor")
    assert (found["exchange"], found["write"], found["read"]) == ("amq.topic", "^{username}[.]", ".*")
    table = site.page.get_by_role("region", name="Topic permissions")
    table.get_by_text("^{username}[.]").wait_for()
    assert problems(site.page) == []
    site.press("Change", table).fill(write="(").press("Save", site.page.get_by_role("dialog"))
    site.page.get_by_role("dialog").get_by_role("alert").wait_for()
    site.fill(write="^room[.]").submit("Save")
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.credentials = pika.PlainCredentials("sensor", "secret")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "room.1", b"x")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.basic_publish("amq.topic", "hall.1", b"x")
    site.press("Lift", table).submit("Lift")
    assert api.get("topic-permissions") == []
    api.request("DELETE", "users", "sensor")


def test_global_parameters_are_set_changed_and_deleted_by_policymakers(api: API, open_page: OpenPage) -> None:
    api.request("PUT", "users", "planner", json={"password": "secret", "tags": "policymaker"})
    api.request("PUT", "users", "clerk", json={"password": "secret", "tags": "management"})
    api.request("PUT", "global-parameters", "cluster_name", json={"value": "here"})
    site = open_page("planner", "secret", viewport=PHONE).go("policies")
    site.press("Set a parameter").fill(name="team", value="no json").press("Set", site.page.get_by_role("dialog"))
    site.see("The value must be JSON")
    site.fill(value='{"mail": "a@b"}').submit("Set")
    assert api.get("global-parameters", "team")["value"] == {"mail": "a@b"}
    site.press("Change", site.row("team")).fill(value='"x"').submit("Set")
    assert api.get("global-parameters", "team")["value"] == "x"
    assert site.row("cluster_name").get_by_role("button").count() == 0, "administrators name the cluster"
    assert problems(site.page) == []
    assert site.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    site.press("Delete", site.row("team")).submit("Delete")
    assert api.request("GET", "global-parameters", "team").status_code == 404
    other = open_page("clerk", "secret").go("policies").settle()
    assert other.page.get_by_text("Global parameters").count() == 0
    api.request("DELETE", "global-parameters", "cluster_name")


def test_a_virtual_host_is_traced_until_that_is_stopped(
    api: API, channel: BlockingChannel, open_page: OpenPage
) -> None:
    api.request("PUT", "vhosts", "heard", json={"description": "kept", "default_queue_type": "quorum"})
    api.request("PUT", "users", "watcher", json={"password": "secret", "tags": "monitoring"})
    site = open_page().go("vhosts")
    site.press("Trace", site.row("heard")).see("who may read that queue sees all messages").submit("Trace")
    site.row("heard").get_by_text("traced", exact=True).wait_for()
    found = api.get("vhosts", "heard")
    assert (found["tracing"], found["description"], found["default_queue_type"]) == (True, "kept", "quorum")
    assert problems(site.page) == []
    watching = open_page("watcher", "secret").go("vhosts")
    watching.row("heard").wait_for()
    assert watching.page.get_by_role("button", name="Trace", exact=True).count() == 0
    site.press("Stop trace", site.row("heard")).submit("Stop trace")
    until(lambda: api.get("vhosts", "heard")["tracing"] is False)
    api.request("DELETE", "vhosts", "heard")


def test_logins_are_counted_on_the_page_of_their_node_and_reset(api: API, broker: RunningBroker, site: Site) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    for _ in range(2):
        with pytest.raises(pika.exceptions.AMQPError):
            pika.BlockingConnection(parameters)
    node = api.node_at(broker.port)
    logins = site.go("nodes", node).page.get_by_role("region", name="Logins")
    row = logins.get_by_role("row").filter(has_text="amqp")
    row.wait_for()
    assert row.locator("td").last.inner_text() == "2"
    assert problems(site.page) == []
    site.press("Reset").submit("Reset").see("Counts reset")
    until(lambda: not [one for one in api.get("auth", "attempts", node) if one["auth_attempts_failed"]])
