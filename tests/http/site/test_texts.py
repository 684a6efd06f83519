"""Texts after a user's mistake or without a permission, and actions with and without confirmation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.conftest import OpenPage, Site
from tests.waiting import PATIENCE, until

from jumpmq import RunningBroker

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.slow


def test_a_setting_that_is_not_known_is_named_with_the_one_that_was_meant(site: Site) -> None:
    site.go("policies").press("Add a policy").fill(name="odd", definition='{"max-lenght": 500}')
    site.press("Save", site.page.get_by_role("dialog"))
    site.see("Unknown setting max-lenght. Did you mean max-length?")


def test_who_lacks_a_tag_is_told_which(api: API, open_page: OpenPage) -> None:
    api.request("PUT", "users", "plain", json={"password": "secret", "tags": "management"})
    site = open_page("plain", "secret")
    site.page.goto(f"{site.address}#/nodes")
    site.see("An administrator can give it the tag monitoring")


def test_permissions_are_given_by_presets_and_users_show_where(api: API, site: Site) -> None:
    api.request("PUT", "users", "reader", json={"password": "secret", "tags": ""})
    site.go("users").row("reader").get_by_text("no virtual host").wait_for()
    site.go("permissions").press("Grant")
    form = site.page.get_by_role("dialog")
    assert form.get_by_label("Configure").count() == 0
    site.fill(user="reader", preset="Read only: consume, get, purge").submit("Grant")
    found = api.get("permissions", "/", "reader")
    assert (found["configure"], found["write"], found["read"]) == ("", "", ".*")
    site.go("users").row("reader").get_by_text("/", exact=True).wait_for()


def test_the_default_host_and_ones_own_user_are_not_deleted_by_a_slip(api: API, site: Site) -> None:
    for view, row in (("vhosts", "/"), ("users", "guest")):
        site.go(view).press("Delete", site.page.get_by_role("row").filter(has=site.page.get_by_text(row, exact=True)))
        dialog = site.page.get_by_role("dialog")
        site.fill(typed="yes").press("Delete", dialog)
        dialog.get_by_text(f"That is not {row}.").wait_for()
        site.page.keyboard.press("Escape")
    assert api.get("vhosts", "/")["name"] == "/"


def test_a_consumer_is_closed_in_its_row(api: API, broker: RunningBroker, channel: BlockingChannel, site: Site) -> None:
    parameters = pika.URLParameters(broker.amqp_url)
    parameters.client_properties = {"connection_name": "printer"}
    connection = pika.BlockingConnection(parameters)
    taking = connection.channel()
    taking.queue_declare("closed-in-row")
    taking.basic_consume("closed-in-row", lambda *_: None)
    connection.process_data_events(0)
    site.go("queues", "/", "closed-in-row").press("Close", site.row("printer")).submit("Close")
    with pytest.raises(pika.exceptions.ConnectionClosed):
        connection.process_data_events(PATIENCE)
    channel.queue_delete("closed-in-row")


def test_a_spark_query_has_a_card_and_stands_on_the_pages_of_its_queues(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    for number in range(3):
        channel.queue_declare(f"rows-{number}", durable=True)
        publish(channel, f"rows-{number}", [b"row"] * 5)
    queues = {f"rows-{number}": None for number in range(3)}
    api.post("readers", "/", "report", "reserve", body={"queues": queues, "max_messages": 6, "lease": 60})
    site.go("readers")
    card = site.page.locator(".panel").filter(has_text="report")
    assert until(lambda: card.count()) == 1
    behind = card.locator(".tile").filter(has_text="Behind")
    until(lambda: behind.locator(".figure").inner_text() == "9")
    assert card.get_by_role("button", name="Release").count() == 1
    site.picture("reader-card")
    site.go("queues", "/", "rows-1").see("Spark query report").see("reads this queue")
    api.request("DELETE", "readers", "/", "report")


def test_title_and_icon_of_the_tab_show_an_alarm(api: API, channel: BlockingChannel, open_page: OpenPage) -> None:
    channel.queue_declare("brim", durable=True, arguments={"x-max-length": 10})
    publish(channel, "brim", [b"x"] * 10)
    until(lambda: any(one["name"] == "brim" and one["severity"] == "alarm" for one in api.get("incidents")))
    site = open_page()
    until(lambda: site.page.title().startswith("! "))
    assert site.page.evaluate("document.querySelector('link[rel=icon]').href").endswith("icon-alarm.svg")
    channel.queue_delete("brim")
    until(lambda: not site.page.title().startswith("! "))


def test_groups_users_policies_and_hosts_are_found_by_name(api: API, channel: BlockingChannel, site: Site) -> None:
    api.request("PUT", "users", "fulfil-user", json={"password": "secret", "tags": ""})
    api.request("PUT", "policies", "/", "fulfil-policy", json={"pattern": "^none$", "definition": {"max-length": 5}})
    channel.queue_declare("fulfil-queue", durable=True)
    channel.basic_consume("fulfil-queue", lambda *_: None, arguments={"x-consumer-group": "fulfil-runners"})
    until(lambda: api.get("consumer-groups"))
    site.page.keyboard.press("Control+K")
    dialog = site.page.get_by_role("dialog")
    dialog.get_by_role("combobox").fill("fulfil")
    for kind, name in {"User": "user", "Policy": "policy", "Queue": "queue", "Consumer group": "runners"}.items():
        dialog.get_by_role("option").filter(has_text=f"fulfil-{name}").filter(has_text=kind).first.wait_for()
    dialog.get_by_role("option").filter(has_text="fulfil-runners").first.click()
    site.page.get_by_role("heading", level=1, name="fulfil-runners").wait_for()
    api.request("DELETE", "policies", "/", "fulfil-policy")
    channel.queue_delete("fulfil-queue")


def test_the_log_is_shown_from_a_level_on(api: API, site: Site) -> None:
    api.session.get(f"{api.address}/api/overview", auth=("nobody", "wrong"))
    site.go("log").page.get_by_role("table", name="Log").locator("tbody tr").first.wait_for()
    site.press("Warnings").settle()
    levels = site.page.get_by_role("table", name="Log").locator("tbody .mark").all_inner_texts()
    assert set(levels) <= {"warning", "error", "critical"}


@pytest.mark.parametrize(
    ("removal", "note"),
    [("minimal", "only the keys of the removed queue move"), ("shift", "RabbitMQ's method: keys of other queues move")],
)
def test_what_if_says_which_keys_move_by_the_method_of_the_exchange(
    channel: BlockingChannel, site: Site, removal: str, note: str
) -> None:
    channel.exchange_declare(removal, "x-consistent-hash", durable=True, arguments={"ring-removal": removal})
    for number in range(3):
        channel.queue_declare(f"{removal}-{number}", durable=True)
        channel.queue_bind(f"{removal}-{number}", removal, "1")
    site.go("what-if", "/", removal).see("nothing happens yet").press("Unbind", site.row(f"{removal}-0"))
    site.page.locator(".panel").filter(has_text="Apply").get_by_text(note).first.wait_for()
    ways = site.page.locator(".outcome dt")
    until(lambda: ways.count() == 3)
    own = {"minimal": "minimal", "shift": "RabbitMQ's method"}[removal]
    others = {"the least possible", "minimal", "RabbitMQ's method"} - {own}
    assert set(ways.all_inner_texts()) == {f"{own} (this exchange)"} | others


def has_texts(places: Locator, texts: list[str]) -> bool:
    return places.all_inner_texts() == texts


def test_a_ring_is_said_to_be_even_or_uneven(channel: BlockingChannel, site: Site) -> None:
    for name in ("level", "tilted"):
        channel.exchange_declare(name, "x-consistent-hash", durable=True)
        for number in range(2):
            channel.queue_declare(f"{name}-{number}", durable=True)
            channel.queue_bind(f"{name}-{number}", name, "1")
        for number in range(300):
            key = "one" if name == "tilted" and number % 2 else f"key-{number}"
            channel.basic_publish(name, key, b"x")
    for name, verdicts in (("level", ["Even", "Even"]), ("tilted", ["Uneven", "Even"])):
        site.go("rings", "/", name).see("outer ring: key space · inner ring: messages")
        marks = site.page.locator(".spread .mark")
        until(partial(has_texts, marks, verdicts))
        site.page.get_by_role("columnheader", name="% of messages", exact=True).wait_for()
        site.page.get_by_role("table", name="Hottest keys").get_by_role("columnheader", name="≥").wait_for()


def test_definitions_that_conflict_are_named_before_anything_is_imported(
    api: API, channel: BlockingChannel, site: Site, tmp_path: Path
) -> None:
    channel.queue_declare("disputed", durable=True)
    queue = {"name": "disputed", "vhost": "/", "durable": True, "auto_delete": False}
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"queues": [queue | {"arguments": {"x-max-length": 5}}]}))
    site.go("definitions").page.get_by_label("Definitions file").set_input_files(file)
    told = site.page.get_by_role("alert").filter(has_text="conflict")
    until(lambda: told.count())
    sentence = "1 conflict: / disputed exists with other arguments. Nothing is imported until it is resolved."
    assert told.inner_text() == sentence
    assert api.get("queues", "/", "disputed")["arguments"] == {}
    channel.queue_delete("disputed")


def test_why_nothing_is_delivered_from_an_empty_queue(channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("hollow", durable=True)
    channel.basic_consume("hollow", lambda *_: None)
    reason = site.go("why", "/", "hollow").page.locator(".reason").first
    until(lambda: reason.inner_text() == "The queue is empty.")
    channel.queue_delete("hollow")


def test_what_the_loss_of_a_node_would_stop_is_said_while_it_is_up(
    api: API, channel: BlockingChannel, site: Site
) -> None:
    channel.queue_declare("at-stake", durable=True)
    node = api.get("queues", "/", "at-stake")["node"]
    queues = len(api.get("queues", node=node))
    site.go("nodes", node).see(rf"^If this node fails, its {queues} queues? (is|are) unavailable until it returns\.$")
    assert site.page.get_by_text("Its queues are down").count() == 0
    channel.queue_delete("at-stake")
