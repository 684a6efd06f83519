"""Durable definitions survive a restart, and route as before: with a real store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.topology.built import Built, message

from jumpmq.amqp.fields import Field
from jumpmq.store import Store
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    ConsistentHashExchange,
    DeleteExchange,
    DeleteVirtualHost,
    Permissions,
    PutUser,
    SetPermissions,
    Topology,
)

Opened = Callable[[], Any]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Opens the topology of one directory repeatedly; leaving the context is a clean stop."""

    @contextmanager
    def open_topology() -> Iterator[Built]:
        store = Store.open(tmp_path, on_commit=lambda number: None)
        try:
            topology = Topology("jumpmq@test", store)
            topology.restore(store.definitions())
            topology.apply(AddVirtualHost("/"))
            yield Built(topology)
            topology.flush_rings()
        finally:
            store.close()

    return open_topology


def placed(built: Built, exchange: str) -> dict[bytes, str]:
    """Return the queues of many keys, in order."""
    routes = built.route(exchange, *[message(str(n)) for n in range(3000)], plain=True)
    return {one.routing_key: queue.name for queue, messages in routes.queues.items() for one in messages}


def test_durable_definitions_return_and_others_do_not(opened: Opened) -> None:
    with opened() as built:
        built.exchange("kept", "topic", {"alternate-exchange": "z"}, durable=True, auto_delete=True, internal=True)
        built.exchange("lost", "topic")
        built.queue("kept", {"x-max-length": 7}, durable=True, auto_delete=True)
        built.queue("lost")
        built.queue("ended", durable=True, exclusive=True, owner="c")
        for source in ("kept", "lost", "amq.topic"):
            for queue in ("kept", "lost", "ended"):
                built.bind(source, queue, "k.#", {"n": 1})
    with opened() as built:
        exchange, queue = built.vhost.exchange("kept"), built.vhost.queue("kept")
        assert (exchange.type, exchange.durable, exchange.auto_delete, exchange.internal) == ("topic", True, True, True)
        assert exchange.alternate == "z"
        assert (queue.durable, queue.auto_delete, queue.exclusive) == (True, True, False)
        assert queue.arguments == {"x-max-length": 7}
        assert list(built.vhost.queues) == ["kept"]
        assert "lost" not in built.vhost.exchanges
        binding = Binding("kept", "queue", "kept", b"k.#", Arguments.of({"n": 1}))
        assert list(exchange.bindings) == [binding]
        assert built.reached("amq.topic", "k.x") == ["kept"]
        assert built.queue("kept", {"x-max-length": 7}, durable=True, auto_delete=True) is queue


def test_arguments_and_keys_of_any_octets_return(opened: Opened) -> None:
    nested = [("F", [Field("in", "x", b"\x00\xff"), Field("d", "D", (2, 15))]), ("S", b"\xfe"), ("d", 1.5), ("V", None)]
    arguments = Arguments([Field("é", "A", nested), Field("t", "T", 17), Field("b", "b", -1), Field("y", "t", True)])
    binding = Binding("amq.headers", "queue", "möwe", b"\xff\x00", arguments)
    with opened() as built:
        built.queue("möwe", durable=True)
        built.topology.apply(Bind("/", binding))
    with opened() as built:
        assert list(built.vhost.exchange("amq.headers").bindings) == [binding]


def test_what_was_deleted_stays_deleted(opened: Opened) -> None:
    with opened() as built:
        for name in ("e", "f"):
            built.exchange(name, "x-consistent-hash", durable=True)
        for name in ("a", "b", "c"):
            built.queue(name, durable=True)
            built.bind("e", name, "1")
            built.bind("f", name, "1")
    with opened() as built:
        built.unbind("e", "a", "1")
        built.delete_queue("b")
        built.topology.apply(DeleteExchange("/", "f"))
    with opened() as built:
        assert sorted(built.vhost.queues) == ["a", "c"]
        assert list(built.vhost.exchange("e").bindings) == [Binding("e", "queue", "c", b"1")]
        assert "f" not in built.vhost.exchanges
        assert built.exchange("f", "fanout", durable=True).bindings == {}


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_a_key_keeps_its_queue_across_restarts(opened: Opened, removal: str) -> None:
    """Keys keep their queue after a restart, also on a ring after removals or with bindings in any order."""
    with opened() as built:
        built.exchange("e", "x-consistent-hash", {"ring-removal": removal}, durable=True)
        for number in (7, 3, 9, 1, 5, 2):
            built.queue(f"q{number}", durable=True)
            built.bind("e", f"q{number}", str(number))
        built.unbind("e", "q9", "9")
        built.unbind("e", "q3", "3")
        built.bind("e", "q3", "4")
        before = placed(built, "e")
        state = ring(built).ring.state()
    for _ in range(2):
        with opened() as built:
            assert placed(built, "e") == before
            assert ring(built).ring.state() == state


def test_keys_of_a_lost_queue_move_and_no_others(opened: Opened) -> None:
    """At the restart, a transient queue leaves a durable ring; only its keys move."""
    with opened() as built:
        built.exchange("e", "x-consistent-hash", durable=True)
        for name, durable in (("a", True), ("transient", False), ("b", True), ("c", True)):
            built.queue(name, durable=durable)
            built.bind("e", name, "1")
        before = placed(built, "e")
    for _ in range(2):
        with opened() as built:
            after = placed(built, "e")
            assert all(after[key] == queue for key, queue in before.items() if queue != "transient")
            assert set(after.values()) == {"a", "b", "c"}


