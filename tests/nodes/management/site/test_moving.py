"""The page of a queue during its move from node to node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from tests.http.api import API, publish
from tests.http.site.conftest import Site
from tests.nodes.homes import NODES
from tests.nodes.management.running_homes import RunningHomes, running_nodes
from tests.waiting import PATIENCE, until

from jumpmq.nodes.moves import stream_moves

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RunningHomes]:
    with running_nodes(3, tmp_path) as running:
        yield running


@pytest.fixture
def api(nodes: RunningHomes) -> API:
    return API(nodes.endpoints.http_url)


@pytest.fixture
def site(browser: Browser, nodes: RunningHomes, pictures: Path) -> Iterator[Site]:
    with contextlib.closing(browser.new_context(reduced_motion="reduce")) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        yield Site(page, f"http://127.0.0.1:{nodes.endpoints.http_port}/", pictures).log_in("guest", "guest")


def declared(nodes: RunningHomes, name: str, **arguments: Any) -> None:
    """A queue at the first node, with a message."""
    with pika.BlockingConnection(pika.URLParameters(nodes.url(1))) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=arguments)
        publish(channel, name, [b"x"])


def move(api: API, name: str) -> None:
    """Start the move of a queue to the second node."""
    api.request("POST", "queues", "/", name, "actions", json={"action": "move", "node": NODES[1]})


def marks(site: Site, name: str) -> list[str]:
    """Return the marks of a queue in the list of queues."""
    return [text for text in site.row(name).locator(".mark").all_inner_texts() if text != "none"]  # no consumer


def test_a_queue_whose_messages_are_on_their_way(nodes: RunningHomes, api: API, site: Site) -> None:
    """The page marks a queue whose messages are in transit, here while a node does not answer."""
    declared(nodes, "orders")
    nodes.run(nodes.leave(3))
    move(api, "orders")
    site.go("queues", "/", "orders").see(f"from {NODES[0]}: messages are on their way")
    site.go("queues").see("moving")
    until(lambda: marks(site, "orders") == ["moving"])
    nodes.run(nodes.come_back(3))
    until(lambda: marks(site, "orders") == [])


def test_a_stream_whose_files_are_copied_and_one_that_stays(
    nodes: RunningHomes, api: API, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared(nodes, "events", **{"x-queue-type": "stream"})
    with monkeypatch.context() as busy:
        busy.setattr(stream_moves, "AT_ONCE", 0)  # other messages are copied before
        move(api, "events")
        site.go("queues", "/", "events").see(f"to {NODES[1]}: its files are copied")
        nodes.run(nodes.leave(2))
        api.request("DELETE", "nodes", NODES[1])
    site.see(f"not to node '{NODES[1]}': it has left the cluster")
    site.go("queues")
    until(lambda: marks(site, "events") == ["not moved"])
