"""Nodes as processes, with copies of homes: after the loss of a node, another node serves the lost home."""

import contextlib
import os
import shutil
import signal
import socket
import time

import pika
import pytest
from pika.exceptions import AMQPError, NackError
from tests.cli.commands import run
from tests.etcd import needs_etcd
from tests.nodes.copies.copied_nodes import (
    NAMES,
    PATIENCE,
    PERSISTENT,
    Node,
    Nodes,
    forced,
    published,
    served,
    served_again,
    taken,
    until,
)
from tests.nodes.copies.damage import flip, place_of

from jumpmq.management import ManagementClient, Refusal
from jumpmq.nodes.replicas.copy_directory import Noted
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import node_of
from jumpmq.replication.lineage import position_at
from jumpmq.replication.wanted import Wanted
from jumpmq.store import losses

pytestmark = [needs_etcd, pytest.mark.several]


@pytest.mark.slow
def test_what_a_lost_node_has_confirmed_is_served_by_another_and_leadership_returns(three: Nodes) -> None:
    one, two, _ = three.all
    published(one, "q", range(100))
    three.copied()
    published(one, "q", range(100, 300))
    one.kill()
    assert served(two, "q") == 300
    value = three.configuration()
    assert node_of(value.leader) != NAMES[0] and value.seat == NAMES[0]
    published(two, "q", range(300, 400))
    one.start()  # start() returns once the node leads again
    assert node_of(three.configuration().leader) == NAMES[0]
    os.killpg(one.pid, signal.SIGSTOP)
    until(lambda: node_of(three.configuration().leader) != NAMES[0])
    os.killpg(one.pid, signal.SIGCONT)
    until(lambda: "the process starts again" in one.log.read_text())
    assert "was started later" not in one.log.read_text()  # the error of two processes with one data directory
    assert taken(two, "q") == list(range(400))


@pytest.mark.slow
def test_the_last_of_three_nodes_goes_on_when_an_operator_asks_for_less(three: Nodes) -> None:
    one, two, last = three.all
    published(one, "q", range(100))
    three.copied()
    one.kill()
    two.kill()  # before another node serves the home
    until(lambda: node_of(three.configuration().leader) == NAMES[2] and len(three.configuration().set) == 1)
    three.want(Wanted.of(NAMES[0], NAMES, 3, 1))
    assert served(last, "q") == 100
    published(last, "q", range(100, 150))


@pytest.mark.slow
def test_a_node_that_stops_in_order_hands_its_home_over(three: Nodes) -> None:
    one, two, other = three.all
    three.copied()
    published(one, "q", range(50))
    one.stop()
    until(lambda: node_of(three.configuration().leader) != NAMES[0])
    assert served(other, "q") == 50
    two.kill()  # two of three are gone: nothing is confirmed until one of the two is back
    one.start()
    assert served(other, "q") == 50
    assert taken(other, "q") == list(range(50))


@pytest.mark.slow
def test_a_node_whose_port_is_taken_ends_and_leaves_its_home_where_it_is(three: Nodes) -> None:
    one, *_ = three.all
    three.copied()
    one.stop()
    until(lambda: node_of(three.configuration().leader) != NAMES[0])
    epoch = three.configuration().epoch
    with socket.create_server(("127.0.0.1", 0)) as taken_by_another:
        port = taken_by_another.getsockname()[1]
        where = ("--data-dir", one.data_dir, "--node", NAMES[0], "--cluster", "test", "--etcd", three.url)
        ended = run("jumpmq", "serve", "--port", str(port), "--http-port", "0", *where)
    assert ended.returncode == 1
    assert f"cannot listen for amqp on localhost:{port}: Address already in use" in ended.stderr
    assert three.configuration().epoch == epoch


@pytest.mark.slow
def test_a_node_whose_disk_is_lost_is_filled_from_copies(three: Nodes) -> None:
    one, two, _ = three.all
    three.copied()
    published(one, "q", range(200))
    before = three.configuration().leader
    one.kill()
    shutil.rmtree(one.data_dir)
    one.start()  # start() returns once the node leads again
    value = three.configuration()
    assert node_of(value.leader) == NAMES[0] and value.leader != before and len(value.set) == 3
    assert taken(two, "q") == list(range(200))


