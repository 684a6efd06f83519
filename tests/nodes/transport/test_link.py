"""Records on the link between two processes."""

import asyncio

import pytest
from tests.nodes.homes import homes, in_loop, peers_of, until

from jumpmq.nodes.transport.link import JOINED, Link
from jumpmq.nodes.transport.records import UNIT


@in_loop
async def test_parts_that_follow_each_other_are_one_record_and_nothing_passes_them() -> None:
    async with homes(2, durable=False) as (first, second):
        found: list[tuple[int, bytes]] = []
        for kind in (200, 201, 202):
            peers_of(second).links.handlers[kind] = lambda link, payload, kind=kind: found.append(  # type: ignore[misc]
                (kind, bytes(payload))
            )
        await until(lambda: peers_of(first).links.to(2))
        link = peers_of(first).links.to(2)
        assert link is not None
        large = b"7" * (JOINED // 2)
        with first.turns.turn():
            for kind, text in ((200, b"1"), (200, b"2"), (202, b"3"), (200, b"4")):
                link.send_part(kind, text)
            link.send(201, b"x", b"y")
            for text in (b"5", large, large, b"6"):
                link.send_part(200, text)
        expected = [(200, b"[1,2]"), (202, b"[3]"), (200, b"[4]"), (201, b"xy"), (200, b"[5,%b,%b]" % (large, large))]
        await until(lambda: len(found) == 6)
        assert found == [*expected, (200, b"[6]")]


@in_loop
async def test_a_link_that_proves_itself_after_the_stop_does_not_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link proved after the stop does not come up: the record of a clean stop would not cover its deliveries."""
    made, held = Link.connection_made, list[Link]()

    def connection_made(link: Link, transport: asyncio.Transport) -> None:
        made(link, transport)
        if not link._connects:
            transport.pause_reading()
            held.append(link)

    async with homes(2, durable=False) as (first, _):
        links = peers_of(first).links
        await until(lambda: links.homes)
        monkeypatch.setattr(Link, "connection_made", connection_made)
        links.to(2).close()  # type: ignore[union-attr]
        await until(lambda: held)
        await links.stop()
        held[0]._transport.resume_reading()
        await asyncio.wait_for(held[0].decided.wait(), 10)
        assert not links.homes


@in_loop
async def test_records_of_a_later_release_are_passed_over_and_the_link_stays(caplog: pytest.LogCaptureFixture) -> None:
    async with homes(2, durable=False) as (first, second):
        found: list[bytes] = []
        peers_of(second).links.handlers[200] = lambda link, payload: found.append(bytes(payload))
        await until(lambda: peers_of(first).links.to(2) and peers_of(second).links.to(1))
        link, end = peers_of(first).links.to(2), peers_of(second).links.to(1)
        assert link is not None and end is not None
        with first.turns.turn():
            for kind, payload in ((250, b"what"), (200, b"1"), (250, b"more"), (200, b"2")):
                link.send(kind, payload)
        await until(lambda: found == [b"1", b"2"])
        assert end.up and peers_of(second).links.to(1) is end
        assert end.passed_over == {250: 2}
        (line,) = [text for text in caplog.messages if "250" in text]
        assert line == "home 1 sends records of kind 250, unknown to this release: they are passed over"


@in_loop
async def test_both_ends_of_a_link_know_which_records_the_other_end_knows() -> None:
    async with homes(2, durable=False) as (first, second):
        await until(lambda: peers_of(first).links.to(2) and peers_of(second).links.to(1))
        for one, home in ((first, 2), (second, 1)):
            link = peers_of(one).links.to(home)
            assert link is not None and link.knows(UNIT) and not link.knows(250)
