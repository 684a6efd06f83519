"""Brokers as processes: killed, restarted, and deleted at the end."""

import re
from pathlib import Path

import pytest
from tests.waiting import until

from jumpmq.testing import HOST, BrokerError, Installation, JumpMQ, RabbitMQ, children, listening

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.slow
def test_the_program_of_the_page() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(programs[0], PAGE.name, "exec"), {})


def test_nothing_is_left_at_the_end() -> None:
    with JumpMQ() as broker:
        assert listening(broker.port)
        directory, port = broker.directory, broker.port
        assert directory.exists()
    assert not directory.exists()
    assert not listening(port)


def test_why_a_broker_does_not_start_is_told() -> None:
    with (
        pytest.raises(BrokerError, match=r"JumpMQ ended at its start:\n(.|\n)*no-such-option"),
        JumpMQ(arguments=["--no-such-option"]),
    ):
        pass


def test_an_empty_folder_has_no_rabbitmq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Installation.at(tmp_path) is None
    monkeypatch.setenv("JUMPMQ_RABBITMQ", str(tmp_path))
    assert Installation.all() == []
    assert not RabbitMQ.available()
    with pytest.raises(BrokerError, match="not installed"):
        RabbitMQ()


def test_a_rabbitmq_says_its_version(rabbitmq: RabbitMQ) -> None:
    assert rabbitmq.ctl("version").strip() == rabbitmq.installation.number
    assert listening(rabbitmq.http_port), HOST


def test_ports_are_those_of_the_line_that_says_that_it_is_ready() -> None:
    broker = JumpMQ()
    broker.log.write_text("WARNING etcd at http://127.0.0.1:1: the connection broke; it is asked again\n")
    assert not broker._find_ports()
    with broker.log.open("a") as log:
        log.write("JumpMQ n@h is ready at amqp://127.0.0.1:2 and http://127.0.0.1:3, data in memory\n")
    assert broker._find_ports()
    assert (broker.port, broker.http_port) == (2, 3)
    broker.close()


def test_one_of_several_processes_can_be_killed_alone() -> None:
    with JumpMQ(arguments=("--workers", "2")) as broker:
        workers = children(broker.pid)
        assert len(workers) == 2
        broker.kill(alone=True)
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        broker.start()
        assert listening(broker.port)
