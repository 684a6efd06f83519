"""What one process sends another on the link between them."""

import asyncio

import pytest
from tests.nodes.homes import homes, in_loop, peers_of, until

from jumpmq.nodes.transport.link import JOINED, Link


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
    """What it were delivered would not be told by the mark of a clean stop."""
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
