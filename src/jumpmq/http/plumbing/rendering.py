"""Rendering of messages as JSON, one at a time, within the memory for all answers.

A header table takes twenty times as much as Python objects as it does on the wire, and tens of milliseconds to be read
and written. So each message becomes text at once, long tables in a thread, and all octets count.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.messages import Message
from jumpmq.http.plumbing.answers import EncodedJSON, written
from jumpmq.http.plumbing.message_json import shown_message
from jumpmq.queues.memory import MemoryAccount

MAX_OCTETS = 16 << 20
"""Octets of JSON after which an answer gets no more messages, as the answer is held in memory."""

SHARE = 8
"""Divisor of the memory limit for all answers together; beyond, an answer has a single message."""

LONG = 4096
"""Octets of properties from which on a message is rendered in a thread (measured: 0.5 us an octet)."""

_thread = ThreadPoolExecutor(1, thread_name_prefix="rendering")  # one at a time: several would take turns with the loop


class Rendered:
    """Messages of an answer, collected in a ``with`` block that releases the messages on failure.

    Attributes:
        texts: the messages, in order.
    """

    def __init__(self, memory: MemoryAccount, encoding: str, truncate: int | None) -> None:
        self.texts: list[EncodedJSON] = []
        self._memory = memory
        self._encoding, self._truncate = encoding, truncate
        self._octets = 0

    @property
    def room(self) -> int:
        """Octets that can be added; 0 or less if full."""
        everyone = self._memory.limit // SHARE - self._memory.by_kind["answers"]
        return min(MAX_OCTETS - self._octets, everyone)

    @property
    def is_full(self) -> bool:
        """True if no further message is to be added; the first is always allowed."""
        return bool(self.texts) and self.room <= 0

    async def add(self, message: Message, body: bytes, **more: Any) -> None:
        """Render a message.

        Args:
            body: the message's, which may be paged meanwhile.
            more: further members of the object; written first.
        """
        if len(message.properties) < LONG:
            text = self._text(message, body, more)
        else:
            text = await asyncio.get_running_loop().run_in_executor(_thread, self._text, message, body, more)
        self.texts.append(text)
        self._octets += len(text)
        self._memory.charge("answers", len(text))

    def _text(self, message: Message, body: bytes, more: dict[str, Any]) -> EncodedJSON:
        return written(more | shown_message(message, body, self._encoding, self._truncate))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.release()

    def sent_by(self, response: Response) -> Response:
        """Return the response, changed to release the messages at the end."""
        return _Releasing(response, self)

    def release(self) -> None:
        """The answer is written, or given up."""
        self._memory.charge("answers", -self._octets)
        self._octets = 0
        self.texts.clear()


class _Releasing(Response):
    """Answers, and then releases the messages."""

    def __init__(self, response: Response, messages: Rendered) -> None:
        self._response, self._messages = response, messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._messages.release()