@pytest.mark.slow
def test_damage_of_a_follower_and_of_the_leader_is_mended_from_other_copies(three: Nodes) -> None:
    one, two, _ = three.all
    three.copied()
    copy, number = two.data_dir / "copies" / "1", 7_777_777
    published(one, "q", range(number, number + 50))
    before = {*three.configuration().set}
    path, at = place_of(b"7777800", copy)
    until(lambda: Noted.decode((copy / "replica").read_bytes()).mark > position_at(int(path.stem), at))
    two.stop()
    flip(path, at)
    two.start()
    until(lambda: len({*three.configuration().set} - before) == 1)
    until(lambda: len(three.configuration().set) == 3)
    assert (copy / "damaged" / "log").is_dir()

    one.stop()
    one.start()  # start() returns once the node leads again, with the messages on disk only
    flip(*place_of(b"7777810", one.data_dir))
    before, found = {*three.configuration().set}, list[int]()

    def drained() -> bool:
        with contextlib.suppress(AMQPError, OSError):
            found.extend(taken(two, "q"))
        return len({*found}) == 50

    until(drained)
    assert sorted({*found}) == list(range(number, number + 50))
    until(lambda: len({*three.configuration().set} - before) == 1 and len(three.configuration().set) == 3)
    assert (one.data_dir / "damaged" / "log").is_dir()


@pytest.mark.slow
def test_a_damaged_log_is_noticed_while_a_copy_is_filled_from_it(three: Nodes) -> None:
    one, two, _ = three.all
    copy, numbers = two.data_dir / "copies" / "1", range(7_777_777, 7_777_827)
    three.copied()
    published(one, "q", numbers)
    one.stop()
    one.start()  # start() returns once the node leads again, with a new segment of the log
    two.kill()
    until(lambda: len(three.configuration().set) == 2)
    shutil.rmtree(copy)
    flip(*place_of(b"7777810", one.data_dir))
    two.start()
    until(lambda: len(three.configuration().set) == 3 and (one.data_dir / "damaged" / "log").is_dir())
    for directory in (one.data_dir, copy):
        assert place_of(b"7777810", directory)
    assert taken(two, "q") == [*numbers]


@pytest.mark.slow
def test_a_leader_with_damage_serves_on_until_copies_are_to_spare(three: Nodes) -> None:
    one, two, _ = three.all
    numbers = range(7_777_777, 7_777_827)
    three.copied()
    published(one, "q", numbers)
    one.stop()
    one.start()  # start() returns once the node leads again, with the messages on disk only
    two.kill()
    until(lambda: len(three.configuration().set) == 2)
    flip(*place_of(b"7777810", one.data_dir))
    found = taken(one, "q")
    until(lambda: (one.data_dir / "doubted").exists())
    published(one, "q", range(50))  # with the other copy's help only
    assert not (one.data_dir / "damaged").exists()
    two.start()
    until(lambda: (one.data_dir / "damaged" / "log").is_dir() and len(three.configuration().set) == 3)
    found += taken(two, "q")
    assert sorted({*found}) == [*range(50), *numbers]


@pytest.mark.slow
def test_damage_of_a_stream_is_noticed_while_a_copy_is_filled_from_it(three: Nodes) -> None:
    one, two, _ = three.all
    copy, numbers = two.data_dir / "copies" / "1", range(7_777_777, 7_777_827)
    three.copied()
    published(one, "s", numbers, {"x-queue-type": "stream"})
    one.stop()
    one.start()  # start() returns once the node leads again, with a new segment of the log
    two.kill()
    until(lambda: len(three.configuration().set) == 2)
    shutil.rmtree(copy)
    (path,) = one.data_dir.glob("streams/*/*.segment")
    name, octets = path.relative_to(one.data_dir), path.read_bytes()
    flip(path, octets.find(b"7777810"))
    two.start()
    until(lambda: (one.data_dir / "damaged" / name).exists())
    files = [directory / name for directory in (one.data_dir, copy)]
    until(lambda: all(at.exists() and at.read_bytes().startswith(octets.rstrip(b"\0")) for at in files))
    until(lambda: len(three.configuration().set) == 3)


@pytest.mark.slow
def test_the_last_copy_serves_by_force_where_all_others_are_lost(three: Nodes) -> None:
    one, two, last = three.all
    published(one, "q", range(100))
    three.copied()
    last.kill()
    until(lambda: len(three.configuration().set) == 2)
    published(one, "q", range(100, 150))
    last.start()
    until(lambda: len(three.configuration().set) == 3)
    published(one, "q", range(150, 200))
    last.kill()
    until(lambda: len(three.configuration().set) == 2)
    published(one, "q", range(200, 300))  # the last copy lacks these messages
    refused = forced(last, three.url)
    assert (refused.returncode, "runs, and has all confirmed messages of home 1" in refused.stderr) == (1, True)
    for node in (one, two):
        node.kill()
        shutil.rmtree(node.data_dir)
    time.sleep(LEASE + 1)  # until etcd knows
    done = forced(last, three.url)
    assert done.returncode == 0, done.stderr
    assert "without the copies of n1@host, n2@host: commits" in done.stdout
    (loss,) = losses.read(last.data_dir / "copies" / "1")
    assert loss[0] in done.stdout
    last.start()
    assert served(last, "q") == 200
    assert "node 'n3@host' runs: stop the node first" in forced(last, three.url).stderr
    published(last, "q", range(300, 350))
    one.start()  # the disk is new: start() returns once the node leads again
    value = three.configuration()
    assert node_of(value.leader) == NAMES[0] and len(value.set) == 2
    assert taken(one, "q") == [*range(200), *range(300, 350)]


