"""A failure of one of three nodes of either broker, as seen by clients of the other nodes.

A test states both behaviours where they differ; docs/differences.md names the difference.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from pamqp.commands import Queue
from tests.cutting import Cuts, can_cut, run_as
from tests.etcd import etcd
from tests.waiting import until
from tests.wire import ChannelClosed, login

from jumpmq.testing import BrokerError, BrokerProcess, JumpMQ, RabbitMQ, RabbitMQNode, accepts_clients
from jumpmq.testing.etcd import is_installed

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)

Nodes = Sequence[BrokerProcess]


class OwnNode(JumpMQ):
    """A node whose packets iptables can identify."""

    number: int

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        super()._launch(run_as(self.number, command) if can_cut() else command, environment)


class OtherNode(RabbitMQNode):
    """A node of RabbitMQ whose packets iptables can identify."""

    number: int

    @property
    def link_port(self) -> int:
        """Port for links of other nodes."""
        return self._dist_port

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        super()._launch(run_as(self.number, command) if can_cut() else command, environment)


@pytest.fixture(scope="module", params=["rabbitmq", "jumpmq"])
def nodes_and_cuts(request: pytest.FixtureRequest) -> Iterator[tuple[Nodes, Cuts | None]]:
    with ExitStack() as stack:
        if request.param == "rabbitmq":
            if not RabbitMQ.available():
                pytest.skip(RabbitMQ.available().reason)
            if request.config.getoption("--nodes") == 1:
                pytest.skip("with --nodes 3: three nodes of RabbitMQ take minutes to start")
            first = OtherNode()
            first.number = 0
            stack.enter_context(first)
            nodes: list[Any] = [first, OtherNode(first), OtherNode(first)]
            to = [f"--dport {node.link_port}" for node in nodes]
        else:
            if not is_installed():
                pytest.skip("etcd is not installed")
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (member,) = stack.enter_context(etcd(directory))
            nodes, to = [], []
            for number in range(3):
                address = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number + 1}"
                options = ("--cluster", "test", "--etcd", member.url, "--cluster-host", address)
                nodes.append(OwnNode(directory / f"node{number}", f"node{number}@localhost", options))
                to.append(f"-d {address}")
        cuts = stack.enter_context(Cuts(to)) if can_cut() else None
        for number, node in enumerate(nodes):
            node.number = number
            if node is not nodes[0] or request.param != "rabbitmq":
                stack.enter_context(node)
        yield nodes, cuts


@pytest.fixture
def nodes(nodes_and_cuts: tuple[Nodes, Cuts | None]) -> Nodes:
    """Three nodes; a test leaves all of them up."""
    return nodes_and_cuts[0]


@pytest.fixture
def cuts(nodes_and_cuts: tuple[Nodes, Cuts | None]) -> Cuts:
    """Cuts of links between the nodes."""
    if nodes_and_cuts[1] is None:
        pytest.skip("links cannot be cut here: that takes root, iptables and setpriv")
    return nodes_and_cuts[1]


@pytest.fixture
def channels(nodes: Nodes) -> Iterator[list[Any]]:
    """A channel per node, with confirms."""
    connections = [pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) for node in nodes]
    found = [connection.channel() for connection in connections]
    for channel in found:
        channel.confirm_delivery()
    yield found
    for connection in connections:
        with suppress(pika.exceptions.AMQPError):  # of a killed node
            connection.close()


def confirmed(channel: Any, exchange: str, key: str) -> bool:
    """Return true if a message is confirmed, false if refused."""
    try:
        channel.basic_publish(exchange, key, b"", PERSISTENT)
    except pika.exceptions.NackError:
        return False
    return True


def refusal(channel: Any, queue: str, **options: Any) -> tuple[int, str]:
    """Reply code and text of a refused declaration."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.connection.channel().queue_declare(queue, durable=True, **options)
    return caught.value.reply_code, caught.value.reply_text


