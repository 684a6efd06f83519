"""Cost of the management page: key counting per message, and a broker with 10,000 queues while the page is open.

    python -m benchmarks.page

Prints the broker's processor time per message (through a consistent hash exchange, bodies of 100 octets, acknowledged
automatically), and the cost of key counting in routing, measured interleaved with and without. Then, in milliseconds:
the time from a click to the list of queues drawn in a browser, sorted by name and by rate; and the maximum latency of
a message in all rounds, alone, while the page opens view after view, and while all HTTP lists of queues are requested.
Below each of these is the longest slice of processor time of the broker's thread (:mod:`benchmarks.watched`): a
message's delay on a machine with idle processors.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pika
import requests

from benchmarks import watched
from benchmarks.stalls import Watched
from jumpmq.amqp.messages import Message
from jumpmq.testing import HOST, JumpMQ
from jumpmq.topology import (
    AddVirtualHost,
    Bind,
    Binding,
    ConsistentHashExchange,
    DeclareExchange,
    DeclareQueue,
    ExchangeDefinition,
    Topology,
)

QUEUES = 10_000
MESSAGES = 1_000_000
ROUTED = 100_000
RUN = 50
"""Messages routed at once: about the messages of one read of a socket."""

ROUNDS = 5
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
VIEWS = ("", "queues", "exchanges", "connections", "readers", "shards", "queues?sort=messages")
PATHS = ("api/overview", "api/vhosts", "api/queues", "api/definitions", "metrics", "metrics/per-object")
DRAWN = "main table tbody tr, main .empty"


def main() -> None:
    key_counting()
    with Watched() as broker, requests.Session() as session:
        session.auth = ("guest", "guest")
        queues = [{"name": f"queue-{number}", "vhost": "/"} for number in range(QUEUES)]
        api = f"http://{HOST}:{broker.http_port}/api"
        session.post(f"{api}/definitions", json={"queues": queues}, timeout=60).raise_for_status()
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, broker.port)) as connection:
            channel = connection.channel()
            report_longest("longest message, alone", lambda: longest_message(channel, lambda: time.sleep(3)), broker)
            browsing(broker, channel)

            def fetch() -> None:
                for path in PATHS:
                    session.get(f"http://{HOST}:{broker.http_port}/{path}", timeout=60).raise_for_status()

            report_longest("longest message, while all is asked for", lambda: beside(channel, fetch), broker)


def key_counting() -> None:
    """Cost of key counting in the routing of a message, as a fraction of the broker's total cost of a message."""
    added = difference()
    with JumpMQ(arguments=["--key-sketches", "off"]) as broker:
        spent = []
        for _ in range(ROUNDS):
            before = broker.cpu_seconds()
            load = [sys.executable, "-m", "benchmarks.load", "flow", "--auto-ack", "--port", str(broker.port)]
            subprocess.run([*load, "-n", str(MESSAGES)], check=True, stdout=subprocess.DEVNULL)
            spent.append((broker.cpu_seconds() - before) / MESSAGES)
    print(f"{'processor time of a message':44} {min(spent) * 1e9:8.0f} ns")
    print(f"{'counting its key adds':44} {added * 1e9:8.0f} ns, {added / min(spent):.1%}")


def difference() -> float:
    """Seconds that key counting adds per message: best time with counting less best time without, interleaved."""
    best = {True: 1.0, False: 1.0}
    for _ in range(4 * ROUNDS):
        for counting in best:
            best[counting] = min(best[counting], routing(counting))
    return best[True] - best[False]


def routing(counting: bool) -> float:
    """Processor seconds to route a message by its routing key over four queues, in batches of 50."""
    topology = Topology("jumpmq@bench")
    topology.apply(AddVirtualHost("/"))
    topology.apply(DeclareExchange(ExchangeDefinition("/", "orders", "x-consistent-hash")))
    for number in range(4):
        topology.apply(DeclareQueue(topology.define_queue("/", f"q{number}")))
        topology.apply(Bind("/", Binding("orders", "queue", f"q{number}", b"1")))
    host = topology.vhosts["/"]
    if counting:
        exchange = host.exchanges["orders"]
        assert isinstance(exchange, ConsistentHashExchange)
        exchange.count_traffic()
    messages = [Message("orders", b"order-%d" % (number * 7919 % 100_000), b"\0\0", b"") for number in range(ROUTED)]
    began = 0.0
    for _ in range(2):  # the first messages of a window are looked at more closely
        began = time.process_time()
        for start in range(0, ROUTED, RUN):
            host.route("orders", messages[start : start + RUN], plain=True)
    return (time.process_time() - began) / ROUTED


def browsing(broker: Watched, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """Duration of the page's views, and latency of messages meanwhile."""
    from playwright.sync_api import sync_playwright

    address = f"http://{HOST}:{broker.http_port}/"
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit("no browser is installed (apt install chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        page.get_by_label("User").fill("guest")
        page.get_by_label("Password").fill("guest")
        page.get_by_role("button", name="Log in").click()
        page.locator(".tiles").wait_for()

        def drawn(view: str) -> float:
            page.goto(f"{address}#/log")
            page.locator("main .search").wait_for()
            began = time.perf_counter()
            page.goto(f"{address}#/{view}")
            page.get_by_role("link", name="queue-", exact=False).first.wait_for()
            return time.perf_counter() - began

        report("10,000 queues drawn, by name", lambda: drawn("queues?sort=name"))
        report("10,000 queues drawn, by rate", lambda: drawn("queues?sort=message_stats.publish_details.rate"))

        def visit() -> None:
            for view in VIEWS:
                page.goto(f"{address}#/{view}")
                page.locator(DRAWN).first.wait_for()
                page.wait_for_timeout(500)

        report_longest("longest message, while the page is looked at", lambda: beside(channel, visit), broker)
        browser.close()


def beside(channel: pika.adapters.blocking_connection.BlockingChannel, act: Callable[[], None]) -> float:
    """Maximum latency of a message during an action in this thread."""
    ended, found = threading.Event(), list[float]()
    probe = threading.Thread(target=lambda: found.append(longest_message(channel, ended.wait)))
    probe.start()
    act()
    ended.set()
    probe.join()
    return found[0]


def longest_message(channel: pika.adapters.blocking_connection.BlockingChannel, act: Callable[[], object]) -> float:
    """Maximum seconds from a publish to its delivery, message after message, until the action ends."""
    queue, longest = channel.queue_declare("", exclusive=True).method.queue, 0.0
    acting = threading.Thread(target=act)
    acting.start()
    while acting.is_alive():
        began = time.perf_counter()
        channel.basic_publish("", queue, b"x")
        while channel.basic_get(queue, auto_ack=True)[0] is None:
            pass
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.002)
    return longest


def report(what: str, measure: Callable[[], float], of: Callable[[list[float]], float] = statistics.median) -> None:
    print(f"{what:44} {1000 * of([measure() for _ in range(ROUNDS)]):8.1f} ms", flush=True)


def report_longest(what: str, measure: Callable[[], float], broker: Watched) -> None:
    watched.longest(broker.watch)
    report(what, measure, max)
    print(f"{'  the broker at one stretch':44} {1000 * watched.longest(broker.watch):8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