@pytest.mark.slow
def test_clients_of_other_nodes_wait_for_a_lost_home_instead_of_being_refused(three: Nodes) -> None:
    one, two, _ = three.all
    published(one, "q", range(10))
    three.copied()
    refused, done = 0, 0
    with pika.BlockingConnection(two.parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        assert channel.queue_declare("q", passive=True).method.message_count == 10
        for number in range(200):
            if number == 50:
                one.kill()
                assert channel.queue_declare("q", passive=True).method.message_count == 10 + done
            try:
                channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
                done += 1
            except NackError:
                refused += 1
    assert refused <= 1, "but for what was on its way"
    assert len(taken(two, "q")) >= 10 + done


@pytest.mark.slow
def test_a_consumer_of_another_node_goes_on_after_its_home_was_lost(three: Nodes) -> None:
    one, two, _ = three.all
    published(one, "q", range(10))
    three.copied()
    with pika.BlockingConnection(two.parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=5)
        got: list[int] = []
        for method, _properties, body in channel.consume("q", inactivity_timeout=PATIENCE):
            assert method is not None, f"cancelled, or forgotten, after {got}"
            got.append(int(body))
            if len(got) == 3:
                one.kill()
            channel.basic_ack(method.delivery_tag)
            if got[-1] == 9:
                break
    assert got[:3] == [0, 1, 2]
    assert sorted({*got}) == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("three", [2], indirect=True)
def test_homes_have_as_many_copies_as_the_settings_say(three: Nodes) -> None:
    until(lambda: all(len(three.configuration(home).set) == 2 for home in (1, 2, 3)))
    assert three.configuration(3).members[0] == NAMES[2]
    for node in three.all:
        served_again(node)
    published(three.all[2], "q", range(20))
    three.all[2].kill()
    assert taken(three.all[0], "q") == list(range(20))


def streamed(node: Node, queue: str) -> list[int]:
    """All messages of a stream."""
    with pika.BlockingConnection(node.parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        found: list[int] = []
        arguments = {"x-stream-offset": "first"}
        for method, _properties, body in channel.consume(queue, inactivity_timeout=3, arguments=arguments):
            if method is None:
                return found
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)
    raise AssertionError("cancelled")


@pytest.mark.slow
def test_a_stream_that_came_from_another_node_before_is_whole_in_all_copies(three: Nodes) -> None:
    one, two, _ = three.all
    with pika.BlockingConnection(two.parameters) as connection:
        connection.channel().queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    published(two, "s", range(50), {"x-queue-type": "stream"})
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{two.http_port}", 60.0)
    client.post("queues", "/", "s", "actions", body={"action": "move", "home": 1})
    until(lambda: client.get("queues", "/", "s").get("node") == NAMES[0])
    three.copied()
    published(two, "s", range(50, 80), {"x-queue-type": "stream"})
    one.kill()
    served(two, "s")
    assert streamed(two, "s") == list(range(80))


@pytest.mark.slow
@pytest.mark.parametrize("killed_while_it_moves", [False, True])
def test_a_stream_that_moves_to_a_home_with_copies_is_in_all_of_them(three: Nodes, killed_while_it_moves: bool) -> None:
    one, two, other = three.all
    arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1 << 20}
    three.copied()
    with pika.BlockingConnection(two.parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("", "s", b"%d" % number + b" " * 20_000, PERSISTENT)
        channel.basic_qos(prefetch_count=100)
        group = {"x-consumer-group": "g", "x-stream-offset": "first"}
        for method, _, _ in channel.consume("s", arguments=group):
            channel.basic_ack(method.delivery_tag)
            if method.delivery_tag == 70:
                break
    client = ManagementClient(f"http://guest:guest@127.0.0.1:{other.http_port}", 60.0)
    client.post("queues", "/", "s", "actions", body={"action": "move", "home": 1})
    if killed_while_it_moves:
        until(lambda: any(path.stat().st_size for path in one.data_dir.glob("streams/*/*.segment")))
        one.kill()
        until(lambda: node_of(three.configuration().leader) != NAMES[0])

    def stands() -> bool:
        try:
            shown = client.get("queues", "/", "s")
        except Refusal:  # the stream's home is starting
            return False
        return {"moving_to", "moving_from"}.isdisjoint(shown) and shown["node"] == NAMES[0]

    until(stands)
    if killed_while_it_moves:
        one.start()
        assert len(three.configuration().set) == 3
    two.kill()  # the old node of the stream is no longer needed
    published(other, "s", range(300, 310), arguments)
    one.kill()
    two.start()
    assert served(other, "s") == 310
    assert streamed(other, "s") == list(range(310))
    offsets = client.get("group-offsets", "/")
    assert [one["offset"] for one in offsets] == [70]
