"""The RabbitMQ Java client, as Debian packages it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess

JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]

installed = shutil.which("javac") is not None and all(jar.exists() for jar in JARS)


@pytest.mark.skipif(
    not installed,
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_a_day_with_the_java_client(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    java = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(FOLDER / "JavaClient.java")]
    assert report([*java, str(broker.port), unique("java"), str(MESSAGES)]) == REPORT
