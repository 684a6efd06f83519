#!/usr/bin/env python3
"""Firefox as started by playwright, with a substitute for a command of WebDriver BiDi.

playwright sets the colour scheme of every window by `emulation.setMediaFeaturesOverride`, unknown to Debian's Firefox.
Run as a program with Firefox's arguments, this file starts Firefox (``JUMPMQ_FIREFOX``) and relays playwright's
commands, with `session.status` in place of that command.
"""

import asyncio
import contextlib
import json
import os
import re
import sys

UNKNOWN = b'"emulation.setMediaFeaturesOverride"'


async def main() -> int:
    firefox = await asyncio.create_subprocess_exec(
        os.environ["JUMPMQ_FIREFOX"], *sys.argv[1:], stderr=asyncio.subprocess.PIPE
    )
    assert firefox.stderr is not None
    while line := await firefox.stderr.readline():
        if found := re.match(rb"(WebDriver BiDi listening on ws://127.0.0.1:)(\d+)(.*)", line, re.DOTALL):
            target = int(found[2])
            server = await asyncio.start_server(lambda *ends, port=target: relay(port, *ends), "127.0.0.1", 0)
            line = found[1] + b"%d" % server.sockets[0].getsockname()[1] + found[3]
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    return await firefox.wait()


async def relay(port: int, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
    """Relay a WebSocket connection, from the opening request on."""
    replies, firefox = await asyncio.open_connection("127.0.0.1", port)
    request = await client.readuntil(b"\r\n\r\n")
    request = re.sub(rb"(?i)\r\nSec-WebSocket-Extensions:[^\r]*", b"", request)  # disables compression
    firefox.write(re.sub(rb"(?i)\r\nHost:[^\r]*", b"\r\nHost: 127.0.0.1:%d" % port, request))
    back = asyncio.create_task(copy(replies, answers))
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head, mask, octets = await frame(client)
            if UNKNOWN in octets:
                octets = json.dumps({"id": json.loads(octets)["id"], "method": "session.status", "params": {}}).encode()
            firefox.write(head + sized(len(octets)) + mask + masked(octets, mask))
            await firefox.drain()
    firefox.close()
    await back


async def frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    """First octet, mask and payload of a frame from a client."""
    head, size = await reader.readexactly(1), (await reader.readexactly(1))[0] & 127
    if size > 125:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
    mask = await reader.readexactly(4)
    return head, mask, masked(await reader.readexactly(size), mask)


def sized(length: int) -> bytes:
    """The length of a masked payload in a frame."""
    if length < 126:
        return bytes([128 | length])
    return b"\xfe" + length.to_bytes(2) if length < 65536 else b"\xff" + length.to_bytes(8)


def masked(octets: bytes, mask: bytes) -> bytes:
    length = len(octets)
    key = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(octets) ^ int.from_bytes(key)).to_bytes(length)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while octets := await reader.read(65536):
            writer.write(octets)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
