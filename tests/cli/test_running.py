"""`jumpmq.running()` runs a complete broker for a program."""

import json
import multiprocessing
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pika
import pytest

import jumpmq


def message_count(broker: jumpmq.RunningBroker, queue: str, **arguments: object) -> int:
    """Declare a durable queue. Return its number of messages."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    declared = connection.channel().queue_declare(queue, durable=True, **arguments)
    connection.close()
    count: int = declared.method.message_count
    return count


@pytest.mark.parametrize("process", [False, True])
def test_its_url_is_all_a_client_needs(process: bool) -> None:
    with jumpmq.running(process=process) as broker:
        assert message_count(broker, "orders") == 0


def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import jumpmq\n\nwith jumpmq.running(process=True):\n    pass\n")
    failed = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert failed.stderr.endswith('a script must start the broker behind if __name__ == "__main__":)\n')


def test_its_management_api_answers() -> None:
    with jumpmq.running(node="jumpmq@sparrow") as broker:
        request = Request(f"http://127.0.0.1:{broker.http_port}/api/overview")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urlopen(request, timeout=60) as answer:
            assert json.load(answer)["node"] == "jumpmq@sparrow"


def test_a_data_directory_outlives_it(tmp_path: Path) -> None:
    for expected, data_dir in enumerate((tmp_path, str(tmp_path))):
        with jumpmq.running(data_dir=data_dir) as broker:
            assert message_count(broker, "orders") == expected
            connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "orders", b"kept", pika.BasicProperties(delivery_mode=2))
            connection.close()


def test_two_at_once_know_nothing_of_each_other() -> None:
    with jumpmq.running() as one, jumpmq.running() as other:
        connection = pika.BlockingConnection(pika.URLParameters(one.amqp_url))
        connection.channel().queue_declare("only-here")
        stranger = pika.BlockingConnection(pika.URLParameters(other.amqp_url))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            stranger.channel().queue_declare("only-here", passive=True)
        stranger.close()
        connection.close()


@pytest.mark.parametrize("process", [False, True])
def test_it_is_gone_after_the_block_even_when_the_block_fails(process: bool) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), jumpmq.running(process=process) as broker:
        assert message_count(broker, "orders") == 0
        raise ZeroDivisionError
    assert not multiprocessing.active_children()
    assert not [one for one in set(threading.enumerate()) - before if one.name.startswith("jumpmq")]
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_that_cannot_start_says_why(process: bool) -> None:
    with (
        jumpmq.running() as broker,
        pytest.raises(jumpmq.BrokerError, match=str(broker.port)),
        jumpmq.running(port=broker.port, process=process),
    ):
        pass


def test_a_process_that_is_killed_takes_no_program_with_it() -> None:
    with jumpmq.running(process=True) as broker:
        (child,) = multiprocessing.active_children()
        child.kill()
        child.join()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


def test_an_unknown_name_in_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Boker'"):
        jumpmq.Boker  # noqa: B018
