"""Actions on the page take effect on the broker."""

import json
import re
from pathlib import Path
from typing import Literal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.conftest import OpenPage, Site, not_in_firefox
from tests.waiting import PATIENCE, until

from jumpmq import RunningBroker


def test_a_queue_is_declared_published_to_got_from_purged_and_deleted(api: API, site: Site) -> None:
    site.go("queues").press("Declare a queue").fill(name="mine", type="quorum", arguments='{"x-max-length": 9}')
    site.picture("dialog-declare").submit("Declare")
    shown = api.get("queues", "/", "mine")
    assert (shown["type"], shown["arguments"]["x-max-length"], shown["durable"]) == ("quorum", 9, True)
    site.go("queues", "/", "mine")
    for text in ("first", "second"):
        site.press("Publish").fill(payload=text, headers='{"customer": "7"}').submit("Publish")
    until(lambda: api.counts("mine") == (2, 0))
    site.press("Get messages").fill(count="1", ackmode="take them out")
    dialog = site.page.get_by_role("dialog")
    site.press("Take out", dialog).press("Take out all the same", dialog)
    until(lambda: "first" in dialog.inner_text())
    assert api.counts("mine") == (1, 0)
    site.picture("dialog-messages").press("Close this dialog", dialog)
    site.confirm("Purge")
    assert api.counts("mine") == (0, 0)
    site.confirm("Delete")
    assert api.request("GET", "queues", "/", "mine").status_code == 404