def test_what_is_declared_at_one_node_is_used_at_another_at_once(channels: list[Any]) -> None:
    for number in range(20):
        channels[number % 3].queue_declare(f"at-once-{number}", durable=True)
        channels[(number + 1) % 3].basic_publish("", f"at-once-{number}", b"", PERSISTENT, mandatory=True)
        channels[(number + 2) % 3].queue_delete(f"at-once-{number}")
        with pytest.raises(pika.exceptions.UnroutableError):
            channels[(number + 1) % 3].basic_publish("", f"at-once-{number}", b"", PERSISTENT, mandatory=True)


def test_a_queue_whose_node_is_down(nodes: Nodes, channels: list[Any]) -> None:
    channels[2].queue_declare("far", durable=True)
    for _ in range(3):
        channels[0].basic_publish("", "far", b"kept", PERSISTENT)
    cancelled = list[Any]()
    consumer = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", nodes[0].port)).channel()
    consumer.basic_qos(prefetch_count=1)
    consumer.add_on_cancel_callback(cancelled.append)
    consumer.basic_consume("far", lambda *_: None)
    consumer.connection.process_data_events(0.5)
    nodes[2].kill()
    until(lambda: consumer.connection.process_data_events(0.1) or (cancelled and is_known_to_be_down(nodes)))
    reason = f"NOT_FOUND - home node '{nodes[2].node}' of durable queue 'far' in vhost '/' is down or inaccessible"
    # RabbitMQ's text after a clean stop; after a kill, its text reports a timeout for at least a minute.
    timeout = "NOT_FOUND - failed to perform operation on queue 'far' in vhost '/' due to timeout"
    texts = {reason, timeout} if nodes[0].name == "RabbitMQ" else {reason}
    code, text = refusal(channels[0], "far", passive=True)
    assert code == 404
    assert text in texts
    code, text = refusal(channels[0], "far")
    assert code == 404
    assert text in texts
    if nodes[0].name != "RabbitMQ":  # refuses it directly after a kill, and later confirms dropped messages
        assert not confirmed(channels[0], "", "far")
    consumer.connection.close()
    nodes[2].start()

    until(lambda: messages_of(channels[0], "far") == 3)
    again = channels[1].connection.channel()
    found = [again.basic_get("far", auto_ack=True) for _ in range(3)]
    assert [body for _, _, body in found] == [b"kept"] * 3
    assert found[0][0].redelivered
    again.queue_delete("far")


def test_a_hash_exchange_of_which_a_node_is_down(nodes: Nodes, channels: list[Any]) -> None:
    channels[0].exchange_declare("ring", "x-consistent-hash", durable=True)
    for number, channel in enumerate(channels):
        channel.queue_declare(f"ring-{number}", durable=True)
        channel.queue_bind(f"ring-{number}", "ring", "1")
    nodes[2].kill()
    until(lambda: is_known_to_be_down(nodes))
    taken = sum(confirmed(channels[0], "ring", str(number)) for number in range(90))
    counts = [channels[0].queue_declare(f"ring-{number}", passive=True).method.message_count for number in range(2)]
    nodes[2].start()
    if nodes[0].name == "RabbitMQ":
        assert sum(counts) <= taken  # messages for that node's queue may be confirmed, and lost
    else:
        assert taken == sum(counts)
        assert 45 <= taken <= 75


def test_transient_queues_of_a_node_that_is_down(nodes: Nodes, channels: list[Any]) -> None:
    """RabbitMQ deletes a failed node's transient queues when it detects the failure, JumpMQ after a minute."""
    channels[0].exchange_declare("fan", "fanout", durable=True)
    channels[0].queue_declare("stays", durable=True)
    channels[2].queue_declare("goes", durable=False)
    for queue in ("stays", "goes"):
        channels[0].queue_bind(queue, "fan")
    nodes[2].kill()
    try:
        until(lambda: confirmed(channels[0], "fan", ""))  # with the remaining queues
        assert channels[0].queue_declare("stays", passive=True).method.message_count >= 1
        if nodes[0].name == "RabbitMQ":
            until(lambda: can_declare(channels[0], "goes"))
        else:
            code, text = refusal(channels[0], "goes", passive=True)
            assert code == 404
            assert text.endswith("is down or inaccessible")
    finally:
        nodes[2].start()
    channels[0].queue_delete("stays")


