"""Clients in several languages over TLS, with verification of the broker's certificate."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.clients.amqplib import AMQPLIB, global_modules
from tests.clients.installed import JARS, PLUGINS, bunny_is_installed, has_erlang, has_java
from tests.clients.programmes import FOLDER, MESSAGES, REPORT, report

import jumpmq
from jumpmq.cli.certificates import make_certificates
from jumpmq.management import ManagementClient

PASSWORD = b"till"


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(tls=True) as running:
        yield running


@pytest.mark.skipif(not bunny_is_installed(), reason="Bunny is not installed (apt-get install ruby-bunny)")
def test_bunny_over_tls(broker: jumpmq.RunningBroker) -> None:
    program = ["ruby", str(FOLDER / "bunny.rb"), str(broker.tls_port), "bunny", str(MESSAGES)]
    assert report(program, TLS_CA=str(broker.tls_ca)) == REPORT


@pytest.mark.skipif(
    not has_java,
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_the_java_client_over_tls(broker: jumpmq.RunningBroker) -> None:
    java = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(FOLDER / "JavaClient.java")]
    assert report([*java, str(broker.tls_port), "java", str(MESSAGES)], TLS_CA=str(broker.tls_ca)) == REPORT


@pytest.mark.skipif(
    not has_java,
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_a_certificate_is_the_java_clients_login(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, user="till")
    shown = tmp_path / "client.p12"
    key = serialization.load_pem_private_key(made.client_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(made.client.read_bytes())
    locked = serialization.BestAvailableEncryption(PASSWORD)
    shown.write_bytes(pkcs12.serialize_key_and_certificates(b"till", key, certificate, None, locked))
    with jumpmq.running(
        tls_cert=made.server,
        tls_key=made.server_key,
        tls_ca=made.ca,
        tls_client="required",
        tls_login_from="common_name",
    ) as broker:
        api = ManagementClient(broker.http_url)
        api.put("users", "till", body={"password_hash": "", "tags": ""})
        api.put("permissions", "/", "till", body=dict.fromkeys(("configure", "write", "read"), ".*"))
        java = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(FOLDER / "JavaClient.java")]
        environment = {"TLS_CA": str(made.ca), "TLS_CLIENT": str(shown)}
        assert report([*java, str(broker.tls_port), "java", str(MESSAGES)], **environment) == REPORT


@pytest.mark.skipif(not has_erlang, reason="the Erlang client is not installed (apt-get install rabbitmq-server)")
def test_the_erlang_client_over_tls(broker: jumpmq.RunningBroker) -> None:
    program = ["escript", str(FOLDER / "erlang_client.escript"), str(broker.tls_port), "erlang", str(MESSAGES)]
    assert report(program, TLS_CA=str(broker.tls_ca), ERL_LIBS=str(PLUGINS)) == REPORT


def test_amqplib_over_tls(broker: jumpmq.RunningBroker) -> None:
    modules = global_modules()
    if shutil.which("node") is None or not modules or not Path(modules, "amqplib").is_dir():
        pytest.skip("amqplib is not installed (npm install --global amqplib)")
    done = subprocess.run(
        ["node", "-e", AMQPLIB, broker.amqps_url, "amqplib"],
        env=os.environ | {"NODE_PATH": modules, "NODE_EXTRA_CA_CERTS": str(broker.tls_ca)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.stdout.split("\n"), done.stderr) == (["1 3", "3 1", "1 3", ""], "")


def test_aio_pika_over_tls(broker: jumpmq.RunningBroker) -> None:
    async def work() -> bytes:
        context = ssl.create_default_context(cafile=broker.tls_ca)
        async with await aio_pika.connect_robust(broker.amqps_url, ssl_context=context) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("aio")
            await channel.default_exchange.publish(aio_pika.Message(b"x" * 300_000), "aio")
            return (await queue.get()).body

    assert asyncio.run(work()) == b"x" * 300_000
