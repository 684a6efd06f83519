"""Errors of the client with brokers, wrong servers and closed ports."""

import pickle
import socket
from collections.abc import Iterator

import pytest

import jumpmq
from jumpmq.management import InvalidRequest, ManagementClient, NoAnswer, NotManagement, Refusal


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running() as running:
        yield running


@pytest.fixture
def client(broker: jumpmq.RunningBroker) -> ManagementClient:
    return ManagementClient(broker.http_url)


@pytest.mark.parametrize("url", ["localhost:15672", "amqp://localhost", "http://", "http://[", "http://h:99999", ""])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a management URL"):
        ManagementClient(url)


@pytest.mark.parametrize("password", ["s#ecret", "s/ecret", "s?ecret", "[secret", "s@ecret", "secret"])
@pytest.mark.parametrize("url", ["http://guest:{}@h:port", "ftp://guest:{}@h", "guest:{}@h"])
def test_no_password_is_shown(url: str, password: str) -> None:
    with pytest.raises(InvalidRequest, match=r"\*\*\*@h") as error:
        ManagementClient(url.format(password))
    assert "ecret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "address"), [("http://h", "http://h:15672"), ("https://[::1]/x/", "https://[::1]:15671/x")]
)
def test_ports_unless_given(url: str, address: str) -> None:
    assert ManagementClient(url).address == address


def test_names_are_sent_as_they_are(client: ManagementClient) -> None:
    client.put("queues", "/", "a/b?c#d% é", body={})
    assert client.get("queues", "/", "a/b?c#d% é", columns="name") == {"name": "a/b?c#d% é"}
    client.delete("queues", "/", "a/b?c#d% é", if_empty="true")
    assert client.find("queues", "/", "a/b?c#d% é") is None


def test_a_name_that_is_empty_is_not_sent(client: ManagementClient) -> None:
    with pytest.raises(InvalidRequest, match="a name must not be empty"):
        client.get("queues", "")


def test_a_refusal_has_its_reason(client: ManagementClient) -> None:
    with pytest.raises(Refusal, match="unknown key 'colour'") as caught:
        client.put("queues", "/", "q", body={"colour": "red"})
    assert caught.value.code == 400


def test_it_travels_to_another_process(client: ManagementClient) -> None:
    assert pickle.loads(pickle.dumps(client)).get("whoami")["name"] == "guest"


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NoAnswer, match="Connection refused") as caught:
        ManagementClient(f"http://127.0.0.1:{port}").get("overview")
    assert caught.value.refused


def test_the_amqp_port_is_another(broker: jumpmq.RunningBroker) -> None:
    with pytest.raises(NotManagement, match="speaks AMQP: use the management port"):
        ManagementClient(f"http://127.0.0.1:{broker.port}").get("overview")


def test_a_port_without_tls(broker: jumpmq.RunningBroker) -> None:
    with pytest.raises(NotManagement, match="does not speak TLS: is it http"):
        ManagementClient(f"https://127.0.0.1:{broker.http_port}").get("overview")