def test_a_node_that_was_away_while_much_was_declared(nodes: Nodes, channels: list[Any]) -> None:
    """A node returns after more than a thousand changes, so that JumpMQ begins from a snapshot."""
    channels[0].exchange_declare("many", "direct", durable=True)
    nodes[2].kill()
    try:
        until(lambda: is_known_to_be_down(nodes))
        for number in range(550):
            channels[0].queue_declare(f"many-{number}", durable=True)
            channels[0].queue_bind(f"many-{number}", "many", str(number))
    finally:
        nodes[2].start()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", nodes[2].port)) as back:
        channel = back.channel()
        channel.confirm_delivery()
        for number in (0, 300, 549):
            channel.basic_publish("many", str(number), b"", PERSISTENT, mandatory=True)
    for number in (0, 300, 549):
        assert channels[1].queue_declare(f"many-{number}", passive=True).method.message_count == 1


def test_a_node_that_hangs(nodes: Nodes, channels: list[Any]) -> None:
    """JumpMQ reports the queues of a stopped process as down within seconds, RabbitMQ later."""
    channels[2].queue_declare("hangs", durable=True)
    channels[2].basic_publish("", "hangs", b"kept", PERSISTENT)
    os.killpg(nodes[2].pid, signal.SIGSTOP)
    try:
        connection = login(nodes[0].port)
        channel = connection.channel()
        channel.send(Queue.Declare(queue="hangs", passive=True))
        if nodes[0].name == "RabbitMQ":
            with pytest.raises(TimeoutError):
                channel.next(20.0)
        else:
            with pytest.raises(ChannelClosed) as caught:
                channel.next(20.0)
            assert (caught.value.code, caught.value.text.endswith("is down or inaccessible")) == (404, True)
        connection.hang_up()
    finally:
        os.killpg(nodes[2].pid, signal.SIGCONT)
    until(lambda: messages_of(channels[1], "hangs") == 1)


