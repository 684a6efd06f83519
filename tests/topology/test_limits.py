"""Limits of virtual hosts that RabbitMQ lacks, or that shards reach; the conformance tests cover the rest."""

from typing import Any

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology import InvalidPolicy, SetPolicy, SetVirtualHostLimit


def limit(built: Built, name: str, value: Any) -> None:
    built.topology.apply(SetVirtualHostLimit("/", name, value))


def test_a_virtual_host_has_so_many_bindings(built: Built) -> None:
    limit(built, "max-bindings", 2)
    for name in "ab":
        built.queue(name)
        built.bind("amq.fanout", name)
        built.bind("amq.fanout", name)
    with pytest.raises(PreconditionFailed) as refused:
        built.bind("amq.direct", "a", "key")
    assert refused.value.text == "cannot bind queue 'a': binding limit in vhost '/' (2) is reached"
    built.delete_queue("b")
    built.bind("amq.direct", "a", "key")
    limit(built, "max-bindings", -1)
    built.bind("amq.direct", "a", "other")


@pytest.mark.parametrize("what", ["queue", "binding"])
def test_a_policy_makes_no_shards_beyond_a_limit(built: Built, what: str) -> None:
    built.exchange("x", "fanout")
    limit(built, f"max-{what}s", 2)
    with pytest.raises(InvalidPolicy) as refused:
        built.topology.apply(SetPolicy("/", "p", "^x$", {"shards-per-node": 3}))
    assert refused.value.text == f"policy would make 3 shards, beyond the {what} limit in vhost '/' (2)"
    assert list(built.vhost.queues) == []
    built.topology.apply(SetPolicy("/", "p", "^x$", {"shards-per-node": 2}))
    assert len(built.vhost.queues) == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("max-odd", 1, 'Unrecognised terms [{<<"max-odd">>,1}] in limits'),
        ("max-queues", "5", 'max-queues should be a number, actually was <<"5">>'),
        ("max-queues", True, "max-queues should be a number, actually was true"),
    ],
)
def test_what_is_no_limit(built: Built, name: str, value: Any, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        limit(built, name, value)
    assert refused.value.text == text
