"""Every GET of the management API has the keys and types of RabbitMQ's answer, with named exceptions."""

import re

import pytest
from tests.conformance.operator import Operator
from tests.conformance.shapes import EVERYWHERE, PATHS, answers, expected, one_of_everything

from jumpmq.testing import BrokerProcess


def test_keys_and_types(request: pytest.FixtureRequest, broker: BrokerProcess, operator: Operator) -> None:
    """RabbitMQ shows some keys after a delay; all shown keys must be in the table."""
    both, theirs = expected()
    if request.config.getoption("--nodes") > 1:
        del both["health/checks/node-is-quorum-critical"][".reason"]  # only there is a single node
    with one_of_everything(broker, operator):
        found = answers(operator, broker.port)
    assert {EVERYWHERE.get(path, path) for path in found} == both.keys()
    for asked, shape in found.items():
        path = EVERYWHERE.get(asked, asked)
        shown = set(shape) - {"."}
        others = {key: types for key, types in shape.items() if not types <= both[path].get(key, types)}
        assert not others, f"{asked} has other types than the table"
        if broker.name == "JumpMQ":
            assert not set(both[path]) - shown, f"{asked} lacks"
            assert not {key for key in theirs[path] if key in shown}, f"{asked} has them now"
        else:
            inside = tuple(mark for key in theirs[path] for mark in (f"{key}.", f"{key}["))
            unknown = {key for key in shown - set(both[path]) - theirs[path] if not key.startswith(inside)}
            assert not unknown, f"{asked} is not in the table with"


NOT_HERE = {"federation-links", "federation-links/<i>vhost</i>"}
"""Paths of RabbitMQ's page served by another plugin."""


def test_every_path_that_rabbitmq_describes_is_compared(broker: BrokerProcess, operator: Operator) -> None:
    if broker.name != "RabbitMQ":
        pytest.skip("the page is RabbitMQ's")
    page = operator.ask("GET", "index.html").text
    readable = re.findall(r"<tr>\s*<td>X</td>(?:\s*<td>X?</td>){3}\s*<td class=.path.>(.*?)</td>", page, re.DOTALL)
    described = {path.rstrip("/") for paths in readable for path in re.findall(r"/api/((?:[\w/-]|<i>\w+</i>)+)", paths)}
    assert len(described) > 70
    asked = {path.partition("?")[0] for path in (*PATHS, *EVERYWHERE)}
    missing = {path for path in described if not any(map(re.compile(_pattern(path)).fullmatch, asked))}
    assert missing == NOT_HERE


def _pattern(path: str) -> str:
    """A regular expression of a path with names between tags."""
    return re.sub(r"<i>\w+</i>", "[^/]+", path)


def test_keys_that_answers_have_since_4_0(operator: Operator) -> None:
    """Answers have the useful keys of RabbitMQ 4.0; `docs/differences.md` names the others."""
    overview = operator.see("overview")
    assert (overview["default_queue_type"], overview["is_op_policy_updating_enabled"]) == ("classic", True)
    assert (overview["cluster_tags"], overview["node_tags"]) == ({}, {})
    assert operator.see("whoami")["is_internal_user"] is True
    assert operator.see("auth")["oauth_enabled"] is False