def messages_of(channel: Any, queue: str) -> int | None:
    """Number of messages of a queue; None while it is down."""
    try:
        return int(channel.connection.channel().queue_declare(queue, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker:
        return None


def can_declare(channel: Any, queue: str) -> bool:
    """Return true if a queue can be declared, on a new channel."""
    try:
        channel.connection.channel().queue_declare(queue, durable=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


def is_known_to_be_down(nodes: Nodes) -> bool:
    """Return true if the first node knows of a failed node."""
    found = requests.get(f"http://guest:guest@127.0.0.1:{nodes[0].http_port}/api/nodes", timeout=10).json()
    return not all(one["running"] for one in found)


def test_a_node_that_is_short_of_disk(nodes: Nodes, channels: list[Any]) -> None:
    """RabbitMQ blocks the publishers of all nodes, JumpMQ only publishers to that node's queues."""
    for number, channel in enumerate(channels):
        channel.queue_declare(f"alarm-{number}", durable=True)
    set_disk_limit(nodes[2], "100000GB")
    try:
        until(lambda: not is_well(nodes[2], "local-alarms") and not is_well(nodes[0], "alarms"))
        # By requested node, and queue.
        blocked = [[is_blocked(node, f"alarm-{number}") for number in range(3)] for node in nodes]
        if nodes[0].name == "RabbitMQ":
            assert blocked == [[True] * 3] * 3
        else:
            assert blocked == [[False, False, True], [False, False, True], [True] * 3]
    finally:
        set_disk_limit(nodes[2], "1MB")


def set_disk_limit(node: BrokerProcess, limit: str) -> None:
    """Set the limit of free disk space."""
    if isinstance(node, RabbitMQ):
        node.ctl("set_disk_free_limit", limit)
        return
    url = f"http://guest:guest@127.0.0.1:{node.http_port}/api/nodes/{node.node}/limits"
    requests.put(url, json={"disk_free_limit": limit}, timeout=10).raise_for_status()


def is_well(node: BrokerProcess, check: str) -> bool:
    """Return true if a health check succeeds."""
    url = f"http://guest:guest@127.0.0.1:{node.http_port}/api/health/checks/{check}"
    return requests.get(url, timeout=10).status_code == 200


def is_blocked(node: BrokerProcess, queue: str, seconds: float = 2.0) -> bool:
    """Return true if a publisher at a node receives no further confirms for the given seconds."""
    connection = login(node.port)
    channel = connection.channel()
    channel.confirm_select()
    try:
        for _ in range(3):
            channel.publish("", queue)
            channel.next(seconds)
            time.sleep(0.1)
    except TimeoutError:
        return True
    finally:
        connection.hang_up()
    return False


@pytest.mark.parametrize("ways", ["both ways", "one way"])
def test_two_nodes_whose_link_is_cut(nodes: Nodes, channels: list[Any], cuts: Cuts, ways: str) -> None:
    """Two nodes without a link between them both reach the third node.

    RabbitMQ notices after a minute, breaks a further link by itself, and has two sets of definitions from then on,
    until all nodes of one set restart. The declarations of that set are then lost.
    """
    first, second, third = channels
    third.queue_declare("beyond", durable=True)
    consumers = [Consumer(node, "beyond") for node in nodes]
    is_other = nodes[0].name == "RabbitMQ"
    with ExitStack() as stack:
        stack.enter_context(cuts.cut(0, 2))
        if ways == "both ways":
            stack.enter_context(cuts.cut(2, 0))
        if is_other:
            assert is_blocked(nodes[0], "beyond", 40.0)
        else:
            assert not confirmed(first, "", "beyond")
            assert refusal(first, "beyond") == (404, down(nodes[2], "beyond"))
        until(lambda: consumers[0].look() == "cancelled")
        for queue in ("here", "both"):
            first.queue_declare(queue, durable=True)
            assert confirmed(first, "", queue)
        if is_other:  # the third node may have lost its consumer, too
            third.queue_declare("both", durable=True)
            assert confirmed(third, "", "both")
        else:
            assert refusal(third, "both") == (404, down(nodes[0], "both"))
            assert confirmed(second, "", "both")
            assert confirmed(second, "", "beyond")
            assert [one.look() for one in consumers] == ["cancelled", "consumes", "consumes"]
    until(lambda: confirmed(first, "", "beyond"))
    is_one = queues_of(nodes[0]) == queues_of(nodes[1]) == queues_of(nodes[2])
    assert is_one is not is_other
    for consumer in consumers:
        consumer.close()
    if is_other:
        for channel in (first, second):
            channel.connection.close()
        for verb in ("stop_app", "start_app"):
            for node in nodes[:2]:
                node.ctl(verb)  # type: ignore[attr-defined]
        until(lambda: queues_of(nodes[0]) == queues_of(nodes[1]) == queues_of(nodes[2]))
    counts = [messages_of(third, queue) for queue in ("both", "here")]
    assert counts == ([1, None] if is_other else [2, 1])
    for queue in queues_of(nodes[2]):
        third.queue_delete(queue)


def test_a_node_that_is_started_with_the_data_directory_of_another(nodes: Nodes, channels: list[Any]) -> None:
    """RabbitMQ serves empty queues of the missing data. JumpMQ refuses to start."""
    channels[1].queue_declare("mine", durable=True)
    assert confirmed(channels[1], "", "mine")
    for node in nodes[1:]:
        node.stop()
    own, other = map(data_of, nodes[1:])
    kept = own.rename(own.with_name("kept"))
    try:
        shutil.copytree(other, own)
        nodes[2].start()
        if nodes[0].name == "RabbitMQ":
            nodes[1].start()
            assert messages_of(channels[0], "mine") == 0
            nodes[1].stop()
        else:
            with pytest.raises(BrokerError, match=f"belongs to node '{nodes[2].node}', not '{nodes[1].node}'"):
                nodes[1].start()
            nodes[1].kill()
    finally:
        shutil.rmtree(own)
        kept.rename(own)
        nodes[1].start()
    until(lambda: messages_of(channels[0], "mine") == 1)
    channels[0].queue_delete("mine")


def test_two_processes_with_copies_of_a_data_directory(nodes: Nodes) -> None:
    """With RabbitMQ on a single machine, the second process ends. With JumpMQ the first process ends.

    If etcd already records later writes of JumpMQ's first process, the second process is refused as older. In all
    cases a single process serves.
    """
    own = data_of(nodes[1])
    nodes[1].stop()
    twin: Any
    if isinstance(nodes[0], OtherNode):
        twin = OtherNode(nodes[0])
        twin.node = nodes[1].node
    else:
        twin = OwnNode(own.with_name("twin"), nodes[1].node, nodes[1]._arguments)  # type: ignore[attr-defined]
    twin.number = 1
    shutil.copytree(own, data_of(twin))
    nodes[1].start()
    try:
        if isinstance(nodes[0], OtherNode):
            with pytest.raises(BrokerError, match="duplicate_node_name"):
                twin.start()
            assert accepts_clients(nodes[1].port)
            twin.kill()
        else:
            try:
                twin.start()
            except BrokerError as error:
                assert "the directory is an older copy" in str(error)
                assert accepts_clients(nodes[1].port)
            else:
                until(lambda: not accepts_clients(nodes[1].port))
                assert "another process serves node 'node1@localhost' with" in nodes[1].log.read_text()
                twin.stop()
                nodes[1].kill()
                nodes[1].start()
    finally:
        twin.close()


def test_a_broker_with_data_of_its_own_joins(nodes: Nodes, tmp_path: Path) -> None:
    """RabbitMQ deletes the data of a joining broker. JumpMQ refuses the join, and keeps the data."""
    joining: Any
    if isinstance(nodes[0], OtherNode):
        joining = OtherNode(nodes[0])
        joining.number = 3
        joining._has_joined = True
    else:
        joining = JumpMQ(tmp_path, "joins@localhost")
    with joining:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", joining.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("mine", durable=True)
            assert confirmed(channel, "", "mine")
        if isinstance(nodes[0], OtherNode):
            joining.ctl("stop_app")
            joining.ctl("join_cluster", nodes[0].node)
            joining.ctl("start_app")
            assert "mine" not in queues_of(joining)
            joining.kill(alone=True)
            nodes[0].ctl("forget_cluster_node", joining.node)
            return
        joining.stop()
        joins = JumpMQ(tmp_path, joining.node, nodes[0]._arguments)  # type: ignore[attr-defined]
        with pytest.raises(BrokerError, match="has definitions that do not belong to cluster 'test' in etcd: a node"):
            joins.start()
        joins.close()
        joining.start()
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", joining.port)) as connection:
            assert messages_of(connection.channel(), "mine") == 1


def data_of(node: BrokerProcess) -> Path:
    """The data directory of a node."""
    return node.directory / "mnesia" / node.node if isinstance(node, RabbitMQ) else node.data_dir  # type: ignore[attr-defined]


class Consumer:
    """Consumes from a queue at a node."""

    def __init__(self, node: BrokerProcess, queue: str) -> None:
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        self._state = "consumes"
        channel = self._connection.channel()
        channel.add_on_cancel_callback(lambda _: setattr(self, "_state", "cancelled"))
        channel.basic_consume(queue, lambda *_: None, auto_ack=True)

    def look(self) -> str:
        """Process events. Return the state."""
        self._connection.process_data_events(0.1)
        return self._state

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def down(node: BrokerProcess, queue: str) -> str:
    """Reply text for a queue of an unreachable node."""
    return f"NOT_FOUND - home node '{node.node}' of durable queue '{queue}' in vhost '/' is down or inaccessible"


def queues_of(node: BrokerProcess) -> list[str]:
    """Names of the queues known to a node."""
    url = f"http://guest:guest@127.0.0.1:{node.http_port}/api/definitions"
    return sorted(one["name"] for one in requests.get(url, timeout=30).json()["queues"])