def test_of_two_bindings_the_first_still_counts(opened: Opened) -> None:
    with opened() as built:
        built.exchange("e", "x-consistent-hash", durable=True)
        built.queue("q", durable=True)
        for weight in ("3", "8", "5"):
            built.bind("e", "q", weight)
    with opened() as built:
        assert dict(ring(built).ring.destinations) == {"q": 3}
        built.unbind("e", "q", "3")
        assert dict(ring(built).ring.destinations) == {"q": 8}


def test_a_ring_whose_last_change_was_not_flushed_follows_the_bindings(tmp_path: Path, opened: Opened) -> None:
    with opened() as built:
        built.exchange("e", "x-consistent-hash", durable=True)
        for name in ("a", "b"):
            built.queue(name, durable=True)
            built.bind("e", name, "2")
    store = Store.open(tmp_path, on_commit=lambda number: None)
    topology = Topology("jumpmq@test", store)
    topology.restore(store.definitions())
    unflushed = Built(topology)
    unflushed.unbind("e", "a", "2")
    unflushed.queue("c", durable=True)
    unflushed.bind("e", "c", "5")
    store.close()
    with opened() as built:
        assert dict(ring(built).ring.destinations) == {"b": 2, "c": 5}


def test_exchanges_feed_exchanges_again(opened: Opened) -> None:
    with opened() as built:
        built.exchange("z", "fanout", durable=True)
        built.exchange("a", "x-consistent-hash", durable=True)
        built.queue("q", durable=True)
        built.feed("z", "a")
        built.bind("a", "q", "1")
        built.feed("a", "amq.fanout", "1")
    with opened() as built:
        assert built.reached("z", "some key") in ([], ["q"])
        assert dict(ring(built, "a").ring.destinations) == {"q": 1, "exchange:amq.fanout": 1}


def test_numbers_of_queues_are_never_given_again(opened: Opened) -> None:
    with opened() as built:
        numbers = [built.queue(name, durable=True).id for name in ("a", "b", "c")]
        built.delete_queue("c")
        built.delete_queue("b")
    with opened() as built:
        assert built.vhost.queue("a").id == numbers[0]
        assert built.queue("b", durable=True).id > numbers[2]


def test_a_queue_keeps_its_home_and_is_where_that_is(tmp_path: Path, opened: Opened) -> None:
    with opened() as built:
        built.topology.apply(AddHome(1, "jumpmq@test"))
        number = built.queue("q", durable=True).id
    store = Store.open(tmp_path, on_commit=lambda number: None)
    topology = Topology("jumpmq@elsewhere", store)
    topology.restore(store.definitions())
    queue = topology.vhost("/").queue("q")
    assert (topology.vhost("/").definition(queue).home, queue.id, queue.node) == (1, number, "jumpmq@test")
    topology.apply(AddHome(1, "jumpmq@renamed"))
    assert queue.node == "jumpmq@renamed"
    store.close()


def test_users_and_virtual_hosts_return(opened: Opened) -> None:
    with opened() as built:
        for name in ("shop", "gone"):
            built.topology.apply(AddVirtualHost(name))
            built.topology.apply(PutUser("ann", "hash", ("administrator", "monitoring")))
            built.topology.apply(SetPermissions("ann", name, "^a", "^b", "^c"))
    with opened() as built:
        built.topology.apply(DeleteVirtualHost("gone"))
    with opened() as built:
        assert sorted(built.topology.vhosts) == ["/", "shop"]
        ann = built.topology.user("ann")
        assert (ann.password_hash, ann.tags) == ("hash", ("administrator", "monitoring"))
        assert ann.permissions == {"shop": Permissions("^a", "^b", "^c")}


def test_a_deleted_virtual_host_takes_everything_along(opened: Opened) -> None:
    with opened() as built:
        built.exchange("e", "x-consistent-hash", durable=True)
        built.queue("q", durable=True)
        built.bind("e", "q", "1")
        built.bind("amq.fanout", "q")
        built.topology.apply(DeleteVirtualHost("/"))
    with opened() as built:
        assert list(built.vhost.bindings()) == []
        assert built.vhost.queues == {}
        assert "e" not in built.vhost.exchanges


def ring(built: Built, name: str = "e") -> ConsistentHashExchange:
    exchange = built.vhost.exchange(name)
    assert isinstance(exchange, ConsistentHashExchange)
    return exchange


def test_any_definition_may_be_missing(tmp_path: Path, opened: Opened) -> None:
    """Without any one definition, a start leaves out only the dependent definitions."""
    with opened() as built:
        apply = built.topology.apply
        apply(PutUser("ada", "", ("administrator",)))
        apply(SetPermissions("ada", "/", ".*", ".*", ".*"))
        apply(AddVirtualHost("other"))
        built.exchange("ring", "x-consistent-hash", durable=True)
        built.exchange("topic", "topic", durable=True)
        for name in ("a", "b", "c"):
            built.queue(name, durable=True)
            built.bind("ring", name, "1")
        built.bind("topic", "a", "#")
        built.unbind("ring", "b", "1")
    store = Store.open(tmp_path, on_commit=lambda number: None)
    definitions = store.definitions()
    store.close()
    kinds = {kind for kind, _, _ in definitions}
    assert {"user", "permissions", "vhost", "exchange", "queue", "binding", "ring"} <= kinds
    for place, (kind, _, value) in enumerate(definitions):
        topology = Topology("jumpmq@test", None)
        topology.restore(definitions[:place] + definitions[place + 1 :])
        if kind == "queue":
            assert set(topology.vhosts["/"].queues) == {"a", "b", "c"} - {value["name"]}
            assert len(placed(Built(topology), "ring")) == 3000
        if kind == "exchange":
            assert set(topology.vhosts["/"].queues) == {"a", "b", "c"}
