"""The page of a cluster's node shows all nodes, on any node."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.etcd import etcd, needs_etcd
from tests.http.api import API, publish
from tests.http.site.accessibility import problems
from tests.http.site.conftest import Site
from tests.http.site.windows import window
from tests.nodes.homes import NODES
from tests.nodes.management.running_homes import RunningHomes, running_nodes
from tests.waiting import until

import jumpmq
from jumpmq.http.warnings.nodes import STARTED_TOGETHER
from jumpmq.testing import HOST, JumpMQ

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHomes]:
    with running_nodes(3, tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture(scope="module")
def broker(nodes: RunningHomes) -> jumpmq.RunningBroker:
    """The page of the first node; clients are at the last."""
    return nodes.endpoints


@pytest.fixture
def at(nodes: RunningHomes) -> Iterator[Callable[[int], BlockingChannel]]:
    """Return a channel at a node, by number."""
    connections = []

    def open_channel(home: int) -> BlockingChannel:
        connections.append(pika.BlockingConnection(pika.URLParameters(nodes.url(home))))
        return connections[-1].channel()

    yield open_channel
    for connection in connections:
        if connection.is_open:
            connection.close()


def incidents(api: API, *kinds: str) -> list[dict[str, Any]]:
    return [one for one in api.get("incidents") if one["kind"] in kinds]


def test_no_problems_are_said_of_all_nodes(site: Site) -> None:
    site.see(r"No problems on 3 of 3 nodes")


def test_alarms_of_other_nodes_are_told(
    nodes: RunningHomes, api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    channel = at(3)
    channel.queue_declare("held", durable=True)
    publish(channel, "held", [b"x"])
    limit = nodes.brokers[2].memory.limit
    nodes.brokers[2].set_limits(memory=1)
    try:
        alarm = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text="memory alarm")
        alarm.get_by_role("link", name=NODES[2]).wait_for()
        site.page.get_by_role("link", name="Nodes").locator(".dot.alarm").wait_for()
        box = site.go("nodes").page.get_by_role("region", name=NODES[2], exact=True)
        box.locator(".mark.alarm").get_by_text("memory alarm").wait_for()
    finally:
        nodes.brokers[2].set_limits(memory=limit)
    channel.queue_delete("held")


def test_shards_of_all_nodes_are_shown_and_those_without_a_consumer_told(
    api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    channel = at(2)
    channel.exchange_declare("clicks", "x-modulus-hash", durable=True)
    api.request("PUT", "policies", "/", "clicks", json={"pattern": "^clicks$", "definition": {"shards-per-node": 2}})
    until(lambda: len(api.get("exchanges", "/", "clicks", "shards")) == 6)
    channel.confirm_delivery()
    for number in range(60):
        channel.basic_publish("clicks", str(number), b"click")
    for _ in range(2):
        channel.basic_consume("clicks", lambda *_: None)
    until(lambda: incidents(api, "shard-without-consumer"))
    (cause,) = incidents(api, "shard-without-consumer")
    assert "4 of 6 shards of 'clicks' have no consumer" in cause["text"]
    assert f"2 more times at {NODES[2]}" in cause["advice"]
    site.go("shards", "/", "clicks")
    assert site.page.get_by_role("table", name="Shards").locator("tbody tr").count() == 6
    for node in NODES:
        assert site.page.get_by_role("table", name="Shards").get_by_role("link", name=node, exact=True).count() == 2
    api.request("DELETE", "policies", "/", "clicks")
    for shard in api.get("exchanges", "/", "clicks", "shards"):
        channel.queue_delete(shard["name"])
    channel.exchange_delete("clicks")


def test_a_ring_shows_the_traffic_of_all_nodes_and_its_hot_key_is_told_at_each(
    nodes: RunningHomes, api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    first = at(1)
    first.exchange_declare("payments", "x-consistent-hash", durable=True)
    for number in range(4):
        first.queue_declare(f"payments-{number}", durable=True)
        first.queue_bind(f"payments-{number}", "payments", "1")
    for home in (2, 3):  # at the first node no client publishes
        channel = at(home)
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("payments", "acme" if number % 2 else f"customer-{number}", b"x")
    places = [API(f"http://guest:guest@127.0.0.1:{one.listening.port_of('http')}") for one in nodes.brokers]
    for place in places:
        traffic = until(lambda: (seen := of_ring(place, "payments", "traffic"))["messages"] == 600 and seen)  # noqa: B023
        assert traffic["keys"] == pytest.approx(151, rel=0.15), "both nodes had the same keys"
        assert sum(one["keys"] for one in traffic["destinations"]) == pytest.approx(151, rel=0.2)
        assert (traffic["hottest"][0]["key"], traffic["hottest"][0]["messages"]) == ("acme", 300)
        until(lambda: incidents(place, "hot-key"))  # noqa: B023
    site.go("rings", "/", "payments").see("Hottest keys")
    site.page.get_by_role("table", name="Hottest keys").get_by_text("acme").wait_for()
    first.exchange_delete("payments")
    for number in range(4):
        first.queue_delete(f"payments-{number}")


def of_ring(api: API, name: str, *what: str) -> Any:
    return api.get("exchanges", "/", name, "ring", *what)


def test_a_node_is_drained_from_the_page(
    nodes: RunningHomes, api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    channel = at(2)
    for number in range(3):
        channel.queue_declare(f"drained-{number}", durable=True)
        publish(channel, f"drained-{number}", [b"x"] * 5)
    channel.basic_consume("drained-0", lambda *_: None)
    box = site.go("nodes").page.get_by_role("region", name=NODES[1], exact=True)
    between = site.page.get_by_role("region", name="Between the nodes")
    channel.queue_declare("fed")
    publisher = at(1)
    until(lambda: publisher.basic_publish("", "fed", b"x" * 1000) or between.locator(".moving").count())
    until(lambda: between.locator(".link").count() == 6)
    channel.queue_delete("fed")
    site.picture("cluster-nodes")
    site.press("Drain", box)
    dialog = site.page.get_by_role("dialog")
    dialog.get_by_text("3 queues, 15 messages (15 B); 1 consumer is cancelled").wait_for()
    site.press("Drain", dialog)
    dialog.get_by_text("No queue is left on the node").wait_for()
    assert not [one for one in api.get("queues") if one["node"] == NODES[1]]
    assert [api.counts(f"drained-{number}")[0] for number in range(3)] == [5, 5, 5]
    site.page.keyboard.press("Escape")
    site.go("queues", "/", "drained-1").press("Move to node").fill(place=NODES[1]).submit("Move")
    until(lambda: api.get("queues", "/", "drained-1")["node"] == NODES[1])
    events = api.get("history", "queues", "/", "drained-1")["events"]
    assert {one["text"] for one in events if "moved" in one["text"]} == {"queue 'drained-1' moved"}
    happened = site.page.get_by_label("What happened")
    happened.get_by_text(re.compile(r"^\d\d:\d\d:\d\d queue 'drained-1' moved$")).first.wait_for()
    assert "drained-0" not in happened.inner_text(), "moves of other queues are on their own pages"
    for number in range(3):
        api.request("DELETE", "queues", "/", f"drained-{number}")


def test_a_node_that_is_down_is_an_alarm_and_its_queues_are_not_shown_as_empty(
    nodes: RunningHomes, api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    there = at(3)
    there.exchange_declare("orders", "x-consistent-hash", durable=True)
    for number in range(2):
        there.queue_declare(f"part-{number}", durable=True)
        there.queue_bind(f"part-{number}", "orders", "1")
    publish(there, "part-0", [b"order"] * 7)
    until(lambda: api.counts("part-0") == (7, 0))
    until(lambda: api.get("nodes", NODES[2], "contents")["messages"] == 7)
    there.connection.close()
    nodes.run(nodes.leave(3))
    try:
        site.go()
        alarm = site.page.get_by_label("Warnings").get_by_role("listitem").filter(has_text="node down")
        alarm.get_by_text(f"Node {NODES[2]} does not answer").wait_for()
        assert "with 7 messages when last seen" in alarm.inner_text()
        assert "Rings have holes: 2 of 2 queues of 'orders'" in alarm.inner_text()
        assert site.page.get_by_text("No problems").count() == 0
        for label in ("Memory", "Disk free", "Connections"):
            site.page.locator(".tile").filter(has_text=label).filter(has_text="this node").wait_for()
        site.page.get_by_label("Views").locator(".dot.alarm").first.wait_for()
        site.picture("cluster-down-overview")
        down = site.go("queues").row("part-0")
        down.get_by_text("down").wait_for()
        assert "0" not in down.locator("td.num").all_inner_texts()
        site.picture("cluster-down-queues")
        site.go("queues", "/", "part-0").see(f"Node {NODES[2]}, which holds this queue, does not answer since")
        assert set(site.page.locator(".tile .figure").all_inner_texts()) == {"–"}
        assert site.page.get_by_role("button", name="Purge").count() == 0
        until(lambda: api.get("history", "queues", "/", "part-0")["ready"][-1:] == [None])
        site.picture("cluster-down-queue")
        box = site.go("nodes").page.get_by_role("region", name=NODES[2], exact=True)
        box.get_by_text(re.compile(r"\d queues down since")).wait_for()
        assert "alarm" in (box.get_attribute("class") or "") and "2 of 2 queues of 'orders'" in box.inner_text()
        site.press("Forget", box).fill(typed="other").press("Forget this node", site.page.get_by_role("dialog"))
        site.see(f"Type {NODES[2]} to forget it").picture("cluster-down-nodes").page.keyboard.press("Escape")
        site.go("nodes", NODES[2]).page.locator(".tile.alarm").get_by_text("down").wait_for()
        site.see("^Its queues are down; their messages are on its disk.$")
        site.go("exchanges", "/", "orders").press("Publish").fill(routing_key="k", payload="x")
        site.press("Publish", site.page.get_by_role("dialog")).see(f"node {NODES[2]}, which holds queue 'part-")
        site.page.keyboard.press("Escape")
        refused = api.request("POST", "exchanges", "/", "amq.default", "publish", json=message("part-0"))
        assert f"node {NODES[2]}, which holds queue 'part-0', is down" in refused.json()["reason"]
    finally:
        nodes.run(nodes.come_back(3))


def test_a_policy_counts_what_queues_of_other_nodes_lose_and_says_where_it_cannot(
    nodes: RunningHomes, api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    for home in (2, 3):
        channel = at(home)
        channel.queue_declare(f"cut-{home}", durable=True)
        publish(channel, f"cut-{home}", [b"x"] * 9)
        channel.connection.close()
    site.go("policies").press("Add a policy").fill(name="cut", pattern="^cut-", definition='{"max-length": 2}')
    dialog = site.page.get_by_role("dialog")
    site.press("Save", dialog)
    dialog.get_by_role("alert").filter(has_text="14 messages of 2 queues will be gone for good.").wait_for()
    nodes.run(nodes.leave(3))
    try:
        site.fill(priority="1").press("Save", dialog)
        alert = dialog.get_by_role("alert").filter(has_text="7 messages of 1 queue will be gone for good.")
        alert.get_by_text(f"What queues at {NODES[2]} would lose is not known: it does not answer.").wait_for()
        site.page.keyboard.press("Escape")
        assert [api.counts("cut-2")] == [(9, 0)]
        assert api.request("GET", "policies", "/", "cut").status_code == 404
    finally:
        nodes.run(nodes.come_back(3))
    for home in (2, 3):
        at(1).queue_delete(f"cut-{home}")


def test_what_spark_reads_at_another_node_is_not_called_unattended(
    api: API, site: Site, at: Callable[[int], BlockingChannel]
) -> None:
    channel = at(2)
    for name in ("spark-reads", "nobody-takes"):
        channel.queue_declare(name, durable=True)
    api.post("readers", "/", "nightly", "reserve", body={"queues": {"spark-reads": None}, "max_messages": 5})
    for name in ("spark-reads", "nobody-takes"):
        publish(channel, name, [b"x"] * 150)
    until(lambda: incidents(api, "queue-without-consumer"))
    assert [one["name"] for one in incidents(api, "queue-without-consumer")] == ["nobody-takes"]
    wrong = site.page.get_by_label("Warnings")
    wrong.get_by_role("link", name="nobody-takes").first.wait_for()
    assert wrong.get_by_role("link", name="spark-reads").count() == 0
    api.request("DELETE", "readers", "/", "nightly")
    for name in ("spark-reads", "nobody-takes"):
        channel.queue_delete(name)


def message(key: str) -> dict[str, Any]:
    return {"routing_key": key, "payload": "x", "payload_encoding": "string", "properties": {}}


@needs_etcd
def test_a_node_that_is_killed_is_told_by_the_others_until_it_is_back(
    tmp_path: Path, browser: Browser, pictures: Path
) -> None:
    """While one of three nodes is killed, no page of the remaining nodes reports a healthy cluster."""
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "page", "--etcd", member.url, "--queue-leader-locator", "balanced")
        names = [f"n{number}@localhost" for number in (1, 2, 3)]
        started = [stack.enter_context(JumpMQ(tmp_path / name, name, options)) for name in names]
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, started[0].port)) as connection:
            channel = connection.channel()
            channel.exchange_declare("orders", "x-consistent-hash", durable=True)
            for number in range(6):
                channel.queue_declare(f"part-{number}", durable=True)
                channel.queue_bind(f"part-{number}", "orders", "1")
        sites = [stack.enter_context(window(browser, pictures, one.http_port)) for one in started[:2]]
        for site in sites:
            site.see("No problems on 3 of 3 nodes")
        started[2].kill()
        for site in sites:
            site.see(f"Node {names[2]} does not answer: 2 queues are down").see("2 of 6 queues of 'orders'")
            assert site.page.get_by_text("No problems").count() == 0
        started[2].start()
        for site in sites:
            site.see("No problems on 3 of 3 nodes")
        nodes = API(f"http://guest:guest@{HOST}:{started[0].http_port}").get("nodes")
        (process,) = [int(one["os_pid"]) for one in nodes if one["name"] == names[2]]
        os.kill(process, signal.SIGSTOP)  # the node hangs, and is waited for
        try:
            for site in sites:
                site.see(f"Node {names[2]} does not answer|{names[2]} does not answer: 2 of 3 nodes do")
        finally:
            os.kill(process, signal.SIGCONT)
        for site in sites:
            site.see("No problems on 3 of 3 nodes")


@needs_etcd
def test_copies_of_a_home_are_set_and_shown(tmp_path: Path, browser: Browser, pictures: Path) -> None:
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "page", "--etcd", member.url)
        names = [f"n{number}@localhost" for number in (1, 2, 3)]
        started = [stack.enter_context(JumpMQ(tmp_path / name, name, options)) for name in names]
        site = stack.enter_context(window(browser, pictures, started[1].http_port)).go("nodes")
        copies = site.page.get_by_role("region", name="Copies", exact=True)
        site.page.get_by_text("No home has copies").click()
        row = copies.get_by_role("row").filter(has=site.page.get_by_role("button", name="Set copies")).first
        site.press("Set copies", row).fill(copies="3", min="3").press("Set", site.page.get_by_role("dialog"))
        site.see("The process of home 1 starts again once").submit("Set all the same")
        row.get_by_text("3 of 3", exact=True).wait_for()
        for name, state in zip(names, ("leader", "in set", "in set"), strict=True):
            row.get_by_text(f"{name} {state}").wait_for()
        (
            blocked := tmp_path / names[1] / "copies" / "1" / "replica.new"
        ).mkdir()  # a file of the copy cannot be written
        api = API(f"http://guest:guest@{HOST}:{started[1].http_port}")
        until(lambda: api.request("PUT", "queues", "/", "q", json={"durable": True, "node": names[0]}).ok)
        row.get_by_text("problem", exact=True).wait_for()
        blocked.rmdir()
        assert api.request("DELETE", "queues", "/", "q").ok
        started[2].kill()
        row.locator(".mark.alarm").get_by_text("2 of 3, 3 needed: nothing is confirmed").wait_for()
        row.get_by_text(f"{names[2]} away").wait_for()
        site.press("Set copies", row).fill(copies="3", min="2").submit("Set")
        row.get_by_text("2 of 3", exact=True).wait_for()
        api.request("PUT", "copies", "1", "leader", json={"node": names[2]})
        row.get_by_text(f"served by {names[2]}").wait_for()
        api.request("PUT", "copies", "1", "leader", json={"node": names[1]})
        row.get_by_text("not its seat").wait_for()
        seat = site.page.get_by_role("region", name=names[0], exact=True)
        seat.get_by_text("only keeps copies").wait_for()
        assert [text.strip() for text in seat.locator(".buttons").all_inner_texts()] == [""]
        site.picture("cluster-copies")
        assert problems(site.page) == []
        site.page.set_viewport_size({"width": 320, "height": 640})
        assert site.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_workers_are_shown_and_one_that_died_is_told(tmp_path: Path, browser: Browser, pictures: Path) -> None:
    with JumpMQ(tmp_path / "data", "busy@localhost", ("--workers", "2")) as broker:
        api = API(f"http://guest:guest@{HOST}:{broker.http_port}")
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port)) as connection:
            for number in range(3):
                connection.channel().queue_declare(f"q{number}", durable=True)
        with window(browser, pictures, broker.http_port) as site:
            table = site.go("nodes").page.get_by_role("table", name="Workers of busy@localhost")
            until(lambda: table.locator("tbody tr").count() == 2)
            (node,) = api.get("nodes")
            assert sum(one["queues"] for one in node["workers"]) == 3
            until(lambda: api.get("nodes")[0]["workers"][0]["uptime"] > STARTED_TOGETHER * 1000)
            os.kill(int(node["workers"][1]["os_pid"]), signal.SIGKILL)
            told = site.go().page.get_by_label("Warnings").get_by_role("listitem").filter(has_text="worker restarted")
            told.get_by_text("1 worker of busy@localhost died and was restarted").wait_for()
            site.go("nodes").picture("workers")


def test_queues_are_spread_anew_and_workers_leave_from_the_page(
    tmp_path: Path, browser: Browser, pictures: Path
) -> None:
    with JumpMQ(tmp_path / "data", "busy@localhost", ("--workers", "2")) as broker:
        api = API(f"http://guest:guest@{HOST}:{broker.http_port}")
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port)) as connection:
            channel = connection.channel()
            for number in range(4):
                channel.queue_declare(f"q{number}", durable=True)
                publish(channel, f"q{number}", [b"x"])

        def spread() -> list[int]:
            return sorted(one["queues"] for one in api.get("nodes")[0]["workers"])

        for number in range(4):
            api.request("POST", "queues", "/", f"q{number}", "actions", json={"action": "move", "home": 1})
        until(lambda: spread() == [0, 4])
        with window(browser, pictures, broker.http_port) as site:
            workers = site.go("nodes").page.get_by_role("table", name="Workers of busy@localhost")
            queues = workers.locator("tbody tr td:nth-child(2)")
            until(lambda: queues.all_inner_texts() == ["4", "0"])
            site.press("Rebalance").see("Workers have 4, 0 queues. About 2 queues move").submit("Rebalance")
            until(lambda: spread() == [2, 2])
            until(lambda: queues.all_inner_texts() == ["2", "2"])
            (there,) = {one["node"] for one in api.get("queues")}
            home = api.get("queues", "/", "q0")["home"]
            site.go("queues", "/", "q0").press("Move to node")
            places = site.page.get_by_role("dialog").locator("option").all_inner_texts()
            assert places == [f"{there}, worker {3 - home}"], "not the worker where it is"
            site.page.keyboard.press("Escape")
            site.go("nodes").press("Workers").fill(count="1")
            dialog = site.page.get_by_role("dialog")
            site.press("Set", dialog).see("2 queues of 1 worker move to those that stay").submit("Set all the same")
            until(lambda: [one["queues"] for one in api.get("nodes")[0]["workers"] if one["running"]] == [4])
            assert [api.counts(f"q{number}")[0] for number in range(4)] == [1, 1, 1, 1]
            site.page.get_by_role("button", name="Workers", exact=True).wait_for(state="detached")


def test_the_log_is_that_of_all_workers(tmp_path: Path, browser: Browser, pictures: Path) -> None:
    with JumpMQ(tmp_path / "data", "busy@localhost", ("--workers", "2")) as broker:
        api = API(f"http://guest:guest@{HOST}:{broker.http_port}")

        def tellers() -> set[tuple[str, int]]:
            """Return the nodes with a given log text; a client is logged at its own node."""
            pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port)).close()
            return {(one["node"], one["worker"]) for one in api.get("log", text="mechanism='PLAIN'")}

        until(lambda: tellers() == {("busy@localhost", 1), ("busy@localhost", 2)})
        with window(browser, pictures, broker.http_port) as site:
            site.go("log").page.get_by_role("columnheader", name="Worker").wait_for()
            assert site.page.get_by_role("columnheader", name="Node").count() == 0
            assert problems(site.page) == []
