"""`jumpmq check` and `jumpmq salvage`: a damaged data directory is reported, and its readable part serves again."""

import shutil
import signal
from pathlib import Path

import pytest
from tests.cli.commands import run, serving
from tests.cli.orders import bodies, publish
from tests.wire import Basic, login

from jumpmq.testing import JumpMQ


def test_what_is_damaged_is_named_and_the_rest_can_be_taken_elsewhere(tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with serving(data) as broker:
        publish(broker.amqp_url, 50)
        refused = run("jumpmq", "check", data)
        assert refused.returncode == 1 and "in use by another broker" in refused.stderr
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait()
    whole = run("jumpmq", "check", data)
    assert (whole.returncode, whole.stdout) == (0, f"{data} has no problems\n")
    (path,) = (data / "log").glob("*.log")
    octets = bytearray(path.read_bytes())
    octets[octets.index(b"orders\x10\x00\x0231") + 1] ^= 1
    path.write_bytes(octets)
    damaged = run("jumpmq", "check", data)
    assert damaged.returncode == 1
    assert "1 message from number 32 on of queue 'orders' in vhost '/'" in damaged.stdout
    served = tmp_path / "served"
    shutil.copytree(data, served)
    with (tmp_path / "log").open("w") as log, serving(served, stderr=log) as broker:
        assert len(bodies(broker.amqp_url)) == 49
    (warning,) = [line for line in (tmp_path / "log").read_text().splitlines() if "ERROR" in line]
    assert f"{served / 'log' / path.name} is damaged" in warning
    assert "messages 32 to 32 of queue 'orders' in vhost '/'" in warning
    taken = run("jumpmq", "salvage", data, "--to", saved)
    assert taken.returncode == 0
    assert "queue 'orders'" in taken.stderr + taken.stdout
    assert "49 messages" in taken.stdout.splitlines()[-1]
    with serving(saved) as broker:
        assert bodies(broker.amqp_url) == [b"%d" % number for number in range(50) if number != 31]


def test_a_directory_that_holds_no_data(tmp_path: Path) -> None:
    refused = run("jumpmq", "salvage", tmp_path, "--to", tmp_path / "saved")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is no data directory" in refused.stderr


@pytest.mark.slow
def test_streams_are_checked_and_taken_along(tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with JumpMQ(data) as broker:
        channel = login(broker.port).channel()
        stream = {"x-queue-type": "stream"}
        channel.queue("events", durable=True, exclusive=False, arguments=stream)
        channel.confirm_select()
        for number in range(50):
            channel.publish("", "events", b"body %d" % number)
            channel.wait_for_confirms()
        broker.stop()
    (path,) = (data / "streams").glob("*/*.segment")
    whole = path.read_bytes()
    assert run("jumpmq", "check", data).returncode == 0
    path.write_bytes(whole.replace(b"body 31", b"body 3!"))
    damaged = run("jumpmq", "check", data)
    assert damaged.returncode == 1
    assert "offsets 31 to 31 are lost of queue 'events' in vhost '/'" in damaged.stdout
    taken = run("jumpmq", "salvage", data, "--to", saved)
    assert taken.returncode == 0
    assert ", 1 stream and 0 messages" in taken.stdout.splitlines()[-1]
    with JumpMQ(saved) as broker:
        channel = login(broker.port).channel()
        channel.call(Basic.Qos(prefetch_count=50))
        channel.consume("events", arguments={"x-stream-offset": "first"})
        found = [message.body for message in channel.take(49)]
        assert found == [b"body %d" % number for number in range(50) if number != 31]
