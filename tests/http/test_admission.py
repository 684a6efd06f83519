"""Pipelined requests on many connections: other addresses and new connections come first.

A client that does not read gets no further answers.
"""

import asyncio
import gc
import socket
from collections import Counter

import requests
from tests.waiting import until

from jumpmq import RunningBroker
from jumpmq.http.admission import AT_ONCE, Admission
from jumpmq.http.places import REPLACED, Places
from jumpmq.http.protocol import BoundedProtocol

REQUEST = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"


class Client:
    """Sends the next request after every answer, a given number of times."""

    def __init__(self, admission: Admission, address: str, count: int, answered: list[str]) -> None:
        self._admission, self._address = admission, address
        self._left, self._answered = count, answered

    def ask(self, is_new: bool = True) -> None:
        self._admission.ask(self, self._address, is_new)

    def begin(self) -> bool:
        self._answered.append(self._address)
        self._left -= 1
        if self._left:
            asyncio.get_running_loop().call_soon(self.ask, False)
        return True


async def _flooded(admission: Admission, clients: int, requests_each: int) -> list[str]:
    answered: list[str] = []
    for _ in range(clients):
        Client(admission, "flood", requests_each, answered).ask()
    return answered


async def _one_turn() -> None:
    await asyncio.sleep(0)


def test_a_few_requests_begin_in_a_turn() -> None:
    async def test() -> None:
        answered = await _flooded(Admission(), 100, 10)
        for turn in range(1, 20):
            assert len(answered) <= AT_ONCE * turn
            await _one_turn()
        while len(answered) < 1000:
            await _one_turn()

    asyncio.run(test())


def test_another_address_is_served_in_the_next_turn() -> None:
    async def test() -> None:
        admission = Admission()
        answered = await _flooded(admission, 1000, 200)
        await _one_turn()
        Client(admission, "other", 1, answered).ask()
        await _one_turn()
        await _one_turn()
        assert "other" in answered
        assert len(answered) <= 4 * AT_ONCE

    asyncio.run(test())


def test_of_one_address_a_new_connection_comes_first() -> None:
    async def test() -> None:
        admission = Admission()
        answered = await _flooded(admission, 20, 1000)
        while len(answered) < 40:  # all clients were answered, and sent the next request
            await _one_turn()
        names: list[str] = []
        newcomer = Client(admission, "flood", 1, names)
        newcomer.ask()
        for _ in range(3):
            await _one_turn()
        assert names == ["flood"]

    asyncio.run(test())


def test_an_address_that_has_most_places_replaces_only_so_many_a_second() -> None:
    places = Places[int]()
    for number in range(10):
        places.enter(number, "flood")
    places.enter(10, "other")
    assert places.admits("other", 11) and places.admits("third", 11)
    admitted = Counter(places.admits("flood", 11) for _ in range(3 * REPLACED))
    assert REPLACED <= admitted[True] <= 2 * REPLACED  # the second may end meanwhile
    assert places.admits("flood", 12)  # there is room
    places.leave(10, "other")
    places.leave(10, "other")
    assert len(places) == 10 and places.of_most() == list(range(10))


def test_a_client_that_does_not_read_is_not_answered_on(broker: RunningBroker) -> None:
    size = len(requests.get(f"{broker.http_url}/api/openapi.json").content)
    count = 16_000_000 // size
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.settimeout(60)
        client.connect(("127.0.0.1", broker.http_port))
        client.sendall(REQUEST * count)
        until(lambda: [one for one in _protocols() if one._asks and one.flow.write_paused])
        assert requests.get(f"{broker.http_url}/api/whoami").json()["name"] == "guest"
        answers, octets = 0, bytes(20)
        while answers < count:
            octets = octets[-20:] + client.recv(1 << 16)
            answers += octets.count(b"HTTP/1.1 200 OK\r\n") - octets[:20].count(b"HTTP/1.1 200 OK\r\n")


def _protocols() -> list[BoundedProtocol]:
    return [one for one in gc.get_objects() if type(one) is BoundedProtocol]
