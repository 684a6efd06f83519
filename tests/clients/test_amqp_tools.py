"""The command line tools of librabbitmq, the C client."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

from jumpmq.testing import BrokerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("amqp-publish") is None, reason="librabbitmq's tools are not installed (apt-get install amqp-tools)"
)


@pytest.fixture
def run(broker: BrokerProcess) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a tool against the broker: `run("get", "-q", "orders")`."""

    def tool(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [f"amqp-{name}", "-s", "127.0.0.1", f"--port={broker.port}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200, check=False)

    return tool


Run = Callable[..., subprocess.CompletedProcess[str]]


def test_publish_and_get(run: Run, unique: Callable[[str], str]) -> None:
    queue = unique("tools")
    assert run("declare-queue", "-q", queue, "-d").stdout.strip() == queue
    assert run("publish", "-r", queue, "-p", "-C", "text/plain", "-b", "hello").returncode == 0
    assert run("get", "-q", queue).stdout == "hello"
    assert run("get", "-q", queue).returncode == 2, "an empty queue"
    assert run("delete-queue", "-q", queue).stdout.strip() == "0"


def test_consume_with_prefetch(run: Run, unique: Callable[[str], str]) -> None:
    queue = unique("tools")
    run("declare-queue", "-q", queue, "-d")
    lines = [f"line {number}\n" for number in range(20)]
    assert run("publish", "-r", queue, "-l", stdin="".join(lines)).returncode == 0
    consumed = run("consume", "-q", queue, "-c", "20", "-p", "5", "cat")
    assert consumed.stdout == "".join(lines)
    assert run("delete-queue", "-q", queue).stdout.strip() == "0"


def test_errors_are_shown(run: Run) -> None:
    missing = run("get", "-q", "ghost")
    assert missing.returncode == 1
    assert "404" in missing.stderr
    assert "NOT_FOUND - no queue 'ghost' in vhost '/'" in missing.stderr
    refused = run("get", "-q", "ghost", "--username=guest", "--password=sesame")
    assert refused.returncode == 1
    assert "ACCESS_REFUSED" in refused.stderr