def test_dead_letters_are_moved_back_and_what_cannot_be_is_said(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("dead letters", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead letters"}
    channel.queue_declare("at work", durable=True, arguments=arguments)
    publish(channel, "at work", [b"1", b"2", b"3"])
    for _ in range(3):
        channel.basic_reject(channel.basic_get("at work")[0].delivery_tag, requeue=False)
    publish(channel, "dead letters", [b"no dead letter"])
    until(lambda: api.counts("dead letters") == (4, 0))
    site.go("queues", "/", "dead letters").press("Move messages")
    dialog = site.page.get_by_role("dialog")
    site.press("Move", dialog)
    until(lambda: "3 messages moved." in dialog.inner_text())
    assert "1 message stays: it is no dead letter" in dialog.inner_text()
    site.picture("dialog-move-messages")
    assert (api.counts("at work"), api.counts("dead letters")) == ((3, 0), (1, 0))
    site.fill(to="an exchange", destination="nowhere").press("Move", dialog)
    until(lambda: "no exchange 'nowhere'" in dialog.inner_text())
    site.fill(to="a queue", destination="at work").press("Move", dialog)
    until(lambda: api.counts("at work") == (4, 0))


def test_what_the_broker_refuses_is_said_in_its_words(api: API, site: Site) -> None:
    site.go("queues").press("Declare a queue").fill(name="refused", arguments='{"x-max-length": -1}')
    site.press("Declare", site.page.get_by_role("dialog")).see("x-max-length")
    site.fill(arguments="no json").press("Declare", site.page.get_by_role("dialog")).see("must be JSON")
    site.page.keyboard.press("Escape")
    site.page.get_by_role("dialog").wait_for(state="detached")


def test_an_exchange_is_declared_bound_unbound_and_deleted(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("bound", durable=True)
    site.go("exchanges").press("Declare an exchange").fill(name="made", property="a header").fill(
        header="customer"
    ).submit("Declare")
    assert api.get("exchanges", "/", "made")["arguments"] == {"hash-header": "customer"}
    site.go("exchanges", "/", "made").press("Bind").fill(destination="bound", routing_key="3").submit("Bind")
    site.row("bound").wait_for()
    assert api.get("exchanges", "/", "made", "ring")["buckets"] == 3
    site.confirm("Unbind")
    assert api.get("exchanges", "/", "made", "ring")["buckets"] == 0
    site.go("queues", "/", "bound").press("Bind").fill(source="made", routing_key="2").submit("Bind")
    assert api.get("exchanges", "/", "made", "ring")["buckets"] == 2
    site.go("exchanges", "/", "made").press("Publish").fill(headers='{"customer": "7"}', payload="x").submit("Publish")
    until(lambda: api.counts("bound") == (1, 0))
    site.confirm("Delete")
    assert api.request("GET", "exchanges", "/", "made").status_code == 404


def test_a_connection_is_closed(broker: RunningBroker, site: Site) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "forgotten"}
    connection = pika.BlockingConnection(parameters)
    site.go("connections")
    site.follow(site.page.get_by_role("link", name="forgotten")).confirm("Close")
    with pytest.raises(pika.exceptions.ConnectionClosed):
        connection.process_data_events(PATIENCE)


def test_a_ring_is_changed_after_a_look_at_what_moves(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("ring", "x-consistent-hash", durable=True)
    for name in ("one", "two", "three"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "ring", "1")
    channel.queue_declare("four", durable=True)
    site.go("what-if", "/", "ring")
    site.press("Unbind", site.row("one"))
    site.see("the least possible").see("RabbitMQ's method")
    assert api.get("exchanges", "/", "ring", "ring")["buckets"] == 3
    site.fill(destination="four", weight="2").press("Add")
    weight = site.page.get_by_label("Weight of three")
    weight.press("ControlOrMeta+a")
    weight.press_sequentially("4")
    weight.press("Tab")
    site.see("Change the weight of three").see("four")
    moves = site.page.get_by_role("region", name="Moves")
    moves.get_by_role("row").filter(has_text="two").filter(has_text="three").first.wait_for()
    site.picture("light-what-if-answered").confirm("Make these changes")
    found = api.get("exchanges", "/", "ring", "ring")["destinations"]
    assert {one["destination"]: one["weight"] for one in found} == {"two": 1, "three": 4, "four": 2}


def test_a_ring_is_changed_as_a_whole_or_not_at_all(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("whole", "x-consistent-hash", durable=True)
    for name in ("part-1", "part-2"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "whole", "1")
    ring = api.get("exchanges", "/", "whole", "ring")
    site.go("what-if", "/", "whole").press("Unbind", site.row("part-1"))
    site.see("the least possible").fill(destination="part-5", weight="1").press("Add")
    site.see("no queue 'part-5' in vhost '/'")
    assert site.page.get_by_role("button", name="Make these changes").count() == 0
    channel.queue_declare("part-5", durable=True)
    site.press("Add").see("Bind part-5")
    channel.queue_delete("part-5")  # between preview and application
    site.press("Make these changes")
    dialog = site.page.get_by_role("dialog")
    site.press("Make these changes", dialog)
    dialog.get_by_text("no queue 'part-5'").wait_for()
    assert api.get("exchanges", "/", "whole", "ring") == ring


def test_more_shards_are_made_after_a_look_at_what_moves(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("sharded", "x-consistent-hash", durable=True)
    body = {"pattern": "^sharded$", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "shards", json=body)
    site.go("shards", "/", "sharded").see("^Preview another number of shards$")
    site.fill(shards="4").press("Show").see("the least possible")
    site.picture("light-more-shards").confirm("Set 4 shards")
    assert len(api.get("exchanges", "/", "sharded", "shards")) == 4


def test_a_group_of_readers_is_released(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("read", durable=True)
    publish(channel, "read", [b"row"] * 5)
    api.post("readers", "/", "nightly", "reserve", body={"queues": {"read": None}, "max_messages": 3, "lease": 600})
    site.go("readers").see("nightly").confirm("Release")
    assert api.get("readers", "/") == []
    assert api.counts("read") == (5, 0)


def test_users_are_added_changed_and_deleted(api: API, site: Site) -> None:
    site.go("users").press("Add a user").fill(name="ann", password="secret", tags="monitoring").submit("Save")
    assert api.get("users", "ann")["tags"] == ["monitoring"]
    before = api.get("users", "ann")["password_hash"]
    site.press("Change", site.row("ann")).fill(tags="management").submit("Save")
    assert api.get("users", "ann")["tags"] == ["management"]
    assert api.get("users", "ann")["password_hash"] == before
    site.press("Delete", site.row("ann")).submit("Delete")
    assert api.request("GET", "users", "ann").status_code == 404


def test_permissions_are_granted_asked_for_and_revoked(api: API, site: Site) -> None:
    api.request("PUT", "users", "app", json={"password": "secret", "tags": ""})
    site.go("permissions").press("Grant").fill(
        user="app", preset="Custom", configure="", write="^orders", read=".*"
    ).submit("Grant")
    assert api.get("permissions", "/", "app")["write"] == "^orders"
    site.fill(user="app", name="orders-1").press("Ask")
    answer = site.page.get_by_role("region", name="Allowed")
    answer.get_by_role("row").filter(has_text="write").filter(has_text="allowed").wait_for()
    answer.get_by_role("row").filter(has_text="configure").filter(has_text="refused").wait_for()
    site.picture("light-allowed")
    site.press("Revoke", site.row("app")).submit("Revoke")
    assert api.request("GET", "permissions", "/", "app").status_code == 404


def test_a_policy_is_previewed_set_changed_and_cleared(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("short-1", durable=True)
    site.go("policies").press("Add a policy").fill(name="short", pattern="^short", definition='{"max-length": 5}')
    site.press("What would it match?").see("1 queue and 0 exchanges").picture("dialog-policy").submit("Save")
    assert api.get("queues", "/", "short-1")["policy"] == "short"
    site.press("Change", site.row("short")).fill(priority="3").submit("Save")
    assert api.get("policies", "/", "short")["priority"] == 3
    site.press("Clear", site.row("short")).submit("Clear")
    assert api.request("GET", "policies", "/", "short").status_code == 404
    site.press("Add an operator policy").fill(name="cap", pattern="^", definition='{"max-length": 5}').submit("Save")
    assert api.get("operator-policies", "/", "cap")["definition"] == {"max-length": 5}
    api.request("DELETE", "operator-policies", "/", "cap")


def test_limits_are_set_and_cleared(api: API, site: Site) -> None:
    site.go("limits").press("Limit a virtual host").fill(of="/", limit="max-queues", value="500").submit("Set")
    assert api.get("vhost-limits", "/")[0]["value"] == {"max-queues": 500}
    site.press("Clear", site.row("max-queues")).submit("Clear")
    until(lambda: not api.get("vhost-limits"))
    site.press("Limit a user").fill(of="guest", limit="max-channels", value="50").submit("Set")
    assert api.get("user-limits", "guest")[0]["value"] == {"max-channels": 50}
    site.press("Clear", site.row("max-channels")).submit("Clear")


@not_in_firefox("playwright does not hear of what Firefox saves")
def test_definitions_are_exported_and_imported_after_a_look_at_what_changes(
    api: API, site: Site, tmp_path: Path
) -> None:
    site.go("definitions")
    with site.page.expect_download() as downloading:
        site.press("Download definitions.json")
    definitions = json.loads(downloading.value.path().read_text())
    assert {one["name"] for one in definitions["users"]} >= {"guest"}
    definitions["queues"].append(
        {"vhost": "/", "name": "imported", "durable": True, "auto_delete": False, "arguments": {}}
    )
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(definitions))
    site.page.get_by_label("Definitions file").set_input_files(file)
    site.row("imported").wait_for()
    assert re.search(r"queues\s+1\s", site.row("queues").inner_text())
    assert api.request("GET", "queues", "/", "imported").status_code == 404
    site.picture("light-import").confirm("Import")
    assert api.get("queues", "/", "imported")["durable"]


def test_the_log_is_searched(api: API, site: Site) -> None:
    api.request("GET", "queues", "nowhere")
    site.go("log")
    site.page.get_by_label("Search the log").press_sequentially("no record has this")
    site.page.keyboard.press("Enter")
    site.see("No record has it")


def test_a_wrong_password_is_refused_and_a_logout_ends_the_session(open_page: OpenPage) -> None:
    site = open_page(user=None)
    site.page.get_by_label("User").fill("guest")
    site.page.get_by_label("Password").fill("wrong")
    site.press("Log in").see("Login failed").picture("login-refused")
    site.log_in("guest", "guest").press("Log out")
    site.page.get_by_label("Password").wait_for()
    site.page.reload()
    site.page.get_by_label("Password").wait_for()


def test_an_address_with_user_and_password_leads_to_the_login(broker: RunningBroker, site: Site) -> None:
    browser = site.page.context.browser
    assert browser is not None
    page = browser.new_page()
    page.goto(f"http://guest:guest@127.0.0.1:{broker.http_port}/")
    page.get_by_label("User").wait_for()
    page.close()


def test_a_session_that_ends_leads_to_the_login(api: API, open_page: OpenPage) -> None:
    api.request("PUT", "users", "gone", json={"password": "secret", "tags": "monitoring"})
    site = open_page("gone", "secret")
    api.request("DELETE", "users", "gone")
    site.page.get_by_label("Password").wait_for()


@not_in_firefox("Tab leads on through Firefox's own bars, where playwright does not follow")
def test_everything_is_reached_by_keyboard(api: API, channel: BlockingChannel, open_page: OpenPage) -> None:
    channel.queue_declare("by-hand", durable=True)
    site = open_page(user=None)
    keyboard = site.page.keyboard
    site.page.get_by_label("User").focus()
    keyboard.type("guest")
    keyboard.press("Tab")
    keyboard.type("guest")
    keyboard.press("Enter")
    site.page.get_by_role("heading", level=1, name="Overview").wait_for()
    focus_on(site, "link", "Queues")
    keyboard.press("Enter")
    focus_on(site, "link", "by-hand")
    keyboard.press("Enter")
    site.page.get_by_role("heading", level=1, name="by-hand").wait_for()
    focus_on(site, "button", "Purge")
    keyboard.press("Enter")
    site.page.get_by_role("dialog").wait_for()
    keyboard.press("Escape")
    site.page.get_by_role("dialog").wait_for(state="detached")
    until(lambda: site.page.evaluate("document.activeElement.textContent") == "Purge")


def focus_on(site: Site, role: Literal["link", "button"], text: str) -> None:
    """Press Tab until the link or button with the text (and maybe a count) has the focus."""
    site.page.get_by_role(role, name=re.compile(rf"^{text}\s*\d*$")).first.wait_for()
    for _ in range(80):
        if re.fullmatch(rf"{text}\d*", site.page.evaluate("document.activeElement.textContent.trim()")):
            return
        site.page.keyboard.press("Tab")
    raise AssertionError(f"{text} is not reached by Tab")
