"""AMQP and HTTP with TLS: trust, certificates as logins, and renewal of certificates without interruption."""

import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from cryptography import x509
from tests.cli.commands import run, serving
from tests.wire import Queue, closing, login

import jumpmq
from jumpmq.cli.certificates import Certificates, make_certificates
from jumpmq.management import ClientTLS, ManagementClient, NotManagement

REFUSED = (pika.exceptions.AMQPConnectionError, OSError)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"), user="alice")


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "TLS processes"])
def broker(certificates: Certificates, request: pytest.FixtureRequest) -> Iterator[jumpmq.RunningBroker]:
    files: dict[str, Any] = {
        "tls_cert": certificates.server,
        "tls_key": certificates.server_key,
        "tls_ca": certificates.ca,
    }
    with jumpmq.running(**files, tls_client="optional", tls_processes=request.param) as running:
        yield running


def trusting(certificates: Certificates, client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.ca)
    if client:
        context.load_cert_chain(certificates.client, certificates.client_key)
    return context


def connect(port: int, context: ssl.SSLContext, **parameters: Any) -> pika.BlockingConnection:
    options = pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, ssl_options=options, **parameters))


class External:
    """Credentials with a non-empty response, as most clients send; pika's own require an empty response."""

    TYPE = "EXTERNAL"
    erase_on_connect = False

    def response_for(self, start: pika.spec.Connection.Start) -> tuple[str | None, bytes | None]:
        return (self.TYPE, b"") if b"EXTERNAL" in start.mechanisms else (None, None)

    def erase_credentials(self) -> None:
        pass


pika.credentials.VALID_TYPES.append(External)


def add_user(broker: jumpmq.RunningBroker, name: str) -> None:
    api = ManagementClient(broker.http_url)
    api.put("users", name, body={"password_hash": "", "tags": "management"})
    api.put("permissions", "/", name, body=dict.fromkeys(("configure", "write", "read"), ".*"))


