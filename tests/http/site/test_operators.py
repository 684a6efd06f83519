"""Frequent tasks of operators: a shared link to a view, many queues at once, many bindings, help, a change of user."""

import re
import threading
import time

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import WIDE, OpenPage, Site, bounding
from tests.waiting import until

from jumpmq import RunningBroker

pytestmark = pytest.mark.slow


def hash_of(site: Site) -> str:
    return str(site.page.evaluate("location.hash"))


def test_an_address_shows_a_colleague_the_same(api: API, channel: BlockingChannel, open_page: OpenPage) -> None:
    api.request("PUT", "vhosts", "second", json={})
    api.request("PUT", "queues", "second", "elsewhere", json={"durable": True})
    channel.queue_declare("here", durable=True)
    site = open_page().go("queues")
    site.page.get_by_label("Virtual host that is shown").select_option("second")
    site.row("elsewhere").wait_for()
    site.go("connections")
    until(lambda: "vhost=second" in hash_of(site))
    site.go("queues", "second", "elsewhere").press("1 h")
    until(lambda: "span=3600" in hash_of(site))
    address = site.page.evaluate("location.href") + "&part=1000000000-1000000600"
    colleague = open_page()
    colleague.page.goto(address)
    colleague.page.get_by_role("heading", level=1, name="elsewhere").wait_for()
    assert colleague.page.get_by_label("Virtual host that is shown").input_value() == "second"
    colleague.page.get_by_role("button", name="show all").wait_for()
    day = colleague.page.get_by_role("button", name="24 h")
    assert day.get_attribute("aria-pressed") == "true", "as far back as the part is"
    colleague.page.get_by_role("button", name="show all").click()
    until(lambda: "part=" not in hash_of(colleague))
    colleague.page.get_by_label("Virtual host that is shown").select_option("")
    until(lambda: "vhost=" not in hash_of(colleague))
    api.request("DELETE", "vhosts", "second")


