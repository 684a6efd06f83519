"""The RabbitMQ Java client, as packaged by Debian."""

import os
from collections.abc import Callable

import pytest
from tests.clients.installed import JARS, has_java
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

from jumpmq.testing import BrokerProcess


@pytest.mark.skipif(
    not has_java,
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_a_day_with_the_java_client(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    java = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(FOLDER / "JavaClient.java")]
    assert report([*java, str(broker.port), unique("java"), str(MESSAGES)]) == REPORT