def test_messages_travel_and_the_connection_says_how(broker: jumpmq.RunningBroker, certificates: Certificates) -> None:
    with connect(broker.tls_port, trusting(certificates)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x" * 1_000_000)
        assert channel.basic_get("q", auto_ack=True)[2] == b"x" * 1_000_000
        shown = ManagementClient(broker.https_url, tls=ClientTLS(str(certificates.ca))).get("connections")[0]
    assert (shown["ssl"], shown["auth_mechanism"]) == (True, "PLAIN")
    assert shown["ssl_protocol"].startswith("TLSv1.")
    assert shown["peer_cert_subject"] is None


def test_listeners_are_listed(broker: jumpmq.RunningBroker) -> None:
    listed = {one["protocol"]: one["port"] for one in ManagementClient(broker.http_url).get("overview")["listeners"]}
    ports = (broker.port, broker.tls_port, broker.http_port, broker.https_port)
    assert listed == dict(zip(("amqp", "amqp/ssl", "http", "https"), ports, strict=True))


def test_an_unknown_authority_is_not_trusted(broker: jumpmq.RunningBroker) -> None:
    with pytest.raises(REFUSED):
        connect(broker.tls_port, ssl.create_default_context())
    with pytest.raises(NotManagement, match="is not trusted: "):
        ManagementClient(broker.https_url).get("overview")


def test_old_versions_are_refused(broker: jumpmq.RunningBroker, certificates: Certificates) -> None:
    context = trusting(certificates)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", broker.tls_port)) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_certificate_is_a_login(broker: jumpmq.RunningBroker, certificates: Certificates) -> None:
    name = x509.load_pem_x509_certificate(certificates.client.read_bytes()).subject.rfc4514_string()
    assert name.startswith("CN=alice,OU=")
    add_user(broker, name)
    with connect(broker.tls_port, trusting(certificates, client=True), credentials=External()) as connection:
        connection.channel()
        shown = ManagementClient(broker.http_url).get("connections")[0]
    assert (shown["user"], shown["auth_mechanism"]) == (name, "EXTERNAL")
    assert shown["peer_cert_subject"] == name


@pytest.mark.parametrize("source", ["common_name", "subject_alternative_name"])
def test_what_of_a_certificate_is_the_users_name(certificates: Certificates, source: str) -> None:
    files: dict[str, Any] = {
        "tls_cert": certificates.server,
        "tls_key": certificates.server_key,
        "tls_ca": certificates.ca,
    }
    with jumpmq.running(**files, tls_client="required", tls_login_from=source) as broker:
        with pytest.raises(REFUSED):  # the user has not been added yet
            connect(broker.tls_port, trusting(certificates, client=True), credentials=External())
        add_user(broker, "alice")
        with connect(broker.tls_port, trusting(certificates, client=True), credentials=External()):
            assert ManagementClient(broker.http_url).get("connections")[0]["user"] == "alice"
        with pytest.raises(REFUSED):  # a certificate is required
            connect(broker.tls_port, trusting(certificates))
        with pytest.raises(requests.ConnectionError):
            requests.get(f"https://127.0.0.1:{broker.https_port}/", verify=str(certificates.ca))
        shown = ClientTLS(*map(str, (certificates.ca, certificates.client, certificates.client_key)))
        assert ManagementClient(broker.https_url, tls=shown).get("whoami")["name"] == "guest"


def test_external_is_not_offered_without_a_certificate(
    broker: jumpmq.RunningBroker, certificates: Certificates
) -> None:
    with pytest.raises(REFUSED):
        connect(broker.tls_port, trusting(certificates), credentials=External())


@pytest.mark.slow
@pytest.mark.parametrize(("how", "processes"), [("signal", "0"), ("change", "0"), ("signal", "1"), ("change", "2")])
def test_new_certificates_break_no_connection(tmp_path: Path, how: str, processes: str) -> None:
    made = make_certificates(tmp_path / "tls")
    files = ("--tls-cert", str(made.server), "--tls-key", str(made.server_key), "--tls-processes", processes)
    with serving(tmp_path / "data", *files, "--tls-port", "0", "--https-port", "0") as running:
        port = int(running.ready_line.partition("amqps://127.0.0.1:")[2].split()[0])
        with connect(port, trusting(made)) as connection:
            channel = connection.channel()
            make_certificates(tmp_path / "tls")  # another authority, in the same file
            if how == "signal":
                running.process.send_signal(signal.SIGHUP)
            for _ in range(200):
                try:
                    connect(port, trusting(made)).close()
                    break
                except REFUSED:
                    time.sleep(0.1)
            else:
                pytest.fail("the certificates were not renewed")
            channel.queue_declare("still-there")
            made.server.write_text("no certificate")
            running.process.send_signal(signal.SIGHUP)
            channel.queue_declare("again")
            connect(port, trusting(made)).close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--tls-cert", "{none}"], "cannot read certificate and key from"),
        (["--tls-cert", "{server}"], "the key of another certificate"),
        (["--tls-cert", "{server}", "--tls-key", "{key}", "--tls-client", "required"], "only with the certificates of"),
        (["--tls-cert", "{server}", "--tls-key", "{key}", "--tls-ca", "{key}"], "cannot read certificates from"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, certificates: Certificates, options: list[str], reason: str
) -> None:
    names = {"none": tmp_path / "none.pem", "server": certificates.server, "key": certificates.server_key}
    ports = [word for name in ("port", "http-port", "tls-port", "https-port") for word in (f"--{name}", "0")]
    result = run("jumpmq", "serve", "--data-dir", tmp_path / "d", *ports, *(text.format(**names) for text in options))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert reason in result.stderr


def test_the_command_line_speaks_it(broker: jumpmq.RunningBroker, certificates: Certificates, tmp_path: Path) -> None:
    url = broker.https_url
    assert run("jumpmqctl", "-q", "ping", "--tls-ca", certificates.ca, JUMPMQ_URL=url).stdout == "Ping succeeded\n"
    refused = run("jumpmqctl", "-q", "ping", JUMPMQ_URL=url)
    assert refused.returncode == os.EX_PROTOCOL
    assert "is not trusted" in refused.stderr


def test_running_makes_its_own() -> None:
    with jumpmq.running(tls=True) as broker:
        assert ManagementClient(broker.https_url, tls=ClientTLS(str(broker.tls_ca))).get("whoami")["name"] == "guest"
        with connect(broker.tls_port, ssl.create_default_context(cafile=broker.tls_ca)) as connection:
            connection.channel()


def test_certificates_for_tests(tmp_path: Path) -> None:
    printed = run("jumpmq", "tls", tmp_path / "new", "--host", "broker.example", "--user", "bob").stdout
    assert f"jumpmq serve --tls-cert {tmp_path / 'new' / 'server.pem'}" in printed
    assert (tmp_path / "new" / "server-key.pem").stat().st_mode & 0o777 == 0o600


def test_health_tells_when_certificates_end(broker: jumpmq.RunningBroker) -> None:
    checks = f"http://127.0.0.1:{broker.http_port}/api/health/checks/certificate-expiration"
    assert requests.get(f"{checks}/1/days", auth=("guest", "guest")).status_code == 200
    failed = requests.get(f"{checks}/999/years", auth=("guest", "guest"))
    assert (failed.status_code, failed.json()["reason"]) == (503, "Certificates expiring")


@pytest.mark.parametrize("polite", [True, False])
def test_who_closes_under_load_loses_nothing(
    broker: jumpmq.RunningBroker, certificates: Certificates, caplog: pytest.LogCaptureFixture, polite: bool
) -> None:
    """No message is lost when many clients close or disconnect during deliveries."""
    count, body = 400, b"x" * 20_000
    context = trusting(certificates)
    with closing(login(broker.tls_port, tls=context)) as publisher:
        channel = publisher.channel()
        queue = channel.queue(exclusive=False)
        for _ in range(count):
            channel.publish("", queue, body)
        assert channel.ready(queue) == count
        for _ in range(8):
            consumer = login(broker.tls_port, tls=context)
            consumer.channel().consume(queue)
            if polite:
                consumer.close()
            else:
                consumer.hang_up()
        for _ in range(500):
            if channel.ready(queue) == count:
                break
            time.sleep(0.02)
        assert channel.bodies(queue) == [body] * count
        channel.call(Queue.Delete(queue=queue))
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
