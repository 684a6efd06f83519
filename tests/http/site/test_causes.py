"""Causes that remain after the end of traffic, and causes with a repairing button."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import Site
from tests.http.site.windows import window
from tests.waiting import until

import jumpmq
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http.warnings.outages import CLIENTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    """A broker whose warnings end soon, with short observations of publishing."""
    timing = BrokerTiming(held_warning=0.5, outage=3.0, before_outage=6.0)
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("page") / "data", timing=timing) as running:
        yield running


def cause(site: Site, kind: str) -> Locator:
    """The line of a kind of cause on the first page."""
    return site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text=kind).first


def unfolded(site: Site, kind: str) -> Locator:
    """The line of a cause, with its details."""
    line = cause(site, kind)
    line.wait_for()
    details = line.get_by_role("button", name="Details of")
    if details.get_attribute("aria-expanded") == "false":
        details.click()
    return line


def test_what_waits_without_inflow_is_told_until_it_is_gone(api: API, channel: BlockingChannel, site: Site) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave", "x-message-ttl": 0}
    channel.queue_declare("grave", durable=True)
    channel.queue_declare("mortal", durable=True, arguments=dead)
    channel.queue_declare("forgotten", durable=True)
    publish(channel, "mortal", [b"x"] * 2)
    publish(channel, "forgotten", [b"x"] * 150)
    channel.connection.close()
    until(lambda: api.get("queues", "/", "forgotten")["message_stats"]["publish_details"]["rate"] == 0)
    unfolded(site, "queue without consumer").get_by_text("No messages arrive now").wait_for()
    unfolded(site, "dead letters wait").get_by_text("'grave' holds 2 dead letters").wait_for()
    site.picture("causes-without-inflow")
    for name in ("grave", "forgotten"):
        api.request("DELETE", "queues", "/", name, "contents")
    for kind in ("queue without consumer", "dead letters wait"):
        cause(site, kind).wait_for(state="detached")
    for name in ("grave", "mortal", "forgotten"):
        api.request("DELETE", "queues", "/", name)


def test_that_all_clients_went_at_once_and_that_publishing_stopped(
    api: API, broker: jumpmq.RunningBroker, site: Site
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(pika.BlockingConnection(pika.URLParameters(broker.amqp_url)))
            for _ in range(CLIENTS + 1)
        ]
        channel = clients[0].channel()
        channel.queue_declare("fed")
        until(lambda: api.get("overview")["object_totals"]["connections"] == len(clients))
        for _ in range(20):
            for _ in range(20):
                channel.basic_publish("", "fed", b"x")
            clients[0].process_data_events(0.3)
        told = unfolded(site, "publishing stopped")
        told.get_by_text("to 0 at").wait_for()
        assert "clients are connected" in told.inner_text()
        channel.queue_delete("fed")
    told = unfolded(site, "clients gone")
    told.get_by_text(f"{len(clients)} of {len(clients)} connections closed at once").wait_for()
    assert "Publishing fell from" in told.inner_text()
    assert told.get_by_role("link", name="Connections").count() == 1


def test_messages_of_a_hidden_queue_are_moved_to_its_exchange(api: API, channel: BlockingChannel, site: Site) -> None:
    channel.queue_declare("hits", durable=True)
    publish(channel, "hits", [b"%d" % number for number in range(9)])
    channel.exchange_declare("hits", "x-modulus-hash", durable=True)
    body = {"pattern": "^hits$", "definition": {"shards-per-node": 2}, "apply-to": "exchanges"}
    api.request("PUT", "policies", "/", "hits", json=body)
    unfolded(site, "hidden queue")
    site.confirm("Move to the exchange")
    shards = until(lambda: api.get("exchanges", "/", "hits", "shards"))
    until(lambda: sum(api.counts(one["name"])[0] for one in shards) == 9)
    assert api.counts("hits") == (0, 0)
    api.request("DELETE", "policies", "/", "hits")
    for name in ("hits", *(one["name"] for one in shards)):
        api.request("DELETE", "queues", "/", name)
    api.request("DELETE", "exchanges", "/", "hits")


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[jumpmq.RunningBroker]:
    """A broker with a queue whose messages are missing from the disk."""
    with (
        jumpmq.running(data_dir=tmp_path) as running,
        pika.BlockingConnection(pika.URLParameters(running.amqp_url)) as connection,
    ):
        connection.channel().queue_declare("orders", durable=True)
        publish(connection.channel(), "orders", [b"%d" % number for number in range(10)])
    for path in tmp_path.glob("log/*.log"):
        path.unlink()
    with jumpmq.running(data_dir=tmp_path) as running:
        yield running
    shutil.rmtree(tmp_path)


def test_losses_are_listed_and_acknowledged_by_administrators_alone(
    damaged: jumpmq.RunningBroker, browser: Browser, pictures: Path
) -> None:
    api = API(damaged.http_url)
    api.request("PUT", "users", "watcher", json={"password": "secret", "tags": "monitoring"})
    with window(browser, pictures, damaged.http_port, "watcher", "secret") as site:
        unfolded(site, "losses").get_by_role("code").filter(has_text="jumpmqctl acknowledge_losses").wait_for()
        assert site.page.get_by_role("button", name="Acknowledge").count() == 0
    with window(browser, pictures, damaged.http_port) as site:
        unfolded(site, "losses")
        site.press("Acknowledge")
        site.page.get_by_role("list", name="Losses").get_by_text("messages 1 to 10 of queue 'orders'").wait_for()
        assert problems(site.page) == []
        site.picture("dialog-losses").submit("Acknowledge").see("Losses acknowledged")
        cause(site, "losses").wait_for(state="detached")
    assert api.get("losses") == []
