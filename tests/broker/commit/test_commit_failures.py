"""A stalled commit is reported, and ends the broker unless the disk is the reason."""

import re
import time
from pathlib import Path

import pytest
import requests
from tests.broker.commit.failing import ENDED_AFTER, FORGETS, Faulty, publish
from tests.waiting import until
from tests.wire import login

RAISES = """
from jumpmq.store.stream_log import StreamLog
lay_out = StreamLog.lay_out
def fail(log, messages):
    if faulty():
        raise ValueError("a defect")
    return lay_out(log, messages)
StreamLog.lay_out = fail
"""


HANGS = """
from jumpmq.store import writer
from jumpmq.store.files import Files
writer.CompiledWorker = lambda wake, tell: writer.worker.Worker(wake, Files(), tell)
sync = Files.sync
def hang(files, file):
    while faulty():
        time.sleep(0.01)
    sync(files, file)
Files.sync = hang
"""


WITHHOLDS = """
import threading
from jumpmq.store import store
class Withheld(store.Completion):
    def stored(self, number, position):
        if faulty():
            threading.Thread(target=self.complete_later, args=(number, position)).start()
        else:
            super().stored(number, position)
    def complete_later(self, number, position):
        while faulty():
            time.sleep(0.01)
        super().stored(number, position)
        self._wake()
store.Completion = Withheld
"""


COPIED = """
from jumpmq.store import Store
watchdog.HUNG_AFTER = 0.5
_, told = os.pipe2(os.O_NONBLOCK)
open_store = Store.open.__func__
Store.open = classmethod(lambda cls, directory, **given: open_store(cls, directory, tell=told, **given))
"""


def start_again(broker: Faulty) -> None:
    """Start the broker without the defect; confirmed messages are there."""
    broker.fault.unlink()
    broker.kill()
    broker.start()
    assert login(broker.port).channel().bodies("classic") == [b"before"]
    assert login(broker.port).channel().ready("stream") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "queue"), [(RAISES, "stream"), (FORGETS, "classic")], ids=["raises", "forgets"])
def test_a_commit_that_cannot_go_on_ends_the_broker(tmp_path: Path, fault: str, queue: str) -> None:
    with Faulty(tmp_path, fault) as broker:
        for name in ("stream", "classic"):
            publish(broker, name, b"before")
        broker.fault.touch()
        publish(broker, queue, b"after", confirmed=False)
        if fault is FORGETS:
            assert "the disk is not the reason" in until(lambda: broker.check("virtual-hosts")[1])
            assert broker.check("local-alarms")[0] in (503, 0)
        assert until(lambda: broker.ended) == 1
        assert "the broker ends, to start again from its log" in broker.log.read_text()
        start_again(broker)


@pytest.mark.slow
def test_a_disk_that_does_not_answer_ends_a_home_with_copies(tmp_path: Path) -> None:
    """A hanging disk ends the process of a home with copies, so that another copy continues."""
    with Faulty(tmp_path, HANGS + COPIED) as broker:
        for name in ("stream", "classic"):
            publish(broker, name, b"before")
        broker.fault.touch()
        publish(broker, "other", b"after", confirmed=False)
        publish(broker, "classic", b"after", confirmed=False)
        assert until(lambda: broker.ended) == 1
        assert re.search("the disk has not answered for .* s: the broker ends, for a copy to", broker.log.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "who"), [(HANGS, "the disk has"), (WITHHOLDS, "the copies have")])
def test_a_disk_that_does_not_answer_is_reported_and_waited_for(tmp_path: Path, fault: str, who: str) -> None:
    with Faulty(tmp_path, fault) as broker:
        for name in ("stream", "classic"):
            publish(broker, name, b"before")
        broker.fault.touch()
        publish(broker, "other", b"after", confirmed=False)
        publish(broker, "classic", b"after", confirmed=False)
        assert f"{who} not answered yet" in until(lambda: broker.check("virtual-hosts")[1])
        address = f"http://guest:guest@127.0.0.1:{broker.http_port}/api/queues/%2F/new"
        refused = requests.put(address, json={"durable": True}, timeout=20)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert f"{who} not answered yet; it may be done all the same" in refused.json()["reason"]
        time.sleep(ENDED_AFTER + 0.5)
        metrics = requests.get(f"http://127.0.0.1:{broker.http_port}/metrics", auth=("guest", "guest"), timeout=5).text
        (waiting,) = re.findall(r"^jumpmq_commit_waiting_seconds (.*)$", metrics, re.MULTILINE)
        assert float(waiting) > ENDED_AFTER
        broker.fault.unlink()
        until(lambda: broker.check("virtual-hosts")[0] == 200)
        assert requests.get(address, timeout=20).status_code == 200
        assert login(broker.port).channel().bodies("classic") == [b"before", b"after"]
