"""Compression of JSON answers for clients that accept gzip, as in RabbitMQ."""

from __future__ import annotations

import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALLEST = 1000
"""Minimum size of a compressed body, in octets."""

LEVEL = 1
"""Level of zlib: the fastest level shrinks lists of queues 20 times, and runs on the event loop."""

_GZIP = 16 + zlib.MAX_WBITS


class Compressed:
    """Compresses longer answers of ``application/json``; Arrow streams stay uncompressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = Headers(scope=scope).get("accept-encoding", "")
        if scope["method"] == "HEAD" or "gzip" not in accepted or "gzip;q=0" in accepted.replace(" ", ""):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Compressing(send))


class _Compressing:
    """Sends an answer: the head is held back until the size of the body decides on compression."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None  # the head of the answer, not sent yet
        self._packer: zlib._Compress | None = None  # None for an uncompressed body

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None:
            await self._begin(self._head, more or len(body) >= SMALLEST)
            self._head = None
        if self._packer is not None and message["type"] == "http.response.body":
            body = self._packer.compress(body) + (b"" if more else self._packer.flush())
            message = {**message, "body": body}
        await self._send(message)

    async def _begin(self, head: Message, is_long: bool) -> None:
        headers = MutableHeaders(raw=list(head["headers"]))
        if headers.get("content-type", "").startswith("application/json") and "content-encoding" not in headers:
            headers.add_vary_header("Accept-Encoding")
            if is_long:
                self._packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
                headers["Content-Encoding"] = "gzip"
                del headers["content-length"]
        await self._send({**head, "headers": headers.raw})
