"""Distribution of tests over processes (pytest-xdist), and detection of tests with a real RabbitMQ.

A part runs in one process without interruption: a file, all files with a common Spark, or a single test of a file of
long, independent tests. The longest parts begin first, so that all processes end at about the same time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jumpmq.testing import Installation, RabbitMQ

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
APART = ("test_agreement.py", "test_amqp_sink.py", "test_connect.py", "test_docs.py", "test_rows.py", "test_routing.py")
"""Files of `SPARK` without the common Spark."""

APIECE = ("tests/nodes/copies/test_failover.py", "tests/nodes/log/test_schedules.py")
"""Files whose tests are separate parts."""

LONG = (
    SPARK,
    "tests/test_deployment.py",
    "tests/conformance/test_generated_sessions.py",
    "tests/nodes/log/test_schedules.py",
    "tests/spark/test_connect.py",
    "tests/spark/test_agreement.py",
    "tests/spark/test_routing.py",
    "tests/conformance/test_management_figures.py",
    "tests/cli/demo/test_demo.py",
    "tests/nodes/copies/test_failover.py",
    "tests/nodes/copies/test_damage_everywhere.py",
    "tests/nodes/copies/test_killed_verbs.py",
    "tests/nodes/processes/test_nodes_with_workers.py",
    "tests/nodes/copies/test_forgetting.py",
    "tests/nodes/management/site/test_cluster_page.py",
    "tests/nodes/replicas/test_machines.py",
    "tests/nodes/processes/test_fewer_workers.py",
    "tests/nodes/management/test_cluster.py",
    "tests/nodes/copies/test_operating.py",
    "tests/nodes/processes/test_workers.py",
    "tests/nodes/membership/test_stall.py",
    "tests/nodes/processes/test_batches_under_kills.py",
    "tests/http/site/test_views.py",
    "tests/http/site/test_actions.py",
    "tests/http/site/test_trouble.py",
    "tests/conformance/test_at_least_once.py",
    "tests/http/test_openapi.py",
    "tests/cli/verbs/test_same_as_rabbitmqctl.py",
    "tests/test_examples.py",
    "tests/store/test_crash_points.py",
    "tests/nodes/membership/test_cluster.py",
    "tests/nodes/processes/test_conformance_with_workers.py",
    "tests/test_one_process.py",
    "tests/nodes/transport/test_hand_over.py",
    "tests/broker/consumer_groups/test_hung_and_killed.py",
    "tests/test_documentation_site.py",
)
"""Parts of half a minute and more, the longest first; a file of separate parts is named as a whole."""


def part(test: str) -> str:
    """The part of a test.

    Args:
        test: its file, relative to the root of the repository, ``::``, and its name.
    """
    file = test.partition("::")[0]
    if file in APIECE:
        return test
    return SPARK if file.startswith(SPARK) and Path(file).name not in APART else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Parts(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

    config.option.loadscopereorder = False  # i.e. by number of tests
    return Parts(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_rabbitmq(item):
            item.add_marker("reference")
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(part(item.nodeid).partition("::")[0], len(order)))


def _needs_rabbitmq(item: pytest.Item) -> bool:
    """Return true if a fixture of the test is a RabbitMQ, or a parameter's value is."""
    call = getattr(item, "callspec", None)
    named = call is not None and any(
        value in ("rabbitmq", RabbitMQ) or isinstance(value, Installation) for value in call.params.values()
    )
    return named or "rabbitmq" in getattr(item, "fixturenames", ())