def test_queues_are_filtered_with_counts_chosen_purged_and_deleted(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    for number in range(3):
        channel.queue_declare(f"many-{number}", durable=True, arguments={"x-max-length": 5})
        publish(channel, f"many-{number}", [b"x"] * 5)
    channel.queue_declare("many-kept", durable=True)
    until(lambda: len(api.get("queues", where="full")) == 3)
    site.go("queues")
    full = site.page.get_by_role("button", name="Full")
    until(lambda: full.inner_text() == "Full 3")
    row = site.row("many-0")
    row.get_by_text("full", exact=True).wait_for()
    row.get_by_text(re.compile(r"^\d+(\.\d)? (s|min .*)$")).first.wait_for()
    for number in range(3):
        site.page.get_by_label(f"Choose many-{number}").check()
    chosen = site.page.get_by_role("group", name="What was chosen")
    chosen.get_by_text("3 chosen").wait_for()
    site.press("Purge", chosen).see("15 ready messages of 3 queues").submit("Purge")
    until(lambda: all(api.counts(f"many-{number}") == (0, 0) for number in range(3)))
    for number in range(3):
        site.page.get_by_label(f"Choose many-{number}").check()
    site.press("Delete", chosen).submit("Delete")
    until(lambda: [one["name"] for one in api.get("queues") if one["name"].startswith("many")] == ["many-kept"])
    site.page.get_by_label("Search queues").fill("many-")
    site.see(r"^1 of ").page.keyboard.press("Enter")
    site.page.get_by_role("heading", level=1, name="many-kept").wait_for()
    channel.queue_delete("many-kept")


def test_arguments_are_asked_for_by_name(api: API, site: Site) -> None:
    site.go("queues").press("Declare a queue").fill(name="helped", type="quorum")
    site.page.get_by_label("Set common arguments").check()
    site.fill(**{"x-slots": "16", "x-dead-letter-exchange": "amq.fanout", "x-max-length": "50"}).submit("Declare")
    given = api.get("queues", "/", "helped")["arguments"]
    wanted = {"x-queue-type": "quorum", "x-slots": 16, "x-dead-letter-exchange": "amq.fanout", "x-max-length": 50}
    assert given == wanted
    site.go("exchanges").press("Declare an exchange").fill(name="by-id", property="correlation_id")
    site.page.get_by_label("Keep the order").check()
    site.fill(alternate="unrouted").submit("Declare")
    given = api.get("exchanges", "/", "by-id")["arguments"]
    assert given == {"hash-property": "correlation_id", "ordered-scaling": True, "alternate-exchange": "unrouted"}
    api.request("DELETE", "queues", "/", "helped")
    api.request("DELETE", "exchanges", "/", "by-id")


def test_messages_of_a_hashed_property_are_found_in_all_queues(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("by-order", "x-consistent-hash", durable=True, arguments={"hash-property": "message_id"})
    for number in range(3):
        channel.queue_declare(f"by-order-{number}", durable=True)
        channel.queue_bind(f"by-order-{number}", "by-order", "1")
    for number in range(9):
        properties = pika.BasicProperties(message_id=f"order-{number % 3}", delivery_mode=2)
        channel.basic_publish("by-order", "", b"line %d" % number, properties)
    site.page.goto(f"{site.address}#/key/%2F/by-order?key=order-1")
    table = site.page.get_by_role("table", name="Messages of this key")
    for number in (1, 4, 7):
        table.get_by_text(f"line {number}").wait_for()
    site.page.get_by_label("The way of the key").get_by_text("no consumer", exact=True).wait_for()
    table.get_by_role("link").first.click()
    site.see("3 matches in")
    assert site.page.locator("[name=header]").input_value() == "message_id"
    channel.exchange_delete("by-order")
    for number in range(3):
        channel.queue_delete(f"by-order-{number}")


def test_a_thousand_bindings_are_searched_and_take_little_room(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.exchange_declare("wide", "x-consistent-hash", durable=True)
    for number in range(300):
        channel.queue_declare(f"wide-{number:03}", durable=True)
        channel.queue_bind(f"wide-{number:03}", "wide", "1")
    for view in (("exchanges", "/", "wide"), ("what-if", "/", "wide"), ("rings", "/", "wide")):
        site.go(*view).row("wide-007").wait_for()
        site.settle()
        assert site.page.evaluate("document.body.scrollHeight") < 4000, view
    site.go("what-if", "/", "wide")
    site.page.get_by_label("Search destinations").fill("wide-299")
    site.press("Unbind", site.row("wide-299"))
    button = site.page.get_by_role("button", name="Make these changes")
    button.wait_for()
    assert bounding(button)["y"] < WIDE["height"], "seen without scrolling"
    site.press("Make these changes").submit("Make these changes")
    until(lambda: len(api.get("exchanges", "/", "wide", "ring")["destinations"]) == 299)
    channel.exchange_delete("wide")
    for number in range(300):
        channel.queue_delete(f"wide-{number:03}")


def test_a_policy_that_loses_messages_is_saved_without_scrolling(
    api: API, channel: BlockingChannel, open_page: OpenPage
) -> None:
    channel.queue_declare("shortened", durable=True)
    publish(channel, "shortened", [b"x"] * 9)
    site = open_page(viewport={"width": 1360, "height": 560})
    site.go("policies").press("Add a policy").fill(name="short", pattern="^shortened$", definition='{"max-length": 2}')
    dialog = site.page.get_by_role("dialog")
    site.press("What would it match?", dialog).see("1 queue and 0 exchanges")
    site.press("Save", dialog)
    again = dialog.get_by_role("button", name="Save all the same")
    again.wait_for()
    outer, box = bounding(dialog), bounding(again)
    assert box["y"] + box["height"] <= outer["y"] + outer["height"]
    again.click()
    until(lambda: api.counts("shortened") == (2, 0))
    api.request("DELETE", "policies", "/", "short")
    channel.queue_delete("shortened")


def test_what_dead_letters_died_of_is_summed_and_messages_that_went_nowhere_counted(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    channel.queue_declare("grave", durable=True)
    channel.queue_declare("expiring", durable=True, arguments=dead | {"x-message-ttl": 0})
    channel.queue_declare("rejecting", durable=True, arguments=dead)
    publish(channel, "expiring", [b"x"] * 4)
    publish(channel, "rejecting", [b"x"] * 2)
    for _ in range(2):
        channel.basic_reject(channel.basic_get("rejecting")[0].delivery_tag, requeue=False)
    until(lambda: api.counts("grave") == (6, 0))
    table = site.go("queues", "/", "grave").page.get_by_role("table", name="Dead letters by cause")
    rows = [row.split() for row in until(lambda: table.locator("tbody tr").all_inner_texts())]
    assert [row[:3] for row in rows] == [["4", "expired", "expiring"], ["2", "rejected", "rejecting"]]
    channel.basic_publish("", "nowhere", b"x")
    until(lambda: api.get("overview")["message_stats"].get("drop_unroutable"))
    site.go().see("Dropped, as no queue took it")
    for name in ("grave", "expiring", "rejecting"):
        channel.queue_delete(name)


def test_the_slow_one_of_several_consumers_is_closed_from_the_cause(
    broker: RunningBroker, channel: BlockingChannel, site: Site
) -> None:
    def connected(name: str) -> pika.BlockingConnection:
        parameters = pika.URLParameters(broker.amqp_url)
        parameters.client_properties = {"connection_name": name}
        return pika.BlockingConnection(parameters)

    channel.queue_declare("printed", durable=True)
    publish(channel, "printed", [b"x"] * 200)
    ended, closed = threading.Event(), []

    def work(name: str, pause: float) -> None:
        connection = connected(name)
        taking = connection.channel()
        taking.basic_qos(prefetch_count=10)

        def take(channel: BlockingChannel, method: Basic.Deliver, *_: object) -> None:
            time.sleep(pause)
            channel.basic_ack(method.delivery_tag)

        taking.basic_consume("printed", take)
        try:
            while not ended.is_set():
                connection.process_data_events(0.1)
        except pika.exceptions.ConnectionClosedByBroker:
            closed.append(name)

    def feed() -> None:
        connection = connected("shop")
        publishing = connection.channel()
        while not ended.wait(0.02):
            publishing.basic_publish("", "printed", b"x")

    threads = [threading.Thread(target=work, args=one) for one in (("swift", 0.05), ("sluggish", 1.0))]
    threads.append(threading.Thread(target=feed))
    for thread in threads:
        thread.start()
    try:
        site.press("Close the slow one").see("^Close the connection of sluggish\\?$").submit("Close the slow one")
        until(lambda: closed == ["sluggish"])
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    channel.queue_delete("printed")


def test_help_says_where_clients_connect_and_what_terms_mean(api: API, broker: RunningBroker, site: Site) -> None:
    site.go("rings").page.get_by_role("link", name="What is this?").click()
    site.page.get_by_role("heading", level=1, name="Help").wait_for()
    site.page.locator("#term-rings.lit").wait_for()
    site.see(f"amqp://127.0.0.1:{api.amqp_port}")
    version = api.get("overview")["product_version"]
    told = requests.get(f"http://127.0.0.1:{broker.http_port}/", timeout=30).text
    assert f'<meta name="version" content="{version}">' in told, "which the login shows"
    assert problems(site.page) == []
    site.go("queues").page.locator("h1").press("?")
    site.page.get_by_role("heading", level=1, name="Help").wait_for()


def test_actions_and_what_the_palette_hides_are_reached(api: API, channel: BlockingChannel, site: Site) -> None:
    for number in range(9):
        channel.queue_declare(f"hidden-{number}", durable=True)
    site.page.keyboard.press("Control+K")
    dialog = site.page.get_by_role("dialog")
    dialog.get_by_role("combobox").fill("hidden-")
    dialog.get_by_role("option").filter(has_text="3 more").click()
    site.see("^9 of ")
    site.page.keyboard.press("Control+K")
    dialog.get_by_role("combobox").fill("add a us")
    dialog.get_by_role("option").filter(has_text="Add a user").click()
    site.page.get_by_role("dialog", name="Add a user").wait_for()
    site.fill(name="newcomer", password="secret", preset="Publish only").submit("Save")
    found = api.get("permissions", "/", "newcomer")
    assert (found["configure"], found["write"], found["read"]) == ("", ".*", "")
    for number in range(9):
        channel.queue_delete(f"hidden-{number}")


def test_a_node_tells_what_it_is_and_takes_no_new_clients(broker: RunningBroker, api: API, site: Site) -> None:
    node = api.node_at(broker.port)
    about = site.go("nodes", node).page.locator(".panel").filter(has_text="Listens at")
    about.get_by_text(f"127.0.0.1:{broker.port}").wait_for()
    site.see("Processor").see("Data directory")
    about.locator("summary").click()
    about.get_by_role("table", name="Settings").get_by_text("data-dir").wait_for()
    site.press("Log level").fill(level="info").submit("Set")
    box = site.go("nodes").page.get_by_role("region", name=node, exact=True)
    site.press("Suspend", box).submit("Suspend").see("takes no new clients")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    site.press("Resume", box)
    box.get_by_role("button", name="Suspend").wait_for()
    pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).close()


def test_slots_are_shown_by_member_and_a_groups_backlog_over_time(channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("slotted", durable=True, arguments={"x-slots": 32})
    channel.basic_consume("slotted", lambda *_: None, arguments={"x-consumer-group": "folded"})
    site.go("groups", "/", "queue", "slotted", "folded")
    slots = site.page.get_by_role("table", name="Slots by member")
    slots.get_by_text("32", exact=True).wait_for()
    assert slots.locator("tbody tr").count() == 1
    site.see("Backlog").press("Show each slot")
    until(lambda: site.page.get_by_role("table", name="Units of this group").locator("tbody tr").count() == 32)
    channel.queue_delete("slotted")
